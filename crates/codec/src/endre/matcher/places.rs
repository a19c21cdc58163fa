//! A block's places for look-ups, and for its entries in the table.

use std::ops::Range;

use oncewire_fingerprint::{MarkerKind, Markers, Selector, fingerprint};

use crate::log::LogOffset;

/// A position of a block, and the fingerprint of what begins there.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: u32,
    /// Whether it is a marker, which has an entry once the block is remembered; else it is only looked up.
    pub(super) is_marker: bool,
    pub(super) fingerprint: u64,
}

/// The choice of places.
///
/// With MAXP at short periods there are two for each marker. Its regions lie differently over a repeat and over its
/// source, so a short repeat often has its markers elsewhere; regions beginning half a period later meet many of the
/// others. This costs a look-up and no entry, so the table stays as it is.
pub(super) struct Places {
    selector: Selector,
    /// Bytes a fingerprint covers.
    covered: usize,
    selected: Vec<u32>,
    between: Vec<u32>,
    /// The places of the last block so far, in order.
    all: Vec<Place>,
}

impl Places {
    pub(super) fn new(selector: Selector, covered: usize) -> Self {
        Self { selector, covered, selected: Vec::new(), between: Vec::new(), all: Vec::new() }
    }

    /// Changes the choice from the next block on.
    pub(super) fn set_selector(&mut self, selector: Selector) {
        self.selector = selector;
    }

    pub(super) fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Forgets the places of the last block.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// Returns the places of the last block so far.
    pub(super) fn all(&self) -> &[Place] {
        &self.all
    }

    /// Returns the bytes from `position` on that have about `markers` markers: to the end of a region.
    pub(super) fn batch(&self, position: usize, markers: usize) -> Range<usize> {
        let period = self.selector.period();
        let end = position.saturating_add(period.saturating_mul(markers).min(BATCH));
        position..end.saturating_add(period - end % period)
    }

    /// Adds the places in `range` of `block`; returns the first of them in [`Self::all`], and where to go on.
    pub(super) fn choose(&mut self, block: &[u8], range: Range<usize>) -> (usize, usize) {
        let first = self.all.len();
        self.between.clear();
        if self.selector.kind() == MarkerKind::Maxp && self.selector.period() <= DENSE {
            self.choose_between(block, &range);
        }
        let next = self.choose_markers(block, range);
        (first, next)
    }

    /// Adds the markers in `range` of `block`, and the places between without markers; returns the place to go on.
    fn choose_markers(&mut self, block: &[u8], range: Range<usize>) -> usize {
        self.selected.clear();
        let expected = range.end.min(block.len()).saturating_sub(range.start) / self.selector.period();
        let next = self.selector.select(block, range, &mut self.selected);
        if self.selected.len() > 2 * expected + 2 {
            thin_out(&mut self.selected, self.selector.period() / 2);
        }
        if self.between.is_empty() {
            append(&mut self.all, block, self.covered, &self.selected);
        } else {
            self.merge_between(block);
        }
        next
    }

    /// Adds the places in `selected`, which are markers, and those in `between`, in order and each once.
    fn merge_between(&mut self, block: &[u8]) {
        let mut between = self.between.iter().copied().peekable();
        for &marker in &self.selected {
            while let Some(at) = between.next_if(|at| *at < marker) {
                self.all.extend(place(block, self.covered, at, false));
            }
            between.next_if_eq(&marker);
            self.all.extend(place(block, self.covered, marker, true));
        }
        self.all.extend(between.filter_map(|at| place(block, self.covered, at, false)));
    }

    /// Chooses from regions beginning half a period later.
    fn choose_between(&mut self, block: &[u8], range: &Range<usize>) {
        let half = self.selector.period() / 2;
        let Some(shifted) = block.get(half..) else { return };
        let range = range.start.saturating_sub(half)..range.end.saturating_sub(half);
        self.selector.select(shifted, range, &mut self.between);
        self.between.iter_mut().for_each(|at| *at += half as u32);
    }

    /// Replaces the places by the markers of `part` of `bytes`.
    pub(super) fn index(&mut self, bytes: &[u8], part: Range<usize>) -> &[Place] {
        self.all.clear();
        self.between.clear();
        self.choose_markers(bytes, part);
        &self.all
    }

    /// Replaces the places by runs of as many positions as a period has, one run each so many periods of the log, in which
    /// `bytes` lie at `start`.
    pub(super) fn runs(&mut self, bytes: &[u8], start: LogOffset) -> &[Place] {
        self.all.clear();
        self.selected.clear();
        let period = self.selector.period() as u64;
        let cycle = period.saturating_mul(period);
        let (into, len) = (start.0 % cycle, bytes.len() as u64);
        let relative = |at: u64| at.saturating_sub(into).min(len) as u32;
        for run in (0..len.saturating_add(into)).step_by(usize::try_from(cycle).unwrap_or(usize::MAX)) {
            self.selected.extend(relative(run)..relative(run.saturating_add(period)));
        }
        append(&mut self.all, bytes, self.covered, &self.selected);
        &self.all
    }

    /// Returns the bytes of memory the lists take.
    pub(super) fn memory(&self) -> usize {
        (self.selected.capacity() + self.between.capacity()) * size_of::<u32>()
            + self.all.capacity() * size_of::<Place>()
    }
}

/// Appends markers with their fingerprints.
#[inline]
fn append(places: &mut Vec<Place>, block: &[u8], covered: usize, markers: &[u32]) {
    // A window may be cut off by the block's end; so are all behind it then.
    let whole = markers.partition_point(|&at| at as usize + covered <= block.len());
    let markers = markers.get(..whole).unwrap_or_default();
    places.extend(markers.iter().map(|&at| {
        let window = block.get(at as usize..at as usize + covered).unwrap_or_default();
        Place { at, is_marker: true, fingerprint: fingerprint(window) }
    }));
}

/// Returns the place at a position, `None` where the block ends before its window.
fn place(block: &[u8], covered: usize, at: u32, is_marker: bool) -> Option<Place> {
    let window = block.get(at as usize..)?.get(..covered)?;
    Some(Place { at, is_marker, fingerprint: fingerprint(window) })
}

/// Leaves out markers that are less than `distance` behind the one before.
///
/// Only classical MODP chooses so many: its markers have a value, and content can be made to have it everywhere.
fn thin_out(markers: &mut Vec<u32>, distance: usize) {
    markers.dedup_by(|next, last| ((*next - *last) as usize) < distance);
}

/// Bytes of a block looked up together at most; with more, lines leave the first cache.
const BATCH: usize = 4096;

/// The longest period at which regions are looked up twice: with longer ones, speed comes before savings.
pub(super) const DENSE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_nothing_but_markers_is_thinned_out() {
        let mut markers: Vec<u32> = (100..2100).collect();
        thin_out(&mut markers, 32);
        assert_eq!(markers.len(), 63);
        assert!(markers.windows(2).all(|pair| pair[1] - pair[0] == 32));
    }
}
