//! The logs of two links: limits, clearing, and released memory.

mod common;

use common::{Pair, config};
use oncewire_codec::wire::Understood;
use oncewire_codec::{Matching, Plan};
use oncewire_link::{
    LinkConfig, LoadedLogs, Log, LogLimits, LogOffset, LogSide, LogStart, LogStarts, Note, Now, RangeSet,
    SavedLog, SavedLogs,
};

/// Sends bytes on a flow of its own and returns how many of them were copied from the log.
fn cross(pair: &mut Pair, bytes: &[u8]) -> u64 {
    let copied = pair.sides[1].link.stats().inbound.copied;
    let flow = pair.connect(0);
    pair.send(0, flow, bytes);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    pair.sides[1].link.stats().inbound.copied - copied
}

#[test]
fn notes_of_logs_name_their_direction() {
    let anew = LogStart::Anew { reason: "the peer has another log" };
    let resumed = LogStart::Resumed { bytes: 7 };
    let said = |side, start| Note::LogStarts { side, epoch: 3, start }.to_string();
    let out = "the log of what is sent to the peer ";
    assert_eq!(said(LogSide::Out, anew), format!("{out}starts over as epoch 3: the peer has another log"));
    let can = "bytes of earlier connections can be used";
    assert_eq!(said(LogSide::Out, resumed), format!("{out}is resumed in epoch 3: 7 {can}"));
    let inbound = "the log of what is received from the peer ";
    assert_eq!(said(LogSide::Inbound, resumed), format!("{inbound}is resumed in epoch 3: up to 7 {can}"));
}

/// Both ends' events on their logs, and their counts: for side 0's output, and then for its input.
fn starts(pair: &Pair) -> [[LogStarts; 2]; 2] {
    let [near, far] = pair.sides.each_ref().map(|side| side.link.stats());
    [[near.out.log_starts, far.inbound.log_starts], [far.out.log_starts, near.inbound.log_starts]]
}

#[test]
fn both_ends_agree_on_a_log_after_one_restarts() {
    let persisting = |config| LinkConfig { persist: true, ..config };
    for (restarted, is_kept) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut pair = Pair::with(31, persisting(config(true, 1)), persisting(config(false, 2)));
        let bytes = pair.random_bytes(100_000);
        let both_ways = |pair: &mut Pair| {
            let flow = pair.connect(0);
            (0..2).for_each(|side| pair.send(side, flow, &bytes));
            pair.pass(Now::from_secs(1));
        };
        both_ways(&mut pair);
        assert_eq!(starts(&pair), [[LogStarts::default(); 2]; 2], "of a first log there is nothing to say");
        let mut files = [None, None];
        kept(&mut pair, restarted, &mut files);
        let [out, inbound] = files.map(|file| file.filter(|_| is_kept));
        pair.sides[1 - restarted].notes.clear();
        pair.restart_with(restarted, SavedLogs { out, inbound });
        both_ways(&mut pair);
        for [out, inbound] in starts(&pair) {
            assert_eq!((out.resumed, out.anew), (u64::from(is_kept), u64::from(!is_kept)));
            assert_eq!((out.resumed, out.anew), (inbound.resumed, inbound.anew));
            if is_kept {
                assert_eq!((out.last, inbound.last), (Some(LogStart::Resumed { bytes: 100_000 }), out.last));
            }
        }
        for side in &pair.sides {
            for direction in ["sent to", "received from"] {
                let of = format!("the log of what is {direction} the peer ");
                let notes: Vec<_> = side.notes.iter().filter(|note| note.starts_with(&of)).collect();
                let [note] = notes[..] else { panic!("{notes:?}") };
                assert_eq!(note.contains("is resumed in epoch 1: "), is_kept, "{note}");
                assert_eq!(note.contains("starts over as epoch 2: "), !is_kept, "{note}");
            }
        }
    }
}

#[test]
fn limit_of_either_end_holds_for_both_until_lifted() {
    for limited in [0, 1] {
        let mut pair = Pair::new(20 + limited as u64);
        let limits = LogLimits { out: 300_000, inbound: 300_000 };
        pair.sides[limited].link.set_log_limits(limits, pair.now);
        pair.pass(Now::from_secs(1));
        let logs = |pair: &Pair| {
            let (out, inbound) = (pair.sides[0].link.stats().out, pair.sides[1].link.stats().inbound);
            (out.log_limit, inbound.log_limit, inbound.log_used <= inbound.log_limit)
        };
        assert_eq!(logs(&pair), (300_000, 300_000, true), "side {limited}");
        let bytes = pair.random_bytes(500_000);
        cross(&mut pair, &bytes);
        assert!(cross(&mut pair, &bytes) < 300_000, "what was given up was found");
        cross(&mut pair, &bytes[..60_000]);
        assert!(cross(&mut pair, &bytes[..60_000]) > 59_000);
        pair.sides[limited].link.set_log_limits(LogLimits { out: 1 << 20, inbound: 1 << 20 }, pair.now);
        pair.pass(Now::from_secs(1));
        assert_eq!(logs(&pair), (1 << 20, 1 << 20, true), "side {limited}");
        cross(&mut pair, &bytes);
        assert!(cross(&mut pair, &bytes) > 490_000);
        let stats = pair.sides[1].link.stats().inbound;
        assert_eq!((stats.overwritten, stats.mismatches), (0, 0));
    }
}

#[test]
fn logs_report_once_at_a_fill_level() {
    let mut pair = Pair::new(21);
    let filled = |pair: &Pair| [pair.sides[0].filled, pair.sides[1].filled];
    let bytes = pair.random_bytes(400_000);
    cross(&mut pair, &bytes);
    assert_eq!(filled(&pair), [0, 0], "nobody asked");
    pair.sides[0].link.tell_when_filled(LogLimits { out: 500_000, inbound: 0 });
    pair.sides[1].link.tell_when_filled(LogLimits { out: 0, inbound: 700_000 });
    for (round, told) in [[0, 0], [1, 1], [1, 1], [1, 1]].into_iter().enumerate() {
        let bytes = pair.random_bytes(400_000);
        cross(&mut pair, &bytes);
        assert_eq!(filled(&pair), told, "round {round}");
    }
}

#[test]
fn falling_limit_costs_a_round_trip_and_no_byte() {
    let mut pair = Pair::new(22);
    let bytes = pair.random_bytes(700_000);
    cross(&mut pair, &bytes);
    let flow = pair.connect(0);
    pair.send(0, flow, &bytes);
    pair.sides[1].link.set_log_limits(LogLimits { out: 1 << 20, inbound: 64 << 10 }, pair.now);
    let lanes = pair.lanes();
    lanes.iter().for_each(|&lane| pair.block(lane, 1, true));
    for _ in 0..5 {
        pair.step(20_000);
    }
    lanes.iter().for_each(|&lane| pair.block(lane, 1, false));
    pair.pass(Now::from_secs(5));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    let stats = pair.sides[1].link.stats().inbound;
    assert!(stats.given_up > 0 && stats.refetched >= stats.given_up, "{stats:?}");
    assert_eq!((stats.overwritten, stats.mismatches), (0, 0));
    assert_eq!(pair.sides[0].link.stats().out.mismatches, 0);
}

#[test]
fn uncompared_blocks_have_digests_common_to_both_ends() {
    for highway in [true, false] {
        let chunks = |config: LinkConfig| LinkConfig {
            plan: Plan { matching: Matching::Chunk, ..config.plan },
            ..config
        };
        let mut pair = Pair::with(30, chunks(config(true, 1)), chunks(config(false, 2)));
        pair.understands = Understood { highway, ..Understood::ALL };
        pair.restart(0);
        let bytes = pair.random_bytes(300_000);
        assert_eq!(cross(&mut pair, &bytes), 0);
        assert!(cross(&mut pair, &bytes) > 290_000);
        assert_eq!(pair.sides[0].link.stats().out.mismatches, 0, "highway: {highway}");
    }
}

#[test]
fn either_end_can_have_everything_forgotten() {
    for side in [0, 1] {
        let mut pair = Pair::new(23 + side as u64);
        let bytes = pair.random_bytes(300_000);
        cross(&mut pair, &bytes);
        assert!(cross(&mut pair, &bytes) > 290_000);
        let memory = |pair: &Pair, side: usize| {
            let stats = pair.sides[side].link.stats();
            stats.out.log_used + stats.inbound.log_used
        };
        pair.sides[side].link.clear_logs(pair.now);
        assert_eq!(memory(&pair, side), 0);
        pair.pass(Now::from_secs(1));
        assert_eq!(cross(&mut pair, &bytes), 0, "side {side} remembered");
        assert!(cross(&mut pair, &bytes) > 290_000, "side {side} is not warm again");
        assert_eq!(pair.sides[1].link.stats().inbound.overwritten, 0);
    }
}

/// Puts both sides' written logs together, as files would.
fn kept(pair: &mut Pair, side: usize, logs: &mut [Option<SavedLog>; 2]) {
    while let Some((which, write)) = pair.sides[side].link.poll_log_write() {
        let log = &mut logs[usize::from(which == LogSide::Inbound)];
        let log = log.get_or_insert_with(|| SavedLog {
            epoch: write.epoch,
            log: Log::new(1 << 20),
            ranges: RangeSet::default(),
        });
        log.log.write(LogOffset(write.start), &write.plain);
        log.ranges.insert(write.start..write.start + write.plain.len() as u64);
    }
}

#[test]
fn larger_log_is_warm_after_restart_within_the_smaller() {
    // As the sender's log, and as the receiver's. No more in flight than a quarter of the smaller log.
    for larger in [0, 1] {
        let configs = [config(true, 1), config(false, 2)].map(|config| LinkConfig {
            persist: true,
            initial_credit: 48 << 10,
            max_credit: 48 << 10,
            log_capacity: if config.instance == larger as u64 + 1 { config.log_capacity } else { 300 << 10 },
            ..config
        });
        let [dialer, acceptor] = configs;
        let mut pair = Pair::with(28 + larger as u64, dialer, acceptor);
        let bytes = pair.random_bytes(500_000);
        cross(&mut pair, &bytes);
        let mut files = [None, None];
        kept(&mut pair, larger, &mut files);
        assert_eq!(files[larger].as_ref().map(|log| log.ranges.total()), Some(500_000));
        let [out, inbound] = files;
        pair.restart_with(larger, SavedLogs { out, inbound });
        // The last quarter of the smaller log at least.
        let last = &bytes[bytes.len() - 70_000..];
        assert!(cross(&mut pair, last) > 69_000, "side {larger} started cold");
        // Content beyond the smaller log is gone at both ends.
        cross(&mut pair, &bytes[..150_000]);
        assert!(cross(&mut pair, &bytes[..150_000]) > 149_000);
        let stats = pair.sides[1].link.stats().inbound;
        assert_eq!((stats.refetched, stats.waited, stats.given_up), (0, 0, 0), "side {larger}");
        assert_eq!((stats.mismatches, stats.overwritten), (0, 0));
    }
}

#[test]
fn released_logs_take_no_memory_and_come_back_unchanged() {
    // The files are laid out for a log of 1 MiB, for any agreement of both ends.
    for capacity in [1 << 20, 900 << 10] {
        logs_are_released_and_come_back(capacity);
    }
}

fn logs_are_released_and_come_back(capacity: u64) {
    let persisting = |config| LinkConfig { persist: true, ..config };
    let smaller = LinkConfig { log_capacity: capacity, ..config(false, 2) };
    let mut pair = Pair::with(25, persisting(config(true, 1)), persisting(smaller));
    let bytes = pair.random_bytes(300_000);
    let idle = pair.connect(0);
    cross(&mut pair, &bytes);
    let mut files = [[None, None], [None, None]];
    for (side, files) in files.iter_mut().enumerate() {
        kept(&mut pair, side, files);
        assert!(pair.sides[side].link.release_logs(), "side {side} is not quiet");
    }
    let sizes = |pair: &Pair| {
        let (out, inbound) = (pair.sides[0].link.stats().out, pair.sides[1].link.stats().inbound);
        (out.released, inbound.released, out.memory < 300_000 && inbound.memory < 300_000)
    };
    assert_eq!(sizes(&pair), (true, true, true));
    // Traffic on a paused flow: the sender refers to nothing, and both ask for their released logs.
    pair.send(0, idle, &bytes[..100_000]);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(idle).bytes, bytes[..100_000]);
    assert_eq!(pair.sides[1].link.stats().inbound.copied, 0);
    for (side, files) in files.into_iter().enumerate() {
        let [out, inbound] = files;
        let config = persisting(config(side == 0, side as u64 + 1));
        let agreed = pair.sides[side].link.stats().inbound.log_capacity;
        let loaded = LoadedLogs::new(&config, SavedLogs { out, inbound }, agreed);
        // The sender first: its new references have to wait at the other end.
        pair.sides[side].link.restore_logs(loaded, pair.now);
        if side == 0 {
            pair.send(0, idle, &bytes[200_000..]);
            pair.pass(Now::from_secs(30));
            let inbound = pair.sides[1].link.stats().inbound;
            assert!(inbound.waited > 0 && inbound.refetched == 0, "{inbound:?}");
            assert!(pair.sides[1].stream(idle).bytes.len() < 200_000);
        }
    }
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(idle).bytes[100_000..], bytes[200_000..]);
    assert_eq!((sizes(&pair).0, sizes(&pair).1), (false, false));
    assert!(cross(&mut pair, &bytes) > 290_000);
    let inbound = pair.sides[1].link.stats().inbound;
    assert_eq!((inbound.refetched, inbound.mismatches, inbound.overwritten), (0, 0, 0));
}

#[test]
fn released_and_lost_logs_cost_savings_and_no_byte() {
    let mut pair = Pair::new(26);
    let bytes = pair.random_bytes(300_000);
    cross(&mut pair, &bytes);
    assert!(pair.sides[1].link.release_logs());
    let flow = pair.connect(0);
    pair.send(0, flow, &bytes);
    pair.pass(Now::from_secs(5));
    assert!(pair.sides[1].link.stats().inbound.waited > 0);
    pair.sides[1].link.restore_logs(LoadedLogs::default(), pair.now);
    pair.pass(Now::from_secs(5));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    cross(&mut pair, &bytes);
    assert!(cross(&mut pair, &bytes) > 290_000, "not warm again");
    let stats = pair.sides[1].link.stats().inbound;
    assert_eq!((stats.mismatches, stats.overwritten), (0, 0));
}

#[test]
fn logs_are_not_released_while_anything_is_under_way() {
    let mut pair = Pair::new(27);
    let flow = pair.connect(0);
    pair.send(0, flow, b"on its way");
    pair.step(5);
    assert!(!pair.sides[0].link.release_logs());
    assert!(!pair.sides[0].link.stats().inbound.released);
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[0].link.release_logs());
}

/// Copies a side's memory of both logs, as onto an empty disk.
fn copied(pair: &Pair, side: usize) -> [Option<SavedLog>; 2] {
    [LogSide::Out, LogSide::Inbound].map(|which| {
        let mut copied: Option<SavedLog> = None;
        let mut from = 0;
        while let Some(piece) = pair.sides[side].link.log_piece(which, from) {
            assert!(piece.start >= from && (1..=64 << 10).contains(&piece.plain.len()));
            from = piece.start + piece.plain.len() as u64;
            let log = copied.get_or_insert_with(|| SavedLog {
                epoch: piece.epoch,
                log: Log::new(1 << 20),
                ranges: RangeSet::default(),
            });
            log.log.write(LogOffset(piece.start), &piece.plain);
            log.ranges.insert(piece.start..from);
        }
        copied
    })
}

#[test]
fn unwritten_log_content_can_be_written_later() {
    let mut pair = Pair::with(26, config(true, 1), config(false, 2));
    let bytes = pair.random_bytes(300_000);
    cross(&mut pair, &bytes);
    for side in [0, 1] {
        let [out, inbound] = copied(&pair, side);
        let there = [&out, &inbound].map(Option::is_some);
        assert_eq!(there, [side == 0, side == 1]);
        assert_eq!(out.iter().chain(&inbound).map(|log| log.ranges.total()).sum::<u64>(), 300_000);
        assert!(pair.sides[side].link.release_logs());
        let config = config(side == 0, side as u64 + 1);
        let loaded = LoadedLogs::new(&config, SavedLogs { out, inbound }, config.log_capacity);
        pair.sides[side].link.restore_logs(loaded, pair.now);
    }
    assert!(cross(&mut pair, &bytes) > 290_000, "something of it is not there");
    assert_eq!(pair.sides[1].link.stats().inbound.refetched, 0);
}
