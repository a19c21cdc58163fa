use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{Node, Shape, Tree};

fn shape() -> impl Strategy<Value = Shape> {
    let names = ["mrc:8:128", "mrc:8:65536", "mrc:4:64", "mrc:2:32", "src:32", "src:1024", "src:65536"];
    prop::sample::select(names.to_vec()).prop_map(|name| name.parse().unwrap())
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    (any::<u64>(), 0usize..40_000, 0usize..40_000).prop_map(|(seed, random, zeros)| {
        let mut block = noise(random, seed);
        block.resize((random + zeros).min(Shape::ROOT), 0);
        block
    })
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Checks that `nodes` cover `at..end` without gap or overlap, and each one's children cover it.
fn check(nodes: &[Node], mut index: usize, stop: usize, mut at: u32, end: u32, above: Option<u8>) {
    while index < stop {
        let node = nodes[index];
        assert_eq!(node.at, at);
        assert!(node.len > 0 && node.at + node.len <= end);
        assert!(above.is_none_or(|above| above < node.level), "{node:?} below level {above:?}");
        let next = node.next as usize;
        assert!(next > index && next <= stop, "{node:?} at {index}");
        // An only child would be its parent.
        assert!(next == index + 1 || nodes[index + 1].len < node.len, "{node:?}");
        if next > index + 1 {
            check(nodes, index + 1, next, node.at, node.at + node.len, Some(node.level));
        }
        (at, index) = (node.at + node.len, next);
    }
    assert_eq!(at, end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn children_cover_their_parents(shape in shape(), block in block()) {
        let mut tree = Tree::new(shape);
        let nodes = tree.grow(&block);
        check(nodes, 0, nodes.len(), 0, block.len() as u32, None);
        prop_assert!(nodes.iter().all(|node| node.level < shape.levels()));
        prop_assert!(nodes.iter().all(|node| node.len as usize <= 2 * shape.size(node.level)));
        if !shape.is_single() {
            prop_assert_eq!(nodes.first().map(|root| root.range()), (!block.is_empty()).then_some(0..block.len()));
        }
    }

    #[test]
    fn a_tree_used_again_is_as_a_new_one(shape in shape(), first in block(), second in block()) {
        let mut tree = Tree::new(shape);
        tree.grow(&first);
        let expected = Tree::new(shape).grow(&second).to_vec();
        prop_assert_eq!(tree.grow(&second), expected);
    }

    #[test]
    fn walking_shows_everything_or_passes_over_it(shape in shape(), block in block(), depth in 0u8..12) {
        let mut tree = Tree::new(shape);
        tree.grow(&block);
        let mut all = Vec::new();
        tree.walk(|_, node| {
            all.push(*node);
            true
        });
        prop_assert_eq!(&all[..], tree.nodes());
        // What is not descended into covers the block together.
        let mut covered = 0;
        tree.walk(|index, node| {
            let descend = node.level < depth && node.next as usize > index + 1;
            if !descend {
                assert_eq!(covered, node.at);
                covered += node.len;
            }
            descend
        });
        prop_assert_eq!(covered as usize, block.len());
    }

    #[test]
    fn search_and_walk_agree(shape in shape(), block in block(), wanted in any::<u64>()) {
        let mut tree = Tree::new(shape);
        tree.grow(&block);
        // Any choice that depends on the chunk alone.
        let descends = |node: &Node| wanted.rotate_left(node.at ^ node.len) & 3 != 0;
        let (mut walked, mut searched) = (Vec::new(), Vec::new());
        tree.walk(|_, node| {
            walked.push((node.level, node.range()));
            descends(node)
        });
        tree.search(&block, |node| {
            searched.push((node.level, node.range()));
            descends(node)
        });
        prop_assert_eq!(searched, walked);
    }
}

#[test]
fn similar_blocks_share_most_chunks() {
    let block = noise(60_000, 3);
    let edited = [&block[..30_000], b"an edit", &block[30_010..]].concat();
    let of = |block: &[u8]| -> Vec<Vec<u8>> {
        let mut tree = Tree::new(Shape::default());
        let nodes = tree.grow(block).to_vec();
        let leaves = nodes.iter().enumerate().filter(|(index, node)| node.next as usize == index + 1);
        leaves.map(|(_, node)| block[node.range()].to_vec()).collect()
    };
    let (old, new) = (of(&block), of(&edited));
    let kept: usize = new.iter().filter(|chunk| old.contains(chunk)).map(Vec::len).sum();
    assert!(kept > edited.len() * 98 / 100, "{kept} of {}", edited.len());
}

#[test]
fn block_cut_at_a_chunk_end_keeps_other_chunks() {
    let mut kept = 0;
    for seed in 0..20 {
        let block = noise(60_000, seed);
        let mut tree = Tree::new(Shape::default());
        let end = tree.last_end(&block[..50_000], 20_000).expect("a chunk of at most 16 KiB");
        assert!((20_000..50_000).contains(&end));
        assert_eq!(tree.last_end(&block[..50_000], end + 1), None);
        let mut leaves = |block: &[u8], from: u32| -> Vec<(u32, u32)> {
            let nodes = tree.grow(block).iter().enumerate();
            nodes
                .filter(|(index, node)| node.next as usize == index + 1)
                .map(|(_, node)| (from + node.at, node.len))
                .collect()
        };
        let whole = leaves(&block, 0);
        let parts = [leaves(&block[..end], 0), leaves(&block[end..], end as u32)].concat();
        kept += usize::from(whole == parts);
    }
    // Not if the rest of the block is too short for the cut.
    assert!(kept >= 18, "{kept} of 20");
    assert_eq!(Tree::new(Shape::default()).last_end(b"small", 1), None);
    assert_eq!(Tree::new(Shape::default()).last_end(&[], 0), None);
}

#[test]
fn a_block_below_the_smallest_size_is_one_chunk() {
    let mut tree = Tree::new(Shape::default());
    assert_eq!(tree.grow(b"small"), [Node { level: 0, at: 0, len: 5, next: 1 }]);
    assert_eq!(tree.grow(b""), []);
}
