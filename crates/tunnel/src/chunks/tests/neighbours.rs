//! A store with neighbours on a hanging disk.

use oncewire_keys::ProofKey;
use oncewire_mesh::MemberId;

use super::*;
use crate::lane::testing;
use crate::neighbours::Member;

#[tokio::test]
async fn hanging_disk_redirects_reads_to_neighbours_and_reports_busy() {
    let (disk, key) = (Moody::new(Mood::Works), NameKey::new([7; 32]));
    let mut store = store_on(Arc::new(disk.clone()));
    fill(&store, 8);
    store.hangs_after = Duration::from_millis(1);
    let store = Arc::new(store);
    let (neighbours, mut inbox) = Neighbours::of_one_to_ask(key.clone());
    let mut peer = testing::peer();
    let settings = &mut Arc::get_mut(&mut peer).unwrap().settings;
    settings.store = Some(Arc::clone(&store));
    settings.group = Some(Member {
        group: Arc::default(),
        key: key.clone(),
        proofs: ProofKey::of_bytes(&[7; 32]),
        id: Arc::new(RwLock::new(MemberId(1))),
        site: None,
        is_near: true,
        neighbours,
    });
    let small = {
        let mut tree = Tree::new(Shape::default());
        let plain = block(1);
        let node = tree.grow(&plain).iter().find(|node| node.len < LEAST_SHARED).copied().unwrap();
        (key.tag(&plain.slice(node.range())), node.len)
    };
    let (name, len) = root(1);
    assert!(store.may_hold(name.tag(), len) && store.may_hold(small.0, small.1));

    disk.set(Mood::HoldsReads);
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    until("it hangs", || {
        (0..8).for_each(|number| _ = ask(&store, number, &answers));
        store.report().state == StoreCondition::Hanging
    });
    let request = StoreRequest::Read { ticket: 1, name: ChunkName::Full(name), len, key, is_brought: false };
    assert_eq!(peer.serve(&store, request), None);
    assert_eq!(inbox.wanted().map(|wanted| (wanted.name, wanted.held)), Some((name, false)));
    until("it is told to be busy", || {
        let busy = store.busy();
        busy.queued > 0 && busy.service_us >= 1000
    });
    assert!(store.may_hold(name.tag(), len), "to lack it would have it put once more");
    assert!(!store.may_hold(small.0, small.1), "it is looked for where it can be read");
    disk.set(Mood::Works);
}
