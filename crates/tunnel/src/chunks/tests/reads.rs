//! The status report on links' chunk reads.

use super::*;
use crate::lane::testing;
use crate::peer::Peer;

const KEY: [u8; 32] = [7; 32];

fn read(store: &ChunkStore, peer: &Arc<Peer>, number: u8) {
    let (name, len) = root(number);
    let (name, key) = (ChunkName::Full(name), NameKey::new(KEY));
    store.serve(peer, StoreRequest::Read { ticket: 1, name, len, key, is_brought: false });
}

/// [reads, found, absent, other outcomes].
fn told(store: &ChunkStore) -> [u64; 4] {
    let report = store.report();
    [report.reads, report.found, report.absent, report.damaged + report.unreadable + report.turned_away]
}

#[tokio::test]
async fn running_read_counts_as_asked_only() {
    let disk = Moody::new(Mood::Works);
    let (store, peer) = (store_on(Arc::new(disk.clone())), testing::peer());
    fill(&store, 8);
    disk.set(Mood::HoldsReads);
    (0..8).for_each(|number| read(&store, &peer, number));
    assert_eq!(told(&store), [8, 0, 0, 0]);
    disk.set(Mood::Works);
    until("all are found", || told(&store) == [8, 8, 0, 0]);
    read(&store, &peer, 99);
    until("one is not there", || told(&store) == [9, 8, 1, 0]);
}

#[tokio::test]
async fn retried_read_counts_once() {
    let (store, peer) = (store_on(Arc::new(Memory::default())), testing::peer());
    fill(&store, 1);
    let held = hold(&store, false);
    read(&store, &peer, 99);
    let absent = |store: &ChunkStore| {
        store.slot.read().pool().map(|PoolOf(pool)| pool.store().counts().absent).unwrap_or(0)
    };
    until("it was looked for in vain", || absent(&store) == 1);
    assert_eq!(told(&store), [1, 0, 0, 0]);
    drop(held);
    until("it is absent once nothing can bring it", || told(&store) == [1, 0, 1, 0]);
    assert_eq!(absent(&store), 2, "the store looked twice");
}

#[tokio::test]
async fn loans_to_neighbours_are_no_link_reads() {
    let (store, peer) = (store_on(Arc::new(Memory::default())), testing::peer());
    fill(&store, 2);
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    (0..2).for_each(|number| assert!(ask(&store, number, &answers)));
    assert!(ask(&store, 99, &answers));
    until("all are answered", || [0, 1].map(|at| answers[at].load(Relaxed)) == [2, 1]);
    assert_eq!(told(&store), [0; 4]);
    read(&store, &peer, 1);
    until("a link finds one", || told(&store) == [1, 1, 0, 0]);
    store.close().await;
    assert_eq!(told(&store), [1, 1, 0, 0], "and that stays so");
}
