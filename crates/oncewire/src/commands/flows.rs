//! `oncewire flows`: the flows that are open in a gateway.

use oncewire_gateway::telemetry::{FlowReport, FlowsReport};

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

/// Says why a flow is not coded, and where in its stream that began unless it was at the first byte.
fn reason(flow: &FlowReport) -> String {
    match (flow.reason, flow.begins_after) {
        (None, _) => unknown(),
        (Some(reason), Some(after @ 1..)) => format!("{reason} after {}", bytes(after)),
        (Some(reason), _) => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use oncewire_gateway::telemetry::{Outcome, Reason};

    use super::*;

    #[test]
    fn people_see_where_a_flow_goes_and_what_becomes_of_it() {
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
            age_s: 75.0,
            sent: 4096,
            received: 10,
            unacked: 0,
            waiting: false,
        };
        let direct = FlowReport {
            peer: None,
            outcome: Outcome::Direct,
            reason: Some(Reason::Policy),
            priority: None,
            ..ssh.clone()
        };
        let later = FlowReport { reason: Some(Reason::Tls), begins_after: Some(2048), ..ssh.clone() };
        let expected = "\
DESTINATION  SOURCE  PEER  OPENED  OUTCOME  REASON           PRIORITY            AGE   SENT  RECEIVED
10.0.0.5:22  -       hub   here    uncoded  ssh              interactive  1 min 15 s  4 KiB      10 B
10.0.0.5:22  -       hub   here    uncoded  tls after 2 KiB  interactive  1 min 15 s  4 KiB      10 B
10.0.0.5:22  -       -     here    direct   policy           -            1 min 15 s  4 KiB      10 B
and 3 more
";
        assert_eq!(render(&FlowsReport { flows: vec![ssh, later, direct], left_out: 3 }), expected);
        assert_eq!(render(&FlowsReport::default()), "no flows are open\n");
    }
}
