//! The part of a log that new noise may push out: not all repeated or valuable content.
//!
//! *Noise* is a block of random look without repeats: a cipher nobody recognised, an archive, a film. The log is one
//! queue, so the one choice is whether a block is remembered. Noise is, as long as it fills no more than three quarters
//! of the log within reach, or pushes out nothing of *worth*: a part of the log with an eighth of other content, or
//! with copied content. Content of worth holds back noise of eight times the log's size, since its writing or last
//! copy, and then gives way. It does so all at once: content without its beginning is lost as a whole when it comes
//! again in order, since it pushes out its own rest as it is remembered.

use std::collections::VecDeque;

/// What is known of the content of a log, by parts of it.
#[derive(Clone, Debug)]
pub struct NoiseBound {
    capacity: u64,
    /// The parts that anything was noted of, by number.
    parts: VecDeque<(u64, Part)>,
    /// Bytes of noise held back.
    held_back: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Bytes of noise of which nothing was copied.
    noise: u64,
    worth: u64,
    /// What had been held back when it was written or last copied from.
    since: u64,
}

impl NoiseBound {
    /// Starts with a log of `capacity` bytes of which nothing is known.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, parts: VecDeque::new(), held_back: 0 }
    }

    /// Says whether `len` bytes of noise may be remembered at `head`, with references to the `reach` bytes before them,
    /// but to nothing before `base`. If not, this counts as having been held back.
    pub fn allows(&mut self, head: u64, len: u64, reach: u64, base: u64) -> bool {
        let end = head.saturating_add(len);
        let oldest = self.part(end.saturating_sub(reach));
        let noise: u64 =
            self.parts.iter().filter(|(part, _)| *part >= oldest).map(|(_, part)| part.noise).sum();
        if noise.saturating_add(len) <= reach / SHARE_OF * SHARE {
            return true;
        }
        if end.saturating_sub(reach) <= base {
            // The log is not full, so nothing is pushed out.
            return true;
        }
        let first = self.part(head.saturating_sub(reach).max(base));
        let mut pushed_out = self.parts.iter().filter(|(part, _)| (first..=oldest).contains(part));
        let holds_back = pushed_out.any(|(_, part)| self.holds_back(part));
        if holds_back {
            self.held_back = self.held_back.saturating_add(len);
        }
        !holds_back
    }

    fn holds_back(&self, part: &Part) -> bool {
        part.worth.saturating_mul(LEAST_WORTH) >= self.part_len()
            && self.held_back.saturating_sub(part.since) < self.capacity.saturating_mul(HELD_BACK)
    }

    /// Notes bytes written at `start`, never decreasing.
    pub fn take(&mut self, start: u64, len: u64, is_noise: bool) {
        let Some(last) = start.saturating_add(len).checked_sub(1).filter(|_| len > 0) else { return };
        let oldest = last.saturating_sub(self.capacity);
        while self.parts.front().is_some_and(|(part, _)| *part < self.part(oldest)) {
            self.parts.pop_front();
        }
        for (number, len) in self.pieces(start.max(oldest), last) {
            if self.parts.back().is_none_or(|(newest, _)| *newest < number) {
                self.parts.push_back((number, Part::default()));
            }
            if let Some((_, part)) = self.parts.back_mut() {
                part.since = self.held_back;
                let bytes = if is_noise { &mut part.noise } else { &mut part.worth };
                *bytes = bytes.saturating_add(len);
            }
        }
    }

    /// Divides the bytes from `first` to `last` by parts: the number of each, and how many are in it.
    fn pieces(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (len, first) = (self.part_len(), first.min(last));
        let numbers = self.part(first)..=self.part(last);
        numbers.map(move |number| {
            let (start, end) =
                (number.saturating_mul(len), number.saturating_mul(len).saturating_add(len - 1));
            (number, end.min(last) - start.max(first) + 1)
        })
    }

    /// Notes that bytes at `offset` were copied: they are of worth, be they noise.
    pub fn copied(&mut self, offset: u64, len: u64) {
        let (number, most) = (self.part(offset), self.part_len().saturating_mul(MOST_WORTH));
        let Ok(index) = self.parts.binary_search_by_key(&number, |(part, _)| *part) else { return };
        if let Some((_, part)) = self.parts.get_mut(index) {
            part.noise = part.noise.saturating_sub(len);
            part.worth = part.worth.saturating_add(len).min(most.max(part.worth));
            part.since = self.held_back;
        }
    }

    /// Notes that bytes at `offset` were written anew elsewhere, taking their worth along.
    pub fn moved(&mut self, offset: u64, len: u64) {
        let number = self.part(offset);
        let Ok(index) = self.parts.binary_search_by_key(&number, |(part, _)| *part) else { return };
        if let Some((_, part)) = self.parts.get_mut(index) {
            part.worth = part.worth.saturating_sub(len);
        }
    }

    /// Forgets everything: nothing in the log can be referred to any more.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    fn part_len(&self) -> u64 {
        self.capacity.div_ceil(PARTS).max(1)
    }

    fn part(&self, offset: u64) -> u64 {
        offset / self.part_len()
    }
}

/// Noise is always given three quarters of what can be referred to.
const SHARE: u64 = 3;
const SHARE_OF: u64 = 4;
/// A part is of worth if one byte in so many is.
const LEAST_WORTH: u64 = 8;
/// What is of worth holds back noise of so many times the log's size.
const HELD_BACK: u64 = 8;
/// What was copied again and again is of no more worth than so many times its part of the log.
const MOST_WORTH: u64 = 4;
/// Parts of a log told apart.
const PARTS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 256_000;
    const REACH: u64 = 240_000;

    /// Writes noise in blocks of 500 bytes from `head` on as far as it may be; returns how much was.
    fn flood(bound: &mut NoiseBound, head: &mut u64, len: u64) -> u64 {
        let before = *head;
        for _ in 0..len / 500 {
            if bound.allows(*head, 500, REACH, 0) {
                bound.take(*head, 500, true);
                *head += 500;
            }
        }
        *head - before
    }

    fn write(bound: &mut NoiseBound, head: &mut u64, len: u64) {
        for _ in 0..len / 500 {
            bound.take(*head, 500, false);
            *head += 500;
        }
    }

    #[test]
    fn noise_fills_a_log_without_anything_of_worth() {
        let (mut bound, mut head) = (NoiseBound::new(CAPACITY), 0);
        assert_eq!(flood(&mut bound, &mut head, 10 * CAPACITY), 10 * CAPACITY);
    }

    #[test]
    fn noise_leaves_a_quarter_to_valuable_content() {
        let (mut bound, mut head) = (NoiseBound::new(CAPACITY), 0);
        write(&mut bound, &mut head, 50_000);
        let remembered = flood(&mut bound, &mut head, CAPACITY);
        assert!((180_000..=190_000).contains(&remembered), "{remembered}");
        // Eight times the log, from what is copied on.
        assert_eq!(flood(&mut bound, &mut head, 6 * CAPACITY), 0);
        (0..100).for_each(|n| bound.copied(n * 500, 500));
        assert_eq!(flood(&mut bound, &mut head, 7 * CAPACITY), 0);
        assert!(flood(&mut bound, &mut head, 3 * CAPACITY) > CAPACITY);
    }

    #[test]
    fn noise_copied_once_is_no_noise_any_more() {
        let (mut bound, mut head) = (NoiseBound::new(CAPACITY), 0);
        assert_eq!(flood(&mut bound, &mut head, 200_000), 200_000);
        (0..head / 500).for_each(|n| bound.copied(n * 500, 500));
        let other = flood(&mut bound, &mut head, CAPACITY);
        assert!((175_000..=190_000).contains(&other), "{other}");
    }

    #[test]
    fn rewritten_content_holds_noise_back_at_its_new_place_only() {
        let (mut bound, mut head) = (NoiseBound::new(CAPACITY), 0);
        write(&mut bound, &mut head, 50_000);
        assert_eq!(flood(&mut bound, &mut head, 150_000), 150_000);
        (0..100).for_each(|n| bound.moved(n * 500, 500));
        write(&mut bound, &mut head, 50_000);
        assert!(flood(&mut bound, &mut head, CAPACITY) > 180_000);
    }

    #[test]
    fn cleared_log_protects_nothing_and_absurd_values_are_taken() {
        let (mut bound, mut head) = (NoiseBound::new(CAPACITY), 0);
        write(&mut bound, &mut head, CAPACITY);
        bound.clear();
        assert_eq!(flood(&mut bound, &mut head, CAPACITY), CAPACITY);
        for mut bound in [NoiseBound::new(0), NoiseBound::new(u64::MAX)] {
            bound.take(u64::MAX, u64::MAX, true);
            bound.take(u64::MAX, 1, false);
            bound.copied(u64::MAX, u64::MAX);
            bound.allows(u64::MAX, u64::MAX, u64::MAX, u64::MAX);
            bound.allows(0, 0, 0, 0);
        }
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_parts() {
        let mut bound = NoiseBound::new(CAPACITY);
        for n in 0..100_000 {
            bound.take(n * 700, 700, n % 3 == 0);
            assert!(bound.parts.len() as u64 <= PARTS + 2);
        }
    }
}
