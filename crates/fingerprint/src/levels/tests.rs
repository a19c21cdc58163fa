use std::ops::Range;

use proptest::prelude::*;

use super::{Boundary, Levels, Roots, naive};
use crate::Backend;
use crate::noise::noise;

/// The sizes of a tree of degree 8 from 64 KiB down to 128 bytes, without its root.
const DEFAULT: [usize; 3] = [8192, 1024, 128];

fn cut(sizes: &[usize], block: &[u8]) -> Vec<Boundary> {
    let mut found = Vec::new();
    Levels::new(sizes).cut(block, &mut found);
    found
}

/// The chunks of `level`, as ranges of a block of `len` bytes.
fn chunks(boundaries: &[Boundary], level: u8, len: usize) -> Vec<Range<usize>> {
    let inner =
        boundaries.iter().filter(|boundary| boundary.level <= level).map(|boundary| boundary.at as usize);
    let edges: Vec<usize> = [0].into_iter().chain(inner).chain([len]).collect();
    edges.windows(2).map(|edge| edge[0]..edge[1]).collect()
}

fn backends() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available())
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let of_degree = |degree: usize, leaf: usize| {
        let sizes = std::iter::successors(Some(65536 / degree), move |size| Some(size / degree));
        sizes.take_while(|&size| size >= leaf).collect::<Vec<_>>()
    };
    prop_oneof![
        (prop::sample::select(vec![2usize, 4, 8]), 32usize..9000)
            .prop_map(move |(degree, leaf)| of_degree(degree, leaf)),
        (5u32..=15).prop_map(|log| vec![1 << log]),
        Just(Vec::new()),
    ]
}

/// Noise, runs, periods and mixtures, with few values among them so ties are common.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let noise = (any::<u64>(), 0usize..20_000).prop_map(|(seed, len)| noise(len, seed));
    let run = (any::<u8>(), 0usize..20_000).prop_map(|(byte, len)| vec![byte; len]);
    let periods =
        (prop::collection::vec(any::<u8>(), 1..300), 1usize..60).prop_map(|(unit, times)| unit.repeat(times));
    prop::collection::vec(prop_oneof![noise, run, periods], 0..4).prop_map(|parts| {
        let mut block = parts.concat();
        block.truncate(65_536);
        block
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_backend_cuts_as_the_naive_twin(sizes in sizes(), block in block()) {
        let expected = naive::cut(&sizes, &block);
        for backend in backends() {
            let mut found = Vec::new();
            Levels::new(&sizes).on(backend).cut(&block, &mut found);
            prop_assert_eq!(&found, &expected, "{}", backend);
        }
    }

    #[test]
    fn boundaries_rise_and_chunks_keep_their_bounds(sizes in sizes(), block in block()) {
        let found = cut(&sizes, &block);
        prop_assert!(found.is_sorted_by(|a, b| a.at < b.at));
        for (level, size) in sizes.iter().enumerate() {
            for chunk in chunks(&found, level as u8, block.len()) {
                prop_assert!(chunk.len() <= 2 * size, "{chunk:?} of level {level}");
                prop_assert!(chunk.len() >= (size / 2).min(block.len()), "{chunk:?} of level {level}");
            }
        }
    }

    #[test]
    fn earlier_cuts_leave_no_trace(sizes in sizes(), first in block(), second in block()) {
        let (mut levels, mut found) = (Levels::new(&sizes), Vec::new());
        levels.cut(&first, &mut found);
        levels.cut(&second, &mut found);
        prop_assert_eq!(found, cut(&sizes, &second));
    }

    #[test]
    fn a_stream_is_cut_into_blocks_within_bounds(stream in block(), more in block(), at_end in any::<bool>()) {
        let stream = [stream, more].concat();
        for max in [Roots::LEAST_MAX, 16 << 10, Roots::MAX] {
            let ends: Vec<usize> =
                backends().map(|backend| Roots::new().on(backend).end_within(max, &stream, at_end)).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
            let end = ends[0];
            let least = if max < Roots::MAX { 512 } else { Roots::MIN };
            prop_assert!(end <= max.min(stream.len()) && end >= least.min(stream.len()), "{end}");
            // Only the end of the bytes can end a block with neither a cut by content nor the maximal length.
            if end < stream.len() {
                let seen = &stream[..(end + 32).max(max).min(stream.len())];
                prop_assert_eq!(Roots::new().end_within(max, seen, false), end);
            }
        }
    }
}

#[test]
fn chunks_have_about_the_size_of_their_level() {
    let mut boundaries = vec![0; DEFAULT.len()];
    for seed in 0..64 {
        for boundary in cut(&DEFAULT, &noise(65_536, seed)) {
            boundaries[usize::from(boundary.level)] += 1;
        }
    }
    let mut inner = 0;
    for (size, count) in DEFAULT.into_iter().zip(boundaries) {
        inner += count;
        let mean = 64.0 * 65_536.0 / f64::from(inner + 64);
        assert!((0.85..1.35).contains(&(mean / size as f64)), "{mean:.0} bytes at {size}");
    }
}

#[test]
fn an_insertion_moves_boundaries_with_the_content() {
    for seed in 0..20 {
        let block = noise(60_000, seed);
        let (front, back) = block.split_at(20_000);
        let edited = [front, b"inserted", back].concat();
        let behind = |block: &[u8], from: usize| -> Vec<Boundary> {
            let found = cut(&DEFAULT, block).into_iter();
            let moved =
                found.map(|boundary| Boundary { at: boundary.at.saturating_sub(from as u32), ..boundary });
            moved.filter(|boundary| boundary.at > 0).collect()
        };
        let (plain, moved) = (behind(&block, 20_000), behind(&edited, 20_008));
        // One chunk of the largest level may be cut otherwise; the following ones are not.
        let step =
            plain.iter().find(|boundary| boundary.level == 0 && moved.contains(boundary)).map(|b| b.at);
        let step = step.unwrap_or_else(|| panic!("never in step again with seed {seed}"));
        let tail = |found: &[Boundary]| found.iter().copied().filter(|b| b.at >= step).collect::<Vec<_>>();
        assert_eq!(tail(&plain), tail(&moved), "seed {seed}");
    }
}

#[test]
fn only_content_without_boundary_is_cut_by_position() {
    let zeros = cut(&DEFAULT, &[0; 65_536]);
    let largest: Vec<Range<usize>> = chunks(&zeros, 0, 65_536);
    assert_eq!(largest, [0..16_384, 16_384..32_768, 32_768..49_152, 49_152..65_536]);
    assert_eq!(chunks(&zeros, 2, 65_536).len(), 65_536 / 256);
    // A single place marked by content, far from the cut by position.
    let mut marked = vec![0; 65_536];
    marked[10_000..10_100].copy_from_slice(&noise(100, 1));
    let found: Vec<u32> = cut(&DEFAULT, &marked).into_iter().filter(|b| b.level == 0).map(|b| b.at).collect();
    assert!(found.iter().any(|at| (9_960..10_100).contains(at)), "{found:?}");
}

#[test]
fn blocks_end_by_content() {
    for seed in 0..20 {
        let stream = noise(400_000, seed);
        for max in [Roots::LEAST_MAX, Roots::MAX] {
            let plain = ends(max, &stream);
            let moved = ends(max, &[b"in front", &stream[..]].concat());
            let shared = plain.iter().filter(|&&end| moved.contains(&(end + 8))).count();
            assert!(shared * 2 >= plain.len(), "seed {seed}, {max}: {shared} of {}", plain.len());
        }
    }
}

#[test]
fn long_blocks_consist_of_whole_short_ones() {
    let stream = noise(4_000_000, 3);
    let long = ends(Roots::MAX, &stream);
    for max in [4 << 10, 8 << 10, 16 << 10] {
        let short = ends(max, &stream);
        let shared = long.iter().filter(|end| short.contains(end)).count();
        assert!(shared * 100 >= long.len() * 75, "{max}: {shared} of {}", long.len());
    }
}

#[test]
fn slightly_different_limits_cut_alike() {
    let stream = noise(400_000, 1);
    let [at_16_000, at_8192, at_1000, at_4096] = [16_000, 8192, 1000, 4096].map(|max| ends(max, &stream));
    assert_eq!((at_16_000, at_1000), (at_8192.clone(), at_4096));
    assert!((40..90).contains(&at_8192.len()), "{}", at_8192.len());
}

/// The ends of a stream's blocks of at most `max` bytes.
fn ends(max: usize, stream: &[u8]) -> Vec<usize> {
    let (mut roots, mut ends, mut at) = (Roots::new(), Vec::new(), 0);
    while at < stream.len() {
        at += roots.end_within(max, &stream[at..], true);
        ends.push(at);
    }
    ends
}

#[test]
fn a_block_may_grow_until_it_is_full() {
    let zeros = vec![0; Roots::MAX + 1];
    let mut roots = Roots::new();
    for len in [0, 1, Roots::MIN, Roots::MAX - 1, Roots::MAX] {
        assert_eq!(roots.end(&zeros[..len], false), len);
        assert_eq!(roots.end(&zeros[..len], true), len);
    }
    assert_eq!(roots.end(&zeros, true), Roots::MAX);
    // Bytes with candidates, none of them good enough to end a block before its limit.
    let seed = (0..).find(|&seed| roots.end(&noise(Roots::MAX, seed), true) == Roots::MAX).unwrap();
    let full = noise(Roots::MAX, seed);
    assert!(roots.end(&full, false) < Roots::MAX, "seed {seed}");
    assert_eq!(roots.end(&full[..Roots::MAX - 1], false), Roots::MAX - 1, "seed {seed}");
}

#[test]
fn the_cut_is_pinned() {
    let text: Vec<u8> =
        (0..4000u32).flat_map(|i| format!("{} {:x}\n", i * i, i * 977).into_bytes()).collect();
    let pins: Vec<String> = [&DEFAULT[..], &[32], &[4096]]
        .iter()
        .map(|sizes| {
            let found = cut(sizes, &text);
            let digest = found.iter().fold(0, |digest, boundary| {
                (digest ^ u64::from(boundary.at) << 8 ^ u64::from(boundary.level))
                    .wrapping_mul(0x100_0000_01B3)
            });
            let first: Vec<u32> = found.iter().take(3).map(|boundary| boundary.at).collect();
            format!("{sizes:?}: {} from {first:?}, {digest:#018x}", found.len())
        })
        .chain([format!("a block of {}", Roots::new().end(&text, true))])
        .collect();
    assert_eq!(pins, PINNED, "{pins:#?}");
}

const PINNED: [&str; 4] = [
    "[8192, 1024, 128]: 400 from [252, 389, 618], 0x5e8c44a1adbe0559",
    "[32]: 1659 from [17, 65, 86], 0x434bbc82c7339f00",
    "[4096]: 12 from [6617, 8749, 13352], 0x440bae1c6ce24a00",
    "a block of 19133",
];

#[test]
fn absurd_sizes_do_not_panic() {
    for sizes in [&[][..], &[0], &[1, 0], &[usize::MAX, 3], &[32, 8192], &[33; 300]] {
        cut(sizes, &noise(5000, 1));
        cut(sizes, &[0; 70_000]);
        cut(sizes, &[]);
    }
}
