//! More blocks than there is room to fetch at once.

use std::collections::VecDeque;

use super::*;

/// A store that can be asked for as much as any.
const FAST: StoreState = StoreState {
    queued: 0,
    service_time: Now::from_micros(100),
    age_secs: 9,
    taking: true,
    neighbours_pending: 0,
};

/// Hands over a block of a named chunk and many bytes that are not.
fn long(receiver: &mut Receiver, seq: u64) {
    let plain = vec![7; 64 << 10];
    let name = ChunkName::Full(key().name(&plain[..64]));
    let names = vec![NameEntry { at: 0, len: 64, level: 0, name, behind: None }];
    let body = Body {
        epoch: 1,
        start: 0,
        remembered: false,
        keep: false,
        names,
        digest: Digest::Fast(block_digest(SEED, 1, &plain)),
        tokens: None,
        literals: plain.len() - 64,
        entropy: None,
        bytes: &plain[64..],
    };
    let (flow, offset, plain_len, body) = (FlowId(0), seq << 16, plain.len(), BlockBody::Coded(body));
    let block = Block { seq, flow, offset, plain_len, fin: false, resent: false, body };
    receiver.handle_block(block, LANE, Now::ZERO).unwrap();
}

/// Hands over a block whole.
fn repair(receiver: &mut Receiver, seq: u64) {
    let plain = vec![7; 65_536];
    let (flow, offset, plain_len, body) = (FlowId(0), seq << 16, plain.len(), BlockBody::Uncoded(&plain));
    let block = Block { seq, flow, offset, plain_len, fin: false, resent: true, body };
    receiver.handle_block(block, LANE, Now::ZERO).unwrap();
}

fn found(receiver: &mut Receiver, ticket: u64, len: usize) {
    receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; len].into() }, Now::ZERO);
}

/// Finds all reads, and the reads behind them, until there are none.
fn find_all(receiver: &mut Receiver, tickets: Vec<u64>) {
    let mut tickets = VecDeque::from(tickets);
    while let Some(ticket) = tickets.pop_front() {
        found(receiver, ticket, 65_536);
        tickets.extend(reads(receiver));
    }
}

/// A receiver without room even for the one block all others wait for. The later ones wait for block 99, and those
/// behind them, each older than the one before, for block 50.
fn filled() -> Receiver {
    let (mut receiver, plain) = (receiver(), vec![7; 65_536]);
    for seq in 100..700 {
        repeat(&mut receiver, seq, seq as u32 - 99, &plain, Now::ZERO);
    }
    for seq in (60..99).rev() {
        repeat(&mut receiver, seq, seq as u32 - 50, &plain, Now::ZERO);
    }
    receiver
}

#[test]
fn blocks_are_fetched_once_there_is_room_the_oldest_first() {
    for (blocks, chunks, len, room) in [(1100, 1, 64, 512), (1100, 1, 65_536, 512), (300, 1024, 64, 512)] {
        let mut receiver = receiver();
        receiver.handle_store_state(FAST, Now::ZERO);
        for seq in (0..blocks).rev() {
            name(&mut receiver, seq, chunks, len, Now::ZERO);
        }
        assert_eq!(asked(&mut receiver), (vec![], 0));
        assert!(receiver.stats().memory < 50 << 20, "{}", receiver.stats().memory);
        let mut tickets = VecDeque::from(reads(&mut receiver));
        let at_once = tickets.len();
        assert!((room * 9 / 10..=room).contains(&at_once), "{at_once} of blocks of {chunks} chunks");
        let mut count = 0;
        while let Some(ticket) = tickets.pop_front() {
            found(&mut receiver, ticket, len as usize);
            tickets.extend(reads(&mut receiver));
            assert!(tickets.len() <= at_once);
            count += 1;
        }
        assert_eq!((count, receiver.stats().blocks), (blocks as usize * chunks as usize, blocks));
        assert_eq!(asked(&mut receiver), (vec![], 0));
        assert!(receiver.stats().memory < 2 << 20, "{}", receiver.stats().memory);
    }
}

#[test]
fn queued_block_ends_with_the_peer_or_its_arrival() {
    let mut receiver = receiver();
    for seq in 0..1100 {
        name(&mut receiver, seq, 1, 65_536, Now::ZERO);
    }
    let full = receiver.stats().memory;
    reads(&mut receiver);
    repair(&mut receiver, 1099);
    let stats = receiver.stats();
    assert!(stats.blocks == 1 && stats.memory < full, "{} of {full} B", stats.memory);
    assert_eq!(reads(&mut receiver).len(), 0, "it was not fetched");
    repair(&mut receiver, 0);
    assert_eq!(reads(&mut receiver).len(), 1, "in the place of one that was");
    let names = None;
    let restarted = PeerSender {
        capacity: 1 << 20,
        max_in_flight: 1 << 18,
        digest_seed: SEED,
        names,
        strong: StrongKind::default(),
        continues: false,
        probe: None,
    };
    receiver.handle_peer(restarted);
    assert!(receiver.stats().memory < 2 << 20);
}

#[test]
fn block_awaited_by_all_others_is_fetched() {
    let mut receiver = receiver();
    let plain = vec![7; 65_536];
    for seq in 1..=600 {
        repeat(&mut receiver, seq, seq as u32, &plain, Now::ZERO);
    }
    assert_eq!(reads(&mut receiver).len(), 0);
    name(&mut receiver, 0, 1, 65_536, Now::ZERO);
    let tickets = reads(&mut receiver);
    assert_eq!(tickets.len(), 1);
    find_all(&mut receiver, tickets);
    assert_eq!(receiver.stats().blocks, 601);
    assert_eq!(asked(&mut receiver), (vec![], 0));
}

#[test]
fn block_without_room_is_requested_whole_at_growing_intervals() {
    let mut receiver = receiver();
    receiver.handle_patience(Now::from_millis(400));
    for seq in 0..1000 {
        long(&mut receiver, seq);
    }
    assert!(receiver.stats().memory < 50 << 20, "{}", receiver.stats().memory);
    let (_, first) = asked(&mut receiver);
    assert!((200..300).contains(&first), "{first}");
    let mut again = Vec::new();
    for ms in (50..20_000).step_by(50) {
        receiver.handle_timeout(Now::from_millis(ms));
        let (_, whole) = asked(&mut receiver);
        again.extend((whole > 0).then_some((ms, whole)));
    }
    assert_eq!(again, [(3200, first), (9600, first)]);
    // What was lost with a lane is asked for at once.
    receiver.resend_control_state(Now::from_secs(20));
    receiver.handle_timeout(Now::from_secs(20));
    assert_eq!(asked(&mut receiver).1, first);
}

#[test]
fn block_awaited_by_all_without_room_is_requested_whole() {
    let mut receiver = filled();
    name(&mut receiver, 99, 1, 65_536, Now::ZERO);
    for seq in [99, 50] {
        name(&mut receiver, seq, 1, 65_536, Now::ZERO);
        assert_eq!((reads(&mut receiver).len(), asked(&mut receiver)), (0, (vec![], 1)), "{seq}");
    }
    repair(&mut receiver, 50);
    repair(&mut receiver, 99);
    let tickets = reads(&mut receiver);
    find_all(&mut receiver, tickets);
    assert_eq!(receiver.stats().blocks, 600 + 39 + 2);
    assert_eq!(asked(&mut receiver), (vec![], 0));
}

#[test]
fn queued_block_awaited_by_all_is_requested() {
    let (mut receiver, plain) = (filled(), vec![7; 65_536]);
    // Blocks 99 and 50 copy bytes of block 40, without room for it.
    let put = |receiver: &mut Receiver, seq: u64, resent, body| {
        let body = BlockBody::Coded(Body { digest: Digest::Fast(block_digest(SEED, 1, &plain)), ..body });
        let (flow, offset, plain_len) = (FlowId(0), seq << 16, plain.len());
        let block = Block { seq, flow, offset, plain_len, fin: false, resent, body };
        receiver.handle_block(block, LANE, Now::ZERO).unwrap();
    };
    let (copy, mut encoded) = (Copy { at: 0, len: 65_536, source: LogOffset(0) }, Vec::new());
    tokens::encode(&[copy], LogOffset(65_536), &mut encoded);
    for seq in [99, 50] {
        put(&mut receiver, seq, false, copying(1, 65_536, &encoded));
    }
    let name = ChunkName::Full(key().name(&plain));
    let names = vec![NameEntry { at: 0, len: 65_536, level: 0, name, behind: None }];
    let first = Body { remembered: true, tokens: None, ..copying(1, 0, &[]) };
    put(&mut receiver, 40, false, Body { names, ..first.clone() });
    assert_eq!(reads(&mut receiver).len(), 0);
    receiver.handle_timeout(Now::from_secs(1));
    assert_eq!(needed(&mut receiver), [copy.range()]);
    put(&mut receiver, 40, true, Body { literals: plain.len(), bytes: &plain, ..first });
    let tickets = reads(&mut receiver);
    find_all(&mut receiver, tickets);
    assert_eq!(receiver.stats().blocks, 600 + 39 + 3);
    assert_eq!(asked(&mut receiver), (vec![], 0));
}

#[test]
fn pending_read_is_dropped_once_nobody_waits() {
    let start = || {
        let mut receiver = receiver();
        receiver.handle_store_state(FAST, Now::ZERO);
        (0..600).for_each(|seq| name(&mut receiver, seq, 1, 64, Now::ZERO));
        let tickets = reads(&mut receiver);
        assert_eq!(tickets.len(), 512);
        (receiver, tickets)
    };
    // It came otherwise.
    let (mut receiver, tickets) = start();
    (520..600).for_each(|seq| repair(&mut receiver, seq));
    tickets.iter().for_each(|ticket| found(&mut receiver, *ticket, 64));
    assert_eq!(reads(&mut receiver).len(), 8);
    // It is late, and asked for over the network.
    let (mut receiver, tickets) = start();
    receiver.handle_timeout(Now::from_secs(60));
    assert_eq!(asked(&mut receiver).0.len(), 600);
    tickets.iter().for_each(|ticket| found(&mut receiver, *ticket, 64));
    assert_eq!(reads(&mut receiver).len(), 0);
}
