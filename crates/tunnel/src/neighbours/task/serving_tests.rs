//! Serving from this gateway's store, restricted by groups' keys.
//!
//! Each link is answered by names under the key of its group, and links of no group not at all.

use oncewire_codec::wanax::{Name, NamesConfig, Shape};
use oncewire_codec::wire::Sought;
use oncewire_config::StoreSettings;
use oncewire_keys::ProofKey;
use oncewire_link::{Link, LinkConfig};
use parking_lot::RwLock;

use super::*;
use crate::lane::testing;
use crate::neighbours::Neighbours;
use crate::peer::Peer;

/// More than any answer takes, also on a busy machine.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// A peer at this site, of the group with a key or of none.
fn peer(id: u64, key: Option<&NameKey>, neighbours: &Neighbours) -> Arc<Peer> {
    of_group(testing::peer(), id, key, neighbours)
}

fn of_group(mut peer: Arc<Peer>, id: u64, key: Option<&NameKey>, neighbours: &Neighbours) -> Arc<Peer> {
    let member = |key: &NameKey| Member {
        group: Arc::new(RwLock::new(format!("group {id}"))),
        key: key.clone(),
        proofs: ProofKey::of_bytes(key.bytes()),
        id: Arc::new(RwLock::new(MemberId(id))),
        site: None,
        is_near: true,
        neighbours: neighbours.clone(),
    };
    Arc::get_mut(&mut peer).unwrap().settings.group = key.map(member);
    peer
}

/// The settings of an end with a group key and a chunk store.
fn with_store(instance: u64, key: &NameKey) -> LinkConfig {
    let names = NamesConfig {
        key: NameKey::new([instance as u8; 32]),
        group: Some(key.clone()),
        shape: Shape::default(),
        hint_memory: 64 << 10,
        saved: None,
        clock_secs: 0,
    };
    LinkConfig { names: Some(names), store: Some(instance), ..testing::config(instance) }
}

/// Has a peer's link come up with an end of these settings, for the lifetime of the returned value.
async fn join(near: &Arc<Peer>, far_end: LinkConfig) -> impl Sized + use<> {
    let member = near.settings.group.as_ref().unwrap();
    let id = member.id();
    let mut far = testing::Other::new(2, testing::SMALLER);
    let group = far_end.names.as_ref().and_then(|names| names.group.as_ref());
    far.proofs = group.map(|key| ProofKey::of_bytes(key.bytes()));
    far.link = Link::new(LinkConfig { first: true, dialer: true, ..far_end }, Now::ZERO);
    let joined = far.dial(near).await.unwrap();
    // All of them use one key here.
    *member.id.write() = id;
    joined
}

fn store() -> (tempfile::TempDir, ChunkStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let settings = StoreSettings { path, disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let store = ChunkStore::open(&settings, None).unwrap();
    (dir, store)
}

/// A peer as its group has it.
fn link(peer: &Arc<Peer>) -> Arc<dyn GroupLink> {
    Arc::clone(peer) as _
}

/// A gateway with a store, and these peers up in its groups.
fn gateway(store: ChunkStore, inbox: Inbox, peers: &[Arc<Peer>]) -> Task {
    let mut task = Task::new(inbox, MemberId(0), Some(Arc::new(store)), Clock::start());
    let links: Vec<_> = peers.iter().map(link).collect();
    for (_, member) in members(&links) {
        let mut group = Group::new(task.own, member);
        group.machine.handle_up(member.id());
        task.groups.push(group);
    }
    task
}

/// Has a peer send a frame, and returns the answer.
async fn answer(task: &mut Task, from: &Arc<Peer>, frame: GroupFrame) -> Option<(MemberId, GroupFrame)> {
    task.inbox.neighbours.clone().handle_group_frame(link(from), frame);
    loop {
        let told = tokio::time::timeout(LIMIT, task.inbox.told.recv()).await.expect("nothing is told")?;
        task.handle_told(told);
        let mut is_served = false;
        for at in 0..task.groups.len() {
            let key = task.groups[at].key.clone();
            while let Some(output) = task.groups[at].machine.poll_output() {
                is_served |= matches!(output, Output::Serve { .. });
                match output {
                    Output::Send(to, frame @ (GroupFrame::Have { .. } | GroupFrame::Chunk { .. })) => {
                        return Some((to, frame));
                    }
                    output => {
                        if let Some((from, request, held)) = task.carry_out_one(output, &key) {
                            task.groups[at].machine.handle_held(from, request, held);
                        }
                    }
                }
            }
        }
        // The store answers on a thread of its own.
        if !is_served {
            return None;
        }
    }
}

#[tokio::test]
async fn neighbour_frames_ahead_of_its_link_event_are_heard() {
    let (key, (_dir, store)) = (NameKey::new([1; 32]), store());
    let (neighbours, inbox) = Neighbours::new();
    let near = of_group(testing::peer_with(with_store(1, &key)), 1, Some(&key), &neighbours);
    let mut task = Task::new(inbox, MemberId(0), Some(Arc::new(store)), Clock::start());
    task.peers.push(link(&near));
    task.handle_links();
    let peek = || GroupFrame::Peek { request: 5, chunks: vec![Sought { tag: 1, len: 2048 }] };
    let have = |held| Some((MemberId(1), GroupFrame::Have { request: 5, held: vec![held] }));
    assert_eq!(answer(&mut task, &near, peek()).await, have(true), "its link is down, and nobody looks");
    let _joined = join(&near, with_store(2, &key)).await;
    assert_eq!(answer(&mut task, &near, peek()).await, have(false));
}

#[tokio::test]
async fn refused_neighbour_is_accepted_after_another_leaves() {
    let (key, (_dir, store)) = (NameKey::new([1; 32]), store());
    let (neighbours, inbox) = Neighbours::new();
    let mut task = Task::new(inbox, MemberId(0), Some(Arc::new(store)), Clock::start());
    let mut joined = Vec::new();
    for id in 1..=MAX_MEMBERS as u64 + 1 {
        let near = of_group(testing::peer_with(with_store(1, &key)), id, Some(&key), &neighbours);
        joined.push(join(&near, with_store(2, &key)).await);
        task.peers.push(near);
    }
    task.handle_links();
    let up = |task: &Task| task.groups[0].up.iter().map(|id| id.0).collect::<Vec<_>>();
    assert!(up(&task).into_iter().eq(1..=MAX_MEMBERS as u64), "{:?}", up(&task));
    let (left_out, member) = (&task.peers[MAX_MEMBERS], task.peers[MAX_MEMBERS].member());
    assert!(!task.is_new(left_out, member.unwrap()), "each of its words would have all links looked at");
    task.peers.remove(0);
    task.handle_links();
    assert!(up(&task).into_iter().eq(2..=MAX_MEMBERS as u64 + 1), "{:?}", up(&task));
}

#[tokio::test]
async fn site_content_is_learnt_for_present_and_returning_readers() {
    let (key, other_key) = (NameKey::new([1; 32]), NameKey::new([2; 32]));
    let ends = [
        Some((with_store(2, &key), true)),
        Some((LinkConfig { store: None, ..with_store(2, &key) }, false)),
        Some((with_store(2, &other_key), false)),
        // It has never been up.
        None,
    ];
    for (case, end) in ends.into_iter().enumerate() {
        let (neighbours, inbox) = Neighbours::new();
        let member = |id| of_group(testing::peer_with(with_store(1, &key)), id, Some(&key), &neighbours);
        let mut task = Task::new(inbox, MemberId(0), None, Clock::start());
        let [mut teller, mut near] = [1, 2].map(member);
        for peer in [&mut teller, &mut near] {
            let group = &mut Arc::get_mut(peer).unwrap().settings.group;
            group.as_mut().unwrap().site = Some("town".to_owned());
        }
        let can_read = end.as_ref().is_none_or(|(_, can_read)| *can_read);
        if let Some((end, _)) = end {
            drop(join(&near, end).await);
        }
        task.peers.extend([link(&teller), link(&near)]);
        let (hints, tag) = (|| near.status().link.out.hints, |number: u64| number << 62 | number << 10);
        task.pass_on(&link(&teller), 11, &[tag(1), tag(2)]);
        assert_eq!(hints() > 0, can_read, "case {case}: announced");
        let before = hints();
        task.share(&link(&teller), &[PackedTag::new(tag(3), 4096)]);
        assert_eq!(hints() > before, can_read, "case {case}: acknowledged");
    }
}

#[tokio::test]
async fn unsendable_questions_are_not_waited_for() {
    let key = NameKey::new([1; 32]);
    let (neighbours, inbox) = Neighbours::new();
    let member = peer(1, Some(&key), &neighbours);
    let mut task = Task::new(inbox, MemberId(0), None, Clock::start());
    let mut group = Group::new(task.own, member.settings.group.as_ref().unwrap());
    group.machine.handle_up(MemberId(1));
    task.groups.push(group);
    // Its link has just gone, and the task does not know yet.
    task.peers.push(member);
    let (done, mut answer) = tokio::sync::oneshot::channel();
    let wanted = Wanted {
        name: key.name(b"chunk"),
        key,
        len: 2048,
        held: false,
        done: Box::new(|found| _ = done.send(found)),
        wait: Box::new(|_| ()),
    };
    task.read(wanted, task.clock.now());
    task.carry_out();
    assert_eq!(answer.try_recv(), Ok(None));
}

#[tokio::test]
async fn chunks_are_served_only_under_the_link_key() {
    let (_dir, store) = store();
    let chunk: Bytes = (0..600_u32).map(|i| ((i * i) >> 3) as u8).collect();
    let [key, other_key] = [1, 2].map(|byte| NameKey::new([byte; 32]));
    store.keep(chunk.clone(), key.clone(), Shape::default());

    let (neighbours, inbox) = Neighbours::new();
    let member = peer(1, Some(&key), &neighbours);
    let other = peer(2, Some(&other_key), &neighbours);
    let stranger = peer(3, None, &neighbours);
    let task = &mut gateway(store, inbox, &[member.clone(), other.clone(), stranger.clone()]);
    let (name, other_name) = (key.name(&chunk), other_key.name(&chunk));
    let len = chunk.len() as u32;
    let get = |name: Name| GroupFrame::Get { request: 5, name, len };
    let peek = |name: Name| GroupFrame::Peek { request: 5, chunks: vec![Sought { tag: name.tag(), len }] };
    let got = |id, bytes| Some((MemberId(id), GroupFrame::Chunk { request: 5, bytes }));
    let has = |id, held| Some((MemberId(id), GroupFrame::Have { request: 5, held: vec![held] }));

    // It waits for queued puts, but not for long.
    while answer(task, &member, get(name)).await == got(1, None) {}
    assert_eq!(answer(task, &member, get(name)).await, got(1, Some(chunk.clone())));
    assert_eq!(answer(task, &member, peek(name)).await, has(1, true));
    assert_eq!(answer(task, &other, get(other_name)).await, got(2, None));
    assert_eq!(answer(task, &other, peek(other_name)).await, has(2, false));
    for name in [name, other_name] {
        assert_eq!(answer(task, &stranger, get(name)).await, None);
        assert_eq!(answer(task, &stranger, peek(name)).await, None);
    }
    assert_eq!(answer(task, &member, get(name)).await, got(1, Some(chunk.clone())));
    // A name learnt under the other key brings nothing.
    assert_eq!(answer(task, &other, get(name)).await, got(2, None));
}
