use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::tokens::{decode, encode, rebuild};
use super::*;

mod work;

pub(super) use self::work::{note_compared, note_looked_up};

/// Numbers without a pattern that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound.max(1) as u64) as usize
    }

    fn noise(&mut self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.roll() as u8).take(len).collect()
    }

    /// Words from a small vocabulary, as a text has.
    fn text(&mut self, len: usize) -> Vec<u8> {
        let words: Vec<Vec<u8>> = (0..2000)
            .map(|_| (0..2 + self.below(8)).map(|_| b'a' + self.below(26) as u8).collect())
            .collect();
        let mut text = Vec::new();
        while text.len() < len {
            text.extend_from_slice(&words[self.below(words.len())]);
            text.push(b' ');
        }
        text.truncate(len);
        text
    }

    /// A copy in which, about every `spacing` bytes, some were replaced, inserted or taken out.
    fn edited(&mut self, original: &[u8], spacing: usize) -> Vec<u8> {
        let mut copy = Vec::new();
        let mut rest = original;
        while !rest.is_empty() {
            let (kept, behind) = rest.split_at((1 + self.below(2 * spacing)).min(rest.len()));
            copy.extend_from_slice(kept);
            let (added, removed) = match self.below(3) {
                0 => (1 + self.below(8), 0),
                1 => (0, 1 + self.below(8)),
                _ => (3, 3),
            };
            copy.extend(self.noise(added));
            rest = behind.get(removed..).unwrap_or_default();
        }
        copy
    }
}

/// A sender and a receiver that remember every block at once.
struct Pair {
    sent: Log,
    received: Log,
    matcher: MaxMatch,
    head: LogOffset,
    hint: Option<LogOffset>,
    copies: Vec<Copy>,
}

impl Pair {
    fn new(capacity: usize, params: MatchParams) -> Self {
        Self {
            sent: Log::new(capacity),
            received: Log::new(capacity),
            matcher: MaxMatch::new(capacity as u64, params),
            head: LogOffset(0),
            hint: None,
            copies: Vec::new(),
        }
    }

    fn floor(&self) -> LogOffset {
        self.head.minus(self.sent.capacity())
    }

    /// Finds, encodes, decodes and rebuilds a block, with all checks, and returns the bytes of tokens and literals.
    fn send(&mut self, block: &[u8], remember: bool) -> usize {
        let lasting = self.head.minus(self.sent.capacity() / 2);
        let search = Search { block, at: self.head, floor: self.floor(), lasting, hint: self.hint };
        self.matcher.find(&self.sent, &search, &mut self.copies);
        let mut end = 0;
        for copy in &self.copies {
            assert!(copy.at as usize >= end && copy.len > 0 && copy.end() <= block.len(), "{copy:?}");
            assert!(copy.source >= search.floor && copy.source_end() <= search.at, "{copy:?}");
            end = copy.end();
            let mut source = Vec::new();
            self.sent.copy_to(copy.source, copy.len as usize, &mut source);
            assert_eq!(source, block[copy.at as usize..copy.end()]);
        }
        let (mut tokens, mut literals, mut decoded, mut out) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        encode(&self.copies, self.head, &mut tokens);
        super::super::tokens::literals(&self.copies, block)
            .for_each(|piece| literals.extend_from_slice(piece));
        decode(&tokens, block.len(), self.head, literals.len(), &mut decoded).unwrap();
        assert_eq!(decoded, self.copies);
        rebuild(&decoded, &literals, block.len(), &self.received, &mut out);
        assert!(out == block, "rebuilt wrongly");
        self.hint = next_hint(&self.copies, block.len());
        if remember {
            self.sent.write(self.head, block);
            self.received.write(self.head, block);
            self.matcher.remember(&search, &self.copies);
            self.head = self.head.plus(block.len() as u64);
        }
        tokens.len() + literals.len()
    }

    /// Sends a flow in blocks and returns the bytes that tokens and literals take.
    fn send_all(&mut self, flow: &[u8], block_len: usize) -> usize {
        self.hint = None;
        flow.chunks(block_len).map(|block| self.send(block, true)).sum()
    }

    fn covered(&self) -> usize {
        self.copies.iter().map(|copy| copy.len as usize).sum()
    }
}

fn pair(capacity: usize) -> Pair {
    Pair::new(capacity, MatchParams::default())
}

#[test]
fn a_repeat_is_followed_over_blocks_without_hashing() {
    let content = Dice(1).noise(300_000);
    let mut pair = pair(1 << 20);
    pair.send_all(&content, 65_536);
    let mut blocks = content.chunks(50_000);
    pair.send(blocks.next().unwrap(), false);
    for block in blocks {
        pair.send(block, false);
        assert_eq!(pair.copies.len(), 1);
        assert_eq!(pair.covered(), block.len());
        assert!(pair.matcher.places.all().is_empty());
    }
}

#[test]
fn edit_of_equal_length_costs_its_bytes_and_three() {
    let mut content = Dice(2).noise(60_000);
    let mut pair = pair(1 << 20);
    pair.send(&content, true);
    let unedited = pair.send(&content, false);
    content[30_000] ^= 1;
    assert!(pair.send(&content, false) <= unedited + 1 + 5);
    for at in (10_000..20_000).step_by(100) {
        content[at..at + 3].copy_from_slice(b"new");
    }
    let bytes = pair.send(&content, false);
    assert!(bytes <= unedited + 6 + 100 * 6, "{bytes}");
}

#[test]
fn new_content_has_no_copies() {
    let mut pair = pair(1 << 20);
    let bytes = pair.send_all(&Dice(3).noise(2_000_000), 65_536);
    assert_eq!(bytes, 2_000_000);
}

#[test]
fn a_run_is_one_copy_of_the_run_before_it() {
    let mut dice = Dice(4);
    for unit_len in [1, 2, 31, 64, 100] {
        let run: Vec<u8> = dice.noise(unit_len).into_iter().cycle().take(65_536).collect();
        let mut pair = pair(1 << 20);
        pair.send(&run, true);
        for _ in 0..20 {
            pair.hint = None;
            pair.send(&run, true);
            assert!(pair.copies.len() <= 4, "{} copies at period {unit_len}", pair.copies.len());
            assert!(pair.covered() >= 65_536 - 2 * unit_len);
        }
    }
}

#[test]
fn fragments_come_back_in_one_piece() {
    let mut dice = Dice(5);
    let pool = dice.noise(100_000);
    let mosaic: Vec<u8> = (0..500).flat_map(|_| pool[dice.below(99_000)..][..120].to_vec()).collect();
    let mut pair = pair(1 << 20);
    pair.send_all(&pool, 65_536);
    pair.send(&mosaic, true);
    assert!(pair.copies.len() > 200);
    pair.hint = None;
    pair.send(&mosaic, true);
    assert!(pair.copies.len() < 10, "{}", pair.copies.len());
}

#[test]
fn repeated_content_outlives_its_old_copy() {
    let mut dice = Dice(6);
    let wanted = dice.noise(20_000);
    let mut pair = pair(300_000);
    pair.send(&wanted, true);
    for turn in 0..20 {
        let filler = dice.noise(100_000);
        pair.send(&filler, true);
        pair.hint = None;
        pair.send(&wanted, true);
        assert!(pair.covered() > 19_900, "lost after {turn} turns");
    }
}

#[test]
fn newer_copy_of_another_flow_replaces_a_far_diagonal() {
    let mut dice = Dice(12);
    let content = dice.noise(60_000);
    for (anew, is_followed) in [(5000, true), (20_300, false)] {
        let mut pair = pair(300_000);
        pair.send(&content, true);
        pair.send(&dice.noise(160_000), true);
        pair.hint = None;
        pair.send(&content[..20_000], false);
        let hint = pair.hint;
        let again = pair.head;
        pair.hint = None;
        pair.send(&content[anew..], true);
        pair.hint = hint;
        let blocks = [20_000..40_000, 40_000..60_000];
        for (number, part) in blocks.into_iter().enumerate() {
            pair.send(&content[part.clone()], false);
            assert_eq!(pair.covered(), 20_000);
            // Only from the beginning of a block on.
            let is_new = pair.copies.iter().all(|copy| copy.source >= again);
            assert_eq!(is_new, is_followed || number > 0, "{part:?}, anew from {anew} on");
        }
    }
}

#[test]
fn forgotten_ranges_are_not_copied_from() {
    let content = Dice(7).noise(200_000);
    let mut pair = pair(1 << 20);
    pair.send_all(&content, 50_000);
    pair.matcher.forget(std::slice::from_ref(&(50_000..100_000)));
    pair.hint = None;
    pair.send(&content[50_000..100_000], false);
    assert_eq!(pair.copies, []);
    pair.send(&content[100_000..150_000], false);
    assert!(pair.covered() > 49_900);
    pair.matcher.forget(std::slice::from_ref(&(0..u64::MAX)));
    pair.hint = None;
    pair.send(&content[100_000..150_000], false);
    assert_eq!(pair.copies, []);
}

#[test]
fn indexed_log_finds_its_content() {
    let content = Dice(8).noise(400_000);
    let mut pair = pair(300_007);
    pair.send_all(&content, 65_536);
    pair.matcher.clear();
    pair.hint = None;
    pair.send(&content[350_000..], false);
    assert_eq!(pair.copies, []);
    pair.matcher.index(&pair.sent, LogOffset(0)..pair.head);
    for start in (110_000..350_000).step_by(30_000) {
        pair.hint = None;
        pair.send(&content[start..start + 50_000], false);
        assert!(pair.covered() > 49_000, "{} of the block at {start}", pair.covered());
    }
}

#[test]
fn a_misleading_hint_does_no_harm() {
    let mut dice = Dice(9);
    let content = dice.noise(60_000);
    let mut pair = pair(100_000);
    pair.send(&content, true);
    let head = pair.head.0;
    for hint in [0, 1, 777, head - 1, head, head + 1, u64::MAX - 70, u64::MAX] {
        pair.hint = Some(LogOffset(hint));
        pair.send(&content[100..50_000], false);
        assert!(pair.covered() > 49_000);
    }
}

#[test]
fn odd_parameters_and_tiny_blocks_do_not_panic() {
    for params in [(0, 0), (1, 1), (7, 5), (5000, 32), (64, 100_000)] {
        let mut pair =
            Pair::new(70_001, MatchParams { period: params.0, window: params.1, ..MatchParams::default() });
        let content = Dice(10).text(20_000);
        for block in [&content[..], &content, b"", b"a", &content[..40], &[0; 9000]] {
            pair.send(block, true);
        }
    }
}

#[test]
fn samplebyte_looks_at_the_given_bytes() {
    let mut dice = Dice(9);
    let genome: Vec<u8> = (0..100_000).map(|_| b"ACGT"[dice.below(4)]).collect();
    for (sample, least, most) in [(SampleTable::PAPER, 0, 0), ("65,67".parse().unwrap(), 90_000, 100_000)] {
        let mut pair = Pair::new(1 << 20, MatchParams { sample, ..MatchParams::default() });
        pair.matcher.set_markers(MarkerKind::SampleByte, 64, sample);
        pair.send_all(&genome, 65_536);
        // Shifted, so no block begins as an earlier one did.
        let saved = 99_000 - pair.send_all(&genome[1000..], 65_536) as i64;
        assert!((least - 1000..=most).contains(&saved), "{saved} with {sample}");
    }
}

#[test]
fn memory_is_one_or_two_slots_per_marker() {
    for log in [1u64 << 20, 3 << 20, 10_000_000, 64 << 20, (64 << 20) + 65_536, 96 << 20, 127 << 20] {
        for (slots_per_marker, share) in [(2, 8), (1, 16)] {
            let params = MatchParams { slots_per_marker, ..MatchParams::default() };
            let memory = MaxMatch::new(log, params).memory() as u64;
            assert!(memory <= log / share && memory + 8 > log / share, "{memory} of {log}");
            assert_eq!(memory, params.table_memory(log));
        }
    }
}

#[test]
fn offsets_far_from_the_origin_are_rebuilt() {
    let content = Dice(11).noise(90_000);
    let mut pair = pair(200_003);
    for origin in [(1 << 18) - 40_000, (1 << 32) - 45_000, 1 << 40, u64::MAX / 2] {
        pair.head = LogOffset(origin);
        pair.matcher.clear();
        pair.send_all(&content, 30_000);
        pair.send_all(&content, 30_000);
        assert!(pair.covered() > 29_900, "at {origin}");
    }
}

/// Covers a block from `old` greedily, with every position of `old` indexed.
fn oracle(old: &[u8], new: &[u8], window: usize) -> usize {
    let index: BTreeMap<&[u8], usize> =
        old.windows(window).enumerate().map(|(at, window)| (window, at)).collect();
    let (mut position, mut covered, mut end) = (0, 0, 0);
    while let Some(wanted) = new.get(position..position + window) {
        let Some(&source) = index.get(wanted) else {
            position += 1;
            continue;
        };
        let back = oncewire_fingerprint::common_suffix(&new[end..position], &old[..source]);
        let len = oncewire_fingerprint::common_prefix(&new[position..], &old[source..]);
        covered += back + len;
        position += len;
        end = position;
    }
    covered
}

#[test]
fn edited_text_is_found_nearly_as_with_a_full_index() {
    for (seed, spacing) in [(20, 100), (21, 200), (22, 400), (23, 1000)] {
        let mut dice = Dice(seed);
        let old = dice.text(60_000);
        let new = dice.edited(&old, spacing);
        let new = &new[..new.len().min(60_000)];
        let mut pair = pair(1 << 20);
        pair.send(&old, true);
        pair.send(new, false);
        let (found, best) = (pair.covered(), oracle(&old, new, 32));
        assert!(found * 100 >= best * 85, "seed {seed}, an edit each {spacing} bytes: {found} of {best}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_block_is_rebuilt_behind_any_other(
        seed: u64,
        capacity in 65_536usize..200_000,
        period in 16usize..130,
        window in 12usize..65,
        blocks in prop::collection::vec((0u8..6, 1usize..30_000, 30usize..2000), 1..25),
    ) {
        let mut dice = Dice(seed);
        let mut pair = Pair::new(capacity, MatchParams { period, window, ..MatchParams::default() });
        let mut all = dice.text(30_000);
        for (kind, len, spacing) in blocks {
            let from = dice.below(all.len());
            let earlier = all[from..(from + len).min(all.len())].to_vec();
            let block = match kind {
                0 => dice.noise(len),
                1 => dice.text(len),
                2 => earlier,
                3 => vec![dice.roll() as u8; len],
                _ => dice.edited(&earlier, spacing),
            };
            pair.send(&block, kind != 2);
            if kind == 1 {
                pair.hint = Some(LogOffset(dice.roll() % (pair.head.0 + 10)));
            }
            all.extend_from_slice(&block);
        }
    }
}
