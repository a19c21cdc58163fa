//! What chunks of one size or of several save, and what looking them up costs, without a codec around them.
//!
//! This is the simulator of [Wanax §4]: one sender, one receiver, no peers, a hint table that forgets nothing and knows
//! what the receiver has stored once a block is through. Blocks, trees and tags are those of the codec.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use oncewire_codec::wanax::{NAME_LEN, NameKey, Node, SHORT_BELOW, SHORT_NAME_LEN, Shape, Tree};

/// The bytes of a reference to a chunk in a block by its full name: that, distance, length and level.
pub const ENTRY_LEN: u64 = NAME_LEN as u64 + 4;
/// The same by its short name.
pub const SHORT_ENTRY_LEN: u64 = SHORT_NAME_LEN as u64 + 4;
/// What a block's digest takes more if the block has short names.
pub const STRONG_LEN: u64 = 8;

/// Runs streams through a tree of chunks and counts.
pub struct Analysis {
    tree: Tree,
    key: NameKey,
    tags: Vec<u64>,
    /// All chunks that are stored, and the number of the root in which each came first.
    stored: HashMap<u64, u32>,
    roots: u32,
    touched: Touched,
    tally: Tally,
}

/// Entries of an index that were needed to read chunks, each counted once.
#[derive(Default)]
struct Touched {
    /// What was referred to.
    chunks: HashSet<u64>,
    /// The smallest chunks of what was referred to.
    smallest: HashSet<u64>,
    /// What was referred to, and the roots that it lies in.
    with_roots: HashSet<(bool, u64)>,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The bytes of all streams.
    pub delivered: u64,
    /// The blocks into which the streams were cut.
    pub blocks: u64,
    /// The chunks found, and their bytes, by level.
    pub found: Vec<(u64, u64)>,
    /// What references save if each costs [`ENTRY_LEN`] bytes and only chunks that are longer are referred to.
    pub saved: u64,
    /// The same if chunks below [`SHORT_BELOW`] have short names, [`SHORT_ENTRY_LEN`] bytes each and [`STRONG_LEN`] for a
    /// block that has any, as between two gateways.
    pub saved_short: u64,
    /// The largest chunks of which nothing was found, with chunks beside them of which something was. The paper's
    /// sender states their names too.
    pub missed: u64,
    /// Those of the chunks found that have short names.
    pub short_found: u64,
    /// The smallest chunks of all those found: what MRC-Small reads.
    pub smallest_found: u64,
    /// The entries that were needed of an index, each once; MRC's, and SRC's.
    pub entries: u64,
    /// The same of MRC-Small, which makes large chunks of the smallest ones.
    pub entries_small: u64,
    /// The same of MRC-Large, which finds small chunks in their roots.
    pub entries_large: u64,
    /// Different chunks in the store at the end.
    pub stored: u64,
}

impl Tally {
    /// Returns how many chunks were found: what MRC and SRC read.
    pub fn reads(&self) -> u64 {
        self.found.iter().map(|(count, _)| count).sum()
    }

    /// Returns what is saved of what was delivered if all names are full ones; see [`Self::saved`].
    pub fn actual_share(&self) -> f64 {
        share(self.saved as f64, self.delivered)
    }

    /// Returns what is saved of what was delivered if references cost what they do here; see [`Self::saved_short`].
    pub fn short_share(&self) -> f64 {
        share(self.saved_short as f64, self.delivered)
    }

    /// Returns what would be saved of what was delivered if references cost nothing.
    pub fn ideal_share(&self) -> f64 {
        share(self.ideal() as f64, self.delivered)
    }

    /// Returns what would be saved of what was delivered if names were sent as the paper's are: 20 bytes for each
    /// chunk found, and as many for each that was missed; negative if that is more than there was.
    pub fn paper_share(&self) -> f64 {
        let names = (self.reads() + self.missed) * NAME_LEN as u64;
        share(self.ideal() as f64 - names as f64, self.delivered)
    }

    /// Returns the bytes of all chunks found: what would be saved if references cost nothing.
    pub fn ideal(&self) -> u64 {
        self.found.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Analysis {
    /// Starts with an empty store.
    pub fn new(shape: Shape) -> Self {
        Self {
            tree: Tree::new(shape),
            key: NameKey::new([0; 32]),
            tags: Vec::new(),
            stored: HashMap::new(),
            roots: 0,
            touched: Touched::default(),
            tally: Tally { found: vec![(0, 0); shape.levels().into()], ..Tally::default() },
        }
    }

    /// Sends a stream from its first byte to its last.
    pub fn stream(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (block, rest) = bytes.split_at(self.tree.root_end(bytes, true));
            self.block(block);
            bytes = rest;
        }
    }

    /// Keeps what is stored, and counts anew from here on.
    pub fn recount(&mut self) {
        self.touched = Touched::default();
        self.tally = Tally { found: vec![(0, 0); self.tally.found.len()], ..Tally::default() };
    }

    /// Returns what was counted.
    pub fn finish(self) -> Tally {
        Tally {
            entries: self.touched.chunks.len() as u64,
            entries_small: self.touched.smallest.len() as u64,
            entries_large: self.touched.with_roots.len() as u64,
            stored: self.stored.len() as u64,
            ..self.tally
        }
    }

    fn block(&mut self, block: &[u8]) {
        let nodes = self.tree.grow(block);
        self.tags.clear();
        self.tags.extend(nodes.iter().map(|node| self.key.tag(&block[node.range()])));
        self.tally.delivered += block.len() as u64;
        self.tally.blocks += 1;
        let walk = Walk { nodes, tags: &self.tags, stored: &self.stored };
        let (mut index, short_before) = (0, self.tally.short_found);
        while index < nodes.len() {
            if !walk.visit(index, &mut self.touched, &mut self.tally) {
                self.tally.missed += 1;
            }
            index = nodes[index].next as usize;
        }
        if self.tally.short_found > short_before {
            self.tally.saved_short = self.tally.saved_short.saturating_sub(STRONG_LEN);
        }
        for tag in &self.tags {
            if let Entry::Vacant(entry) = self.stored.entry(*tag) {
                entry.insert(self.roots);
            }
        }
        self.roots += 1;
    }
}

/// One block's way through the table.
struct Walk<'a> {
    nodes: &'a [Node],
    tags: &'a [u64],
    stored: &'a HashMap<u64, u32>,
}

impl Walk<'_> {
    /// Counts what is found of a chunk; returns whether anything was.
    fn visit(&self, index: usize, touched: &mut Touched, tally: &mut Tally) -> bool {
        let (node, tag) = (self.nodes[index], self.tags[index]);
        if let Some(&root) = self.stored.get(&tag) {
            self.found(index, root, touched, tally);
            return true;
        }
        let (mut child, mut missed, mut children) = (index + 1, 0, 0);
        while child < node.next as usize {
            missed += u64::from(!self.visit(child, touched, tally));
            children += 1;
            child = self.nodes[child].next as usize;
        }
        if missed < children {
            tally.missed += missed;
        }
        missed < children
    }

    fn found(&self, index: usize, root: u32, touched: &mut Touched, tally: &mut Tally) {
        let (node, tag) = (self.nodes[index], self.tags[index]);
        let len = u64::from(node.len);
        let (count, bytes) = &mut tally.found[usize::from(node.level)];
        (*count, *bytes) = (*count + 1, *bytes + len);
        tally.saved += len.saturating_sub(ENTRY_LEN);
        let is_short = node.len < SHORT_BELOW;
        tally.saved_short += len.saturating_sub(if is_short { SHORT_ENTRY_LEN } else { ENTRY_LEN });
        tally.short_found += u64::from(is_short);
        touched.chunks.insert(tag);
        touched.with_roots.extend([(false, tag), (true, root.into())]);
        let below = index..node.next as usize;
        for smallest in below.filter(|&index| self.nodes[index].next as usize == index + 1) {
            tally.smallest_found += 1;
            touched.smallest.insert(self.tags[smallest]);
        }
    }
}

fn share(part: f64, of: u64) -> f64 {
    part / of.max(1) as f64
}
