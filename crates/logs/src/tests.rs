//! Persisted logs under crashes, damage and time.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use oncewire_keys::StorageKey;
use oncewire_link::{Log, LogOffset, LogSide, LogWrite, SavedLog};

use super::index::record_limit;
use super::kept::{KeptLog, Trouble};
use super::memory_disk::MemoryDisk;
use super::seal::Seal;

/// Small, for frequent wraps of the rings.
const CAPACITY: u64 = 1000;

/// Bytes unique to an epoch, offset and salt.
fn bytes(salt: u64, epoch: u64, start: u64, len: u64) -> Bytes {
    let byte = |offset: u64| {
        let mut word = (salt << 48) ^ (epoch << 40) ^ offset;
        for _ in 0..3 {
            word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        (word >> 56) as u8
    };
    (start..start + len).map(byte).collect()
}

pub(super) fn piece(epoch: u64, start: u64, len: u64) -> LogWrite {
    LogWrite { epoch, start, plain: bytes(0, epoch, start, len) }
}

/// Runs a test on logs in clear text and on encrypted ones.
fn in_both_forms(test: impl Fn(&Seal)) {
    [Seal::Clear, keyed(1)].iter().for_each(test);
}

fn keyed(byte: u8) -> Seal {
    Seal::new(Some(&StorageKey::from_bytes([byte; 32])))
}

fn open(disk: &MemoryDisk, seal: &Seal) -> (KeptLog<MemoryDisk>, Option<SavedLog>, Option<Trouble>) {
    let opened = KeptLog::open(disk.clone(), LogSide::Out, CAPACITY, CAPACITY, seal.clone());
    (opened.log.unwrap(), opened.saved, opened.trouble)
}

/// Start and end of each range.
pub(super) fn ranges(saved: Option<&SavedLog>) -> Vec<(u64, u64)> {
    saved.iter().flat_map(|saved| saved.ranges.iter()).map(|range| (range.start, range.end)).collect()
}

/// How many bytes were found.
fn total(saved: Option<&SavedLog>) -> u64 {
    ranges(saved).iter().map(|(start, end)| end - start).sum()
}

fn read(log: &Log, start: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    log.copy_to(LogOffset(start), len, &mut out);
    out
}

/// Expects every byte to be [`piece`]'s.
pub(super) fn check(saved: &SavedLog) {
    for range in saved.ranges.iter() {
        let len = range.end - range.start;
        assert!(read(&saved.log, range.start, len as usize) == bytes(0, saved.epoch, range.start, len));
    }
}

/// A disk with `count` pieces of 100 bytes in it.
fn filled(count: u64, seal: &Seal) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (mut log, ..) = open(&disk, seal);
    for i in 0..count {
        log.write(&piece(1, i * 100, 100)).unwrap();
    }
    log.flush().unwrap();
    disk
}

#[test]
fn new_directory_is_no_trouble() {
    in_both_forms(|seal| {
        let (_, saved, trouble) = open(&MemoryDisk::default(), seal);
        assert!(saved.is_none() && trouble.is_none());
    });
}

#[test]
fn written_pieces_are_found_in_any_order() {
    in_both_forms(|seal| {
        let disk = MemoryDisk::default();
        let (mut log, ..) = open(&disk, seal);
        for start in [200, 0, 100, 500] {
            log.write(&piece(3, start, 100)).unwrap();
        }
        log.flush().unwrap();
        let (_, saved, trouble) = open(&disk, seal);
        let saved = saved.unwrap();
        check(&saved);
        assert_eq!((saved.epoch, ranges(Some(&saved))), (3, vec![(0, 300), (500, 600)]));
        assert!(trouble.is_none());
        // Opening rewrites the index without loss.
        assert_eq!(ranges(open(&disk, seal).1.as_ref()), [(0, 300), (500, 600)]);
    });
}

#[test]
fn wrapped_ring_keeps_its_last_bytes() {
    in_both_forms(|seal| {
        let (_, saved, trouble) = open(&filled(25, seal), seal);
        check(saved.as_ref().unwrap());
        assert_eq!(ranges(saved.as_ref()), [(1500, 2500)]);
        assert!(trouble.is_none());
    });
}

#[test]
fn new_epoch_forgets_the_old_one() {
    in_both_forms(|seal| {
        let disk = filled(10, seal);
        let (mut log, ..) = open(&disk, seal);
        log.write(&piece(2, 1000, 50)).unwrap();
        log.flush().unwrap();
        let saved = open(&disk, seal).1.unwrap();
        check(&saved);
        assert_eq!((saved.epoch, ranges(Some(&saved))), (2, vec![(1000, 1050)]));
    });
}

#[test]
fn repeated_piece_counts_once() {
    in_both_forms(|seal| {
        let disk = MemoryDisk::default();
        let (mut log, ..) = open(&disk, seal);
        for start in [0, 100, 200, 100] {
            log.write(&piece(1, start, 100)).unwrap();
        }
        log.flush().unwrap();
        assert_eq!(ranges(open(&disk, seal).1.as_ref()), [(0, 300)]);
    });
}

#[test]
fn pieces_of_impossible_length_are_left_out() {
    in_both_forms(|seal| {
        let disk = filled(2, seal);
        let (mut log, ..) = open(&disk, seal);
        log.write(&piece(1, 200, 0)).unwrap();
        log.write(&piece(1, 200, CAPACITY + 1)).unwrap();
        let end = LogWrite { epoch: 1, start: u64::MAX, plain: Bytes::from_static(b"xy") };
        log.write(&end).unwrap();
        log.flush().unwrap();
        assert_eq!(ranges(open(&disk, seal).1.as_ref()), [(0, 200)]);
    });
}

#[test]
fn index_stays_small_with_tiny_pieces() {
    in_both_forms(|seal| {
        let (disk, capacity) = (MemoryDisk::default(), 256 << 10);
        let mut log =
            KeptLog::open(disk.clone(), LogSide::Out, capacity, capacity, seal.clone()).log.unwrap();
        for i in 0..20_000 {
            log.write(&piece(1, i * 40, 40)).unwrap();
        }
        log.flush().unwrap();
        assert!(
            disk.len_of("out.idx")
                <= seal.format().header_len() + (record_limit(capacity) + 64) * seal.format().record_len()
        );
        let opened = KeptLog::open(disk.clone(), LogSide::Out, capacity, capacity, seal.clone());
        check(opened.saved.as_ref().unwrap());
        let found = total(opened.saved.as_ref());
        // A joined record is overwritten as one.
        assert!(found >= capacity - (64 << 10), "{found} bytes");
        assert!(opened.trouble.is_none(), "{:?}", opened.trouble);
        // A start does not seal sealed records anew.
        let records = if matches!(seal, Seal::Clear) { 4 } else { record_limit(capacity) / 2 };
        assert!(disk.len_of("out.idx") <= seal.format().header_len() + records * seal.format().record_len());
    });
}

#[test]
fn unjoinable_gaps_cost_the_oldest_records() {
    in_both_forms(|seal| {
        let disk = MemoryDisk::default();
        let capacity = 1 << 20;
        let mut log =
            KeptLog::open(disk.clone(), LogSide::Out, capacity, capacity, seal.clone()).log.unwrap();
        for i in 0..5_000 {
            log.write(&piece(1, i * 2, 1)).unwrap();
        }
        log.flush().unwrap();
        assert!(
            disk.len_of("out.idx")
                <= seal.format().header_len() + (record_limit(capacity) + 64) * seal.format().record_len()
        );
        let saved = KeptLog::open(disk, LogSide::Out, capacity, capacity, seal.clone()).saved.unwrap();
        check(&saved);
        assert_eq!(saved.ranges.iter().next_back(), Some(9_998..9_999));
    });
}

#[test]
fn flipped_ring_byte_is_a_hole() {
    in_both_forms(|seal| {
        for at in (0..1000).step_by(37) {
            let disk = filled(10, seal);
            disk.damage("out.log", |bytes| bytes[at] ^= 0x10);
            let (_, saved, trouble) = open(&disk, seal);
            let saved = saved.unwrap();
            check(&saved);
            let found = total(Some(&saved));
            assert_eq!(found, 900, "byte {at}");
            assert!(matches!(trouble, Some(Trouble::BytesDamaged(100))), "{trouble:?}");
        }
    });
}

#[test]
fn flipped_index_byte_costs_only_later_records() {
    in_both_forms(|seal| {
        for at in 0..seal.format().header_len() + 10 * seal.format().record_len() {
            let disk = filled(10, seal);
            disk.damage("out.idx", |bytes| bytes[at] ^= 0x10);
            let (_, saved, trouble) = open(&disk, seal);
            let whole = at
                .checked_sub(seal.format().header_len())
                .map_or(0, |at| at / seal.format().record_len()) as u64;
            saved.iter().for_each(check);
            let found = total(saved.as_ref());
            assert_eq!(found, whole * 100, "byte {at}");
            assert!(trouble.is_some());
        }
    });
}

#[test]
fn truncated_or_missing_files_are_read_partly() {
    in_both_forms(|seal| {
        let disk = filled(10, seal);
        disk.damage("out.log", |bytes| bytes.truncate(450));
        assert_eq!(ranges(open(&disk, seal).1.as_ref()), [(0, 400)]);
        let disk = filled(10, seal);
        disk.damage("out.idx", |bytes| {
            bytes.truncate(seal.format().header_len() + 3 * seal.format().record_len() + 5)
        });
        let (_, saved, trouble) = open(&disk, seal);
        assert_eq!(ranges(saved.as_ref()), [(0, 300)]);
        assert!(matches!(trouble, Some(Trouble::IndexDamaged(3))));
        let disk = filled(10, seal);
        disk.remove("out.idx");
        let (_, saved, trouble) = open(&disk, seal);
        assert!(saved.is_none() && matches!(trouble, Some(Trouble::NoIndex)));
        assert_eq!(disk.len_of("out.log"), 0);
        let disk = filled(10, seal);
        disk.remove("out.log");
        let (_, saved, trouble) = open(&disk, seal);
        assert!(saved.is_none() && matches!(trouble, Some(Trouble::BytesDamaged(1000))));
    });
}

#[test]
fn index_of_absurd_length_is_not_read() {
    in_both_forms(|seal| {
        let disk = filled(10, seal);
        disk.damage("out.idx", |bytes| bytes.resize(1 << 20, 0));
        let (_, saved, trouble) = open(&disk, seal);
        assert!(saved.is_none() && matches!(trouble, Some(Trouble::IndexTooLong)));
    });
}

#[test]
fn another_capacity_or_side_starts_cold_and_goes_on() {
    in_both_forms(|seal| {
        let disk = filled(10, seal);
        let opened = KeptLog::open(disk.clone(), LogSide::Out, 2 * CAPACITY, 2 * CAPACITY, seal.clone());
        assert!(opened.saved.is_none() && matches!(opened.trouble, Some(Trouble::Header(_))));
        let mut log = opened.log.unwrap();
        log.write(&piece(1, 0, 100)).unwrap();
        log.flush().unwrap();
        let again = KeptLog::open(disk, LogSide::Out, 2 * CAPACITY, 2 * CAPACITY, seal.clone());
        assert_eq!(ranges(again.saved.as_ref()), [(0, 100)]);
        assert!(again.trouble.is_none());
    });
}

#[test]
fn read_only_disk_is_still_read() {
    in_both_forms(|seal| {
        let disk = filled(10, seal);
        disk.fail_from_now_on();
        let opened = KeptLog::open(disk, LogSide::Out, CAPACITY, CAPACITY, seal.clone());
        assert_eq!(ranges(opened.saved.as_ref()), [(0, 1000)]);
        assert!(opened.log.is_none() && matches!(opened.trouble, Some(Trouble::Unwritable(_))));
    });
}

/// One step of a gateway's life, seen by its logs.
#[derive(Clone, Debug)]
enum Step {
    /// Bytes are logged, some way beyond the head, with a skipped gap between.
    Write {
        skip: u64,
        len: u64,
    },
    /// The last piece comes again.
    Repeat,
    NewEpoch,
    Flush,
    Sync,
    /// The process is killed; this share (in 256ths) of its work since its start was done.
    Kill(u8),
    /// The power is cut; the number seeds the survival of unsynced changes.
    PowerCut(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..8, 1u64..180).prop_map(|(skip, len)| Step::Write { skip: skip.saturating_sub(5) * 20, len }),
        1 => Just(Step::Repeat),
        1 => Just(Step::NewEpoch),
        4 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => any::<u8>().prop_map(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerCut),
    ];
    prop::collection::vec(step, 1..120)
}

/// A gateway's out log, its disk, and the true bytes of each offset.
struct Life {
    seal: Seal,
    disk: MemoryDisk,
    log: KeptLog<MemoryDisk>,
    epoch: u64,
    head: u64,
    last: Option<LogWrite>,
    /// Different in every life: a reassigned offset has other bytes.
    salt: u64,
    truth: BTreeMap<(u64, u64), u8>,
    born_at: usize,
}

impl Life {
    fn start(seal: &Seal) -> Self {
        let disk = MemoryDisk::default();
        let (log, ..) = open(&disk, seal);
        let born_at = disk.changes();
        Self {
            seal: seal.clone(),
            disk,
            log,
            epoch: 1,
            head: 0,
            last: None,
            salt: 1,
            truth: BTreeMap::new(),
            born_at,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { skip, len } => {
                let start = self.head + skip;
                let plain = bytes(self.salt, self.epoch, start, len);
                self.truth.extend((start..).map(|offset| (self.epoch, offset)).zip(plain.iter().copied()));
                let write = LogWrite { epoch: self.epoch, start, plain };
                self.log.write(&write).unwrap();
                self.head = start + len;
                self.last = Some(write);
            }
            Step::Repeat => {
                if let Some(last) = self.last.as_ref().filter(|last| last.epoch == self.epoch) {
                    self.log.write(last).unwrap();
                }
            }
            Step::NewEpoch => self.epoch += 1,
            Step::Flush => self.log.flush().unwrap(),
            Step::Sync => self.log.sync().unwrap(),
            Step::Kill(share) => {
                let done = self.disk.changes() - self.born_at;
                let kept = self.born_at + done * usize::from(share) / 256;
                self.begin_again(self.disk.after_kill(kept, |len| len * usize::from(share) / 256));
            }
            Step::PowerCut(seed) => {
                let mut state = seed;
                self.begin_again(self.disk.after_power_cut(|len| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match (state >> 33) % 4 {
                        0 => 0,
                        1 => (state >> 40) as usize % (len + 1),
                        _ => len,
                    }
                }));
            }
        }
    }

    /// Starts the next life from the disk's content, and compares it with the truth.
    fn begin_again(&mut self, disk: MemoryDisk) {
        let (log, saved, _) = open(&disk, &self.seal);
        if let Some(saved) = &saved {
            let span = saved.ranges.iter().next().zip(saved.ranges.iter().next_back());
            let (first, last) = span.unwrap();
            assert!(last.end - first.start <= CAPACITY);
            for range in saved.ranges.iter() {
                let found = read(&saved.log, range.start, (range.end - range.start) as usize);
                for (offset, byte) in range.zip(found) {
                    assert_eq!(self.truth.get(&(saved.epoch, offset)), Some(&byte), "offset {offset}");
                }
            }
        }
        self.head =
            saved.as_ref().and_then(|saved| saved.ranges.iter().next_back()).map_or(0, |last| last.end);
        self.epoch = saved.map_or(1, |saved| saved.epoch);
        self.born_at = disk.changes();
        (self.disk, self.log, self.last) = (disk, log, None);
        self.salt += 1;
    }
}

#[test]
fn lost_pieces_do_not_return_with_a_power_cut() {
    in_both_forms(|seal| {
        let mut life = Life::start(seal);
        life.step(&Step::Write { skip: 0, len: 100 });
        life.step(&Step::Sync);
        // The first bytes are overwritten, with no record of that when the process is killed: all is lost.
        life.step(&Step::Write { skip: CAPACITY - 100, len: 100 });
        life.begin_again(life.disk.after_kill(usize::MAX, |len| len));
        assert_eq!(life.head, 0);
        // Their offsets are assigned again, and the power cut restores their old bytes.
        life.step(&Step::Write { skip: 0, len: 100 });
        life.begin_again(life.disk.after_power_cut(|_| 0));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn crash_costs_ranges_and_never_gives_wrong_ones(steps in steps()) {
        in_both_forms(|seal| {
            let mut life = Life::start(seal);
            steps.iter().for_each(|step| life.step(step));
            life.step(&Step::PowerCut(0));
        });
    }

    #[test]
    fn synced_pieces_survive_a_power_cut(lens in prop::collection::vec(1u64..180, 1..30)) {
        for seal in [Seal::Clear, keyed(1)] {
        let disk = MemoryDisk::default();
        let (mut log, ..) = open(&disk, &seal);
        let mut head = 0;
        for len in &lens {
            log.write(&piece(1, head, *len)).unwrap();
            head += len;
        }
        log.sync().unwrap();
        let (_, saved, _) = open(&disk.after_power_cut(|_| 0), &seal);
        let saved = saved.unwrap();
        check(&saved);
        let found = ranges(Some(&saved));
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].1, head);
        prop_assert!(found[0].0 <= head.saturating_sub(CAPACITY) + 180);
        }
    }
}
