//! Trees of chunks: a block's chunks of all sizes, each with those it consists of [Wanax §3.2, Figure 4].

use std::ops::Range;

use oncewire_fingerprint::{Boundary, Levels, Roots};

use super::Shape;

/// A chunk of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The largest level of this chunk, 0 being the shape's largest size. A chunk uncut at the next level is one of
    /// that level too, but has one node only.
    pub level: u8,
    /// Where it begins in the block.
    pub at: u32,
    /// How long it is; never 0.
    pub len: u32,
    /// The index of the first node behind those below this one.
    pub next: u32,
}

impl Node {
    /// Returns where it lies in the block.
    pub fn range(&self) -> Range<usize> {
        self.at as usize..(self.at as usize).saturating_add(self.len as usize)
    }
}

/// Cuts blocks into the chunks of a shape; holds the tree of the last one.
///
/// A block is cut by its bytes alone, so both ends of a link make the same tree of it. Buffers are used again: blocks
/// of like content need no allocation.
#[derive(Clone, Debug)]
pub struct Tree {
    shape: Shape,
    levels: Levels,
    roots: Roots,
    boundaries: Vec<Boundary>,
    nodes: Vec<Node>,
}

impl Tree {
    /// Creates the cut into chunks of `shape`, without a block.
    pub fn new(shape: Shape) -> Self {
        let below_root: Vec<usize> = shape.cut_sizes().collect();
        Self {
            shape,
            levels: Levels::new(&below_root),
            roots: Roots::new(),
            boundaries: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Returns what it cuts into.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns how long the block should be that a stream's `bytes` begin with; see [`Roots::end`].
    pub fn root_end(&mut self, bytes: &[u8], at_end: bool) -> usize {
        self.roots.end(bytes, at_end)
    }

    /// Returns how long the block should be if it is to have at most `max` bytes; see [`Roots::end_within`].
    pub fn root_end_within(&mut self, max: usize, bytes: &[u8], at_end: bool) -> usize {
        self.roots.end_within(max, bytes, at_end)
    }

    /// Whether `bytes` begin where a root is likely to; see [`Roots::is_start`].
    pub fn is_start(bytes: &[u8]) -> bool {
        Roots::is_start(bytes)
    }

    /// Cuts `block`, of at most [`Shape::ROOT`] bytes, and returns its chunks: each is followed by all that it
    /// consists of, the first of them first.
    ///
    /// Chunks of the same parent follow each other without gap or overlap and cover it. The first chunk of a tree is
    /// the whole block; with a single size there is no parent, and the chunks cover the block. An empty block has none.
    pub fn grow(&mut self, block: &[u8]) -> &[Node] {
        self.nodes.clear();
        self.levels.cut(block, &mut self.boundaries);
        let len = block.len() as u32;
        if self.shape.is_single() && !self.boundaries.is_empty() {
            add_children(&mut self.nodes, 0..len, &self.boundaries, 0);
        } else if len > 0 {
            add(&mut self.nodes, Node { level: 0, at: 0, len, next: 0 }, &self.boundaries, 1);
        }
        &self.nodes
    }

    /// Returns the chunks of the last block, as [`Self::grow`] did.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Shows `descend` the chunks of the last block from the top, with their indices; what a chunk consists of is
    /// shown next if it says so, else passed over.
    pub fn walk(&self, descend: impl FnMut(usize, &Node) -> bool) {
        self.walk_from(0, descend);
    }

    /// Shows `descend` the chunks of `block` as [`Self::walk`] does, and cuts it only if it is to be shown more than
    /// the block as a whole: to find that again costs a hash.
    pub fn search(&mut self, block: &[u8], mut descend: impl FnMut(&Node) -> bool) {
        let has_root = !self.shape.is_single() && !block.is_empty();
        let root = Node { level: 0, at: 0, len: block.len() as u32, next: 1 };
        if has_root && !descend(&root) {
            self.nodes.clear();
            self.nodes.push(root);
            return;
        }
        self.grow(block);
        self.walk_from(usize::from(has_root), |_, node| descend(node));
    }

    /// Returns the beginning in `block` of the last chunk of the largest size below the root, if it is at `least` or
    /// behind it. The chunks before it are those of a longer block beginning alike.
    pub fn last_end(&mut self, block: &[u8], least: usize) -> Option<usize> {
        let mut last = 0;
        self.search(block, |node| {
            last = node.at as usize;
            node.len as usize == block.len()
        });
        Some(last).filter(|&at| at > 0 && at >= least)
    }

    fn walk_from(&self, mut index: usize, mut descend: impl FnMut(usize, &Node) -> bool) {
        while let Some(node) = self.nodes.get(index) {
            index = if descend(index, node) { index + 1 } else { node.next as usize };
        }
    }
}

/// Appends `node` and what it consists of, given the boundaries within it.
fn add(nodes: &mut Vec<Node>, node: Node, inner: &[Boundary], below: u8) {
    let index = nodes.len();
    nodes.push(node);
    add_children(nodes, node.at..node.at + node.len, inner, below);
    let next = nodes.len() as u32;
    if let Some(node) = nodes.get_mut(index) {
        node.next = next;
    }
}

/// Appends the chunks into which `range` is cut by its first level with a boundary there; `below` is the tree's level
/// of the boundaries' level 0.
fn add_children(nodes: &mut Vec<Node>, range: Range<u32>, mut inner: &[Boundary], below: u8) {
    let Some(level) = inner.iter().map(|boundary| boundary.level).min() else { return };
    let mut at = range.start;
    loop {
        let cut = inner.iter().position(|boundary| boundary.level == level);
        let (within, behind) = cut.and_then(|cut| inner.split_at_checked(cut)).unwrap_or((inner, &[]));
        let end = behind.first().map_or(range.end, |boundary| boundary.at);
        let node = Node { level: level.saturating_add(below), at, len: end.saturating_sub(at), next: 0 };
        add(nodes, node, within, below);
        let Some((_, behind)) = behind.split_first() else { return };
        (at, inner) = (end, behind);
    }
}

#[cfg(test)]
mod tests;
