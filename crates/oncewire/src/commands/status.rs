//! `oncewire status`: a gateway's links and savings.

use std::fmt::Write as _;

use oncewire_config::units::Rate;
use oncewire_report::{LinkState, NamesIn, PeerReport, PlanReport, StatusReport};

use super::{ask, destinations};
use crate::cli::Status;
use crate::table::{Align, Table, age, bytes, counted, millis, percent, printable, unknown};

/// Asks a gateway and prints its answer.
pub(super) fn run(args: &Status) -> anyhow::Result<()> {
    let answer = ask::ask::<StatusReport>(&args.ask, "/status")?;
    if args.ask.json {
        return super::print(format!("{}\n", answer.text.trim_end()));
    }
    super::print(match args.destinations {
        true => destinations::render(&answer.report.destinations),
        false => render(&answer.report),
    })
}

fn render(status: &StatusReport) -> String {
    let mut text = summary(status);
    let store = status.store.as_ref().map(super::store::render).unwrap_or_default();
    let sections =
        [peers(status), store, groups(status), intercepts(status), not_coded(status), refused(status)];
    for section in sections.iter().filter(|section| !section.is_empty()) {
        let _ = write!(text, "\n{section}");
    }
    text
}

fn summary(status: &StatusReport) -> String {
    let gateway = &status.gateway;
    let memory = gateway.memory_used.map_or_else(unknown, bytes);
    let draining = if gateway.draining { ", draining: no new flows" } else { "" };
    let not_kept = gateway.logs_not_kept.as_deref().map(|why| {
        let since = gateway.logs_not_kept_s.map(|seconds| format!("for {} now, and ", age(seconds)));
        format!("{}{}\n", since.unwrap_or_default(), printable(why))
    });
    let dropped = Some(gateway.log_lines_dropped).filter(|lines| *lines > 0).map(|lines| {
        let lines = counted(lines, "line of its log was", "lines of its log were");
        format!("{lines} dropped: what reads the log does not take them, or there is no room\n")
    });
    let portless = Some(gateway.connects_without_port).filter(|connects| *connects > 0).map(|connects| {
        let connects = counted(connects, "connect", "connects");
        format!("{connects} failed for want of a local port: widen net.ipv4.ip_local_port_range; its log says where to\n")
    });
    let lost = gateway.not_arriving.as_deref().map(|why| format!("{}\n", printable(why))).unwrap_or_default();
    format!(
        "gateway {}, oncewire {}, up {}, memory {memory} of {}{draining}\n{not_kept}{dropped}{portless}{lost}",
        printable(&gateway.name),
        printable(&status.version),
        age(gateway.uptime_s),
        bytes(gateway.memory_limit),
        not_kept = not_kept.unwrap_or_default(),
        dropped = dropped.unwrap_or_default(),
        portless = portless.unwrap_or_default(),
    )
}

fn groups(status: &StatusReport) -> String {
    let mut text = String::new();
    if let Some(told) = &status.discovery {
        let found = counted(told.found, "gateway of this site was", "gateways of this site were");
        let _ = writeln!(text, "{found} found");
    }
    if status.groups.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("NEIGHBOURS", Align::Right),
        ("ASKED", Align::Right),
        ("FOUND", Align::Right),
        ("FAILED", Align::Right),
        ("SERVED", Align::Right),
        ("ANNOUNCED", Align::Right),
    ]);
    for group in &status.groups {
        table.row([
            group.name.clone(),
            group.neighbours.to_string(),
            group.asked.to_string(),
            bytes(group.found_bytes),
            (group.late + group.wrong).to_string(),
            bytes(group.given_bytes),
            group.heard.to_string(),
        ]);
    }
    text + &table.render()
}

fn peers(status: &StatusReport) -> String {
    if status.peers.is_empty() {
        return "no peers are configured\n".to_owned();
    }
    let mut table = Table::new(&[
        ("PEER", Align::Left),
        ("STATE", Align::Left),
        ("ROUND TRIP", Align::Right),
        ("LANES", Align::Right),
        ("FLOWS", Align::Right),
        ("DELIVERED", Align::Right),
        ("WIRE", Align::Right),
        ("SAVINGS", Align::Right),
        ("LOG OUT", Align::Right),
        ("LOG IN", Align::Right),
    ]);
    for peer in &status.peers {
        table.row([
            peer.name.clone(),
            peer.state.name().to_owned(),
            millis(peer.rtt_ms),
            format!("{}+{}", peer.lanes.busy, peer.lanes.spare),
            format!("{} of {}", peer.flows_open, peer.flows_total),
            bytes(peer.delivered),
            bytes(peer.wire),
            percent(peer.savings),
            filled(peer.out.log_used, peer.out.log_capacity),
            filled(peer.inbound.log_used, peer.inbound.log_capacity),
        ]);
    }
    let mut text = table.render();
    for peer in &status.peers {
        remarks(&mut text, peer);
    }
    text
}

/// Writes everything unusual about a peer.
fn remarks(text: &mut String, peer: &PeerReport) {
    let name = printable(&peer.name);
    if let Some(reason) = peer.state_reason.as_ref().filter(|_| peer.state != LinkState::Up) {
        let _ = writeln!(text, "{name} is {}: {}", peer.state.name(), printable(reason));
    }
    if peer.mismatches > 0 {
        let blocks = counted(
            peer.mismatches,
            "block did not match its digest and was",
            "blocks did not match their digest and were",
        );
        let _ = writeln!(text, "{name}: {blocks} fetched again");
    }
    if let Some(remark) = adapted(&peer.out.plan) {
        let _ = writeln!(text, "{name}: {remark}");
    }
    let not_saved = peer.out.not_saved.unwrap_or(0) + peer.inbound.not_saved.unwrap_or(0);
    if not_saved > 0 {
        let _ = writeln!(
            text,
            "{name}: {} of its logs could not be written to disk, so a restart will not find them",
            bytes(not_saved)
        );
    }
    let unused = peer.networks.iter().filter(|network| !network.used);
    for network in unused.take(MOST_NETWORKS) {
        let why = network.reason.as_deref().unwrap_or_default();
        let network = printable(&network.network);
        let _ = writeln!(text, "{name} announces {network}, which is not used: {}", printable(why));
    }
    if let Some(rate) = peer.rate_limit_bits_per_s {
        let _ = writeln!(text, "{name}: sent at most {}", Rate(rate));
    }
    for remark in [named(peer), shed(&peer.inbound.names)].into_iter().flatten() {
        let _ = writeln!(text, "{name}: {remark}");
    }
    if peer.resumes > 0 {
        let times = counted(peer.resumes, "time", "times");
        let _ = writeln!(text, "{name}: {times} a flow lost its lane and went on");
    }
}

/// Returns the names sent in place of bytes, or the reason for none in a plan with names only.
fn named(peer: &PeerReport) -> Option<String> {
    let (out, inbound) = (&peer.out.names, &peer.inbound.names);
    if peer.out.codec.as_deref() == Some("wanax") && !out.store {
        return Some("it has no chunk store, so nothing is named and the entropy stage is all".to_owned());
    }
    (out.chunks + inbound.chunks > 0).then(|| {
        format!(
            "named {} to it, and {} by it; {} were asked for again",
            bytes(out.bytes),
            bytes(inbound.bytes),
            bytes(out.sent_bytes + inbound.requested_bytes),
        )
    })
}

/// Returns the named chunks the store did not give, or not in time, and the cost of requests for them.
fn shed(names: &NamesIn) -> Option<String> {
    let reasons = [
        ("shed", names.shed),
        ("late", names.late),
        ("busy", names.busy),
        ("absent", names.absent),
        ("damaged", names.failed),
    ];
    let mut chunks = Vec::new();
    for (reason, number) in reasons.into_iter().filter(|(_, number)| *number > 0) {
        let number = if chunks.is_empty() { counted(number, "chunk", "chunks") } else { number.to_string() };
        chunks.push(format!("{reason} {number}"));
    }
    let mut path = Vec::new();
    // Until the rate is known nothing is known of the wait either.
    if names.path_bytes_per_s > 0 {
        path.push(format!("path {}", Rate(names.path_bytes_per_s.saturating_mul(8))));
        if names.path_wait_ms > 0 {
            path.push(format!("wait {} ms", names.path_wait_ms));
        }
    }
    if names.pending_bytes > 0 {
        path.push(format!("{} pending", bytes(names.pending_bytes)));
    }
    let something = !chunks.is_empty() || names.pending_bytes > 0;
    let parts = [chunks, path].map(|part| part.join(", "));
    something.then(|| parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "))
}

/// Describes the coding of blocks while it is not as configured.
fn adapted(plan: &PlanReport) -> Option<String> {
    let how = match &plan.entropy {
        Some(entropy) => format!("repeats are found, new bytes have entropy {}", printable(entropy)),
        None => "not coded".to_owned(),
    };
    let (rung, last) = (plan.rung, plan.rungs.saturating_sub(1));
    (rung > 0)
        .then(|| format!("{how} for now, step {rung} of {last} down: {}", plan.reason.replace('_', " ")))
}

fn filled(used: u64, capacity: u64) -> String {
    if capacity == 0 { unknown() } else { percent(Some(used as f64 / capacity as f64)) }
}

fn intercepts(status: &StatusReport) -> String {
    let mut table = Table::new(&[
        ("INTERCEPT", Align::Left),
        ("LISTENS ON", Align::Left),
        ("PEER", Align::Left),
        ("CONNECTIONS", Align::Right),
    ]);
    for intercept in &status.intercepts {
        table.row([
            intercept.mode.clone(),
            intercept.listen.clone(),
            intercept.peer.clone(),
            intercept.connections.to_string(),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render() }
}

fn not_coded(status: &StatusReport) -> String {
    let mut table = Table::new(&[
        ("FLOWS NOT CODED", Align::Left),
        ("PEER", Align::Left),
        ("OUTCOME", Align::Left),
        ("REASON", Align::Left),
        ("COUNT", Align::Right),
        ("BYTES", Align::Right),
    ]);
    for row in status.flows_not_coded.iter().take(MOST_ROWS) {
        table.row([
            row.destination.clone(),
            row.peer.clone().unwrap_or_else(unknown),
            row.outcome.name().to_owned(),
            row.reason.name().to_owned(),
            row.count.to_string(),
            bytes(row.bytes),
        ]);
    }
    let more = status.flows_not_coded.len().saturating_sub(MOST_ROWS);
    match (table.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => table.render(),
        (false, more) => format!("{}and {more} more rows, with --json\n", table.render()),
    }
}

fn refused(status: &StatusReport) -> String {
    let mut table = Table::new(&[("TURNED AWAY", Align::Left), ("COUNT", Align::Right)]);
    for row in status.gateway.refused.iter().filter(|row| row.count > 0) {
        table.row([row.reason.replace('_', " "), row.count.to_string()]);
    }
    if table.is_empty() { String::new() } else { table.render() }
}

/// The most unused announced networks of a peer in a remark.
const MOST_NETWORKS: usize = 5;

/// More than this nobody reads; `--json` has them all.
const MOST_ROWS: usize = 20;

#[cfg(test)]
mod tests {
    use oncewire_report::{
        InterceptReport, NetworkReport, NotCodedTable, Outcome, Reason, Refusal, Refusals,
    };

    use super::*;

    #[test]
    fn people_see_links_savings_and_reasons() {
        let refusals = Refusals::default();
        refusals.count(Refusal::UnknownKey);
        let table = NotCodedTable::default();
        table.count(Some("hub"), &"10.0.0.5:22", Outcome::Uncoded, Reason::Policy).add_bytes(4096);
        let up = PeerReport {
            name: "hub".to_owned(),
            state: LinkState::Up,
            delivered_out: 100 << 20,
            wire_out: 10 << 20,
            rtt_ms: Some(80.0),
            rate_limit_bits_per_s: Some(20_000_000),
            ..PeerReport::default()
        };
        let down = PeerReport {
            name: "ship".to_owned(),
            state_reason: Some("connection refused".to_owned()),
            networks: vec![NetworkReport {
                network: "0.0.0.0/0".to_owned(),
                announced: true,
                used: false,
                reason: Some("accept_networks does not hold it".to_owned()),
            }],
            ..PeerReport::default()
        };
        let mut status = StatusReport { version: "0.1.0".to_owned(), ..StatusReport::default() };
        status.gateway.name = "branch".to_owned();
        status.gateway.refused = refusals.counts();
        status.peers = vec![up.summed(), down.summed()];
        status.intercepts = vec![InterceptReport { mode: "socks5".to_owned(), ..InterceptReport::default() }];
        status.flows_not_coded = table.rows();
        let expected = "\
gateway branch, oncewire 0.1.0, up 0 s, memory - of 0 B

PEER  STATE  ROUND TRIP  LANES   FLOWS  DELIVERED    WIRE  SAVINGS  LOG OUT  LOG IN
hub   up        80.0 ms    0+0  0 of 0    100 MiB  10 MiB   90.0 %        -       -
ship  down            -    0+0  0 of 0        0 B     0 B        -        -       -
hub: sent at most 20 Mbit/s
ship is down: connection refused
ship announces 0.0.0.0/0, which is not used: accept_networks does not hold it

INTERCEPT  LISTENS ON  PEER  CONNECTIONS
socks5                                 0

FLOWS NOT CODED  PEER  OUTCOME  REASON  COUNT  BYTES
10.0.0.5:22      hub   uncoded  policy      1  4 KiB

TURNED AWAY  COUNT
unknown key      1
";
        assert_eq!(render(&status), expected);
    }

    #[test]
    fn unconfigured_plan_is_a_remark() {
        let mut peer = PeerReport { name: "hub".to_owned(), state: LinkState::Up, ..PeerReport::default() };
        let text = |peer: &PeerReport| {
            let mut text = String::new();
            remarks(&mut text, peer);
            text
        };
        assert_eq!(text(&peer), "");
        peer.out.plan =
            PlanReport { rung: 8, rungs: 9, reason: "encoder_bound".to_owned(), ..PlanReport::default() };
        assert_eq!(text(&peer), "hub: not coded for now, step 8 of 8 down: encoder bound\n");
        peer.out.plan = PlanReport {
            matching: Some("max".to_owned()),
            markers: Some("maxp".to_owned()),
            period: Some(128),
            entropy: Some("zstd:1".to_owned()),
            rung: 2,
            ..peer.out.plan
        };
        let expected = "hub: repeats are found, new bytes have entropy zstd:1 for now, step 2 of 8 down: encoder bound\n";
        assert_eq!(text(&peer), expected);
    }

    #[test]
    fn shed_chunks_and_path_are_a_remark() {
        let text = |names: &NamesIn| {
            let mut peer =
                PeerReport { name: "hub".to_owned(), state: LinkState::Up, ..PeerReport::default() };
            peer.inbound.names = names.clone();
            let mut text = String::new();
            remarks(&mut text, &peer);
            text
        };
        let shed = NamesIn {
            chunks: 2000,
            bytes: 9 << 20,
            found: 1104,
            shed: 884,
            late: 12,
            requested_bytes: 3 << 20,
            pending_bytes: 120 << 10,
            path_bytes_per_s: 1_225_000,
            path_wait_ms: 20,
            ..NamesIn::default()
        };
        let expected = "\
hub: named 0 B to it, and 9 MiB by it; 3 MiB were asked for again
hub: shed 884 chunks, late 12; path 9.8 Mbit/s, wait 20 ms, 120 KiB pending
";
        assert_eq!(text(&shed), expected);
        let unknown = NamesIn { busy: 1, absent: 7, failed: 2, ..NamesIn::default() };
        assert_eq!(text(&unknown), "hub: busy 1 chunk, absent 7, damaged 2\n");
        let pending = NamesIn { pending_bytes: 4096, path_wait_ms: 20, ..NamesIn::default() };
        assert_eq!(text(&pending), "hub: 4 KiB pending\n");
    }

    #[test]
    fn path_of_a_punctual_store_is_no_remark() {
        let names = NamesIn { chunks: 9, found: 9, path_bytes_per_s: 1_225_000, ..NamesIn::default() };
        assert_eq!(shed(&names), None);
    }

    #[test]
    fn one_is_counted_as_one() {
        let text = |number| {
            let (mut text, resumes) = (String::new(), number);
            let peer =
                PeerReport { name: "hub".to_owned(), mismatches: number, resumes, ..PeerReport::default() };
            remarks(&mut text, &PeerReport { state: LinkState::Up, ..peer });
            text
        };
        let one = "hub: 1 block did not match its digest and was fetched again\n\
                   hub: 1 time a flow lost its lane and went on\n";
        assert_eq!(text(1), one);
        let two = "hub: 2 blocks did not match their digest and were fetched again\n\
                   hub: 2 times a flow lost its lane and went on\n";
        assert_eq!(text(2), two);
    }

    #[test]
    fn dropped_log_lines_are_a_remark() {
        let mut status = StatusReport::default();
        assert!(!render(&status).contains("log"));
        status.gateway.log_lines_dropped = 2;
        assert!(render(&status).contains("\n2 lines of its log were dropped: "), "{}", render(&status));
    }

    #[test]
    fn connects_without_a_port_are_a_remark() {
        let mut status = StatusReport::default();
        assert!(!render(&status).contains("port"));
        status.gateway.connects_without_port = 2;
        assert!(
            render(&status).contains("\n2 connects failed for want of a local port: "),
            "{}",
            render(&status)
        );
    }

    #[test]
    fn connections_without_arrival_are_a_remark() {
        let mut status = StatusReport::default();
        let why = "3 connections did not arrive";
        assert!(!render(&status).contains(why));
        status.gateway.not_arriving = Some(why.to_owned());
        assert!(render(&status).contains(&format!("\n{why}\n")), "{}", render(&status));
    }

    #[test]
    fn a_gateway_without_peers_says_so() {
        assert!(render(&StatusReport::default()).contains("no peers are configured"));
    }
}
