//! Cutting of blocks into chunks, on the store's writing thread.

use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wanax::{NameKey, Node, Shape, Tree};
use oncewire_codec::wire::Sought;
use oncewire_store::{Inserted, MAX_PARTS, Part, Store};

use crate::neighbours::NewChunk;

/// Cuts blocks; links of other shapes are rare, so it keeps the cutter of the last one.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    tree: Option<Tree>,
    parts: Vec<Part>,
}

impl Cutter {
    /// Cuts a block into chunks of all levels, tags them and puts them into the store.
    pub(super) fn put(&mut self, store: &Store, block: &[u8], (key, shape): (&NameKey, Shape), now_s: u64) {
        self.cut(block, key, shape);
        // The store counts refused chunks itself.
        store.insert(block, &self.parts, now_s);
    }

    /// As [`Self::put`]; returns the new chunks others may be waiting for. Those of the two largest levels
    /// are shared.
    pub(super) fn put_and_tell(
        &mut self,
        store: &Store,
        block: &[u8],
        (key, shape): (&NameKey, Shape),
        now_s: u64,
    ) -> Vec<NewChunk> {
        self.cut(block, key, shape);
        let large = self.parts.iter().filter(|part| part.len >= LEAST_SHARED);
        let new = large.filter(|part| !store.peek(part.tag, part.len));
        let new = new.map(|part| NewChunk {
            sought: Sought { tag: part.tag, len: part.len },
            at: part.start,
            is_shared: part.level <= SHARED_LEVELS,
        });
        let new = new.collect();
        match store.insert(block, &self.parts, now_s) {
            Inserted::Stored { .. } => new,
            Inserted::Known | Inserted::Refused => Vec::new(),
        }
    }

    fn cut(&mut self, block: &[u8], key: &NameKey, shape: Shape) {
        self.parts.clear();
        let tree = match self.tree.take().filter(|tree| tree.shape() == shape) {
            Some(tree) => self.tree.insert(tree),
            None => self.tree.insert(Tree::new(shape)),
        };
        let nodes = tree.grow(block);
        let deepest = deepest(nodes);
        for node in nodes.iter().filter(|node| node.level <= deepest) {
            let tag = key.tag(block.get(node.range()).unwrap_or_default());
            self.parts.push(Part { tag, level: node.level, start: node.at, len: node.len });
        }
    }
}

/// Returns the last stored level: content cut far more finely than on average has more chunks than the store
/// takes, and then loses the smallest.
fn deepest(nodes: &[Node]) -> u8 {
    let mut deepest = nodes.iter().map(|node| node.level).max().unwrap_or(0);
    while deepest > 0 && nodes.iter().filter(|node| node.level <= deepest).count() > MAX_PARTS {
        deepest -= 1;
    }
    deepest
}

/// The last level of chunks announced among members of a group.
const SHARED_LEVELS: u8 = 1;
