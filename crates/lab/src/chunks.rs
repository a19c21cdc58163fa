//! Savings and lookup costs of chunks, without a codec around them.
//!
//! This is the simulator of [Wanax §4]: one sender, one receiver, no peers, and a hint table that forgets nothing and
//! knows the receiver's store after each block. Blocks, trees and tags are those of the codec.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use oncewire_codec::wanax::{
    ChunkName, LEAST_BLOCK, LEAST_NAMED, NAME_LEN, Name, NameKey, Node, SHORT_BELOW, STRONG_MORE, Shape,
    Tree, are_tags_worth_it, is_worth_one_of_the_names,
};
use oncewire_codec::wire::{NameEntry, encode_entries};

/// The bytes of a reference to a chunk in a block by its full name: name, distance, length and level.
pub const ENTRY_LEN: u64 = NAME_LEN as u64 + 4;

/// Runs streams through a tree of chunks and counts.
pub struct Analysis {
    tree: Tree,
    key: NameKey,
    tags: Vec<u64>,
    /// All stored chunks, and the number of each one's first root.
    stored: HashMap<u64, u32>,
    roots: u32,
    /// The references of the present block, as in a gateway.
    names: Vec<NameEntry>,
    encoded: Vec<u8>,
    touched: Touched,
    tally: Tally,
}

/// Index entries needed to read chunks, each counted once.
#[derive(Default)]
struct Touched {
    /// The referenced chunks.
    chunks: HashSet<u64>,
    /// The smallest chunks within references.
    smallest: HashSet<u64>,
    /// The referenced chunks, and their roots.
    with_roots: HashSet<(bool, u64)>,
}

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The bytes of all streams.
    pub delivered: u64,
    /// The blocks of the streams.
    pub blocks: u64,
    /// The chunks found, and their bytes, by level.
    pub found: Vec<(u64, u64)>,
    /// The savings of references at [`ENTRY_LEN`] bytes each, for longer chunks only.
    pub saved: u64,
    /// The same between two gateways without an entropy stage, by the codec's own encoding, if each block is
    /// acknowledged before the next: chunks below [`SHORT_BELOW`] have short names; those below [`LEAST_NAMED`],
    /// those [without a name left](is_worth_one_of_the_names), and blocks below [`LEAST_BLOCK`] are sent; a block
    /// with short names takes [`STRONG_MORE`] bytes more, or has full ones if [these are few](are_tags_worth_it).
    pub saved_short: u64,
    /// The largest chunks without a find, next to chunks with one. The paper's sender states their names, too.
    pub missed: u64,
    /// The smallest chunks of all those found: the reads of MRC-Small.
    pub smallest_found: u64,
    /// The needed entries of an index, each once; MRC's, and SRC's.
    pub entries: u64,
    /// The same for MRC-Small, with large chunks made of the smallest ones.
    pub entries_small: u64,
    /// The same for MRC-Large, with small chunks found in their roots.
    pub entries_large: u64,
    /// Different chunks in the store at the end.
    pub stored: u64,
}

impl Tally {
    /// Returns the number of found chunks: the reads of MRC and SRC.
    pub fn reads(&self) -> u64 {
        self.found.iter().map(|(count, _)| count).sum()
    }

    /// Returns the saved share of the delivered bytes with full names only; see [`Self::saved`].
    pub fn actual_share(&self) -> f64 {
        share(self.saved as f64, self.delivered)
    }

    /// Returns the saved share of the delivered bytes with the costs of references here; see [`Self::saved_short`].
    pub fn short_share(&self) -> f64 {
        share(self.saved_short as f64, self.delivered)
    }

    /// Returns the saved share of the delivered bytes with references free of cost.
    pub fn ideal_share(&self) -> f64 {
        share(self.ideal() as f64, self.delivered)
    }

    /// Returns the saved share of the delivered bytes with names as in the paper: 20 bytes for each chunk found, and
    /// as many for each one missed; negative if the names are larger than the bytes.
    pub fn paper_share(&self) -> f64 {
        let names = (self.reads() + self.missed) * NAME_LEN as u64;
        share(self.ideal() as f64 - names as f64, self.delivered)
    }

    /// Returns the bytes of all chunks found: the savings with references free of cost.
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
            names: Vec::new(),
            encoded: Vec::new(),
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

    /// Keeps the stored chunks, and counts anew from here on.
    pub fn recount(&mut self) {
        self.touched = Touched::default();
        self.tally = Tally { found: vec![(0, 0); self.tally.found.len()], ..Tally::default() };
    }

    /// Returns the counts.
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
        let walk = Walk { nodes, len: block.len(), tags: &self.tags, stored: &self.stored };
        self.names.clear();
        let mut counts =
            Counts { touched: &mut self.touched, tally: &mut self.tally, names: &mut self.names };
        let mut index = 0;
        while index < nodes.len() {
            if !walk.visit(index, &mut counts) {
                counts.tally.missed += 1;
            }
            index = nodes[index].next as usize;
        }
        self.tally.saved_short += saved_by(&mut self.names, block.len(), &mut self.encoded);
        for tag in &self.tags {
            if let Entry::Vacant(entry) = self.stored.entry(*tag) {
                entry.insert(self.roots);
            }
        }
        self.roots += 1;
    }
}

/// Returns the savings of a block's names; nothing if they take more than they stand for.
fn saved_by(names: &mut Vec<NameEntry>, block_len: usize, encoded: &mut Vec<u8>) -> u64 {
    let short = names.iter().filter(|entry| entry.name.is_short()).count();
    let are_short = are_tags_worth_it(short, block_len);
    if !are_short {
        names.retain(|entry| !entry.name.is_short() || u64::from(entry.len) >= 2 * ENTRY_LEN);
        names.iter_mut().for_each(|entry| entry.name = FULL);
    }
    encoded.clear();
    encode_entries(names, encoded);
    let named: usize = names.iter().map(|entry| entry.len as usize).sum();
    named.saturating_sub(encoded.len() + if are_short { STRONG_MORE } else { 0 }) as u64
}

/// A full name, for its length.
const FULL: ChunkName = ChunkName::Full(Name([0; NAME_LEN]));

/// The counts of a block on the way.
struct Counts<'a> {
    touched: &'a mut Touched,
    tally: &'a mut Tally,
    names: &'a mut Vec<NameEntry>,
}

/// One block's way through the table.
struct Walk<'a> {
    nodes: &'a [Node],
    /// The block's length.
    len: usize,
    tags: &'a [u64],
    stored: &'a HashMap<u64, u32>,
}

impl Walk<'_> {
    /// Counts the finds of a chunk; returns whether there were any.
    fn visit(&self, index: usize, counts: &mut Counts<'_>) -> bool {
        let (node, tag) = (self.nodes[index], self.tags[index]);
        if let Some(&root) = self.stored.get(&tag) {
            self.found(index, root, counts);
            return true;
        }
        let (mut child, mut missed, mut children) = (index + 1, 0, 0);
        while child < node.next as usize {
            missed += u64::from(!self.visit(child, counts));
            children += 1;
            child = self.nodes[child].next as usize;
        }
        if missed < children {
            counts.tally.missed += missed;
        }
        missed < children
    }

    fn found(&self, index: usize, root: u32, counts: &mut Counts<'_>) {
        let Counts { touched, tally, names } = counts;
        let (node, tag) = (self.nodes[index], self.tags[index]);
        let len = u64::from(node.len);
        let (count, bytes) = &mut tally.found[usize::from(node.level)];
        (*count, *bytes) = (*count + 1, *bytes + len);
        tally.saved += len.saturating_sub(ENTRY_LEN);
        let rest = self.len - node.at as usize;
        if node.len as usize >= LEAST_NAMED
            && self.len >= LEAST_BLOCK
            && is_worth_one_of_the_names(names.len(), node.len as usize, rest)
        {
            let name = match node.len < SHORT_BELOW {
                true => ChunkName::Short(tag),
                false => FULL,
            };
            names.push(NameEntry { at: node.at, len: node.len, level: node.level, name, behind: None });
        }
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
