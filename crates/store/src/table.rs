//! A table from tags to places: cache-line buckets without deletions.
//!
//! A slot holds a print, the low bits of the tag, and the low bits of a place. The valid places are a window, moved
//! by the owner: a slot with a place outside it is free, so eviction costs the table nothing. Readers take no lock:
//! each slot is one atomic word, and a find is a claim, to be confirmed by the content.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The width of a slot, and the consequences.
pub(crate) trait Word: Sized + Send + Sync {
    /// A cache line of slots.
    type Line: Default + AsRef<[Self]> + Send + Sync;

    /// Bits of print and place together.
    const BITS: u32;

    /// How many buckets a tag may be in.
    const CHOICES: usize;

    fn load(&self) -> u64;

    fn store(&self, word: u64);

    /// Frees the slot if it holds this word.
    fn free(&self, word: u64);
}

/// Slots of 8 bytes, 8 to a line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Wide([AtomicU64; 8]);

/// Slots of 4 bytes, 16 to a line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Narrow([AtomicU32; 16]);

impl AsRef<[AtomicU64]> for Wide {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl AsRef<[AtomicU32]> for Narrow {
    fn as_ref(&self) -> &[AtomicU32] {
        &self.0
    }
}

impl Word for AtomicU64 {
    type Line = Wide;
    const BITS: u32 = 64;
    const CHOICES: usize = 2;

    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Relaxed)
    }

    fn store(&self, word: u64) {
        AtomicU64::store(self, word, Ordering::Relaxed);
    }

    fn free(&self, word: u64) {
        let _ = self.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Word for AtomicU32 {
    type Line = Narrow;
    const BITS: u32 = 32;
    const CHOICES: usize = 1;

    fn load(&self) -> u64 {
        u64::from(AtomicU32::load(self, Ordering::Relaxed))
    }

    fn store(&self, word: u64) {
        AtomicU32::store(self, word as u32, Ordering::Relaxed);
    }

    fn free(&self, word: u64) {
        let _ = self.compare_exchange(word as u32, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Valid places: from the oldest up to, and without, the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) oldest: u64,
    pub(crate) head: u64,
}

/// The outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// A free slot took it.
    New,
    /// The slot of the same print now points here.
    Moved,
    /// An older entry gave way.
    Displaced,
}

/// A table of a fixed number of lines; one thread at a time may put entries in, any number may look and forget.
pub(crate) struct Table<W: Word> {
    lines: Box<[W::Line]>,
    /// Bits of a place; the others are the print.
    place_bits: u32,
}

impl<W: Word> Table<W> {
    /// Makes an empty table of at most these bytes, at least one line. Of places, so many of the last ones are told
    /// apart, as long as they leave [`MIN_PRINT_BITS`] for the print.
    pub(crate) fn new(bytes: u64, places: u64) -> Self {
        let lines = (bytes / LINE as u64).clamp(1, u64::from(u32::MAX));
        let place_bits = (64 - places.leading_zeros()).clamp(MIN_PLACE_BITS, W::BITS - MIN_PRINT_BITS);
        Self::of_lines(lines, place_bits)
    }

    /// Makes an empty table of just these bytes, with so many bits for a place; none if none can be so.
    pub(crate) fn laid_out(bytes: u64, place_bits: u32) -> Option<Self> {
        let lines = bytes / LINE as u64;
        let can_be = bytes.is_multiple_of(LINE as u64)
            && (1..=u64::from(u32::MAX)).contains(&lines)
            && (MIN_PLACE_BITS..=W::BITS - MIN_PRINT_BITS).contains(&place_bits);
        can_be.then(|| Self::of_lines(lines, place_bits))
    }

    fn of_lines(lines: u64, place_bits: u32) -> Self {
        Self { lines: (0..lines).map(|_| W::Line::default()).collect(), place_bits }
    }

    /// Returns the division of slots; saved tables depend on it.
    pub(crate) fn place_bits(&self) -> u32 {
        self.place_bits
    }

    /// Returns how many entries fit.
    pub(crate) fn slots(&self) -> u64 {
        (self.lines.len() * Self::slots_a_line()) as u64
    }

    /// Returns its bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.lines.len() * LINE) as u64
    }

    /// Visits the candidate places of this tag, until it is told to stop.
    pub(crate) fn probe<B>(
        &self,
        tag: u64,
        window: Window,
        mut visit: impl FnMut(u64) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for line in self.choices(tag) {
            for slot in line.as_ref() {
                let word = slot.load();
                if self.print(word) == self.print_of(tag)
                    && let Some(place) = self.place(word, window)
                {
                    visit(place)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Says whether a tag may be there: wrongly with a chance of slots looked at / 2^(bits of the print).
    pub(crate) fn has(&self, tag: u64, window: Window) -> bool {
        self.probe(tag, window, |_| ControlFlow::Break(())).is_break()
    }

    /// Prefetches the lines of a tag for a put.
    pub(crate) fn touch(&self, tag: u64) -> u64 {
        let slots = self.choices(tag).filter_map(|line| line.as_ref().first());
        slots.fold(0, |all, slot| all ^ slot.load())
    }

    /// Points a tag to a place; one outside the window, or indistinguishable from a younger one in a slot, gives way
    /// at once.
    pub(crate) fn put(&self, tag: u64, place: u64, window: Window) -> Put {
        self.put_into(self.choices(tag), self.print_of(tag), place, window)
    }

    /// Points a print to a place, in one of these lines.
    fn put_into<'a>(
        &'a self,
        lines: impl Iterator<Item = &'a W::Line>,
        print: u64,
        place: u64,
        window: Window,
    ) -> Put
    where
        W: 'a,
    {
        if place < window.oldest || window.head.saturating_sub(place) > self.place_mask() {
            return Put::Displaced;
        }
        let new = self.word(print, place);
        // The line with the most free slots takes it, for an even fill; if none is free, the oldest gives way.
        let mut best: Option<(&W, u64, u32)> = None;
        for line in lines {
            let (mut victim, mut free): (Option<(&W, u64)>, u32) = (None, 0);
            for slot in line.as_ref() {
                let word = slot.load();
                let age = match self.place(word, window) {
                    Some(_) if self.print(word) == print => {
                        slot.store(new);
                        return Put::Moved;
                    }
                    Some(place) => window.head - place,
                    None => {
                        free += 1;
                        u64::MAX
                    }
                };
                if victim.is_none_or(|(_, oldest)| age > oldest) {
                    victim = Some((slot, age));
                }
            }
            if let Some((slot, age)) = victim
                && best.is_none_or(|(_, oldest, most)| (free, age) > (most, oldest))
            {
                best = Some((slot, age, free));
            }
        }
        let Some((slot, _, free)) = best else { return Put::Displaced };
        slot.store(new);
        if free > 0 { Put::New } else { Put::Displaced }
    }

    /// Frees the slots of a tag and place.
    pub(crate) fn forget(&self, tag: u64, place: u64) {
        for line in self.choices(tag) {
            for slot in line.as_ref() {
                slot.free(self.word(self.print_of(tag), place));
            }
        }
    }

    /// Frees all slots.
    pub(crate) fn clear(&self) {
        self.lines.iter().flat_map(|line| line.as_ref()).for_each(|slot| slot.store(0));
    }

    /// Returns the part of a window valid under [`age`](Self::age): seven eighths of the places told apart by slots.
    pub(crate) fn within_reach(&self, window: Window) -> Window {
        let oldest = window.head.saturating_sub(self.place_mask() + 1 - self.turns());
        Window { oldest: window.oldest.max(oldest), ..window }
    }

    /// Frees the slots of some lines with places outside the window, one within reach. With a call for each head, all
    /// lines have had their turn before a place outside would be taken for a younger one.
    pub(crate) fn age(&self, window: Window) {
        let (lines, turn) = (self.lines.len() as u64, window.head % self.turns());
        let [from, to] = [turn, turn + 1].map(|turn| (lines * turn / self.turns()) as usize);
        for slot in self.lines.get(from..to).unwrap_or_default().iter().flat_map(|line| line.as_ref()) {
            let word = slot.load();
            if word != 0 && self.place(word, window).is_none() {
                slot.free(word);
            }
        }
    }

    /// Returns in how many turns all lines are aged.
    fn turns(&self) -> u64 {
        (self.place_mask() + 1) / 8
    }

    /// Counts the valid entries; of a table with more than [`MOST_COUNTED`] lines, in lines spread evenly over it,
    /// for a bounded time. Tags are hashes, so any line is like any other.
    pub(crate) fn live(&self, window: Window) -> u64 {
        let step = self.lines.len().div_ceil(MOST_COUNTED).max(1);
        let counted = self.lines.iter().step_by(step);
        let (lines, all) = (counted.len() as u64, self.lines.len() as u64);
        let words = counted.flat_map(|line| line.as_ref().iter().map(W::load));
        let live = words.filter(|word| self.place(*word, window).is_some()).count() as u64;
        (u128::from(live) * u128::from(all) / u128::from(lines.max(1))) as u64
    }

    /// Appends the slots of some lines; fewer than asked for at the end.
    pub(crate) fn save(&self, from: usize, lines: usize, into: &mut Vec<u8>) -> usize {
        let lines = self.lines.get(from..).map_or(&[][..], |rest| &rest[..lines.min(rest.len())]);
        for slot in lines.iter().flat_map(|line| line.as_ref()) {
            into.extend_from_slice(&slot.load().to_le_bytes()[..W::BITS as usize / 8]);
        }
        lines.len()
    }

    /// Takes back saved slots, from a line on.
    pub(crate) fn restore(&self, from: usize, saved: &[u8]) {
        let slots = self.lines.iter().skip(from).flat_map(|line| line.as_ref());
        for (slot, bytes) in slots.zip(saved.chunks_exact(W::BITS as usize / 8)) {
            slot.store(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    /// Returns the candidate lines of a tag.
    fn choices(&self, tag: u64) -> impl Iterator<Item = &W::Line> {
        let lines = self.lines.len() as u64;
        let first = ((tag >> 32) * lines) >> 32;
        // Other bits than those of the print, and mostly others than those of the first choice.
        let second = ((tag >> 16 & u64::from(u32::MAX)) * lines) >> 32;
        let second = (W::CHOICES > 1 && second != first).then_some(second);
        [Some(first), second].into_iter().flatten().filter_map(|line| self.lines.get(line as usize))
    }

    const fn slots_a_line() -> usize {
        LINE * 8 / W::BITS as usize
    }

    fn print_bits(&self) -> u32 {
        W::BITS - self.place_bits
    }

    fn print_of(&self, tag: u64) -> u64 {
        tag & ((1 << self.print_bits()) - 1)
    }

    fn print(&self, word: u64) -> u64 {
        word >> self.place_bits
    }

    fn word(&self, print: u64, place: u64) -> u64 {
        print << self.place_bits | place & self.place_mask()
    }

    fn place_mask(&self) -> u64 {
        (1 << self.place_bits) - 1
    }

    /// Returns the place of a word, if it lies in the window. A word of zeros means none.
    fn place(&self, word: u64, window: Window) -> Option<u64> {
        let back = window.head.wrapping_sub(word) & self.place_mask();
        let is_one = word != 0 && back > 0 && back <= window.head - window.oldest;
        is_one.then(|| window.head - back)
    }
}

/// A *key* is the information on a tag in a table of one choice: its line, and its print.
impl Table<AtomicU32> {
    /// Returns how many keys there are: each is less.
    pub(crate) fn keys(&self) -> u64 {
        (self.lines.len() as u64) << self.print_bits()
    }

    /// Returns the key of a tag.
    pub(crate) fn key(&self, tag: u64) -> u64 {
        let line = ((tag >> 32) * self.lines.len() as u64) >> 32;
        line << self.print_bits() | self.print_of(tag)
    }

    /// Points a key to a place, as [`put`](Self::put) does.
    pub(crate) fn put_key(&self, key: u64, place: u64, window: Window) {
        let print = key & ((1 << self.print_bits()) - 1);
        self.put_into(self.line_of_key(key).into_iter(), print, place, window);
    }

    /// Frees the slots of a key and place.
    pub(crate) fn forget_key(&self, key: u64, place: u64) {
        let word = self.word(key & ((1 << self.print_bits()) - 1), place);
        self.line_of_key(key).iter().flat_map(|line| line.as_ref()).for_each(|slot| slot.free(word));
    }

    /// Prefetches the line of a key for a put.
    pub(crate) fn touch_key(&self, key: u64) -> u64 {
        self.line_of_key(key).and_then(|line| line.as_ref().first()).map_or(0, Word::load)
    }

    fn line_of_key(&self, key: u64) -> Option<&Narrow> {
        self.lines.get((key >> self.print_bits()) as usize)
    }
}

/// The least bits of a print: of 4096 absent chunks, one is taken for the chunk in a given slot.
const MIN_PRINT_BITS: u32 = 12;

const MIN_PLACE_BITS: u32 = 8;

/// Lines with counted entries: half a million entries give the share of a table to a thousandth.
const MOST_COUNTED: usize = 1 << 16;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(i: u64) -> u64 {
        let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn places<W: Word>(table: &Table<W>, tag: u64, window: Window) -> Vec<u64> {
        let mut places = Vec::new();
        let _: ControlFlow<()> = table.probe(tag, window, |place| {
            places.push(place);
            ControlFlow::Continue(())
        });
        places
    }

    #[test]
    fn part_of_a_large_table_gives_the_number_of_entries() {
        let table = Table::<AtomicU32>::new((3 * MOST_COUNTED * LINE) as u64, 1 << 20);
        let put = table.slots() / 8;
        for i in 1..=put {
            table.put(mixed(i), i, Window { oldest: 1, head: i + 1 });
        }
        // The older half counts no more.
        let counted = table.live(Window { oldest: put / 2, head: put + 1 });
        assert!(counted.abs_diff(put / 2) < put / 50, "{counted} of {put}");
    }

    fn put_entries_are_found<W: Word>(load: f64, least: f64) {
        let table = Table::<W>::new(1 << 20, 1 << 18);
        let count = (table.slots() as f64 * load) as u64;
        let window = Window { oldest: 1, head: count + 1 };
        for i in 1..=count {
            table.put(mixed(i), i, Window { oldest: 1, head: i + 1 });
        }
        let found = (1..=count).filter(|i| places(&table, mixed(*i), window).contains(i)).count();
        assert!(found as f64 >= least * count as f64, "{found} of {count}");
    }

    #[test]
    fn nearly_full_table_has_nearly_everything() {
        put_entries_are_found::<AtomicU64>(0.85, 0.998);
        put_entries_are_found::<AtomicU32>(0.70, 0.98);
    }

    #[test]
    fn entries_outside_the_window_are_gone_and_their_slots_free() {
        let table = Table::<AtomicU64>::new(LINE as u64, 1 << 40);
        for i in 1..=8 {
            assert_eq!(table.put(mixed(i), i, Window { oldest: 1, head: i + 1 }), Put::New);
        }
        let window = Window { oldest: 5, head: 9 };
        assert_eq!(table.live(window), 4);
        for i in 1..=8 {
            assert_eq!(table.has(mixed(i), window), i >= 5, "{i}");
        }
        let window = Window { oldest: 5, head: 14 };
        for i in 9..=12 {
            assert_eq!(table.put(mixed(i), i, window), Put::New);
        }
        assert_eq!(table.put(mixed(13), 13, window), Put::Displaced);
        // The oldest valid one gave way.
        assert_eq!(
            (5..=13).filter(|i| table.has(mixed(*i), window)).collect::<Vec<_>>(),
            [6, 7, 8, 9, 10, 11, 12, 13]
        );
    }

    #[test]
    fn place_beyond_the_bits_of_a_slot_is_found() {
        let table = Table::<AtomicU32>::new(1 << 12, 1 << 19);
        let head = (5 << 20) + 3;
        let window = Window { oldest: head - 1000, head };
        for i in head - 1000..head {
            table.put(mixed(i), i, Window { oldest: head - 1000, head: i + 1 });
        }
        let newest = head - 1;
        assert_eq!(places(&table, mixed(newest), window), [newest]);
    }

    #[test]
    fn place_indistinguishable_from_a_younger_one_is_not_put() {
        let table = Table::<AtomicU32>::new(1 << 12, 100);
        let window = Window { oldest: 1, head: 300 };
        assert_eq!(table.put(mixed(1), 300 - 256, window), Put::Displaced);
        table.put_key(table.key(mixed(1)), 1, window);
        assert_eq!(table.live(Window { oldest: 300 - 256, head: 300 }), 0);
        assert_eq!(table.put(mixed(1), 300 - 255, window), Put::New);
        assert_eq!(places(&table, mixed(1), window), [300 - 255]);
    }

    #[test]
    fn entry_outside_a_window_within_reach_never_looks_younger() {
        let table = Table::<AtomicU32>::new(1 << 13, 100);
        for head in 2..2000 {
            let window = table.within_reach(Window { oldest: 1, head });
            table.age(window);
            table.put(mixed(head - 1), head - 1, window);
            let reach = (256 - 32).min(head - 1);
            assert_eq!(table.live(window), reach, "at {head}");
            assert!(places(&table, mixed(head - reach), window).contains(&(head - reach)), "at {head}");
        }
    }

    #[test]
    fn forgotten_entry_can_be_put_again() {
        let table = Table::<AtomicU64>::new(1 << 12, 1 << 19);
        let window = Window { oldest: 1, head: 100 };
        assert_eq!(table.put(mixed(1), 50, window), Put::New);
        assert_eq!(table.put(mixed(1), 51, window), Put::Moved);
        table.forget(mixed(1), 50);
        assert!(table.has(mixed(1), window), "another place was forgotten");
        table.forget(mixed(1), 51);
        assert!(!table.has(mixed(1), window));
    }

    #[test]
    fn entry_put_by_key_is_found_by_tag() {
        let (table, other) = (Table::<AtomicU32>::new(5000, 1 << 19), Table::<AtomicU32>::new(5000, 1 << 19));
        let window = Window { oldest: 1, head: 2000 };
        for i in 1..2000 {
            table.put(mixed(i), i, window);
            assert!(other.key(mixed(i)) < other.keys());
            other.put_key(other.key(mixed(i)), i, window);
        }
        assert!(other.live(window) > 1000);
        for i in 1..2000 {
            assert_eq!(places(&other, mixed(i), window), places(&table, mixed(i), window));
        }
        // An invalid one does no harm.
        other.put_key(other.keys(), 5, window);
        other.forget_key(other.keys(), 5);
        let newest = mixed(1999);
        other.forget_key(other.key(newest), 1998);
        assert_eq!(places(&other, newest, window), [1999], "another place was forgotten");
        other.forget_key(other.key(newest), 1999);
        assert_eq!(places(&other, newest, window), [0; 0]);
    }

    #[test]
    fn saved_table_is_restored() {
        let (table, other) =
            (Table::<AtomicU32>::new(1 << 12, 1 << 19), Table::<AtomicU32>::new(1 << 12, 1 << 19));
        let window = Window { oldest: 1, head: 500 };
        for i in 1..500 {
            table.put(mixed(i), i, window);
        }
        let mut saved = Vec::new();
        let mut line = 0;
        while line < 64 {
            saved.clear();
            let lines = table.save(line, 7, &mut saved);
            other.restore(line, &saved);
            line += lines;
        }
        for i in 1..500 {
            assert_eq!(places(&other, mixed(i), window), places(&table, mixed(i), window));
        }
    }
}
