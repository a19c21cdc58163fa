//! One property suite for every version of MAXP.

use std::ops::Range;

use proptest::prelude::*;

use super::{Maxp, naive, scalar};
use crate::Markers;

type Select = fn(usize, &[u8], Range<usize>, &mut Vec<u32>);

/// The fast versions; a vector one joins here.
const VERSIONS: [(&str, Select); 1] = [("scalar", scalar::select)];

/// Content of few values and many repeats, so that ties and runs are common.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..700),
        prop::collection::vec(0u8..2, 0..700),
        (any::<u8>(), 0usize..700).prop_map(|(byte, len)| vec![byte; len]),
        (prop::collection::vec(any::<u8>(), 1..40), 1usize..20).prop_map(|(unit, times)| unit.repeat(times)),
    ]
}

proptest! {
    #[test]
    fn every_version_agrees_with_the_naive_one(
        bytes in content(),
        period in 1usize..130,
        window in 4usize..70,
        start in 0usize..700,
        len in 0usize..700,
    ) {
        let maxp = Maxp::new(period, window);
        let positions = maxp.positions(&bytes, start..start + len);
        let mut expected = Vec::new();
        naive::select(period, &bytes, positions.clone(), &mut expected);
        for (name, select) in VERSIONS {
            let mut found = Vec::new();
            select(period, &bytes, positions.clone(), &mut found);
            prop_assert_eq!(&found, &expected, "{}", name);
        }
    }

    #[test]
    fn every_full_region_has_one_marker_and_every_window_fits(
        bytes in content(),
        period in 1usize..130,
        window in 0usize..70,
    ) {
        let mut found = Vec::new();
        Maxp::new(period, window).select(&bytes, 0..usize::MAX, &mut found);
        let starts = (bytes.len() + 1).saturating_sub(window.max(4));
        prop_assert_eq!(found.len(), starts.div_ceil(period));
        for (region, &marker) in found.iter().enumerate() {
            prop_assert_eq!(marker as usize / period, region);
            prop_assert!(marker as usize + window <= bytes.len());
        }
    }

    #[test]
    fn batches_cut_at_regions_find_what_one_pass_finds(
        bytes in content(),
        period in 1usize..130,
        regions in 1usize..9,
    ) {
        let maxp = Maxp::new(period, 32);
        let (mut whole, mut batched) = (Vec::new(), Vec::new());
        maxp.select(&bytes, 0..bytes.len(), &mut whole);
        for start in (0..bytes.len()).step_by(period * regions) {
            maxp.select(&bytes, start..start + period * regions, &mut batched);
        }
        prop_assert_eq!(batched, whole);
    }
}

#[test]
fn the_choice_is_pinned() {
    let text =
        b"Once upon a time, and a very good time it was, there was a moocow coming down along the road";
    let mut found = Vec::new();
    Maxp::new(16, 8).select(text, 0..text.len(), &mut found);
    assert_eq!(found, PINNED);
}

const PINNED: [u32; 6] = [13, 20, 43, 51, 77, 81];

#[test]
fn a_run_of_zeros_has_one_marker_a_region() {
    let mut found = Vec::new();
    Maxp::new(64, 32).select(&[0; 1024], 0..1024, &mut found);
    assert_eq!(found, (0..16).map(|region| region * 64).collect::<Vec<u32>>());
}

#[test]
fn absurd_ranges_and_parameters_do_not_panic() {
    let mut found = Vec::new();
    Maxp::new(0, 0).select(&[1; 10], usize::MAX - 1..usize::MAX, &mut found);
    Maxp::new(usize::MAX / 2, usize::MAX).select(&[1; 10], 0..usize::MAX, &mut found);
    #[expect(clippy::reversed_empty_ranges)]
    Maxp::new(8, 8).select(&[1; 10], 5..2, &mut found);
    Maxp::new(8, 8).select(&[], 0..1, &mut found);
    assert_eq!(found, []);
}
