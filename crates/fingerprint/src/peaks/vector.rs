//! Peaks by vectors: 32 positions a step.

use std::ops::Range;

use super::scalar::Scalar;
use super::{Peak, Peaks};
use crate::product::MULTIPLIER;
use crate::vector::{LANES, Vector, each, group};

/// Peaks found with a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vectors<V>(pub(crate) V);

impl<V: Vector> Peaks for Vectors<V> {
    #[inline(always)]
    fn peak(self, bytes: &[u8], positions: Range<usize>) -> Option<Peak> {
        match positions.len() {
            0..LANES => self.of_less(bytes, &positions).or_else(|| Scalar.peak(bytes, positions)),
            LANES => self.of_one_group(bytes, positions.start),
            33..=TWO => self.of_two_groups(bytes, positions),
            _ => self.of_many_groups(bytes, positions),
        }
    }

    #[inline(always)]
    fn reaches(self, bytes: &[u8], positions: Range<usize>, least: u32) -> bool {
        let Self(v) = self;
        let multiplier = v.splat_u32(MULTIPLIER);
        let least_of_all = v.splat_u32(least);
        let mut at = positions.start;
        while at < positions.end {
            let Some(group) = group(bytes, at) else {
                return Scalar.reaches(bytes, at..positions.end, least);
            };
            let reach = each(
                v.products(group, multiplier),
                #[inline(always)]
                |hashes| v.eq_u32(hashes, v.max_u32(hashes, least_of_all)),
            );
            let beyond = (at + LANES).saturating_sub(positions.end);
            if beyond < LANES && v.interleave(reach) << beyond != 0 {
                return true;
            }
            at += LANES;
        }
        false
    }
}

/// The positions of two groups.
const TWO: usize = 2 * LANES;

impl<V: Vector> Vectors<V> {
    /// The peak of fewer than 32 positions; `None` without positions, or if the bytes end too soon.
    #[inline(always)]
    fn of_less(self, bytes: &[u8], positions: &Range<usize>) -> Option<Peak> {
        let Self(v) = self;
        let [a, b, c, d] = v.products(group(bytes, positions.start)?, v.splat_u32(MULTIPLIER));
        let count = v.splat_u32(positions.len() as u32);
        let [of_a, of_b, of_c, of_d] = &PLACES;
        // Numbers behind the positions become 0 and lose, or come behind them in a draw.
        let hashes = [
            v.and(a, v.gt_i32(count, v.load(of_a))),
            v.and(b, v.gt_i32(count, v.load(of_b))),
            v.and(c, v.gt_i32(count, v.load(of_c))),
            v.and(d, v.gt_i32(count, v.load(of_d))),
        ];
        let highest = v.highest_u32(self.highest_of(hashes));
        let first = self.places(hashes, highest).trailing_zeros() as usize;
        (first < positions.len()).then_some(Peak { at: positions.start + first, hash: v.first_u32(highest) })
    }

    /// The peak of 32 positions.
    #[inline(always)]
    fn of_one_group(self, bytes: &[u8], start: usize) -> Option<Peak> {
        let Self(v) = self;
        let hashes = v.products(group(bytes, start)?, v.splat_u32(MULTIPLIER));
        let highest = v.highest_u32(self.highest_of(hashes));
        let first = self.places(hashes, highest).trailing_zeros();
        Some(Peak { at: start + first as usize, hash: v.first_u32(highest) })
    }

    /// The peak of 33 to 64 positions; all their hashes stay in registers.
    #[inline(always)]
    fn of_two_groups(self, bytes: &[u8], positions: Range<usize>) -> Option<Peak> {
        let Self(v) = self;
        // The second group ends with the positions, and shares some with the first.
        let apart = positions.len() - LANES;
        let multiplier = v.splat_u32(MULTIPLIER);
        let a = v.products(group(bytes, positions.start)?, multiplier);
        let b = v.products(group(bytes, positions.start + apart)?, multiplier);
        let highest = v.highest_u32(v.max_u32(self.highest_of(a), self.highest_of(b)));
        let places = u64::from(self.places(a, highest)) | u64::from(self.places(b, highest)) << apart;
        let first = places.trailing_zeros();
        Some(Peak { at: positions.start + first as usize, hash: v.first_u32(highest) })
    }

    /// The peak of more positions: first its group of 64, then its place.
    ///
    /// No branch depends on the data, since no processor foresees the place of a peak.
    #[inline(always)]
    fn of_many_groups(self, bytes: &[u8], positions: Range<usize>) -> Option<Peak> {
        let Self(v) = self;
        let multiplier = v.splat_u32(MULTIPLIER);
        // The last 64 end with the positions, and share some with those before.
        let last = positions.end - TWO;
        let start = |step: usize| (positions.start + step * TWO).min(last);
        let steps = positions.len().div_ceil(TWO);
        // For each number of the registers, the highest so far, and its first step, counted backwards.
        let mut highest = v.splat_u32(0);
        let mut firsts = v.splat_u32(steps as u32);
        for step in 0..steps {
            let a = self.highest_of(v.products(group(bytes, start(step))?, multiplier));
            let b = self.highest_of(v.products(group(bytes, start(step) + LANES)?, multiplier));
            let higher = v.max_u32(highest, v.max_u32(a, b));
            let as_before = v.eq_u32(higher, highest);
            firsts = v.select(as_before, firsts, v.splat_u32((steps - step) as u32));
            highest = higher;
        }
        let highest_of_all = v.highest_u32(highest);
        let leading = v.and(v.eq_u32(highest, highest_of_all), firsts);
        let first = start(steps - v.first_u32(v.highest_u32(leading)) as usize);
        self.of_two_groups(bytes, first..first + TWO)
    }

    #[inline(always)]
    fn highest_of(self, [a, b, c, d]: [V::Register; 4]) -> V::Register {
        self.0.max_u32(self.0.max_u32(a, b), self.0.max_u32(c, d))
    }

    /// Returns the positions of a group with the hash `highest`.
    #[inline(always)]
    fn places(self, hashes: [V::Register; 4], highest: V::Register) -> u32 {
        self.0.interleave(each(
            hashes,
            #[inline(always)]
            |hashes| self.0.eq_u32(hashes, highest),
        ))
    }
}

/// The positions of the hashes in [`Vector::products`].
const PLACES: [[u8; LANES]; 4] = {
    let mut places = [[0; LANES]; 4];
    let mut position = 0;
    while position < LANES {
        // The number's lowest byte; the others are 0.
        places[position % 4][position / 4 * 4] = position as u8;
        position += 1;
    }
    places
};
