//! The flows that are open now.

use serde::{Deserialize, Serialize};

use super::not_coded::{Outcome, Reason};

/// Everything that `oncewire flows --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsReport {
    /// Open flows, the oldest first, at most [`FlowsReport::MOST`].
    pub flows: Vec<FlowReport>,
    /// Open flows that are left out of the list.
    pub left_out: u64,
}

/// One open flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its name, the same at both ends: 32 hexadecimal digits. Null for a flow that is on no link.
    pub id: Option<String>,
    /// The peer's name; null for a flow that is on no link.
    pub peer: Option<String>,
    /// Where it goes, as the application named it.
    pub destination: String,
    /// The application's address, where known.
    pub source: Option<String>,
    /// Whether this gateway took it in.
    pub opened_here: bool,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why it is not coded; null if it is.
    pub reason: Option<Reason>,
    /// For a cipher, how many bytes of its direction came before it; null for any other flow.
    #[serde(default)]
    pub begins_after: Option<u64>,
    /// How urgent what this gateway sends on it is now: `interactive`, `normal` or `bulk`. Null for a flow that is on no
    /// link.
    #[serde(default)]
    pub priority: Option<String>,
    /// The entropy stage of what is new in what this gateway sends on it now; null where that is not coded.
    #[serde(default)]
    pub entropy: Option<String>,
    /// Why it is that stage: a reason as in `plan` of a peer. Null for a flow that is on no link.
    #[serde(default)]
    pub effort: Option<String>,
    /// Seconds since it was opened.
    pub age_s: f64,
    /// Bytes that our application sent.
    pub sent: u64,
    /// Bytes that our application was given.
    pub received: u64,
    /// Bytes of frames that were sent for it; null for a flow that is on no link.
    #[serde(default)]
    pub wire_sent: Option<u64>,
    /// Bytes of frames that came for it; null for a flow that is on no link.
    #[serde(default)]
    pub wire_received: Option<u64>,
    /// Blocks and messages that are not acknowledged.
    pub unacked: u64,
    /// Whether it waits for a lane.
    pub waiting: bool,
}

impl FlowsReport {
    /// The most flows that are listed.
    pub const MOST: usize = 10_000;

    /// Builds the report from all open flows: the oldest come first, and those beyond the bound are only counted.
    pub fn new(mut flows: Vec<FlowReport>) -> Self {
        flows.sort_by(|a, b| b.age_s.total_cmp(&a.age_s));
        let left_out = flows.len().saturating_sub(Self::MOST) as u64;
        flows.truncate(Self::MOST);
        Self { flows, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(age_s: f64) -> FlowReport {
        FlowReport {
            id: Some("0".repeat(32)),
            peer: Some("hub".to_owned()),
            destination: "10.0.0.5:80".to_owned(),
            source: None,
            opened_here: true,
            outcome: Outcome::Uncoded,
            reason: Some(Reason::Policy),
            begins_after: None,
            priority: Some("normal".to_owned()),
            entropy: None,
            effort: Some("configured".to_owned()),
            age_s,
            sent: 1,
            received: 2,
            wire_sent: Some(3),
            wire_received: Some(4),
            unacked: 0,
            waiting: false,
        }
    }

    #[test]
    fn flows_beyond_the_bound_are_counted() {
        let report = FlowsReport::new((0..FlowsReport::MOST + 5).map(|age| flow(age as f64)).collect());
        assert_eq!((report.flows.len(), report.left_out), (FlowsReport::MOST, 5));
        assert!(report.flows[0].age_s > report.flows[1].age_s);
    }

    #[test]
    fn the_json_of_a_flow_says_outcome_and_reason() {
        let json = serde_json::to_value(flow(1.5)).unwrap();
        assert_eq!((&json["outcome"], &json["reason"]), (&"uncoded".into(), &"policy".into()));
        assert_eq!(serde_json::from_value::<FlowReport>(json).unwrap(), flow(1.5));
    }
}
