//! One property suite for all marker choices, each against its naive twin.

use std::ops::Range;

use proptest::prelude::*;

use crate::noise::noise;
use crate::{
    Backend, MarkerKind, Markers, SampleTable, Selector, fixed, maxp, maxp_strict, modp, modp_rabin,
    samplebyte,
};

/// The parameters of a choice.
#[derive(Clone, Copy, Debug)]
struct Settings {
    kind: MarkerKind,
    period: usize,
    window: usize,
    table: SampleTable,
}

impl Settings {
    fn selector(self) -> Selector {
        Selector::with_table(self.kind, self.period, self.window, self.table)
    }

    /// Selects by the choice's definition.
    fn naive(self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let (period, window) = (self.period.max(1), self.window.max(4));
        match self.kind {
            MarkerKind::Maxp => maxp::naive(period, bytes, window, range, out),
            MarkerKind::MaxpStrict => maxp_strict::naive(period, bytes, window, range, out),
            MarkerKind::Modp => modp::naive(period, bytes, window, range, out),
            MarkerKind::ModpRabin => modp_rabin::naive(period, bytes, window, range, out),
            MarkerKind::Fixed => fixed::naive(period, bytes, window, range, out),
            MarkerKind::SampleByte => samplebyte::naive((period, self.table), bytes, window, range, out),
        }
    }

    /// Selects all markers of `bytes` at once.
    fn select(self, bytes: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        self.selector().select(bytes, 0..bytes.len(), &mut found);
        found
    }
}

/// The backends of this machine.
fn backends() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available())
}

/// Any choice: periods of all kinds, and those in use.
fn settings() -> impl Strategy<Value = Settings> {
    let period = prop_oneof![
        1usize..130,
        prop::sample::select(vec![16usize, 32, 64, 128, 256, 512, 1 << 20, usize::MAX / 8])
    ];
    let table = prop_oneof![
        Just(SampleTable::PAPER),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(|bytes| SampleTable::from_bytes(bytes).unwrap()),
    ];
    (prop::sample::select(MarkerKind::ALL.to_vec()), period, 0usize..70, table)
        .prop_map(|(kind, period, window, table)| Settings { kind, period, window, table })
}

/// Random content, and content of few values, runs and repeats, with frequent ties.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..1500),
        prop::collection::vec(0u8..2, 0..1500),
        (any::<u8>(), 0usize..1500).prop_map(|(byte, len)| vec![byte; len]),
        (prop::collection::vec(any::<u8>(), 1..80), 1usize..20).prop_map(|(unit, times)| unit.repeat(times)),
        (prop::collection::vec(any::<u8>(), 1..80), 1usize..600, prop::collection::vec(any::<u8>(), 0..600))
            .prop_map(|(unit, times, end)| {
                let run: Vec<u8> = unit.iter().copied().cycle().take(times).collect();
                [run, end].concat()
            }),
    ]
}

proptest! {
    #[test]
    fn every_choice_agrees_with_its_naive_twin_on_every_backend(
        bytes in content(),
        settings in settings(),
        start in 0usize..1500,
        len in 0usize..1500,
    ) {
        let mut expected = vec![7];
        let end = settings.naive(&bytes, start..start + len, &mut expected);
        for backend in backends() {
            let mut found = vec![7];
            let selector = settings.selector().on(backend);
            prop_assert_eq!(selector.select(&bytes, start..start + len, &mut found), end, "{}", backend);
            prop_assert_eq!(&found, &expected, "{}", backend);
        }
    }

    #[test]
    fn batches_find_the_same_as_one_pass(
        bytes in content(),
        settings in settings(),
        lens in prop::collection::vec(1usize..300, 1..9),
    ) {
        let selector = settings.selector();
        let mut batched = Vec::new();
        let mut start = 0;
        for len in lens.iter().cycle() {
            if start >= bytes.len() {
                break;
            }
            // One region of MAXP must lie in one batch.
            let end = (start + len).next_multiple_of(settings.period);
            start = selector.select(&bytes, start..end, &mut batched);
        }
        prop_assert_eq!(batched, settings.select(&bytes));
    }

    #[test]
    fn markers_rise_and_every_window_fits(bytes in content(), settings in settings()) {
        let found = settings.select(&bytes);
        prop_assert!(found.is_sorted_by(|a, b| a < b));
        for marker in found {
            prop_assert!(marker as usize + settings.window.max(4) <= bytes.len());
        }
    }

    #[test]
    fn no_content_has_more_than_two_markers_in_a_period(bytes in content(), settings in settings()) {
        if settings.kind != MarkerKind::ModpRabin {
            let found = settings.select(&bytes);
            let starts = (bytes.len() + 1).saturating_sub(settings.window.max(4));
            prop_assert!(found.len() * settings.period <= 2 * (starts + settings.period), "{}", found.len());
        }
    }

    #[test]
    fn every_region_of_maxp_has_one_marker(bytes in content(), period in 1usize..130, window in 0usize..70) {
        let settings = Settings { kind: MarkerKind::Maxp, period, window, table: SampleTable::PAPER };
        let found = settings.select(&bytes);
        prop_assert_eq!(found.len(), (bytes.len() + 1).saturating_sub(window.max(4)).div_ceil(period));
        for (region, marker) in found.into_iter().enumerate() {
            prop_assert_eq!(marker as usize / period, region);
        }
    }

    #[test]
    fn maxp_markers_of_a_multiple_are_markers_of_the_period(
        bytes in content(),
        period in 1usize..70,
        times in 1usize..9,
    ) {
        let of = |period| Settings { kind: MarkerKind::Maxp, period, window: 32, table: SampleTable::PAPER };
        let dense = of(period).select(&bytes);
        prop_assert!(of(period * times).select(&bytes).iter().all(|marker| dense.contains(marker)));
    }

    #[test]
    fn content_defined_markers_move_with_the_content(
        before in prop::collection::vec(any::<u8>(), 0..200),
        other in prop::collection::vec(any::<u8>(), 0..200),
        period in 16usize..70,
    ) {
        let shared = noise(3000, 1);
        for kind in MarkerKind::ALL.into_iter().filter(|kind| kind.is_content_defined()) {
            let settings = Settings { kind, period, window: 32, table: SampleTable::PAPER };
            let tail = |before: &[u8]| -> Vec<u32> {
                let found = settings.select(&[before, &shared].concat());
                found.into_iter().filter_map(|at| at.checked_sub(before.len() as u32 + 2000)).collect()
            };
            prop_assert_eq!(tail(&before), tail(&other), "{}", kind);
        }
    }
}

fn with_default_window(kind: MarkerKind, period: usize) -> Settings {
    Settings { kind, period, window: 32, table: SampleTable::PAPER }
}

#[test]
fn the_mean_distance_on_random_bytes_is_the_period() {
    let bytes = noise(1 << 20, 2);
    let one_in_32 = SampleTable::from_bytes((0..=u8::MAX).step_by(32)).unwrap();
    for kind in MarkerKind::ALL {
        for period in [32, 64, 128, 512] {
            // SAMPLEBYTE waits 32 bytes on average for one of eight in 256, at any period.
            let expected = if kind == MarkerKind::SampleByte { period / 2 + 32 } else { period };
            let settings = Settings { table: one_in_32, ..with_default_window(kind, period) };
            let distance = bytes.len() as f64 / settings.select(&bytes).len() as f64;
            let off = distance / expected as f64;
            assert!((0.93..1.07).contains(&off), "{kind}, {period}: {distance:.1} bytes a marker");
        }
    }
}

#[test]
fn hostile_content_has_at_most_two_markers_in_a_period() {
    let units: Vec<Vec<u8>> = vec![
        vec![0],
        vec![255],
        vec![101],
        noise(31, 3),
        noise(33, 4),
        SampleTable::PAPER.bytes().collect(),
        // Large products, one position after the other.
        0x5A5A_5A5Au32.to_le_bytes().to_vec(),
    ];
    for unit in units {
        let bytes: Vec<u8> = unit.iter().copied().cycle().take(8192).collect();
        for kind in MarkerKind::ALL.into_iter().filter(|&kind| kind != MarkerKind::ModpRabin) {
            for period in [16, 32, 64, 128, 512] {
                let found = with_default_window(kind, period).select(&bytes).len();
                assert!(
                    found * period <= 2 * (bytes.len() + period),
                    "{kind}, {period}: {found} of {unit:?}"
                );
            }
        }
    }
}

#[test]
fn a_run_of_zeros_selects_no_window_by_its_hash() {
    for kind in [MarkerKind::Modp, MarkerKind::ModpRabin] {
        for period in [16, 32, 64, 512] {
            assert_eq!(with_default_window(kind, period).select(&[0; 4096]), [], "{kind}, {period}");
        }
    }
    assert_eq!(with_default_window(MarkerKind::MaxpStrict, 64).select(&[0; 4096]), [0]);
    let regions: Vec<u32> = (0..16).map(|region| region * 64).collect();
    assert_eq!(with_default_window(MarkerKind::Maxp, 64).select(&[0; 1024 + 31]), regions);
}

#[test]
fn the_choices_are_pinned() {
    let text = b"Once upon a time and a very good time it was there was a moocow coming down along the road \
        and this moocow that was coming down along the road met a nicens little boy named baby tuckoo";
    let found: Vec<String> = MarkerKind::ALL
        .map(|kind| Settings { window: 8, ..with_default_window(kind, 16) })
        .map(|settings| format!("{} {:?}", settings.kind, settings.select(text)))
        .to_vec();
    assert_eq!(found, PINNED, "{found:#?}");
}

const PINNED: [&str; 6] = [
    "maxp [7, 19, 37, 49, 75, 94, 103, 127, 138, 158, 169, 176]",
    "maxp-strict [7, 19, 37, 49, 60, 75, 94, 103, 127, 148, 158, 169]",
    "modp [3, 17, 26, 36, 55, 70, 91, 101, 122, 141, 150, 162, 171]",
    "modp-rabin [0, 22, 23, 51, 52, 54, 58, 65, 71, 80, 94, 95, 97, 110, 117, 123, 132, 157, 175, 176]",
    "fixed [0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176]",
    "samplebyte [3, 12, 22, 32, 43, 53, 63, 75, 84, 94, 106, 115, 127, 136, 145, 154, 166]",
];

#[test]
fn best_backend_runs_on_this_machine() {
    assert!(Backend::best().is_available() && Backend::Portable.is_available());
    assert!(!(Backend::Avx2.is_available() && Backend::Neon.is_available()));
    if cfg!(feature = "portable") {
        assert_eq!(Backend::best(), Backend::Portable);
    }
}

#[test]
fn absurd_ranges_and_parameters_do_not_panic() {
    for kind in MarkerKind::ALL {
        for backend in backends() {
            let selector = |period, window| Selector::new(kind, period, window).on(backend);
            let mut found = Vec::new();
            selector(0, 0).select(&[1; 10], usize::MAX - 1..usize::MAX, &mut found);
            selector(usize::MAX, usize::MAX).select(&[1; 10], 0..usize::MAX, &mut found);
            selector(1, 100).select(&[1; 10], 0..usize::MAX, &mut found);
            #[expect(clippy::reversed_empty_ranges)]
            selector(8, 8).select(&[1; 10], 5..2, &mut found);
            selector(8, 8).select(&[], 0..1, &mut found);
            selector(8, 8).select(&[0; 3], 0..3, &mut found);
            assert_eq!(found, [], "{kind}");
            for period in [0, 1, 2, 3, usize::MAX / 2, usize::MAX] {
                selector(period, 0).select(&noise(200, 5), 3..usize::MAX, &mut found);
            }
        }
    }
}
