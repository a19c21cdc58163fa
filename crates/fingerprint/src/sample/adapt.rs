//! Online adaptation of SAMPLEBYTE's table to traffic, left open by [EndRE §5.1.4].
//!
//! The paper sorts bytes by their frequency in redundant content, and adds them to the table while savings grow. The
//! savings of an unused table cannot be measured, so they are modelled: a table is as good as its distance between
//! markers, in all sent bytes and in redundant ones. It is too sparse with markers further apart than p, and too
//! dense with markers at nearly every position, since the skip behind markers then makes a fixed grid, shifted for
//! good by an insertion. Both are judged for each stretch of content by itself, so a table good for half of the
//! traffic does not hide its failure in the other half.
//!
//! A table without markers finds nothing redundant; the sent bytes alone decide then.
//!
//! A table is fitted to half of the stretches and judged by the other half: chance does not count.
//!
//! *Rejected*: decaying sums of counts, blind to the difference between two kinds of content and one between them;
//! trying tables on the traffic in turn, since each loses everything inserted by another.

use super::SampleTable;

/// Learns better marker bytes from samples of the traffic.
///
/// It looks at one byte in 499, and compares tables once in at least 512 KiB, less often while none is better:
/// together less than a hundredth of the encoding's cost. It takes up to 36 KiB. The same bytes give the same tables.
#[derive(Clone, Debug)]
pub struct Adaptation {
    table: SampleTable,
    content: Samples,
    copied: Samples,
    /// How good a table is for a stretch by how many of its samples the table has.
    quality: Box<[f32; SAMPLES + 1]>,
    /// Stretches of content until tables are compared again.
    until_next: u32,
    /// The number of stretches before it.
    interval: u32,
}

impl Adaptation {
    /// Creates the adaptation of `table` for markers about `period` bytes apart.
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

    /// Returns the table in use: the last one returned by [`Self::next_table`], or the first.
    pub const fn table(&self) -> SampleTable {
        self.table
    }

    /// Changes the intended distance of markers.
    pub fn set_period(&mut self, period: usize) {
        self.quality = quality(period);
    }

    /// Takes note of sent bytes, redundant or not.
    pub fn note_content(&mut self, bytes: &[u8]) {
        self.until_next = self.until_next.saturating_sub(self.content.note(bytes));
    }

    /// Takes note of redundant bytes.
    pub fn note_copied(&mut self, bytes: &[u8]) {
        self.copied.note(bytes);
    }

    /// Returns a table clearly better for the recent traffic than the one in use, and takes it for in use.
    ///
    /// To be called once for each block. The repeats of the old table are lost to the new one, so the better one has
    /// to be better by a quarter. While the table in use leaves something to be desired, the wait for the next
    /// comparison doubles, up to 64 MiB.
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
            // It was found by the old table, and is full of the old table's bytes.
            self.copied = Samples::default();
        }
        better
    }

    /// Returns the score of `table` for the recent traffic, from 0 to 1, by the half without any fitting.
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

    /// Returns the most frequent bytes of the recent traffic, at most [`CANDIDATES`] of them.
    fn frequent_bytes(&self) -> Vec<u8> {
        let total = |byte: u8| -> usize { self.half(0).map(|stretch| stretch.count(byte)).sum() };
        let mut totals: Vec<(usize, u8)> = (0..=u8::MAX).map(|byte| (total(byte), byte)).collect();
        totals.retain(|&(total, _)| total > 0);
        totals.sort_by(|a, b| b.cmp(a));
        totals.into_iter().take(CANDIDATES).map(|(_, byte)| byte).collect()
    }

    /// Returns one half of the stretches; alternating traffic does not fall into step with it.
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
    /// The index of the oldest.
    oldest: usize,
    filling: Stretch,
    /// How many bytes are passed over before the next sample.
    skip: usize,
}

impl Samples {
    /// Takes samples of `bytes`, and returns the number of newly complete stretches.
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

    /// Puts the open stretch with the others once it has `enough` samples, in place of the oldest.
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

    /// Returns it scaled to [`SAMPLES`] samples; it has at most as many.
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

/// The distance of samples: a prime, so records of any size are seen at all their places.
const STRIDE: usize = 499;

/// The scaled number of a stretch's samples.
const SAMPLES: usize = 256;

/// The samples of a stretch; at the end of a large block, half of them.
const ENOUGH: usize = 128;

/// The remembered stretches of content, and those of redundant content.
const STRETCHES: usize = 32;

/// The candidates for a table.
const CANDIDATES: usize = 32;

/// The least gain of a byte for a place in the table.
const DIMINISHING: f32 = 0.01;

/// How much better a table has to be to replace another: a quarter, and more than nothing.
const GAIN: f32 = 1.25;
const SLACK: f32 = 0.05;

/// The fewest and the most stretches between comparisons: 512 KiB and 64 MiB.
const FIRST: u32 = 8;
const LONGEST: u32 = 1024;

#[cfg(test)]
mod tests;
