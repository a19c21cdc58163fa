//! How long the receiving half waits for reads, and for what it asked for.

use std::collections::VecDeque;

use super::*;
use crate::wanax::path::{Demand, PathRate};

/// A disk taking 100 ms a read, and a path of 10 ms and 1 MB/s.
fn slow_disk(receiver: &mut Receiver) {
    let service_time = Now::from_millis(100);
    let state = StoreState { queued: 0, service_time, age_secs: 9, taking: true, ..StoreState::default() };
    receiver.handle_store_state(state, Now::ZERO);
    receiver.handle_path(Now::from_millis(10), PathRate::of(1_000_000));
}

#[test]
fn read_gets_the_time_explained_by_the_queue() {
    let mut receiver = receiver();
    let (queued, service_time) = (9, Now::from_millis(10));
    receiver.handle_store_state(
        StoreState { queued, service_time, age_secs: 9, taking: true, ..StoreState::default() },
        Now::ZERO,
    );
    name(&mut receiver, 0, 1, 64, Now::ZERO);
    let tickets = reads(&mut receiver);
    receiver.handle_timeout(Now::from_millis(249));
    assert_eq!(asked(&mut receiver).0, []);
    assert_eq!(receiver.poll_timeout(), Some(Now::from_millis(250)));
    receiver.handle_timeout(Now::from_millis(250));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![0])]);
    // The disk is first all the same.
    receiver.handle_store(StoreReply::Found { ticket: tickets[0], bytes: vec![7; 64].into() }, Now::ZERO);
    let stats = receiver.stats();
    assert_eq!((stats.blocks, stats.chunks.late, stats.chunks.hits.count), (1, 1, 1));
    let chunks = Chunks { seq: 0, indexes: vec![0], entropy: None, bytes: &[7; 64] };
    receiver.handle_chunks(chunks, Now::ZERO).unwrap();
    assert_eq!(receiver.stats().blocks, 1);
}

#[test]
fn absence_after_a_request_is_said_once() {
    let mut receiver = receiver();
    name(&mut receiver, 0, 3, 64, Now::ZERO);
    let tickets = reads(&mut receiver);
    receiver.handle_store(StoreReply::Busy { ticket: tickets[0] }, Now::ZERO);
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![0])]);
    receiver.handle_timeout(Now::from_millis(50));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![1, 2])]);
    receiver.handle_store(StoreReply::Absent { ticket: tickets[1] }, Now::from_millis(60));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Absent, vec![1])]);
    receiver.handle_store(StoreReply::Busy { ticket: tickets[2] }, Now::from_millis(60));
    assert_eq!(asked(&mut receiver).0, []);
}

#[test]
fn only_the_announced_slow_read_gets_more_time() {
    let mut receiver = receiver();
    name(&mut receiver, 0, 2, 64, Now::ZERO);
    name(&mut receiver, 1, 1, 64, Now::ZERO);
    let tickets = reads(&mut receiver);
    receiver.handle_store_wait(tickets[1], Now::from_millis(300), Now::from_millis(10));
    receiver.handle_store_wait(tickets[0], Now::from_millis(1), Now::from_millis(10));
    receiver.handle_store_wait(99, Now::from_millis(300), Now::ZERO);
    receiver.handle_timeout(Now::from_millis(309));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![0])], "of the second block");
    receiver.handle_timeout(Now::from_millis(310));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![0, 1])]);
    // Once it is asked for, there is nothing to wait for.
    receiver.handle_store_wait(tickets[1], Now::from_millis(900), Now::from_millis(310));
    assert!(receiver.poll_timeout().is_none_or(|due| due < Now::from_secs(1)));
}

#[test]
fn unknown_disk_is_judged_by_the_first_reads() {
    let ms = Now::from_millis;
    // The rest takes 150 ms at that rate, and over the network, if the path is known, 130 ms.
    for (brought, path_is_known, waits) in [(2, false, true), (0, false, false), (2, true, false)] {
        let mut receiver = receiver();
        if path_is_known {
            receiver.handle_path(ms(10), PathRate::of(1_000_000));
        }
        name(&mut receiver, 0, 8, 20_000, Now::ZERO);
        let tickets = reads(&mut receiver);
        assert_eq!(tickets.len(), 8);
        for &ticket in &tickets[..brought] {
            let bytes = vec![7; 20_000].into();
            receiver.handle_store(StoreReply::Found { ticket, bytes }, ms(25));
        }
        receiver.handle_timeout(ms(50));
        let late = if waits { 0 } else { 8 - brought as u64 };
        assert_eq!(receiver.stats().chunks.late, late, "{brought}, {path_is_known}");
        if waits {
            receiver.handle_timeout(ms(149));
            assert_eq!(asked(&mut receiver).0, []);
            receiver.handle_timeout(ms(150));
            let rest = (2..8).collect();
            assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, rest)], "it brought nothing more");
        }
    }
}

#[test]
fn fast_disk_is_not_shed_while_it_brings_chunks() {
    let ms = Now::from_millis;
    // Over this path all are there within 3 ms.
    for (service_us, is_fast) in [(100, true), (499, true), (500, false)] {
        let mut receiver = receiver();
        let service_time = Now::from_micros(service_us);
        let state = StoreState { service_time, taking: true, ..StoreState::default() };
        receiver.handle_store_state(state, Now::ZERO);
        receiver.handle_path(ms(1), PathRate::of(100_000_000));
        name(&mut receiver, 0, 10, 20_000, Now::ZERO);
        let tickets = reads(&mut receiver);
        assert_eq!(tickets.len() == 10, is_fast, "{service_us}: {tickets:?}");
        for (at, &ticket) in tickets.iter().enumerate() {
            let now = ms(40 * at as u64);
            receiver.handle_timeout(now);
            receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 20_000].into() }, now);
        }
        let chunks = receiver.stats().chunks;
        assert_eq!((chunks.late == 0, chunks.shed == 0), (is_fast, is_fast), "{service_us}: {chunks:?}");
    }
}

#[test]
fn vain_shedding_ends_until_the_disk_is_behind() {
    let ms = Now::from_millis;
    let mut receiver = receiver();
    let state = StoreState { service_time: ms(5), taking: true, ..StoreState::default() };
    receiver.handle_store_state(state, Now::ZERO);
    // A block of four chunks each 20 ms, of which two are there sooner by the plan, if the disk takes 20 ms for all. It
    // has the others at once, and nothing to do then.
    let mut shed = Vec::new();
    for seq in 0..40 {
        let now = ms(1000 + 20 * seq);
        receiver.handle_path(ms(10), PathRate::of(25_000_000));
        name(&mut receiver, seq, 4, 10_000, now);
        for ticket in reads_with(&mut receiver, now, |_| Vec::new()) {
            receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 10_000].into() }, now);
        }
        let indexes: Vec<u32> = asked(&mut receiver).0.into_iter().flat_map(|(_, indexes)| indexes).collect();
        shed.push(indexes.len());
        if !indexes.is_empty() {
            let bytes = vec![7; 10_000 * indexes.len()];
            let chunks = Chunks { seq, indexes, entropy: None, bytes: &bytes };
            receiver.handle_chunks(chunks, now + ms(11)).unwrap();
        }
    }
    assert!(shed[..14].iter().all(|shed| *shed > 0), "{shed:?}");
    assert!(shed[16..].iter().all(|shed| *shed == 0), "{shed:?}");
    // Something is to be read without a pause.
    let mut read = |seq, now| {
        name(&mut receiver, seq, 4, 10_000, now);
        reads_with(&mut receiver, now, |_| Vec::new()).len()
    };
    assert_eq!(read(40, ms(2000)), 4);
    assert!(read(41, ms(2600)) < 4);
}

#[test]
fn chunks_of_one_read_count_as_one_in_the_plan() {
    let mut receiver = receiver();
    slow_disk(&mut receiver);
    // All 200 kB take 210 ms over the network, longer than one read. Of three, two bring less than half of it.
    for (seq, apart, shed) in [(0, false, 0), (1, true, 6)] {
        name(&mut receiver, seq, 10, 20_000, Now::ZERO);
        let place = |at| ChunkPlace::Disk { disk: 0, read: Some(if apart { at / 4 } else { 7 }) };
        let tickets = reads_with(&mut receiver, Now::ZERO, |chunks| (0..chunks as u64).map(place).collect());
        assert_eq!(tickets.len() as u64, 10 - shed);
        assert_eq!(receiver.stats().chunks.shed, shed);
        for ticket in tickets {
            let bytes = vec![7; 20_000].into();
            receiver.handle_store(StoreReply::Found { ticket, bytes }, Now::ZERO);
        }
    }
    // What is in memory takes none, however slow the disk is.
    name(&mut receiver, 2, 10, 64, Now::ZERO);
    let tickets = reads_with(&mut receiver, Now::ZERO, |chunks| vec![ChunkPlace::Near; chunks]);
    assert_eq!(tickets.len(), 10);
}

#[test]
fn disk_keeps_its_work_while_answers_wait_far_away() {
    let mut receiver = receiver();
    slow_disk(&mut receiver);
    let shed = |receiver: &mut Receiver, seq, at_ms| {
        let (before, now) = (receiver.stats().chunks.shed, Now::from_millis(at_ms));
        name(receiver, seq, 1, 64, now);
        reads_with(receiver, now, |_| Vec::new());
        asked(receiver);
        receiver.stats().chunks.shed - before
    };
    assert_eq!(shed(&mut receiver, 0, 0), 1, "the network takes 10 ms, the disk 100");
    assert_eq!(shed(&mut receiver, 1, 60), 1, "the answer is late, but not by so much");
    assert_eq!(shed(&mut receiver, 2, 150), 0, "it is later than a read");
    let chunks = Chunks { seq: 0, indexes: vec![0], entropy: None, bytes: &[7; 64] };
    receiver.handle_chunks(chunks, Now::from_millis(310)).unwrap();
    assert_eq!(receiver.stats().chunks.path_wait.as_millis(), 299);
    assert_eq!(shed(&mut receiver, 3, 310), 0);
    assert_eq!(shed(&mut receiver, 4, 320), 0);
    let chunks = Chunks { seq: 1, indexes: vec![0], entropy: None, bytes: &[7; 64] };
    receiver.handle_chunks(chunks, Now::from_millis(320)).unwrap();
    assert_eq!(shed(&mut receiver, 5, 2000), 1, "the line has had time to empty");
}

#[test]
fn request_is_not_repeated_while_the_path_explains_the_delay() {
    for (bytes_per_s, least_ms, most_ms) in [(0, 300, 1_000), (10_000, 4_000, 5_000)] {
        let mut receiver = receiver();
        receiver.handle_path(Now::from_millis(10), PathRate::of(bytes_per_s));
        name(&mut receiver, 0, 1, 20_000, Now::ZERO);
        let tickets = reads_with(&mut receiver, Now::ZERO, |_| vec![ChunkPlace::Near]);
        receiver.handle_store(StoreReply::Absent { ticket: tickets[0] }, Now::ZERO);
        assert_eq!(asked(&mut receiver).0.len(), 1);
        let again = (0..60_000).step_by(100).find(|&at_ms| {
            receiver.handle_timeout(Now::from_millis(at_ms));
            !asked(&mut receiver).0.is_empty()
        });
        assert!(
            (least_ms..most_ms).contains(&again.unwrap()),
            "{again:?} ms at {bytes_per_s} bytes a second"
        );
    }
}

#[test]
fn neighbours_requests_count_until_the_rate_is_learnt() {
    let state = |neighbours_pending| StoreState {
        service_time: Now::from_millis(100),
        age_secs: 9,
        taking: true,
        neighbours_pending,
        ..StoreState::default()
    };
    // Chunks of a kilobyte of which each takes a read, or a tenth of a second of the line.
    let shed = |then, now, learnt_again: bool| {
        let mut receiver = receiver();
        receiver.handle_store_state(state(then), Now::ZERO);
        receiver.handle_path(Now::from_millis(10), PathRate::of(10_000));
        receiver.handle_store_state(state(now), Now::ZERO);
        receiver.handle_path(Now::from_millis(10), PathRate::of(if learnt_again { 9_999 } else { 10_000 }));
        name(&mut receiver, 0, 10, 1000, Now::ZERO);
        let shed = 10 - reads(&mut receiver).len();
        assert_eq!(receiver.chunks_pending(), 1000 * shed as u64);
        shed
    };
    assert_eq!(shed(0, 0, false), 5);
    assert_eq!(shed(0, 100_000, false), 3, "half of the line is theirs");
    assert_eq!(shed(0, 500, false), 5);
    assert_eq!(shed(0, 2000, false), 4, "two chunks are theirs");
    assert_eq!(shed(100_000, 100_000, false), 5, "the rate is what they leave");
    assert_eq!(shed(0, 100_000, true), 5);
    assert_eq!(shed(100_000, 0, false), 5);
}

#[test]
fn reads_planned_without_a_rate_are_planned_again() {
    let ms = Now::from_millis;
    let state = |queued| StoreState {
        service_time: ms(100),
        age_secs: 9,
        taking: true,
        queued,
        ..StoreState::default()
    };
    let mut receiver = receiver();
    receiver.set_room([1 << 20, 1 << 20, 1 << 20, 4]);
    receiver.handle_store_state(state(0), Now::ZERO);
    (0..2).for_each(|seq| name(&mut receiver, seq, 10, 1000, Now::ZERO));
    // Nothing is known of the path, and the store has its hands full with the first four.
    let first = reads(&mut receiver);
    assert_eq!((first.len(), asked(&mut receiver).0, receiver.chunks_pending()), (4, vec![], 0));
    assert_eq!(receiver.chunks_due(Now::ZERO), Some(Now::MAX));
    // Ten cross in the time of one read.
    receiver.handle_path(ms(10), PathRate::of(100_000));
    receiver.handle_store_state(state(4), ms(2));
    let shed: usize = asked(&mut receiver).0.iter().map(|(_, indexes)| indexes.len()).sum();
    assert_eq!((shed, reads(&mut receiver).len()), (16, 0));
    // Chunks in the disk's queue come sooner than by a busy line, and are not planned again for a rate little higher.
    receiver.handle_path(ms(10), PathRate::of(10_000));
    name(&mut receiver, 2, 10, 1000, ms(2));
    assert_eq!((reads(&mut receiver).len(), receiver.chunks_pending()), (0, 16_000));
    receiver.handle_path(ms(10), PathRate::of(20_000));
    assert_eq!(receiver.chunks_due(ms(2)), Some(ms(10 + 16_000 / 20)));
    receiver.handle_store_state(state(5), ms(3));
    assert_eq!(receiver.chunks_pending(), 16_000);
    let mut tickets = VecDeque::from(first);
    while let Some(ticket) = tickets.pop_front() {
        let bytes = vec![7; 1000].into();
        receiver.handle_store(StoreReply::Found { ticket, bytes }, ms(100));
        tickets.extend(reads(&mut receiver));
    }
    assert_eq!(asked(&mut receiver).0, []);
    for (seq, indexes) in [(0, (4..10).collect::<Vec<u32>>()), (1, (0..10).collect())] {
        let bytes = vec![7; 1000 * indexes.len()];
        let chunks = Chunks { seq, indexes, entropy: None, bytes: &bytes };
        receiver.handle_chunks(chunks, ms(200)).unwrap();
    }
    assert_eq!((receiver.stats().blocks, receiver.chunks_pending()), (3, 0));
    assert_eq!(receiver.chunks_due(ms(200)), None);
}

#[test]
fn store_silent_about_places_is_not_waited_for() {
    let mut receiver = receiver();
    name(&mut receiver, 0, 3, 64, Now::ZERO);
    let peek = receiver.poll_chunk_store().unwrap();
    assert!(matches!(peek, StoreRequest::Peek { .. }), "{peek:?}");
    assert_eq!((receiver.poll_timeout(), asked(&mut receiver).0), (Some(Now::from_millis(50)), vec![]));
    receiver.handle_timeout(Now::from_millis(50));
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![0, 1, 2])]);
    // When it says so after all, that changes nothing.
    let StoreRequest::Peek { ticket, .. } = peek else { return };
    receiver.handle_store(StoreReply::each_apart(ticket), Now::from_millis(60));
    assert_eq!((receiver.poll_chunk_store(), asked(&mut receiver).0), (None, vec![]));
    let chunks = Chunks { seq: 0, indexes: vec![0, 1, 2], entropy: None, bytes: &[7; 192] };
    receiver.handle_chunks(chunks, Now::from_millis(90)).unwrap();
    assert_eq!((receiver.stats().blocks, receiver.stats().chunks.late), (1, 3));
}

#[test]
fn idle_path_is_hoped_to_carry_more() {
    let ms = Now::from_millis;
    let mut receiver = receiver();
    let state = StoreState { service_time: ms(20), taking: true, ..StoreState::default() };
    receiver.handle_store_state(state, Now::ZERO);
    // By what is known nothing is shed: a chunk takes a second to cross, and all of them 200 ms from the disk.
    let rate = PathRate { known: 1000, hoped: 100_000 };
    receiver.handle_path(ms(10), rate);
    name(&mut receiver, 0, 10, 1000, Now::ZERO);
    let read = reads(&mut receiver).len();
    let shed: usize = asked(&mut receiver).0.iter().map(|(_, indexes)| indexes.len()).sum();
    assert!(read > 0 && shed > 0 && read + shed == 10, "{read} {shed}");
    assert_eq!(receiver.stats().chunks.path_bytes_per_s, 1000, "what is told is what is known");
    // It cannot do that.
    assert_eq!((receiver.demand(ms(50)), receiver.demand(ms(150))), (Demand::Held, Demand::Overdue));
    receiver.handle_timeout(ms(150));
    assert_eq!(receiver.stats().chunks.path_wait, Now::ZERO, "that is no wait");
    receiver.handle_path(ms(10), PathRate::of(1000));
    assert_eq!(receiver.demand(ms(150)), Demand::Held, "by what it carries nothing is late");
    assert_eq!(receiver.demand(Now::from_secs(60)), Demand::Overdue);
}
