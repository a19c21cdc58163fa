//! The task serving the members of this gateway's groups.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use oncewire_codec::wanax::NameKey;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{GroupFrame, Load};
use oncewire_host::clock::Clock;
use oncewire_link::Now;
use oncewire_mesh::{Announcer, Answer, MAX_MEMBERS, MemberId, Neighbourhood, Output, Piece, Read};

use super::{GroupLink, Inbox, Member, NewChunk, News, Open, Pending, Survey, Told, Wanted};
use crate::chunks::ChunkStore;
use crate::dialer::random;

mod report;

/// The task's state.
pub struct Task {
    inbox: Inbox,
    /// This gateway among its neighbours.
    own: MemberId,
    store: Option<Arc<ChunkStore>>,
    clock: Clock,
    peers: Vec<Arc<dyn GroupLink>>,
    groups: Vec<Group>,
    /// Waiters for chunks, by ticket.
    waiting: BTreeMap<u64, Waiting>,
    surveys: BTreeMap<u64, Survey>,
    next_ticket: u64,
}

/// A waiter for a chunk.
struct Waiting {
    key: NameKey,
    done: Box<dyn FnOnce(Option<Bytes>) + Send>,
    wait: Box<dyn Fn(Now) + Send>,
}

/// One group, as long as a peer is in it.
struct Group {
    name: String,
    key: NameKey,
    machine: Neighbourhood,
    announcer: Announcer,
    up: BTreeSet<MemberId>,
    /// Tags announced by others.
    heard: u64,
}

impl Task {
    /// Makes the task of all groups; it runs with [`Task::run`].
    pub fn new(inbox: Inbox, own: MemberId, store: Option<Arc<ChunkStore>>, clock: Clock) -> Self {
        Self {
            inbox,
            own,
            store,
            clock,
            peers: Vec::new(),
            groups: Vec::new(),
            waiting: BTreeMap::new(),
            surveys: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Works for as long as the gateway runs; `peers` returns the present ones.
    pub async fn run<S>(
        mut self,
        mut state: watch::Receiver<Arc<S>>,
        peers: impl Fn(&S) -> Vec<Arc<dyn GroupLink>>,
    ) {
        self.peers = peers(&state.borrow_and_update());
        self.handle_links();
        self.report();
        let links = Arc::clone(&self.inbox.neighbours.links);
        let look = Arc::clone(&self.inbox.neighbours.look);
        loop {
            let due = self.due();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.clock.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(told) = self.inbox.told.recv() => self.handle_all_told(told),
                Some(news) = self.inbox.news.recv() => {
                    self.inbox.neighbours.shared.waiting_bytes.fetch_sub(news.plain.len(), Relaxed);
                    self.handle_news(&news);
                }
                () = links.notified() => self.handle_links(),
                () = look.notified() => {}
                Ok(()) = state.changed() => {
                    self.peers = peers(&state.borrow_and_update());
                    self.handle_links();
                }
                () = timer => {}
                else => return,
            }
            self.handle_time();
            self.carry_out();
            self.drop_groups();
            self.report();
        }
    }

    /// Brings the groups in line with the links.
    fn handle_links(&mut self) {
        let now = self.clock.now();
        let mut there: BTreeMap<&[u8; 32], (BTreeSet<MemberId>, bool)> = BTreeMap::new();
        for (peer, member) in members(&self.peers) {
            match group_of(&mut self.groups, &member.key) {
                None => self.groups.push(Group::new(self.own, member)),
                // A reload may rename it. Configured members come before discovered ones.
                Some(group) if !there.contains_key(member.key.bytes()) => {
                    group.name.clone_from(&member.group.read())
                }
                Some(_) => {}
            }
            let (neighbours, any) = there.entry(member.key.bytes()).or_default();
            let stands = peer.standing();
            *any |= stands.is_member;
            if member.is_near && self.store.is_some() && stands.is_neighbour() {
                neighbours.insert(member.id());
            }
        }
        let mut open = Open::default();
        for group in &mut self.groups {
            let (wanted, any) = there.remove(group.key.bytes()).unwrap_or_default();
            group.up.difference(&wanted).for_each(|id| group.machine.handle_down(*id, now));
            // Members refused for lack of room are tried again, since others may have gone.
            let up: BTreeSet<MemberId> =
                wanted.into_iter().filter(|id| group.machine.handle_up(*id)).collect();
            if up != group.up {
                let (group, neighbours) = (&group.name, up.len());
                tracing::info!(group, neighbours, "neighbours changed");
            }
            open.asked.extend((!up.is_empty()).then(|| group.key.clone()));
            open.told.extend(any.then(|| group.key.clone()));
            group.up = up;
        }
        *self.inbox.neighbours.shared.open.write() = open;
    }

    /// Takes an event, with all later ones so far: the consequences are handled once for all of them.
    fn handle_all_told(&mut self, first: Told) {
        self.handle_told(first);
        for _ in 1..AT_ONCE {
            let Ok(told) = self.inbox.told.try_recv() else { return };
            self.handle_told(told);
        }
    }

    fn handle_told(&mut self, told: Told) {
        if let Told::Said(_, frame) = &told {
            self.inbox.neighbours.shared.said_bytes.fetch_sub(frame.size(), Relaxed);
        }
        let now = self.clock.now();
        match told {
            Told::Said(peer, GroupFrame::Stored { least_log2, tags }) => {
                self.pass_on(&peer, least_log2, &tags)
            }
            Told::Said(peer, frame) => {
                let Some(member) = peer.member() else { return };
                if self.is_new(&peer, member) {
                    self.handle_links();
                }
                if let Some(group) = group_of(&mut self.groups, &member.key) {
                    group.machine.handle_frame(member.id(), frame, now);
                }
            }
            Told::Stored(peer, chunks) => self.share(&peer, &chunks),
            Told::Read(wanted) => self.read(wanted, now),
            Told::Survey(survey) => self.survey(survey, now),
            Told::Served { key, from, request, name, len, bytes } => {
                if let Some(group) = group_of(&mut self.groups, &key) {
                    let sought = (name, len);
                    group.machine.handle_served(from, request, sought, bytes, now);
                }
            }
        }
    }

    /// Whether a peer is a neighbour not yet known to the task, with room for it: its first frames may come
    /// before its link's event.
    fn is_new(&self, peer: &Arc<dyn GroupLink>, member: &Member) -> bool {
        let group = self.groups.iter().find(|group| group.key == member.key);
        let is_known = |group: &Group| group.up.contains(&member.id()) || group.up.len() >= MAX_MEMBERS;
        !group.is_some_and(is_known)
            && member.is_near
            && self.store.is_some()
            && self.peers.iter().any(|known| Arc::ptr_eq(known, peer))
            && peer.standing().is_neighbour()
    }

    fn read(&mut self, wanted: Wanted, now: Now) {
        let Some(group) = group_of(&mut self.groups, &wanted.key) else { return (wanted.done)(None) };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let Wanted { key, name, len, held, done, wait } = wanted;
        self.waiting.insert(ticket, Waiting { key, done, wait });
        group.machine.read(Read { ticket, name, len, held }, now);
    }

    fn survey(&mut self, survey: Survey, now: Now) {
        let Some(group) = group_of(&mut self.groups, &survey.key) else {
            let nobody = vec![false; survey.chunks.len()];
            return (survey.done)(nobody);
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        group.machine.survey(ticket, &survey.chunks, now);
        self.surveys.insert(ticket, survey);
    }

    /// A chunk stored by one gateway of a site is readable by all of its neighbours.
    fn pass_on(&mut self, from: &Arc<dyn GroupLink>, least_log2: u8, tags: &[u64]) {
        let Some(origin) = from.member() else { return };
        if let Some(group) = group_of(&mut self.groups, &origin.key) {
            group.heard += tags.len() as u64;
        }
        for (peer, member) in members(&self.peers).filter(|(_, member)| member.key == origin.key) {
            if member.id() == origin.id() || origin.site.is_some() && member.site == origin.site {
                Arc::clone(peer).learn_chunks(least_log2, tags);
            }
        }
    }

    /// A chunk sent to one gateway of a site is readable by its neighbours; the gateway itself knows.
    fn share(&self, with: &Arc<dyn GroupLink>, chunks: &[PackedTag]) {
        let Some(origin) = with.member().filter(|origin| origin.site.is_some()) else {
            return;
        };
        let near = members(&self.peers).filter(|(_, member)| {
            member.key == origin.key && member.site == origin.site && member.id() != origin.id()
        });
        near.for_each(|(peer, _)| Arc::clone(peer).learn_stored(chunks));
    }

    fn handle_news(&mut self, news: &News) {
        let now = self.clock.now();
        let Some(group) = group_of(&mut self.groups, &news.key) else { return };
        let piece = |NewChunk { sought, at, is_shared }: &NewChunk| {
            let start = *at as usize;
            let end = start.saturating_add(sought.len as usize).min(news.plain.len());
            let bytes = piece_of(&news.plain, start..end);
            Piece { tag: sought.tag, bytes, at: *at, is_shared: *is_shared }
        };
        let shared = news.chunks.iter().filter(|chunk| chunk.is_shared);
        shared.for_each(|chunk| group.announcer.stored(chunk.sought, now));
        if !group.machine.is_alone() {
            group.machine.offer(news.shape, news.chunks.iter().map(piece).collect(), now);
        }
    }

    /// Returns the time of the next work without an event.
    fn due(&self) -> Option<Now> {
        let timers = self.groups.iter().flat_map(|group| {
            [group.machine.poll_timeout(), group.announcer.poll_timeout()].into_iter().flatten()
        });
        // The end of a rush is to be reported too.
        let is_busy = || self.load().queued > 0 || self.pending().own.load(Relaxed) > 0;
        let busy = self.groups.iter().any(|group| !group.up.is_empty()) && is_busy();
        timers.chain(busy.then(|| self.clock.now() + LOOK_EVERY)).min()
    }

    fn handle_time(&mut self) {
        let (now, load, pending) = (self.clock.now(), self.load(), self.pending().own.load(Relaxed));
        for group in &mut self.groups {
            group.machine.handle_busy(load, pending, now);
            group.machine.handle_timeout(now);
            for frame in group.announcer.poll_frames(now) {
                let to_tell = members(&self.peers).filter(|(_, member)| member.key == group.key);
                for (peer, _) in to_tell {
                    // A chunk not announced is found without a hint, or crosses.
                    _ = Arc::clone(peer).tell(frame.clone());
                }
            }
        }
        let theirs = self.groups.iter().map(|group| group.machine.pending());
        self.pending().theirs.store(theirs.fold(0, u64::saturating_add), Relaxed);
    }

    fn pending(&self) -> &Pending {
        &self.inbox.neighbours.shared.pending
    }

    fn load(&self) -> Load {
        self.store.as_ref().map(|store| store.busy()).unwrap_or_default()
    }

    fn carry_out(&mut self) {
        for at in 0..self.groups.len() {
            let now = self.clock.now();
            if let Some(group) = self.groups.get_mut(at) {
                group.machine.look_around(now);
            }
            while let Some((output, key)) = self
                .groups
                .get_mut(at)
                .and_then(|group| Some((group.machine.poll_output()?, group.key.clone())))
            {
                if let Some((from, request, held)) = self.carry_out_one(output, &key)
                    && let Some(group) = self.groups.get_mut(at)
                {
                    group.machine.handle_held(from, request, held);
                }
            }
        }
    }

    /// Returns the answer to a question without I/O.
    fn carry_out_one(&mut self, output: Output, key: &NameKey) -> Option<(MemberId, u64, Vec<bool>)> {
        match output {
            Output::Send(to, frame) => {
                let is = |member: &Member| member.id() == to && member.key == *key;
                let sent = match members(&self.peers).find(|(_, member)| is(member)) {
                    Some((peer, _)) => Arc::clone(peer).tell(frame),
                    None => Err(frame),
                };
                if let Err(frame) = sent
                    && let Some(group) = group_of(&mut self.groups, key)
                {
                    group.machine.handle_unsent(to, frame, self.clock.now());
                }
            }
            Output::Answer { ticket, answer } => {
                if let Some(waiting) = self.waiting.remove(&ticket) {
                    (waiting.done)(if let Answer::Found(bytes) = answer { Some(bytes) } else { None });
                }
            }
            Output::Surveyed { ticket, held } => {
                if let Some(survey) = self.surveys.remove(&ticket) {
                    (survey.done)(held);
                }
            }
            Output::Wait { ticket, time } if time > SHORT => {
                if let Some(waiting) = self.waiting.get(&ticket) {
                    (waiting.wait)(time);
                }
            }
            Output::Wait { .. } => {}
            Output::Peek { from, request, chunks } => {
                let store = self.store.as_ref();
                let holds = |tag, len| store.is_some_and(|store| store.may_hold(tag, len));
                let held = chunks.iter().map(|sought| holds(sought.tag, sought.len)).collect();
                return Some((from, request, held));
            }
            Output::Serve { from, request, name, len } => {
                let told = self.inbox.neighbours.told.clone();
                let of = key.clone();
                let runtime = Handle::current();
                let reply = move |bytes| {
                    tell(told, &runtime, Told::Served { key: of, from, request, name, len, bytes });
                };
                let taken =
                    self.store.as_ref().is_some_and(|store| store.lend(name, len, key.clone(), reply));
                if !taken && let Some(group) = group_of(&mut self.groups, key) {
                    group.machine.handle_served(from, request, (name, len), None, self.clock.now());
                }
            }
            Output::Put { shape, bytes } => {
                if let Some(store) = &self.store {
                    store.keep(bytes, key.clone(), shape);
                }
            }
        }
        None
    }

    /// Drops groups without peers, once their output is sent.
    fn drop_groups(&mut self) {
        let shared = &self.inbox.neighbours.shared;
        let is_over = |group: &mut Group| !members(&self.peers).any(|(_, member)| member.key == group.key);
        for group in self.groups.extract_if(.., is_over) {
            let left = self.waiting.extract_if(.., |_, waiting| waiting.key == group.key);
            left.for_each(|(_, waiting)| (waiting.done)(None));
            for (_, survey) in self.surveys.extract_if(.., |_, survey| survey.key == group.key) {
                let nobody = vec![false; survey.chunks.len()];
                (survey.done)(nobody);
            }
            shared.came.lock().remove(group.key.bytes());
            shared.unheard.lock().remove(group.key.bytes());
        }
    }
}

impl Group {
    fn new(own: MemberId, member: &Member) -> Self {
        Self {
            name: member.group.read().clone(),
            key: member.key.clone(),
            machine: Neighbourhood::new(own, member.key.clone(), random() as u32),
            announcer: Announcer::default(),
            up: BTreeSet::new(),
            heard: 0,
        }
    }
}

/// Hands the store's answer to the task: on a thread of the store, or on one of the runtime for a refusal.
/// Neither may wait.
fn tell(told: mpsc::Sender<Told>, runtime: &Handle, answer: Told) {
    if let Err(TrySendError::Full(answer)) = told.try_send(answer) {
        runtime.spawn(async move { drop(told.send(answer).await) });
    }
}

/// Returns the peers in a group, with their configuration in it.
fn members(peers: &[Arc<dyn GroupLink>]) -> impl Iterator<Item = (&Arc<dyn GroupLink>, &Member)> {
    peers.iter().filter_map(|peer| Some((peer, peer.member()?)))
}

/// Returns a part of a block. It may live for some time, and a small one must not hold the whole block.
fn piece_of(plain: &Bytes, range: Range<usize>) -> Bytes {
    let piece = plain.slice(range);
    if piece.len() < plain.len() / 4 { Bytes::copy_from_slice(&piece) } else { piece }
}

fn group_of<'a>(groups: &'a mut [Group], key: &NameKey) -> Option<&'a mut Group> {
    groups.iter_mut().find(|group| group.key == *key)
}

/// The most events handled before the output.
const AT_ONCE: usize = 256;
/// How often the own disk is looked at while it is busy.
const LOOK_EVERY: Now = Now::from_millis(50);
/// Links wait at least so long for any read: shorter times need no report.
const SHORT: Now = Now::from_millis(50);

#[cfg(test)]
mod serving_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn store_answers_are_delivered_from_any_thread() {
        let (told, mut inbox) = mpsc::channel(1);
        let name = NameKey::new([1; 32]).name(b"chunk");
        let answer = move |request| Told::Served {
            key: NameKey::new([1; 32]),
            from: MemberId(1),
            request,
            name,
            len: 5,
            bytes: None,
        };
        // On a thread of the runtime, as for the store's refusals.
        for request in 0..3 {
            tell(told.clone(), &Handle::current(), answer(request));
        }
        let (of_the_store, runtime) = (told.clone(), Handle::current());
        let thread = std::thread::spawn(move || tell(of_the_store, &runtime, answer(3)));
        let mut got = BTreeSet::new();
        while got.len() < 4 {
            if let Some(Told::Served { request, .. }) = inbox.recv().await {
                got.insert(request);
            }
        }
        thread.join().unwrap();
        assert_eq!(got, (0..4).collect());
    }

    #[test]
    fn small_piece_does_not_hold_its_block() {
        let plain = Bytes::from(vec![7; 65_536]);
        let lies_within = |piece: &Bytes| plain.as_ptr_range().contains(&piece.as_ptr());
        let (large, small) = (piece_of(&plain, 0..16_384), piece_of(&plain, 60_000..62_048));
        assert!(lies_within(&large) && !lies_within(&small));
        assert_eq!((large.len(), small), (16_384, plain.slice(60_000..62_048)));
    }
}
