//! The open flows.

use serde::{Deserialize, Serialize};

use super::not_coded::{Outcome, Reason};

/// The output of `oncewire flows --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsReport {
    /// Open flows, the oldest first, at most [`FlowsReport::MOST`].
    pub flows: Vec<FlowReport>,
    /// Open flows missing in the list.
    pub left_out: u64,
}

/// One open flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its name, the same at both ends: 32 hexadecimal digits. Null for a flow without a link.
    pub id: Option<String>,
    /// The peer's name; null for a flow without a link.
    pub peer: Option<String>,
    /// Its destination, as named by the application.
    pub destination: String,
    /// The application's address, if known.
    pub source: Option<String>,
    /// Whether this gateway took it in.
    pub opened_here: bool,
    /// Its outcome.
    pub outcome: Outcome,
    /// Why it is not coded; null if it is.
    pub reason: Option<Reason>,
    /// For a cipher, how many bytes of its direction came before it; null for any other flow.
    #[serde(default)]
    pub begins_after: Option<u64>,
    /// Present urgency of its sent direction: `interactive`, `normal` or `bulk`. Null for a flow without a
    /// link.
    #[serde(default)]
    pub priority: Option<String>,
    /// Present entropy stage for new content in its sent direction; null if uncoded.
    #[serde(default)]
    pub entropy: Option<String>,
    /// Reason for that stage, as in `plan` of a peer. Null for a flow without a link.
    #[serde(default)]
    pub effort: Option<String>,
    /// Seconds since it was opened.
    pub age_s: f64,
    /// Bytes from our application.
    pub sent: u64,
    /// Bytes to our application.
    pub received: u64,
    /// Bytes of its sent frames; null for a flow without a link.
    #[serde(default)]
    pub wire_sent: Option<u64>,
    /// Bytes of its received frames; null for a flow without a link.
    #[serde(default)]
    pub wire_received: Option<u64>,
    /// Unacknowledged blocks and messages.
    pub unacked: u64,
    /// Whether it waits for a lane.
    pub waiting: bool,
}

impl FlowsReport {
    /// The most listed flows.
    pub const MOST: usize = 10_000;

    /// Builds the report from all open flows: the oldest come first, and flows beyond the bound are only
    /// counted.
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
    fn flow_json_has_outcome_and_reason() {
        let json = serde_json::to_value(flow(1.5)).unwrap();
        assert_eq!((&json["outcome"], &json["reason"]), (&"uncoded".into(), &"policy".into()));
        assert_eq!(serde_json::from_value::<FlowReport>(json).unwrap(), flow(1.5));
    }
}
