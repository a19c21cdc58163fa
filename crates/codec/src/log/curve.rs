//! What a log saves, by its size.

use crate::wire::MAX_CURVE;

/// Bytes saved lately, or would have been, by the size of the log it takes.
///
/// A repeat needs a log with its source; the source's distance is known whether or not the log was large enough. Sizes
/// are counted in steps: up to 256 KiB, and each further one twice as much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    saved: [u64; MAX_CURVE],
}

impl Curve {
    /// The size of log at the end of each step.
    pub fn sizes() -> impl Iterator<Item = u64> {
        (0..MAX_CURVE).map(|step| FIRST_STEP << step)
    }

    /// Takes reported values of each step; those beyond the last step count for it.
    pub fn from_values(values: &[u64]) -> Self {
        let mut curve = Self::default();
        for (step, value) in values.iter().enumerate() {
            if let Some(saved) = curve.saved.get_mut(step.min(MAX_CURVE - 1)) {
                *saved = saved.saturating_add(*value);
            }
        }
        curve
    }

    /// Returns the bytes of each step, without the steps behind the last that has any.
    pub fn values(&self) -> &[u64] {
        let used = self.saved.iter().rposition(|saved| *saved > 0).map_or(0, |last| last + 1);
        self.saved.get(..used).unwrap_or_default()
    }

    /// Counts `bytes` repeating what lies `distance` before the head, for the first size reaching it.
    ///
    /// `reach` returns the reach of references for a log size: at least half of it, and its size less its headroom.
    #[inline]
    pub fn add(&mut self, distance: u64, bytes: u64, reach: impl Fn(u64) -> u64) {
        let last = distance.max(1) - 1;
        let holds = (last / FIRST_STEP).checked_ilog2().map_or(0, |log2| log2 as usize + 1);
        // What half of the size does not hold, all of the next one reaches.
        let reaches = FIRST_STEP.checked_shl(holds as u32).is_some_and(|size| distance <= reach(size));
        if let Some(saved) = self.saved.get_mut(holds + usize::from(!reaches)) {
            *saved = saved.saturating_add(bytes);
        }
    }

    /// Returns the bytes a log of this size saves; between steps in proportion.
    pub fn saved_by(&self, size: u64) -> u64 {
        let mut below = 0;
        let mut saved = 0u64;
        for (end, step) in Self::sizes().zip(self.saved) {
            if size < end {
                let part =
                    u128::from(step) * u128::from(size.saturating_sub(below)) / u128::from(end - below);
                return saved.saturating_add(part as u64);
            }
            saved = saved.saturating_add(step);
            below = end;
        }
        saved
    }

    /// Returns everything counted.
    pub fn total(&self) -> u64 {
        self.saved.iter().fold(0, |sum: u64, saved| sum.saturating_add(*saved))
    }

    /// Lets what was counted so far weigh half.
    pub fn halve(&mut self) {
        self.saved.iter_mut().for_each(|saved| *saved /= 2);
    }

    /// Scales everything down so no more than `total` is counted.
    pub fn cap(&mut self, total: u64) {
        let sum: u128 = self.saved.iter().map(|saved| u128::from(*saved)).sum();
        if sum > u128::from(total) {
            let scale = |saved: &mut u64| *saved = (u128::from(*saved) * u128::from(total) / sum) as u64;
            self.saved.iter_mut().for_each(scale);
        }
    }
}

const FIRST_STEP: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_counts_for_the_first_size_in_reach() {
        let mut curve = Curve::default();
        let mut add = |distance, bytes| curve.add(distance, bytes, |size| size / 4 * 3);
        add(0, 1);
        add(196_608, 2);
        add(196_609, 4);
        add(3 << 20, 8);
        add(u64::MAX, 16);
        assert_eq!(curve.values(), [3, 4, 0, 0, 8]);
        assert_eq!(curve.saved_by(256 << 10), 3);
        assert_eq!(curve.saved_by(2 << 20), 7);
        assert_eq!(curve.saved_by(3 << 20), 11, "half of the step up to 4 MiB");
        assert_eq!((curve.saved_by(u64::MAX), curve.total()), (15, 15));
        curve.halve();
        assert_eq!(curve.values(), [1, 2, 0, 0, 4]);
        curve.cap(3);
        assert_eq!(curve.values(), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn log_saves_within_its_reach_at_any_headroom() {
        for sixteenths in [8, 12, 15, 16] {
            let reach = |size: u64| size / 16 * sixteenths;
            for size in Curve::sizes() {
                let mut curve = Curve::default();
                curve.add(reach(size), 1, reach);
                assert_eq!(
                    (curve.saved_by(size), curve.saved_by(size / 2)),
                    (1, 0),
                    "{sixteenths} of {size}"
                );
                curve.add(reach(size) + 1, 2, reach);
                assert_eq!(curve.saved_by(size), 1, "{sixteenths} of {size}");
            }
        }
    }

    #[test]
    fn reported_curve_cannot_overflow() {
        let mut curve = Curve::from_values(&[u64::MAX; 40]);
        assert_eq!((curve.total(), curve.saved_by(0)), (u64::MAX, 0));
        curve.add(1, 5, |size| size);
        curve.cap(1000);
        assert!(curve.total() <= 1000);
        assert_eq!(Curve::from_values(curve.values()), curve);
    }
}
