//! Adaptation to traffic of several kinds.

use std::collections::BTreeSet;

use super::*;
use crate::{Markers, SampleByte};

const BLOCK: usize = 64 << 10;

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }

    /// Content with each of `letters` as frequent as there.
    fn of(&mut self, letters: &[u8], len: usize) -> Vec<u8> {
        (0..len).map(|_| letters[self.below(letters.len())]).collect()
    }
}

/// Letters about as frequent as in English.
const ENGLISH: &[u8] = b"                eeeeeeeeeettttttttaaaaaaoooooonnnnniiiiiisssssrrrrrhhhhhddddllllccuummwwffggyyppbbvk.,\n";
const DNA: &[u8] = b"ACGT";

/// Passes `content` on by blocks until there is another table, at most `times` times.
fn learn(adaptation: &mut Adaptation, content: &[u8], times: usize) -> Option<SampleTable> {
    (0..times).flat_map(|_| content.chunks(BLOCK)).find_map(|block| {
        adaptation.note_content(block);
        adaptation.next_table()
    })
}

/// Returns the part of the markers of `new` with a window also marked in `old`, times their share of one in `period`:
/// the possible finds of a table of fingerprints.
fn found_again(old: &[u8], new: &[u8], period: usize, table: SampleTable) -> f64 {
    let windows = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let mut markers = Vec::new();
        SampleByte::new(period, 32, table).select(bytes, 0..bytes.len(), &mut markers);
        markers.iter().map(|&marker| bytes[marker as usize..][..32].to_vec()).collect()
    };
    let known: BTreeSet<Vec<u8>> = windows(old).into_iter().collect();
    windows(new).iter().filter(|window| known.contains(*window)).count() as f64 * period as f64
        / new.len() as f64
}

/// Inserts a few bytes every 3 KiB or so.
fn edited(random: &mut Random, content: &[u8]) -> Vec<u8> {
    let mut edited = Vec::new();
    for piece in content.chunks(3001) {
        let len = 1 + random.below(40);
        edited.extend(random.of(b"<edited>", len));
        edited.extend_from_slice(piece);
    }
    edited
}

#[test]
fn content_without_markers_is_learnt_from_a_megabyte() {
    for (name, letters) in [("DNA", DNA), ("capitals", b"ABCDEFGHJK")] {
        for period in [32, 64, 512] {
            let mut random = Random(5);
            let content = random.of(letters, 1 << 20);
            let again = edited(&mut random, &content);
            assert_eq!(found_again(&content, &again, period, SampleTable::PAPER), 0.0);
            let mut adaptation = Adaptation::new(SampleTable::PAPER, period);
            let table = learn(&mut adaptation, &content, 1).expect(name);
            assert_eq!(adaptation.table(), table);
            let found = found_again(&content, &again, period, table);
            // A skip of 256 bytes and few kinds of bytes fall into step late.
            let expected = if period == 512 { 0.1 } else { 0.6 };
            assert!(found > expected, "{name}, {period}, {table}: {found:.2}");
        }
    }
}

#[test]
fn text_of_two_bytes_a_letter_gets_its_table() {
    let mut random = Random(6);
    let content: Vec<u8> = random.of(ENGLISH, 1 << 20).into_iter().flat_map(|letter| [letter, 0]).collect();
    let again = edited(&mut random, &content);
    let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
    let table = learn(&mut adaptation, &content, 1).unwrap();
    assert!(!table.contains(0), "{table}");
    let (before, after) =
        (found_again(&content, &again, 64, SampleTable::PAPER), found_again(&content, &again, 64, table));
    assert!(after > before, "{before:.2} to {after:.2} by {table}");
}

#[test]
fn english_keeps_the_papers_table_at_the_papers_periods() {
    for period in [32, 64] {
        let content = Random(7).of(ENGLISH, 8 << 20);
        let mut adaptation = Adaptation::new(SampleTable::PAPER, period);
        assert_eq!(learn(&mut adaptation, &content, 1), None, "{period}");
    }
}

#[test]
fn half_of_the_traffic_does_not_hide_the_other() {
    let mut random = Random(8);
    let content: Vec<u8> =
        (0..64).flat_map(|block| random.of(if block % 2 == 0 { ENGLISH } else { DNA }, BLOCK)).collect();
    let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
    let table = learn(&mut adaptation, &content, 1).unwrap();
    for letters in [ENGLISH, DNA] {
        let share =
            letters.iter().filter(|&&byte| table.contains(byte)).count() as f64 / letters.len() as f64;
        assert!((0.1..0.6).contains(&share), "{table} has {share:.2}");
    }
}

#[test]
fn redundant_content_counts_twice() {
    let mut random = Random(9);
    let (text, codes) = (random.of(ENGLISH, 1 << 20), random.of(b"BCDFGHJKLM", 1 << 20));
    let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
    for (number, (text, codes)) in text.chunks(BLOCK).zip(codes.chunks(BLOCK)).enumerate() {
        // One block in eight is of another kind, too few to matter, but all redundancy is there.
        adaptation.note_content(if number % 8 == 7 { codes } else { text });
        adaptation.note_copied(codes);
        if let Some(table) = adaptation.next_table() {
            assert!(b"BCDFGHJKLM".iter().any(|&byte| table.contains(byte)), "{table}");
            return;
        }
    }
    panic!("no table was learnt");
}

#[test]
fn ever_changing_traffic_does_not_keep_changing_the_table() {
    let mut random = Random(10);
    let kinds: Vec<Vec<u8>> = [DNA, b"0123456789", b"abcdefghij", b"+-*/<>=!?&"]
        .map(|letters| random.of(letters, 2 << 20))
        .to_vec();
    let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
    let mut changes = 0;
    for content in kinds.iter().cycle().take(128) {
        for block in content.chunks(BLOCK) {
            adaptation.note_content(block);
            changes += u32::from(adaptation.next_table().is_some());
        }
    }
    // 256 MiB; the waits between changes are 0.5, 1, 2, … and 64 MiB.
    assert!(changes <= 11, "{changes} changes");
}

#[test]
fn noise_runs_and_short_blocks_change_nothing() {
    let mut random = Random(11);
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
    assert_eq!(learn(&mut adaptation, &vec![0; 8 << 20], 1), None);
    for len in [0, 1, 2, 3, 250, 251, 252] {
        adaptation.note_content(&vec![7; len]);
        adaptation.note_copied(&vec![7; len]);
    }
    assert_eq!(adaptation.next_table(), None);
    // In noise, some table with more bytes marks more; the choice of bytes does not matter, and it comes once.
    let noise = random.of(&every_byte, 4 << 20);
    let table = learn(&mut adaptation, &noise, 1);
    assert!(table.is_none_or(|table| table.len() > 8), "{table:?}");
    assert_eq!(learn(&mut adaptation, &noise, 4), None);
}

#[test]
fn small_blocks_are_sampled_like_large_ones() {
    let content = Random(12).of(DNA, 1 << 20);
    let mut by_size = [100, 1460, BLOCK].map(|size| {
        let mut adaptation = Adaptation::new(SampleTable::PAPER, 64);
        let blocks = content.chunks(size).position(|block| {
            adaptation.note_content(block);
            adaptation.next_table().is_some()
        });
        blocks.unwrap() * size
    });
    by_size.sort_unstable();
    assert!(by_size[2] - by_size[0] <= 4 * BLOCK, "{by_size:?}");
}
