//! Queueing, skipping, clearing, settling and closing, on an in-memory disk.

use bytes::Bytes;
use oncewire_link::SavedLog;

use super::*;
use crate::memory_disk::MemoryDisk;
use crate::reading::{self, Compactions};
use crate::seal::Seal;

const CAPACITY: u64 = 256 << 10;

fn piece(start: u64) -> LogWrite {
    LogWrite { epoch: 1, start, plain: Bytes::from(vec![1; 64 << 10]) }
}

fn ranges(saved: &SavedLog) -> Vec<(u64, u64)> {
    saved.ranges.iter().map(|range| (range.start, range.end)).collect()
}

fn kept(disk: &MemoryDisk) -> KeptLog<MemoryDisk> {
    KeptLog::open(disk.clone(), LogSide::Out, CAPACITY, CAPACITY, Seal::Clear).log.unwrap()
}

#[test]
fn full_queue_skips_and_never_blocks() {
    let queue = Queue::default();
    for i in 0..2_000 {
        queue.push(0, piece(i << 16));
    }
    let len = |job: &Job| if let Job::Write { write, .. } = job { write.plain.len() } else { 0 };
    let waiting: usize = queue.state.lock().waiting.iter().map(len).sum();
    assert!((MAX_QUEUED - (2 << 20)..=MAX_QUEUED).contains(&waiting), "{waiting}");
    let skipped = queue.skipped_bytes.load(Relaxed) as usize;
    assert_eq!(waiting + skipped, 2_000 << 16);
}

#[test]
fn closing_writes_the_queue_and_takes_nothing_more() {
    let (queue, disk) = (Arc::new(Queue::default()), MemoryDisk::default());
    let mut keeper = Keeper::new();
    let place = keeper.add("out".to_owned(), Some(kept(&disk)));
    queue.push(place, piece(0));
    let thread = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || run(&queue, keeper, ())
    });
    queue.push(place, piece(1 << 16));
    queue.close(Closing::Sync);
    queue.push(place, piece(2 << 16));
    thread.join().unwrap();
    assert_eq!(queue.bytes.load(Relaxed), 0);
    let saved = KeptLog::open(disk.after_power_cut(|_| 0), LogSide::Out, CAPACITY, CAPACITY, Seal::Clear)
        .saved
        .unwrap();
    assert_eq!(ranges(&saved), [(0, 2 << 16)]);
}

#[test]
fn failing_disk_costs_only_one_log() {
    let (full, good) = (MemoryDisk::default(), MemoryDisk::default());
    let mut keeper = Keeper::new();
    let first = keeper.add("full".to_owned(), Some(kept(&full)));
    let second = keeper.add("good".to_owned(), Some(kept(&good)));
    keeper.write(first, &piece(0));
    keeper.flush();
    full.fail_from_now_on();
    for place in [first, second] {
        keeper.write(place, &piece(1 << 16));
        keeper.write(place, &piece(2 << 16));
    }
    keeper.flush();
    assert!(keeper.logs[first].given_up && !keeper.logs[second].given_up);
    let found = |disk: &MemoryDisk| {
        let disk = disk.after_power_cut(|len| len);
        ranges(&KeptLog::open(disk, LogSide::Out, CAPACITY, CAPACITY, Seal::Clear).saved.unwrap())
    };
    assert_eq!(found(&full), [(0, 1 << 16)]);
    assert_eq!(found(&good), [(1 << 16, 3 << 16)]);
}

#[test]
fn unwritable_log_is_reported_until_its_recovery() {
    let (queue, disk) = (Arc::new(Queue::default()), MemoryDisk::default());
    let mut keeper = Keeper::new();
    let place = keeper.add("out.log".to_owned(), Some(kept(&disk)));
    let other = keeper.add_unopened("in.log".to_owned(), "no room");
    let writer = LogWriter::new(queue, [place, other].map(|place| keeper.watched(place)));
    let told = || writer.unkept().map(|unkept| unkept.why).collect::<Vec<_>>();
    assert_eq!(told(), ["until the next start, nothing of in.log is kept: no room"]);
    keeper.write(place, &piece(0));
    keeper.flush();
    assert_eq!((told().len(), writer.lost()), (1, [0, 0]));
    disk.fail_from_now_on();
    keeper.write(place, &piece(1 << 16));
    keeper.write(place, &piece(2 << 16));
    keeper.write(other, &piece(0));
    assert_eq!((writer.lost(), writer.skipped()), ([2 << 16, 1 << 16], 0));
    let why = &told()[0];
    assert!(why.contains("nothing more of out.log is kept: it cannot be written"), "{why}");
    assert!(why.contains("oncewire cache clear"), "{why}");
    assert!(keeper.clear(place).is_err());
    assert!(told()[0].contains("it cannot be cleared"));
    disk.heal();
    assert!(keeper.clear(place).is_ok());
    assert_eq!(told().len(), 1, "it is kept again");
    keeper.write(place, &piece(3 << 16));
    assert_eq!(writer.lost(), [2 << 16, 1 << 16]);
}

#[test]
fn skipped_pieces_are_counted_per_log() {
    let writer = LogWriter::new(Arc::default(), [(0, Arc::default()), (1, Arc::default())]);
    for i in 0..2_000 {
        writer.write(LogSide::Inbound, piece(i << 16));
    }
    writer.write(LogSide::Out, piece(0));
    let [out, inbound] = writer.lost();
    assert_eq!(out, 1 << 16);
    assert!(inbound > 60 << 20, "{inbound}");
    assert_eq!(writer.skipped(), (out + inbound) >> 16);
}

#[test]
fn clearing_keeps_its_place_among_writes() {
    let (queue, disk) = (Arc::new(Queue::default()), MemoryDisk::default());
    let mut keeper = Keeper::new();
    let places = [0, 1].map(|_| keeper.add("log".to_owned(), Some(kept(&disk))));
    let writer =
        LogWriter::new(Arc::clone(&queue), [places[0], places[1]].map(|place| keeper.watched(place)));
    writer.write(LogSide::Out, piece(0));
    let [cleared, other] = writer.clear();
    writer.write(LogSide::Out, piece(1 << 16));
    let thread = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || run(&queue, keeper, ())
    });
    assert!(cleared.blocking_recv().unwrap().unwrap() >= 1 << 16);
    assert!(other.blocking_recv().unwrap().is_ok());
    queue.close(Closing::Sync);
    thread.join().unwrap();
    assert!(writer.clear()[0].try_recv().is_err(), "nothing is promised behind the end");
}

#[test]
fn cleared_log_is_empty_and_writable() {
    for seal in [Seal::Clear, Seal::new(Some(&oncewire_keys::StorageKey::from_bytes([1; 32])))] {
        let disk = MemoryDisk::default();
        let open = |disk: &MemoryDisk| {
            KeptLog::open(disk.after_power_cut(|_| 0), LogSide::Out, CAPACITY, CAPACITY, seal.clone()).saved
        };
        let mut keeper = Keeper::new();
        let log = KeptLog::open(disk.clone(), LogSide::Out, CAPACITY, CAPACITY, seal.clone()).log;
        let place = keeper.add("log".to_owned(), log);
        (0..3).for_each(|i| keeper.write(place, &piece(i << 16)));
        keeper.sync();
        assert!(open(&disk).is_some());
        (3..5).for_each(|i| keeper.write(place, &piece(i << 16)));
        assert!(keeper.clear(place).unwrap() > 4 << 16);
        assert!(open(&disk).is_none() && disk.len_of("out.log") == 0);
        keeper.write(place, &piece(9 << 16));
        keeper.sync();
        assert_eq!(ranges(&open(&disk).unwrap()), [(9 << 16, 10 << 16)]);
    }
}

#[test]
fn abandoned_log_is_cleared_and_resumes() {
    let disk = MemoryDisk::default();
    let mut keeper = Keeper::new();
    let place = keeper.add("log".to_owned(), Some(kept(&disk)));
    keeper.write(place, &piece(0));
    keeper.flush();
    disk.fail_from_now_on();
    keeper.write(place, &piece(1 << 16));
    assert!(keeper.clear(place).is_err(), "it does not say that it is done");
    disk.heal();
    keeper.write(place, &piece(2 << 16));
    assert!(keeper.clear(place).is_ok());
    keeper.write(place, &piece(3 << 16));
    keeper.flush();
    let saved = KeptLog::open(disk, LogSide::Out, CAPACITY, CAPACITY, Seal::Clear).saved.unwrap();
    assert_eq!(ranges(&saved), [(3 << 16, 4 << 16)]);
}

#[test]
fn settled_logs_are_on_disk_or_reported_failed() {
    let (queue, disk) = (Arc::new(Queue::default()), MemoryDisk::default());
    let mut keeper = Keeper::new();
    let place = keeper.add("out".to_owned(), Some(kept(&disk)));
    let writer = LogWriter::new(Arc::clone(&queue), [place, place].map(|place| keeper.watched(place)));
    let thread = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || run(&queue, keeper, ())
    });
    writer.write(LogSide::Out, piece(0));
    assert_eq!(writer.settle().blocking_recv(), Ok(true));
    let after = disk.after_power_cut(|_| 0);
    assert_eq!(
        ranges(
            &reading::read((&after, &Compactions::default()), LogSide::Out, CAPACITY, CAPACITY, &Seal::Clear)
                .unwrap()
        ),
        [(0, 1 << 16)]
    );
    disk.fail_from_now_on();
    writer.write(LogSide::Out, piece(1 << 16));
    assert_eq!(writer.settle().blocking_recv(), Ok(false));
    queue.close(Closing::Leave);
    thread.join().unwrap();
    assert!(writer.settle().blocking_recv().is_err());
}

#[test]
fn writer_ends_with_the_last_log() {
    let (queue, disk) = (Arc::new(Queue::default()), MemoryDisk::default());
    let mut keeper = Keeper::new();
    // Nothing of the second could be opened.
    let logs = [Some(kept(&disk)), None, None, None];
    let places = logs.map(|log| keeper.add("log".to_owned(), log));
    let [first, second] = [[places[0], places[1]], [places[2], places[3]]]
        .map(|places| LogWriter::new(Arc::clone(&queue), places.map(|place| keeper.watched(place))));
    let thread = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || run(&queue, keeper, ())
    });
    assert_eq!(second.close().blocking_recv(), Ok(true));
    first.write(LogSide::Out, piece(0));
    assert_eq!(first.settle().blocking_recv(), Ok(false), "one of its two is kept nowhere, and it was asked");
    first.write(LogSide::Out, piece(1 << 16));
    assert_eq!(first.close().blocking_recv(), Ok(true));
    thread.join().unwrap();
    assert!(queue.has_ended() && queue.wait_for_end(Instant::now()));
    for writer in [&first, &second] {
        writer.write(LogSide::Out, piece(2 << 16));
        assert!(writer.settle().blocking_recv().is_err() && writer.close().blocking_recv().is_err());
    }
    assert!(queue.state.lock().waiting.is_empty() && queue.bytes.load(Relaxed) == 0, "nothing piles up");
    let saved = KeptLog::open(disk.after_power_cut(|_| 0), LogSide::Out, CAPACITY, CAPACITY, Seal::Clear);
    assert_eq!(ranges(&saved.saved.unwrap()), [(0, 2 << 16)]);
}

#[test]
fn unknown_place_does_not_panic() {
    Keeper::<MemoryDisk>::new().write(7, &piece(0));
}
