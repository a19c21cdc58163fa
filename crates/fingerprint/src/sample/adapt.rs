//! Fitting SAMPLEBYTE's table to the traffic while it flows, which the paper leaves for later [EndRE §5.1.4].
//!
//! The paper sorts bytes by how often redundant content has them, and adds them to the table while savings grow. Savings
//! of a table that is not in use cannot be seen, so they are modelled: a table is as good as the distance it would keep
//! between markers, in what was sent and in what turned out to be redundant. It is too sparse if markers are further
//! apart than p would have them, and too dense if nearly every position is a marker, since the skip behind markers then
//! makes a fixed grid that an insertion shifts for good. Both are judged for each stretch of content by itself, so that
//! a table that suits half of the traffic does not hide that it finds nothing in the other half.
//!
//! Where a table marks nothing, nothing is found to be redundant; what was sent then decides alone.
//!
//! A table is fitted to half of the stretches and judged by the other half: what it owes to chance does not count.
//!
//! *Rejected*: sums of counts that decay, which cannot tell two kinds of content from one between them; trying tables
//! on the traffic in turn, since all that was inserted by another table is lost to each.

use super::SampleTable;

/// Learns from samples of the traffic which bytes would make better markers.
///
/// It looks at one byte in 499, and compares tables once in at least 512 KiB, more seldom while none is better: together
/// less than a hundredth of what encoding costs. It takes up to 36 KiB. The same bytes give the same tables.
#[derive(Clone, Debug)]
pub struct Adaptation {
    table: SampleTable,
    content: Samples,
    copied: Samples,
    /// How good a table is for a stretch by how many of its samples the table has.
    quality: Box<[f32; SAMPLES + 1]>,
    /// Stretches of content until tables are compared again.
    until_next: u32,
    /// How many stretches there were before that.
    interval: u32,
}

impl Adaptation {
    /// Creates the adaptation of `table` for markers that are to be `period` bytes apart.
    pub fn new(table: SampleTable, period: usize) -> Self {
        Self {
            table,
            content: Samples::default(),
            copied: Samples::default(),
            quality: quality(period),
            until_next: FIRST,
            interval: FIRST,
        }
    }

    /// Returns the table in use: the last that [`Self::next_table`] returned, or the first.
    pub const fn table(&self) -> SampleTable {
        self.table
    }

    /// Changes the distance that markers are to have.
    pub fn set_period(&mut self, period: usize) {
        self.quality = quality(period);
    }

    /// Takes note of bytes that are sent, whether or not they are found to be redundant.
    pub fn note_content(&mut self, bytes: &[u8]) {
        self.until_next = self.until_next.saturating_sub(self.content.note(bytes));
    }

    /// Takes note of bytes that were found to be redundant.
    pub fn note_copied(&mut self, bytes: &[u8]) {
        self.copied.note(bytes);
    }

    /// Returns a table that is clearly better for the recent traffic than the one in use, and takes it for in use.
    ///
    /// It is to be asked once for each block. What was found by the old table is not found by the new one, so the
    /// better one has to be better by a quarter. While the table in use leaves something to be desired, the wait for the
    /// next comparison doubles, up to 64 MiB.
    pub fn next_table(&mut self) -> Option<SampleTable> {
        if self.until_next > 0 {
            return None;
        }
        let needed = self.score(self.table) * GAIN + SLACK;
        // No table scores more than 1.
        let is_good = needed >= 1.0;
        let better = if is_good { None } else { self.fit().filter(|&table| self.score(table) > needed) };
        let interval = if is_good { self.interval - self.interval / 8 } else { self.interval * 2 };
        self.interval = interval.clamp(FIRST, LONGEST);
        self.until_next = self.interval;
        if let Some(table) = better {
            self.table = table;
            // It was found by the table before, and is full of what that one chose.
            self.copied = Samples::default();
        }
        better
    }

    /// Returns how good `table` is for the recent traffic, from 0 to 1, by the half of it that none is fitted to.
    fn score(&self, table: SampleTable) -> f32 {
        let stretches = self.half(1).map(|stretch| {
            let hits: usize = table.bytes().map(|byte| stretch.count(byte)).sum();
            self.quality.get(hits).copied().unwrap_or(0.0)
        });
        stretches.sum::<f32>() / self.half(1).count().max(1) as f32
    }

    /// Fits a table to half of the recent traffic, one byte after the other, as long as each makes it better.
    fn fit(&self) -> Option<SampleTable> {
        let stretches: Vec<&Stretch> = self.half(0).collect();
        let mut hits = vec![0; stretches.len()];
        let mut candidates = self.frequent_bytes();
        let (mut chosen, mut best_so_far) = (Vec::new(), 0.0);
        while !candidates.is_empty() {
            let sum_with = |byte: u8| -> f32 {
                let with = hits.iter().zip(&stretches).map(|(hits, stretch)| hits + stretch.count(byte));
                with.filter_map(|hits| self.quality.get(hits)).sum()
            };
            let scored = candidates.iter().map(|&byte| (sum_with(byte), byte));
            let (sum, byte) = scored.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
            if sum < best_so_far * (1.0 + DIMINISHING) {
                break;
            }
            best_so_far = sum;
            chosen.push(byte);
            candidates.retain(|&candidate| candidate != byte);
            hits.iter_mut().zip(&stretches).for_each(|(hits, stretch)| *hits += stretch.count(byte));
        }
        SampleTable::from_bytes(chosen).ok()
    }

    /// Returns the bytes that the recent traffic has most often, at most [`CANDIDATES`] of them.
    fn frequent_bytes(&self) -> Vec<u8> {
        let total = |byte: u8| -> usize { self.half(0).map(|stretch| stretch.count(byte)).sum() };
        let mut totals: Vec<(usize, u8)> = (0..=u8::MAX).map(|byte| (total(byte), byte)).collect();
        totals.retain(|&(total, _)| total > 0);
        totals.sort_by(|a, b| b.cmp(a));
        totals.into_iter().take(CANDIDATES).map(|(_, byte)| byte).collect()
    }

    /// Returns half of the stretches, one or the other, with which no traffic that alternates falls into step.
    fn half(&self, which: u32) -> impl Iterator<Item = &Stretch> {
        [&self.content, &self.copied]
            .into_iter()
            .flat_map(|samples| samples.full.iter().zip(0u32..))
            .filter(move |(_, index)| index.count_ones() % 2 == which)
            .map(|(stretch, _)| stretch)
    }
}

/// Samples of some traffic, by stretches of about 64 KiB.
#[derive(Clone, Debug, Default)]
struct Samples {
    /// The last stretches, in no order.
    full: Vec<Stretch>,
    /// Which of them is the oldest.
    oldest: usize,
    filling: Stretch,
    /// How many bytes are passed over before the next sample.
    skip: usize,
}

impl Samples {
    /// Takes samples of `bytes`, and returns how many stretches that completes.
    fn note(&mut self, bytes: &[u8]) -> u32 {
        let mut completed = 0;
        let mut at = self.skip;
        while let Some(&[byte, next]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            at += STRIDE;
            // A run of one byte would make many markers of little use: windows of that byte.
            if byte != next {
                self.filling.add(byte);
                completed += u32::from(self.complete(ENOUGH));
            }
        }
        self.skip = at.saturating_sub(bytes.len());
        // The next bytes may be another flow's; of small blocks it takes several to judge by.
        let enough = if bytes.len() >= STRIDE * ENOUGH / 2 { ENOUGH / 2 } else { ENOUGH };
        completed + u32::from(self.complete(enough))
    }

    /// Puts the stretch that is being filled with the others once it has `enough` samples, in place of the oldest.
    fn complete(&mut self, enough: usize) -> bool {
        if self.filling.len < enough {
            return false;
        }
        let full = std::mem::take(&mut self.filling).scaled();
        match self.full.get_mut(self.oldest) {
            Some(oldest) => *oldest = full,
            None => self.full.push(full),
        }
        self.oldest = (self.oldest + 1) % STRETCHES;
        true
    }
}

/// How often each byte is among some samples.
#[derive(Clone, Debug)]
struct Stretch {
    counts: [u16; 256],
    len: usize,
}

impl Stretch {
    fn add(&mut self, byte: u8) {
        if let Some(count) = self.counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
        self.len += 1;
    }

    /// Returns what it would be with [`SAMPLES`] samples, of which it has no more.
    fn scaled(mut self) -> Self {
        for count in &mut self.counts {
            *count = (usize::from(*count) * SAMPLES / self.len.max(1)) as u16;
        }
        self.len = SAMPLES;
        self
    }

    fn count(&self, byte: u8) -> usize {
        self.counts.get(usize::from(byte)).copied().unwrap_or(0).into()
    }
}

impl Default for Stretch {
    fn default() -> Self {
        Self { counts: [0; 256], len: 0 }
    }
}

/// Returns the quality of a table for a stretch by how many of its samples the table has: 1 at best, 0 without markers.
fn quality(period: usize) -> Box<[f32; SAMPLES + 1]> {
    let period = period.clamp(1, u32::MAX as usize) as f32;
    // The paper's table keeps about this distance in text, at its p of 32.
    let aim = period / 2.0 + period / 8.0;
    let dense = (24.0 / period).min(0.4);
    Box::new(std::array::from_fn(|hits| {
        let share = hits as f32 / SAMPLES as f32;
        let distance = period / 2.0 + 1.0 / share;
        (aim / distance).min(1.0) * ((1.0 - share) / (1.0 - dense)).min(1.0)
    }))
}

/// One byte in so many is looked at: a prime, so that records of no size are seen at one place only.
const STRIDE: usize = 499;

/// What the samples of a stretch are scaled to.
const SAMPLES: usize = 256;

/// The samples that make a stretch; at the end of a large block, half of them.
const ENOUGH: usize = 128;

/// The stretches of content that are remembered, and those of redundant content.
const STRETCHES: usize = 32;

/// The bytes that a table is made from.
const CANDIDATES: usize = 32;

/// A byte that makes a table better by less is left out.
const DIMINISHING: f32 = 0.01;

/// How much better a table has to be to replace another: a quarter, and more than nothing.
const GAIN: f32 = 1.25;
const SLACK: f32 = 0.05;

/// The fewest and the most stretches between comparisons: 512 KiB and 64 MiB.
const FIRST: u32 = 8;
const LONGEST: u32 = 1024;

#[cfg(test)]
mod tests;
