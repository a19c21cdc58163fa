//! One store for all peers, with chunks separated by key.
//!
//! A chunk put under one key is absent under another.

use oncewire_codec::wanax::Tree;
use oncewire_link::Purpose;

use super::*;
use crate::lane::testing;

/// A chunk as named by a peer.
struct Named {
    name: Name,
    len: u32,
    key: NameKey,
}

impl Named {
    fn new(chunk: &[u8], key: &NameKey) -> Self {
        Self { name: key.name(chunk), len: chunk.len() as u32, key: key.clone() }
    }

    /// Another key's tag, with the rest of a name under this one.
    fn with_tag_of(self, other: &NameKey, chunk: &[u8]) -> Self {
        Self { name: self.key.name_tagged(other.tag(chunk), chunk), ..self }
    }

    /// The answer to PEEK of a neighbour.
    fn is_held(&self, store: &ChunkStore) -> bool {
        store.holds(self.name.tag(), self.len)
    }

    /// The answer to PROBE from a peer with this key in its hello.
    fn is_probed(&self, store: &ChunkStore) -> bool {
        let chunks = vec![Sought { tag: self.name.tag(), len: self.len }];
        let (key, purpose) = (self.key.clone(), Purpose::Survey);
        let asked = StoreRequest::Peek { ticket: 1, chunks, key, purpose };
        match store.serve(&testing::peer(), asked) {
            Some(StoreReply::Places { places, .. }) => places != [ChunkPlace::Absent],
            other => panic!("{other:?}"),
        }
    }

    /// Whether GET of a neighbour brings it.
    fn is_lent(&self, store: &ChunkStore) -> bool {
        let (reply, answer) = std::sync::mpsc::channel();
        assert!(store.lend(self.name, self.len, self.key.clone(), move |found| reply.send(found).unwrap()));
        answer.recv_timeout(Duration::from_secs(60)).unwrap().is_some()
    }

    /// Whether a block with this name finds it, from a peer with this key in its hello.
    fn is_read(&self, store: &ChunkStore, name: ChunkName) -> bool {
        let counts = || store.slot.read().pool().map(|PoolOf(pool)| pool.store().counts()).unwrap();
        let (before, peer) = (counts(), testing::peer());
        let asked =
            StoreRequest::Read { ticket: 1, name, len: self.len, key: self.key.clone(), is_brought: false };
        assert_eq!(store.serve(&peer, asked), None);
        until("it was looked for", || {
            (counts().hits, counts().absent) != (before.hits, before.absent) && store.report().queue == 0
        });
        counts().hits > before.hits
    }

    fn is_read_by_name(&self, store: &ChunkStore) -> bool {
        self.is_read(store, ChunkName::Full(self.name))
    }

    fn is_read_by_tag(&self, store: &ChunkStore) -> bool {
        self.is_read(store, ChunkName::Short(self.name.tag()))
    }
}

type Way = fn(&Named, &ChunkStore) -> bool;

/// Queries for a chunk's presence.
const TELLING: [Way; 2] = [Named::is_held, Named::is_probed];
/// Queries for its content.
const BRINGING: [Way; 3] = [Named::is_lent, Named::is_read_by_name, Named::is_read_by_tag];

/// A chunk of each level of a block: one for each of the index's tables.
fn one_of_each_level(number: u8) -> Vec<Bytes> {
    let (plain, mut tree) = (block(number), Tree::new(Shape::default()));
    let nodes = tree.grow(&plain);
    let first = |level| nodes.iter().find(|node| node.level == level);
    (0..4).filter_map(first).map(|node| plain.slice(node.range())).collect()
}

#[tokio::test]
async fn chunk_of_one_key_is_absent_under_another() {
    let store = store_on(Arc::new(Memory::default()));
    fill(&store, 1);
    // Of another group, of a peer in no group, and the one of `fill`.
    let keys = [8, 9, 7].map(|byte| NameKey::new([byte; 32]));
    let chunks = one_of_each_level(0);
    assert_eq!(chunks.len(), 4);
    for chunk in &chunks {
        for (key, is_there) in keys.iter().zip([false, false, true]) {
            let named = Named::new(chunk, key);
            let (told, brought) =
                (TELLING.map(|way| way(&named, &store)), BRINGING.map(|way| way(&named, &store)));
            assert_eq!((told, brought), ([is_there; 2], [is_there; 3]), "{} bytes", chunk.len());
        }
    }
}

#[tokio::test]
async fn foreign_tag_reveals_presence_but_no_content() {
    let store = store_on(Arc::new(Memory::default()));
    fill(&store, BRINGING.len() as u8);
    let (theirs, own) = (NameKey::new([7; 32]), NameKey::new([8; 32]));
    // Each with a block of its own: a read with a mismatch is forgotten.
    for (number, way) in BRINGING.into_iter().enumerate() {
        for chunk in one_of_each_level(number as u8) {
            let named = Named::new(&chunk, &own).with_tag_of(&theirs, &chunk);
            let told = TELLING.map(|way| way(&named, &store));
            assert_eq!((told, way(&named, &store)), ([true; 2], false), "{number}, {} bytes", chunk.len());
        }
    }
}
