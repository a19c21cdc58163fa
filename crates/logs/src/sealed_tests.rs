//! Encrypted logs: secrecy on disk, and changes of the key.

use bytes::Bytes;

use oncewire_keys::StorageKey;
use oncewire_link::{LogSide, LogWrite, SavedLog};

use super::index::{HeaderError, record_limit};
use super::kept::{KeptLog, Opened, Trouble};
use super::memory_disk::MemoryDisk;
use super::reading;
use super::seal::Seal;

const CAPACITY: u64 = 4000;

/// A text to be found in no file.
const SECRET: &[u8] = b"account 4711, password swordfish";

fn keyed(byte: u8) -> Seal {
    Seal::new(Some(&StorageKey::from_bytes([byte; 32])))
}

/// A piece filled with the secret and its number.
fn piece(number: u64, len: usize) -> LogWrite {
    let plain: Bytes = SECRET.iter().copied().cycle().skip(number as usize % 7).take(len).collect();
    LogWrite { epoch: 1, start: number * len as u64, plain }
}

fn open(disk: &MemoryDisk, side: LogSide, seal: &Seal) -> Opened<MemoryDisk> {
    KeptLog::open(disk.clone(), side, CAPACITY, CAPACITY, seal.clone())
}

fn filled(seal: &Seal) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut log = open(&disk, LogSide::Out, seal).log.unwrap();
    (0..10).for_each(|number| log.write(&piece(number, 100)).unwrap());
    log.flush().unwrap();
    disk
}

fn ranges(saved: Option<&SavedLog>) -> Vec<(u64, u64)> {
    saved.iter().flat_map(|saved| saved.ranges.iter()).map(|range| (range.start, range.end)).collect()
}

/// Expects every byte to be [`piece`]'s for `len` bytes.
fn check(saved: &SavedLog, len: u64) {
    for range in saved.ranges.iter() {
        let mut found = Vec::new();
        saved.log.copy_to(
            oncewire_link::LogOffset(range.start),
            (range.end - range.start) as usize,
            &mut found,
        );
        for (offset, byte) in range.zip(found) {
            let (number, at) = (offset / len, (offset % len) as usize);
            assert_eq!(piece(number, len as usize).plain[at], byte, "offset {offset}");
        }
    }
}

#[test]
fn encrypted_files_hide_the_content() {
    assert!(filled(&Seal::Clear).holds(SECRET), "the test looks in the right place");
    let disk = filled(&keyed(1));
    assert!(!disk.holds(&SECRET[..8]));
    let opened = open(&disk, LogSide::Out, &keyed(1));
    check(opened.saved.as_ref().unwrap(), 100);
    assert_eq!(ranges(opened.saved.as_ref()), [(0, 1000)]);
    assert!(!disk.holds(&SECRET[..8]), "nor does reading it write it down");
}

#[test]
fn another_key_starts_cold_says_so_and_goes_on() {
    let disk = filled(&keyed(1));
    let opened = open(&disk, LogSide::Out, &keyed(2));
    assert!(opened.saved.is_none());
    assert!(matches!(opened.trouble, Some(Trouble::Header(HeaderError::OtherKey))), "{:?}", opened.trouble);
    assert!(opened.trouble.unwrap().to_string().contains("encrypt_key_file"));
    let mut log = opened.log.unwrap();
    log.write(&piece(3, 100)).unwrap();
    log.flush().unwrap();
    assert_eq!(ranges(open(&disk, LogSide::Out, &keyed(2)).saved.as_ref()), [(300, 400)]);
}

#[test]
fn clear_text_is_overwritten_when_a_key_is_set() {
    let disk = filled(&Seal::Clear);
    let before = disk.changes();
    let opened = open(&disk, LogSide::Out, &keyed(1));
    assert!(opened.saved.is_none());
    assert!(matches!(opened.trouble, Some(Trouble::Header(HeaderError::Clear))), "{:?}", opened.trouble);
    assert!(!disk.holds(&SECRET[..8]));
    // Ahead of the cut, the file's bytes are zeros on the disk; a process killed on the way does it again.
    let overwritten = disk.after_kill(before + 2, |len| len);
    assert_eq!(overwritten.len_of("out.log"), 1000);
    assert!(!overwritten.holds(&SECRET[..8]));
    let again = open(&disk.after_kill(before + 1, |len| len / 2), LogSide::Out, &keyed(1));
    assert!(matches!(again.trouble, Some(Trouble::Header(HeaderError::Clear))), "{:?}", again.trouble);
}

#[test]
fn bytes_of_unknown_form_are_overwritten_too() {
    let disk = filled(&Seal::Clear);
    disk.remove("out.idx");
    assert!(matches!(open(&disk, LogSide::Out, &keyed(1)).trouble, Some(Trouble::NoIndex)));
    assert!(!disk.holds(&SECRET[..8]));
}

#[test]
fn encrypted_log_without_its_key_starts_cold() {
    let disk = filled(&keyed(1));
    let opened = open(&disk, LogSide::Out, &Seal::Clear);
    assert!(opened.saved.is_none());
    assert!(matches!(opened.trouble, Some(Trouble::Header(HeaderError::Sealed))), "{:?}", opened.trouble);
    assert_eq!(disk.len_of("out.log"), 0);
}

#[test]
fn swapped_bytes_become_holes() {
    let disk = filled(&keyed(1));
    disk.damage("out.log", |bytes| {
        let (first, rest) = bytes.split_at_mut(100);
        first.swap_with_slice(&mut rest[200..300]);
    });
    let opened = open(&disk, LogSide::Out, &keyed(1));
    check(opened.saved.as_ref().unwrap(), 100);
    assert_eq!(ranges(opened.saved.as_ref()), [(100, 300), (400, 1000)]);
    assert!(matches!(opened.trouble, Some(Trouble::BytesDamaged(200))));
}

#[test]
fn swapped_records_are_still_read() {
    let disk = filled(&keyed(1));
    let (head, len) = (keyed(1).format().header_len(), keyed(1).format().record_len());
    disk.damage("out.idx", |bytes| {
        let (first, second) = bytes[head..].split_at_mut(len);
        first.swap_with_slice(&mut second[..len]);
    });
    let opened = open(&disk, LogSide::Out, &keyed(1));
    check(opened.saved.as_ref().unwrap(), 100);
    assert_eq!(ranges(opened.saved.as_ref()), [(0, 1000)]);
}

#[test]
fn bytes_of_one_side_are_invalid_for_the_other() {
    let disk = filled(&keyed(1));
    let mut inbound = open(&disk, LogSide::Inbound, &keyed(1)).log.unwrap();
    (0..10).for_each(|number| inbound.write(&piece(number, 100)).unwrap());
    inbound.flush().unwrap();
    let mut theirs = Vec::new();
    disk.damage("in.log", |bytes| theirs.clone_from(bytes));
    disk.damage("out.log", |bytes| bytes.clone_from(&theirs));
    assert!(open(&disk, LogSide::Out, &keyed(1)).saved.is_none());
}

/// Joining seals small pieces anew: a crash in the middle of it may cost them, but gives no wrong byte.
#[test]
fn crash_during_joining_costs_at_most_the_joined_pieces() {
    let disk = MemoryDisk::default();
    let mut log = open(&disk, LogSide::Out, &keyed(1)).log.unwrap();
    let mut joins = 0..0;
    for number in 0.. {
        let before = disk.changes();
        log.write(&piece(number, 10)).unwrap();
        log.flush().unwrap();
        // A piece and its record are two changes.
        if disk.changes() > before + 3 {
            joins = before..disk.changes();
            break;
        }
    }
    assert!(disk.len_of("out.idx") < 100 + keyed(1).format().record_len() * record_limit(CAPACITY) / 8);
    for (changes, share) in joins.flat_map(|changes| [(changes, 1), (changes, 2), (changes, 4)]) {
        let saved = open(&disk.after_kill(changes, |len| len / share), LogSide::Out, &keyed(1)).saved;
        saved.iter().for_each(|saved| check(saved, 10));
    }
    let saved = open(&disk, LogSide::Out, &keyed(1)).saved.unwrap();
    check(&saved, 10);
    let found: u64 = ranges(Some(&saved)).iter().map(|(start, end)| end - start).sum();
    assert!(found > CAPACITY - 200, "{found}");
}

#[test]
fn read_during_compaction_finds_the_whole_log() {
    let disk = MemoryDisk::default();
    let mut log = open(&disk, LogSide::Out, &keyed(1)).log.unwrap();
    let (pieces, compactions) = (record_limit(CAPACITY) as u64, log.compactions());
    let mut write = |number| {
        log.write(&piece(number, 10)).unwrap();
        log.flush().unwrap();
    };
    (0..pieces).for_each(&mut write);
    let before = disk.len_of("out.idx");
    // The next record is one too many.
    disk.before_reading("out.log", move || {
        log.write(&piece(pieces, 10)).unwrap();
        log.flush().unwrap();
    });
    let read = reading::read((&disk, &compactions), LogSide::Out, CAPACITY, CAPACITY, &keyed(1)).unwrap();
    assert!(disk.len_of("out.idx") < before, "nothing was compacted");
    check(&read, 10);
    assert_eq!(read.ranges.iter().next_back().map(|range| range.end), Some((pieces + 1) * 10));
    assert!(read.ranges.total() > CAPACITY - 200, "{}", read.ranges.total());
}
