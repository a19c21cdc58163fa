//! `oncewire flows`: the open flows of a gateway.

use oncewire_report::{FlowReport, FlowsReport};

use super::ask;
use crate::cli::Ask;
use crate::table::{Align, Table, age, bytes, unknown};

/// Asks a gateway and prints its answer.
pub(super) fn run(args: &Ask) -> anyhow::Result<()> {
    let answer = ask::ask::<FlowsReport>(args, "/flows")?;
    if args.json {
        return super::print(format!("{}\n", answer.text.trim_end()));
    }
    super::print(render(&answer.report))
}

fn render(report: &FlowsReport) -> String {
    if report.flows.is_empty() {
        return "no flows are open\n".to_owned();
    }
    let mut table = Table::new(&[
        ("DESTINATION", Align::Left),
        ("SOURCE", Align::Left),
        ("PEER", Align::Left),
        ("OPENED", Align::Left),
        ("OUTCOME", Align::Left),
        ("REASON", Align::Left),
        ("PRIORITY", Align::Left),
        ("EFFORT", Align::Left),
        ("AGE", Align::Right),
        ("SENT", Align::Right),
        ("RECEIVED", Align::Right),
    ]);
    for flow in &report.flows {
        let outcome = if flow.waiting { "waiting" } else { flow.outcome.name() };
        table.row([
            flow.destination.clone(),
            flow.source.clone().unwrap_or_else(unknown),
            flow.peer.clone().unwrap_or_else(unknown),
            if flow.opened_here { "here" } else { "there" }.to_owned(),
            outcome.to_owned(),
            reason(flow),
            flow.priority.clone().unwrap_or_else(unknown),
            effort(flow),
            age(flow.age_s),
            bytes(flow.sent),
            bytes(flow.received),
        ]);
    }
    match report.left_out {
        0 => table.render(),
        more => format!("{}and {more} more\n", table.render()),
    }
}

/// Returns the reason for not coding a flow, and its start in the stream unless this is the first byte.
fn reason(flow: &FlowReport) -> String {
    match (flow.reason, flow.begins_after) {
        (None, _) => unknown(),
        (Some(reason), Some(after @ 1..)) => format!("{reason} after {}", bytes(after)),
        (Some(reason), _) => reason.to_string(),
    }
}

/// Returns the entropy stage of new bytes, and the reason for any but the configured one.
fn effort(flow: &FlowReport) -> String {
    match (&flow.entropy, flow.effort.as_deref()) {
        (entropy, None | Some("configured" | "off")) => entropy.clone().unwrap_or_else(unknown),
        (entropy, Some(why)) => {
            format!("{} ({})", entropy.as_deref().unwrap_or("not coded"), why.replace('_', " "))
        }
    }
}

#[cfg(test)]
mod tests {
    use oncewire_report::{Outcome, Reason};

    use super::*;

    #[test]
    fn table_shows_destination_and_state_of_flows() {
        let ssh = FlowReport {
            id: None,
            peer: Some("hub".to_owned()),
            destination: "10.0.0.5:22".to_owned(),
            source: None,
            opened_here: true,
            outcome: Outcome::Uncoded,
            reason: Some(Reason::Ssh),
            begins_after: Some(0),
            priority: Some("interactive".to_owned()),
            entropy: None,
            effort: Some("configured".to_owned()),
            age_s: 75.0,
            sent: 4096,
            received: 10,
            wire_sent: Some(4100),
            wire_received: Some(30),
            unacked: 0,
            waiting: false,
        };
        let direct = FlowReport {
            peer: None,
            outcome: Outcome::Direct,
            reason: Some(Reason::Policy),
            priority: None,
            effort: None,
            ..ssh.clone()
        };
        let later = FlowReport { reason: Some(Reason::Tls), begins_after: Some(2048), ..ssh.clone() };
        let expected = "\
DESTINATION   SOURCE  PEER  OPENED  OUTCOME  REASON           PRIORITY     EFFORT                      AGE   SENT  RECEIVED
10.0.0.5:22   -       hub   here    uncoded  ssh              interactive  -                    1 min 15 s  4 KiB      10 B
10.0.0.5:22   -       hub   here    uncoded  tls after 2 KiB  interactive  -                    1 min 15 s  4 KiB      10 B
10.0.0.5:22   -       -     here    direct   policy           -            -                    1 min 15 s  4 KiB      10 B
10.0.0.5:445  -       hub   here    coded    -                bulk         lz4 (encoder bound)  1 min 15 s  4 KiB      10 B
and 3 more
";
        let share = FlowReport {
            destination: "10.0.0.5:445".to_owned(),
            outcome: Outcome::Coded,
            reason: None,
            begins_after: None,
            priority: Some("bulk".to_owned()),
            entropy: Some("lz4".to_owned()),
            effort: Some("encoder_bound".to_owned()),
            ..ssh.clone()
        };
        assert_eq!(render(&FlowsReport { flows: vec![ssh, later, direct, share], left_out: 3 }), expected);
        assert_eq!(render(&FlowsReport::default()), "no flows are open\n");
    }
}
