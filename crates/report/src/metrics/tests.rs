use super::super::{
    GroupReport, InReport, NamesIn, NotCodedTable, OutReport, Outcome, PlanReport, Reason, Refusal, Refusals,
    StoreReport,
};
use super::*;

fn status() -> StatusReport {
    let refusals = Refusals::default();
    refusals.count(Refusal::UnknownKey);
    let table = NotCodedTable::default();
    table.count(Some("hub"), &"a:22", Outcome::Uncoded, Reason::Policy).add_bytes(5);
    table.count(Some("hub"), &"b:22", Outcome::Uncoded, Reason::Policy).add_bytes(6);
    let peer = PeerReport {
        name: "hub".to_owned(),
        state: LinkState::Up,
        delivered_out: 1000,
        wire_in: 10,
        rtt_ms: Some(80.0),
        flows_total: 3,
        out: OutReport { plan: PlanReport { rung: 2, ..PlanReport::default() }, ..OutReport::default() },
        ..PeerReport::default()
    };
    let mut status =
        StatusReport { version: "0.1.0".to_owned(), peers: vec![peer.summed()], ..Default::default() };
    status.gateway.name = "branch".to_owned();
    status.gateway.refused = refusals.counts();
    status.flows_not_coded = table.rows();
    status
}

#[test]
fn group_figures_are_present_by_name_and_result() {
    let group = GroupReport {
        name: "all".to_owned(),
        neighbours: 2,
        neighbours_pending_bytes: 4096,
        found: 3,
        late: 1,
        ..Default::default()
    };
    let text = encode(&StatusReport { groups: vec![group], ..status() });
    for line in [
        "oncewire_group_neighbours{group=\"all\"} 2.0",
        "oncewire_group_neighbours_pending_bytes{group=\"all\"} 4096.0",
        "oncewire_group_asked_total{group=\"all\",result=\"found\"} 3",
        "oncewire_group_asked_total{group=\"all\",result=\"late\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn status_figures_are_present() {
    let text = encode(&status());
    for line in [
        "oncewire_build_info{version=\"0.1.0\",name=\"branch\"} 1.0",
        "oncewire_delivered_bytes_total{peer=\"hub\",direction=\"out\"} 1000",
        "oncewire_wire_bytes_total{peer=\"hub\",direction=\"in\"} 10",
        "oncewire_peer_up{peer=\"hub\"} 1.0",
        "oncewire_round_trip_seconds{peer=\"hub\"} 0.08",
        "oncewire_flows_total{peer=\"hub\"} 3",
        "oncewire_codec_rung{peer=\"hub\"} 2.0",
        "oncewire_refused_total{reason=\"unknown_key\"} 1",
        "oncewire_flows_not_coded_total{peer=\"hub\",outcome=\"uncoded\",reason=\"policy\"} 2",
        "oncewire_flows_not_coded_bytes_total{peer=\"hub\",outcome=\"uncoded\",reason=\"policy\"} 11",
        "# TYPE oncewire_wire_bytes counter",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn path_estimates_appear_once_known() {
    let of = |names| {
        let inbound = InReport { names, ..InReport::default() };
        let peer = PeerReport { name: "hub".to_owned(), inbound, ..PeerReport::default() };
        encode(&StatusReport { peers: vec![peer], ..status() })
    };
    let unknown = of(NamesIn { pending_bytes: 5, ..NamesIn::default() });
    assert!(unknown.contains("oncewire_pending_bytes{peer=\"hub\"} 5.0\n"), "{unknown}");
    assert!(!unknown.contains("oncewire_path_"), "{unknown}");
    let known = of(NamesIn { path_bytes_per_s: 64_000, path_wait_ms: 250, ..NamesIn::default() });
    for line in [
        "oncewire_path_bytes_per_second{peer=\"hub\"} 64000.0",
        "oncewire_path_wait_seconds{peer=\"hub\"} 0.25",
    ] {
        assert!(known.lines().any(|found| found == line), "{line} is missing in\n{known}");
    }
}

#[test]
fn store_metrics_need_a_store() {
    assert!(!encode(&status()).contains("_store_"));
    let store = StoreReport { reads: 9, found: 5, absent: 2, damaged: 1, used: 7, ..StoreReport::default() };
    let text = encode(&StatusReport { store: Some(store), ..status() });
    for line in [
        "oncewire_store_open{} 0.0",
        "oncewire_store_used_bytes{} 7.0",
        "oncewire_store_reads_total{result=\"found\"} 5",
        "oncewire_store_reads_total{result=\"absent\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn deferred_logs_are_reported() {
    let told = |status: &StatusReport| encode(status).contains("oncewire_logs_not_kept{} 1.0\n");
    let mut status = status();
    assert!(!told(&status));
    status.gateway.logs_not_kept = Some("its disk is full".to_owned());
    assert!(told(&status));
}

#[test]
fn destinations_are_no_labels() {
    assert!(!encode(&status()).contains("a:22"));
}

#[test]
fn unknown_figures_are_left_out() {
    let text = encode(&StatusReport { peers: vec![PeerReport::default()], ..StatusReport::default() });
    assert!(!text.contains("round_trip") && !text.contains("memory_used"), "{text}");
}
