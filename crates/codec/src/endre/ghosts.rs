//! Hits of a larger log: repeats of lost content.
//!
//! A sample of the markers is remembered with their last places, for as long as the log's capacity reaches back, at any
//! limit. The same content has the same markers, so a sampled marker stands for many: a sixty-fourth of the log's size
//! tells the whole curve of savings by size (spatially hashed sampling, as of cache miss curves). The fingerprint table
//! could not: beyond its comparison with the log, most of its answers are chance.

use super::matcher::Copy;
use crate::log::Curve;

pub(crate) struct Ghosts {
    /// Upper half of a fingerprint, and the offset where it was last seen plus one; 0 is empty.
    slots: Vec<(u32, u64)>,
    /// One marker in 2 to the power of `rate` is sampled.
    rate: u32,
    /// Bytes a sampled marker stands for.
    weight: u64,
    capacity: u64,
}

impl Ghosts {
    /// Starts with nothing seen of a log of `capacity` bytes with a marker every `period` bytes.
    pub(crate) fn new(capacity: u64, period: usize) -> Self {
        let slots =
            (capacity / SHARE / size_of::<(u32, u64)>() as u64).clamp(64, MOST_SLOTS).next_power_of_two();
        let period = period.max(1) as u64;
        let markers = capacity / period;
        let rate = (markers.saturating_mul(8) / slots).max(1).next_power_of_two().trailing_zeros();
        Self { slots: vec![(0, 0); slots as usize], rate, weight: period << rate, capacity }
    }

    /// Takes the markers of a block at `head` looked up, in order, and counts those lying outside of `copies` and were
    /// seen before `floor`, for `curve`'s first size that `reach` says would have had them.
    pub(crate) fn note(
        &mut self,
        markers: impl Iterator<Item = (u32, u64)>,
        copies: &[Copy],
        head: u64,
        floor: u64,
        curve: &mut Curve,
        reach: impl Fn(u64) -> u64,
    ) {
        let mut copies = copies.iter().peekable();
        let sampled = (1u64 << self.rate) - 1;
        for (marker, fingerprint) in
            markers.filter(|(_, fingerprint)| fingerprint >> SAMPLE_BITS & sampled == 0)
        {
            let tag = (fingerprint >> 32) as u32;
            let index = (fingerprint & (self.slots.len() as u64 - 1)) as usize;
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let at = head.saturating_add(u64::from(marker));
            let (seen_tag, seen) = std::mem::replace(slot, (tag, at.saturating_add(1)));
            while copies.next_if(|copy| copy.end() <= marker as usize).is_some() {}
            let found = copies.peek().is_some_and(|copy| copy.at <= marker);
            let distance = at.saturating_sub(seen.saturating_sub(1));
            if seen_tag == tag && seen > 0 && seen <= floor && !found && distance <= self.capacity {
                curve.add(distance, self.weight, &reach);
            }
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        (self.slots.len() * size_of::<(u32, u64)>()) as u64
    }
}

/// The part of a log's size its ghosts may take.
const SHARE: u64 = 64;

/// With more, nothing becomes clearer.
const MOST_SLOTS: u64 = 16_384;

/// The bits of a fingerprint for the choice of samples: none of its index or tag here.
const SAMPLE_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use oncewire_fingerprint::fingerprint;

    use super::*;

    /// Markers every 64 bytes of a block.
    fn markers(content: u64) -> impl Iterator<Item = (u32, u64)> {
        (0..64u32).map(move |i| (i * 64, fingerprint(&(content * 64 + u64::from(i)).to_le_bytes().repeat(4))))
    }

    fn reach(size: u64) -> u64 {
        size / 4 * 3
    }

    #[test]
    fn repeats_of_lost_content_are_counted_by_distance() {
        let mut ghosts = Ghosts::new(64 << 20, 64);
        let mut curve = Curve::default();
        let blocks = 8192u64;
        for n in 0..2 * blocks {
            // 32 MiB of content, twice; the log holds the last 4 MiB.
            let head = n << 12;
            ghosts.note(markers(n % blocks), &[], head, head.saturating_sub(4 << 20), &mut curve, reach);
        }
        let (counted, truth) = (curve.total() as f64, (32u64 << 20) as f64);
        assert!((counted / truth - 1.0).abs() < 0.15, "{counted} for {truth}");
        assert_eq!(curve.saved_by(32 << 20), 0);
        assert_eq!(curve.saved_by(64 << 20), curve.total());
    }

    #[test]
    fn found_or_reachable_repeat_is_no_ghost() {
        let mut ghosts = Ghosts::new(64 << 10, 64);
        let copy = Copy { at: 0, len: 4096, source: crate::log::LogOffset(0) };
        let mut count = |copies: &[Copy], head, floor| {
            let mut curve = Curve::default();
            (0..64).for_each(|content| ghosts.note(markers(content), copies, head, floor, &mut curve, reach));
            curve.total()
        };
        assert_eq!(count(&[], 0, 0), 0, "never seen");
        assert_eq!(count(&[], 9000, 0), 0, "within the log");
        assert_eq!(count(&[copy], 30_000, 20_000), 0, "found elsewhere");
        assert!(count(&[], 60_000, 50_000) > 0);
        assert_eq!(count(&[], 600_000, 500_000), 0, "further back than the capacity");
    }
}
