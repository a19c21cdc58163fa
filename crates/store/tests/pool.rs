//! The threads of a store.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use common::{Gate, Meddled, Op, block, options, parts, tag};
use oncewire_store::pool::{Full, Limits, Pool, ReadOutcome};
use oncewire_store::{Memory, Slow, Store};

const LIMITS: Limits = Limits { readers: 2, reads: 8, jobs: 4, job_bytes: 1 << 20 };

/// Longer than anything here takes on the busiest machine.
const LONG: Duration = Duration::from_secs(60);

fn pool(memory: &Memory) -> Pool {
    let (store, _) = Store::open(Arc::new(memory.clone()), &options(20)).unwrap();
    Pool::start(store, LIMITS).unwrap()
}

fn read(pool: &Pool, content: &[u8], to: &Sender<ReadOutcome>) -> Result<(), Full> {
    let (own, to) = (tag(content), to.clone());
    pool.read(
        own,
        content.len() as u32,
        move |bytes| tag(bytes) == own,
        move |outcome| to.send(outcome).unwrap(),
    )
}

fn put(pool: &Pool, number: u64) -> Result<(), Full> {
    pool.ingest(50_000, move |store| {
        let block = block(number, 50_000);
        store.insert(&block, &parts(&block), 0);
    })
}

/// Keeps the writing thread busy until the sender is dropped or used.
fn hold(pool: &Pool) -> Sender<()> {
    let (release, wait) = channel();
    let (begun, has_begun) = channel();
    pool.ingest(1, move |_| {
        begun.send(()).unwrap();
        let _ = wait.recv();
    })
    .unwrap();
    has_begun.recv_timeout(LONG).unwrap();
    release
}

fn next(from: &Receiver<ReadOutcome>) -> Option<Vec<u8>> {
    from.recv_timeout(LONG).unwrap().unwrap()
}

#[test]
fn read_finds_the_chunks_of_an_earlier_job() {
    let pool = pool(&Memory::default());
    let release = hold(&pool);
    put(&pool, 1).unwrap();
    let (to, from) = channel();
    read(&pool, &block(1, 50_000), &to).unwrap();
    until("it waits for the jobs, and not for the disk", || pool.load().queued == 0);
    release.send(()).unwrap();
    assert_eq!(next(&from).unwrap(), block(1, 50_000));
    pool.close().unwrap();
}

#[test]
fn read_with_a_find_waits_for_no_job() {
    let pool = pool(&Memory::default());
    put(&pool, 1).unwrap();
    let (to, from) = channel();
    read(&pool, &block(1, 50_000), &to).unwrap();
    assert!(next(&from).is_some());
    let release = hold(&pool);
    read(&pool, &block(1, 50_000), &to).unwrap();
    assert!(next(&from).is_some(), "the job is still held");
    drop(release);
    pool.close().unwrap();
}

#[test]
fn read_of_present_content_waits_for_no_job() {
    let pool = pool(&Memory::default());
    put(&pool, 1).unwrap();
    let ((to, from), (later, _later)) = (channel(), channel());
    read(&pool, &block(1, 50_000), &to).unwrap();
    assert!(next(&from).is_some());
    let release = hold(&pool);
    put(&pool, 2).unwrap();
    read(&pool, &block(2, 50_000), &later).unwrap();
    for (number, is_there) in [(1, true), (2, false)] {
        let (content, to) = (block(number, 50_000), to.clone());
        let own = tag(&content);
        let reply = move |outcome| to.send(outcome).unwrap();
        pool.read_now(own, 50_000, move |bytes| tag(bytes) == own, reply).unwrap();
        assert_eq!(next(&from).is_some(), is_there, "{number}, while the job is held");
    }
    drop(release);
    pool.close().unwrap();
}

#[test]
fn chunk_from_no_job_is_absent() {
    let pool = pool(&Memory::default());
    put(&pool, 1).unwrap();
    let (to, from) = channel();
    read(&pool, &block(2, 50_000), &to).unwrap();
    assert!(next(&from).is_none());
    pool.close().unwrap();
}

#[test]
fn queues_are_bounded_and_their_lengths_are_told() {
    let pool = pool(&Memory::default());
    let release = hold(&pool);
    for number in 0..4 {
        put(&pool, number).unwrap();
    }
    assert_eq!(put(&pool, 5), Err(Full));
    assert_eq!(pool.load().ingest_bytes, 4 * 50_000 + 1);
    let (to, from) = channel();
    // None of them is there, so all wait for the jobs.
    for number in 100..108 {
        read(&pool, &block(number, 1000), &to).unwrap();
    }
    assert_eq!(read(&pool, &block(108, 1000), &to), Err(Full));
    until("the disk has nothing to do", || pool.load().queued == 0);
    assert_eq!(read(&pool, &block(108, 1000), &to), Err(Full), "they wait all the same");
    drop(release);
    for _ in 0..8 {
        assert!(next(&from).is_none());
    }
    pool.close().unwrap();
}

#[test]
fn bytes_of_jobs_are_bounded_too() {
    let pool = pool(&Memory::default());
    let release = hold(&pool);
    pool.ingest(1 << 30, |_| {}).unwrap();
    assert_eq!(pool.ingest(1, |_| {}), Err(Full));
    drop(release);
    pool.close().unwrap();
}

#[test]
fn closing_finishes_waiting_work() {
    let memory = Memory::default();
    let pool = pool(&memory);
    let release = hold(&pool);
    put(&pool, 1).unwrap();
    let (to, from) = channel();
    read(&pool, &block(1, 50_000), &to).unwrap();
    drop(release);
    pool.close().unwrap();
    assert_eq!(next(&from).unwrap(), block(1, 50_000));
    let (store, opened) = Store::open(Arc::new(memory), &options(20)).unwrap();
    assert!(opened.index_kept);
    assert!(common::read(&store, &block(1, 50_000)).unwrap());
}

#[test]
fn panicking_job_harms_no_others() {
    let pool = pool(&Memory::default());
    pool.ingest(1, |_| panic!("as the test has it")).unwrap();
    put(&pool, 1).unwrap();
    let (to, from) = channel();
    read(&pool, &block(1, 50_000), &to).unwrap();
    assert!(next(&from).is_some());
    pool.close().unwrap();
}

#[test]
fn service_time_is_the_disks_shared_by_the_readers() {
    let memory = Memory::default();
    {
        let pool = pool(&memory);
        put(&pool, 1).unwrap();
        pool.close().unwrap();
    }
    let seek = Duration::from_millis(3);
    let slow = Slow::new(Arc::new(memory), seek, 1 << 40);
    let (store, _) = Store::open(Arc::new(slow), &options(20)).unwrap();
    let pool = Pool::start(store, LIMITS).unwrap();
    assert_eq!(pool.load().service_time, Duration::ZERO);
    let (to, from) = channel();
    read(&pool, &block(1, 50_000)[..8192], &to).unwrap();
    assert!(next(&from).is_some());
    // A lower limit alone: how much longer it takes is the machine's affair.
    assert!(pool.load().service_time >= seek / LIMITS.readers as u32);
    pool.close().unwrap();
}

/// Waits until it holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// Fills two segments, and opens the store again behind meddled reads.
fn filled(meddled: impl FnOnce(&Memory) -> Meddled) -> Pool {
    filled_with(LIMITS, meddled)
}

fn filled_with(limits: Limits, meddled: impl FnOnce(&Memory) -> Meddled) -> Pool {
    let memory = Memory::default();
    let first = pool(&memory);
    // More than a segment, with its beginning in the first.
    for number in 1..30 {
        until("there is room", || put(&first, number).is_ok());
    }
    first.close().unwrap();
    let (store, _) = Store::open(Arc::new(meddled(&memory)), &options(20)).unwrap();
    Pool::start(store, limits).unwrap()
}

#[test]
fn memory_waits_for_no_disk_and_shared_reads_are_one() {
    let gate = Gate::default();
    let pool = filled_with(Limits { readers: 1, ..LIMITS }, |memory| {
        gate.before(memory, |name| name == "0000000000000001.seg")
    });
    gate.shut(true);
    let (to, from) = channel();
    read(&pool, &block(1, 50_000), &to).unwrap();
    until("the read has begun", || pool.load().oldest_read > Duration::ZERO);
    put(&pool, 99).unwrap();
    until("it is put", || pool.load().ingest_bytes == 0);
    for number in [2, 3, 2, 99, 3, 2] {
        read(&pool, &block(number, 50_000), &to).unwrap();
    }
    let before = pool.store().counts();
    gate.shut(false);
    for number in [1, 99, 2, 2, 2, 3, 3] {
        assert_eq!(next(&from), Some(block(number, 50_000)), "{number}");
    }
    let after = pool.store().counts();
    assert_eq!((after.hits - before.hits, after.hit_bytes - before.hit_bytes), (7, 7 * 50_000));
    // The held one was counted at its begin.
    assert_eq!(after.disk_reads - before.disk_reads, 2);
    pool.close().unwrap();
}

#[test]
fn one_reader_held_by_the_disk_does_not_hold_others() {
    let gate = Gate::default();
    let pool = filled(|memory| gate.before(memory, |name| name == "0000000000000001.seg"));
    gate.shut(true);
    let ((held, held_back), (to, from)) = (channel(), channel());
    read(&pool, &block(1, 50_000), &held).unwrap();
    until("the read has begun", || pool.load().oldest_read > Duration::ZERO);
    for number in 20..30 {
        read(&pool, &block(number, 50_000), &to).unwrap();
        assert_eq!(next(&from), Some(block(number, 50_000)));
    }
    let before = pool.load().oldest_read;
    until("it grows older", || pool.load().oldest_read > before);
    until("the other reader is idle", || pool.load().stalled == Duration::ZERO);
    assert!(held_back.try_recv().is_err());
    gate.shut(false);
    assert_eq!(next(&held_back), Some(block(1, 50_000)));
    until("nothing is read", || pool.load().oldest_read == Duration::ZERO);
    pool.close().unwrap();
}

#[test]
fn stall_of_all_readers_is_reported_and_waiting_reads_leave() {
    let gate = Gate::default();
    let pool = filled(|memory| gate.before(memory, |_| true));
    gate.shut(true);
    let (to, from) = channel();
    for number in 1..8 {
        read(&pool, &block(number, 50_000), &to).unwrap();
    }
    until("both readers are held", || pool.load().stalled > Duration::from_millis(1));
    assert!(pool.load().oldest_read >= pool.load().stalled);
    pool.turn_away().tell();
    for _ in 0..5 {
        let fault = from.recv_timeout(LONG).unwrap().unwrap_err();
        assert_eq!(fault.to_string(), "chunk store: not read, since the disk hangs");
    }
    assert_eq!(pool.load().queued, 2, "those that are being read");
    gate.shut(false);
    assert!(next(&from).is_some() && next(&from).is_some());
    read(&pool, &block(7, 50_000), &to).unwrap();
    assert_eq!(next(&from), Some(block(7, 50_000)), "it goes on");
    pool.close().unwrap();
}

#[test]
fn pool_on_a_hanging_disk_can_be_abandoned_at_once() {
    let gate = Gate::default();
    let pool = filled(|memory| gate.before(memory, |_| true));
    gate.shut(true);
    let (to, from) = channel();
    for number in 1..8 {
        read(&pool, &block(number, 50_000), &to).unwrap();
    }
    until("both readers are held", || pool.load().stalled > Duration::ZERO);
    // It returns, or the test hangs.
    pool.abandon();
    assert_eq!((0..5).filter(|_| from.recv_timeout(LONG).unwrap().is_err()).count(), 5);
    gate.shut(false);
}

#[test]
fn panicking_read_is_answered_and_leaves_its_place() {
    let pool = filled(|memory| {
        let meddle = |op: Op, name: &str, at: u64, len: usize| {
            let is_it = op == Op::Read && name == "0000000000000001.seg" && at > 0 && len == 50_000;
            assert!(!is_it, "as the test has it");
            Ok(())
        };
        Meddled(memory.clone(), Box::new(meddle))
    });
    let (to, from) = channel();
    for _ in 0..2 * LIMITS.reads {
        read(&pool, &block(1, 50_000), &to).unwrap();
        assert!(!from.recv_timeout(LONG).unwrap().unwrap_err().is_damage());
    }
    until("nobody waits", || pool.load().queued == 0);
    read(&pool, &block(29, 50_000), &to).unwrap();
    assert!(next(&from).is_some());
    pool.close().unwrap();
}

#[test]
fn first_job_passes_a_full_queue_without_delaying_reads() {
    let pool = pool(&Memory::default());
    let release = hold(&pool);
    let (order, done) = channel();
    let note = |what| {
        let order = order.clone();
        move |_: &Store| order.send(what).unwrap()
    };
    for _ in 0..4 {
        pool.ingest(1, note("behind")).unwrap();
    }
    assert_eq!(pool.ingest(1, note("too many")), Err(Full));
    let (to, from) = channel();
    read(&pool, &block(1, 1000), &to).unwrap();
    pool.ingest_first(note("first")).unwrap();
    assert_eq!(pool.ingest_first(note("a second one")), Err(Full), "one at a time");
    drop(release);
    assert!(next(&from).is_none());
    let order: Vec<_> = (0..5).map(|_| done.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(order, ["first", "behind", "behind", "behind", "behind"]);
    // No read waits for a job with precedence, so the count of finished jobs is right behind it.
    let release = hold(&pool);
    pool.ingest_first(note("first")).unwrap();
    put(&pool, 1).unwrap();
    read(&pool, &block(1, 50_000), &to).unwrap();
    drop(release);
    assert_eq!(next(&from), Some(block(1, 50_000)));
    pool.close().unwrap();
}

#[test]
fn patient_reads_are_turned_away_and_others_served() {
    let gate = Gate::default();
    let pool = filled(|memory| gate.before(memory, |name| name == "0000000000000001.seg"));
    let release = hold(&pool);
    let ((patient, told), (to, from)) = (channel(), channel());
    read(&pool, &block(100, 50_000), &patient).unwrap();
    // Both readers have looked for it in vain once they are at something else.
    gate.shut(true);
    for number in [1, 2, 1, 2] {
        read(&pool, &block(number, 50_000), &to).unwrap();
    }
    until("both readers are held", || pool.load().stalled > Duration::ZERO);
    assert_eq!(pool.load().queued, 4, "they are read, or wait for a reader");
    pool.turn_away_patient().tell();
    assert!(told.recv_timeout(LONG).unwrap().is_err());
    assert_eq!(pool.load().queued, 4, "as before");
    gate.shut(false);
    let mut found: Vec<_> = (0..4).map(|_| next(&from).unwrap()).collect();
    found.sort_by_key(|found| *found != block(1, 50_000));
    assert_eq!(found, [1, 1, 2, 2].map(|number| block(number, 50_000)));
    drop(release);
    pool.close().unwrap();
}

/// After a lost wake-up, a read would wait with all threads idle, or the pool would not end: nothing else happens
/// here to wake anybody later.
#[test]
fn no_read_and_no_job_is_left_to_sleeping_threads() {
    for readers in [1, 2, 4] {
        let (store, _) = Store::open(Arc::new(Memory::default()), &options(20)).unwrap();
        let pool = Pool::start(store, Limits { readers, ..LIMITS }).unwrap();
        std::thread::scope(|scope| {
            for asker in 0..2 {
                let pool = &pool;
                scope.spawn(move || {
                    let (to, from) = channel();
                    for round in 0..600 {
                        let number = asker * 1000 + round;
                        let content = block(number, 4096);
                        let stored = content.clone();
                        let job = move |store: &Store| _ = store.insert(&stored, &parts(&stored), 0);
                        until("there is room", || pool.ingest(1, job.clone()).is_ok());
                        // One present, mostly behind the job, and one always absent; then nobody does anything.
                        read(pool, &content, &to).unwrap();
                        read(pool, &block(number | 1 << 40, 4096), &to).unwrap();
                        let answers = [next(&from), next(&from)];
                        assert!(answers.contains(&Some(content)) && answers.contains(&None), "{number}");
                    }
                });
            }
        });
        pool.close().unwrap();
    }
}
