//! Requested chunks beside flows' own bytes.

use super::*;

/// A store's possible answers instead of chunks: it is busy, it has nothing, or the one or the other.
const REFUSALS: [fn(u64) -> StoreReply; 3] = [
    |ticket| StoreReply::Busy { ticket },
    |ticket| StoreReply::Absent { ticket },
    |ticket| match ticket % 2 {
        0 => StoreReply::Busy { ticket },
        _ => StoreReply::Absent { ticket },
    },
];

fn one_lane(config: LinkConfig) -> LinkConfig {
    limited(LinkConfig { max_lanes: 1, spare_lanes: 0, ..config })
}

#[test]
fn echo_beside_requested_chunks_stays_under_twice_the_round_trip() {
    for (change, refuse) in [limited, one_lane].into_iter().flat_map(|way| REFUSALS.map(|no| (way, no))) {
        let mut wan = Wan::naming(change);
        let echo = wan.open(Some(Priority::Interactive));
        let idle = wan.longest_echo(echo, 20);
        wan.file = wan.noise(2 << 20);
        let flows = [(); 4].map(|()| wan.open_source(None));
        while wan.sent_of_file.values().any(|&sent| sent < 2 * wan.file.len()) {
            wan.run(Now::from_millis(20));
        }
        let asked = |wan: &Wan| wan.sides[0].link.stats().inbound.chunks.requested_bytes;
        let before = asked(&wan);
        wan.sides[0].refuses = Some(refuse);
        let beside = wan.longest_echo(echo, 30);
        let asked = asked(&wan) - before;
        assert!(asked > 3 << 20, "{asked} bytes were asked for");
        assert!(beside < 2 * idle, "{beside:?} beside answers, {idle:?} alone");
        // Nobody stands still, and the line is used.
        let most = (RATE_BITS_PER_S * 95 / 100 / 8 * 4) as usize;
        let received = wan.received_in(flows, Now::from_secs(4));
        assert!(received.iter().all(|&bytes| bytes > most / 16), "{received:?} of {most}");
        assert!(received.iter().sum::<usize>() > most * 4 / 5, "{received:?} of {most}");
    }
}

#[test]
fn few_requests_do_not_wait_for_another_flows_many() {
    for (change, refuse) in [limited, one_lane].into_iter().flat_map(|way| REFUSALS.map(|no| (way, no))) {
        // Credit for as much as is named.
        let mut wan = Wan::naming(|config| change(LinkConfig { initial_credit: 4 << 20, ..config }));
        let little = wan.noise(128 << 10);
        wan.file = wan.noise(2 << 20);
        let asks_little = wan.open(Some(Priority::Normal));
        let asks_much = wan.open_source(Some(Priority::Normal));
        // Both cross for the first time.
        wan.sides[1].link.handle_payload(asks_little, little.clone(), wan.now).unwrap();
        let late = wan.now + Now::from_secs(60);
        while wan.sent_of_file[&asks_much] < wan.file.len() {
            wan.run(Now::from_millis(20));
            assert!(wan.now < late, "{:?} were sent", wan.sent_of_file);
        }
        wan.sides[1].sources.clear();
        wan.run(Now::from_secs(2));
        let received = |wan: &Wan| [asks_little, asks_much].map(|flow| wan.sides[0].received[&flow]);
        let [before, _] = received(&wan);
        assert_eq!(before, little.len());
        wan.sides[0].refuses = Some(refuse);
        wan.sides[1].sources.insert(asks_much);
        wan.feed(1, asks_much);
        wan.run(Now::from_millis(500));
        let waits = wan.sides[0].link.stats().inbound.chunks.pending_bytes;
        assert!(waits > 2 << 20, "{waits} bytes wait");
        let [_, start] = received(&wan);
        let end = wan.now + Now::from_secs(10);
        wan.sides[1].link.handle_payload(asks_little, little.clone(), wan.now).unwrap();
        while received(&wan)[0] < before + little.len() {
            wan.tick();
            assert!(wan.now < end, "{:?} of {before} and {}", received(&wan), little.len());
        }
        // As much as crosses in a round trip, and then as much as the other has.
        let beside = received(&wan)[1] - start;
        assert!(beside < 8 * little.len(), "{beside} bytes beside {}, while {waits} waited", little.len());
    }
}

#[test]
fn answers_leave_before_flows_have_room() {
    for change in [limited, one_lane] {
        let mut wan = Wan::naming(change);
        wan.file = wan.noise(256 << 10);
        let named = wan.open_source(None);
        while wan.sent_of_file.values().any(|&sent| sent < 2 * wan.file.len()) {
            wan.run(Now::from_millis(20));
        }
        wan.sides[1].sources.clear();
        wan.run(Now::from_secs(2));
        let filler = wan.open(Some(Priority::Interactive));
        let late = [(); 8].map(|()| wan.open(Some(Priority::Interactive)));
        wan.run(Now::from_secs(1));
        assert_eq!(wan.sides[1].link.stats().out.unacked, 0);
        // From here on side 1 hears nothing, until it has sent as much as may be unacknowledged.
        wan.sides[0].refuses = Some(REFUSALS[2]);
        wan.sides[1].deaf = true;
        let file = wan.file.clone();
        wan.sides[1].link.handle_payload(named, file, wan.now).unwrap();
        wan.run(Now::from_millis(300));
        let mut filled = 0;
        while wan.sides[1].link.stats().out.unacked < MAX_UNACKED {
            wan.sides[1].link.handle_payload(filler, Bytes::from_static(b"x"), wan.now).unwrap();
            filled += 1;
            wan.tick();
        }
        for flow in [filler, named] {
            wan.sides[1].link.handle_payload(flow, Bytes::from_static(b"held"), wan.now).unwrap();
        }
        wan.tick();
        wan.sides[1].deaf = false;
        let received = wan.sides[0].received[&named];
        let asked = wan.sides[0].link.stats().inbound.chunks.requested_bytes;
        assert!(asked > 100_000, "{asked} bytes were asked for");
        // Others find no room while answers wait for their turns.
        for flow in late {
            wan.tick();
            wan.sides[1].link.handle_payload(flow, Bytes::from_static(b"held"), wan.now).unwrap();
        }
        assert!(wan.sides[1].link.stats().out.unacked > 0);
        wan.run(Now::from_millis(400));
        let link = &wan.sides[1].link;
        assert_eq!(link.stats().out.unacked, 0);
        assert_eq!(wan.sides[0].received[&filler], filled + 4);
        assert_eq!(late.map(|flow| wan.sides[0].received[&flow]), [4; 8]);
        assert_eq!(wan.sides[0].received[&named], link.flow(named).unwrap().sent as usize);
        assert!(wan.sides[0].received[&named] > received);
    }
}
