//! A peer's link and the chunk stores of both ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use oncewire_codec::wanax::ChunkName;
use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wanax::hints::{PackedTag, save_by};
use oncewire_codec::wire::{GroupFrame, Sought};
use oncewire_host::slow_disk;
use oncewire_link::{ChunkPlace, Link, Now, Purpose, StoreReply, StoreRequest, StoreState};

use super::hints::HintsSaved;
use super::{Core, Peer};
use crate::chunks::{Asker, ChunkStore};
use crate::neighbours::{GroupLink, GroupStanding, Member, Survey, Wanted};

impl Asker for Peer {
    fn handle_chunk(self: &Arc<Self>, reply: StoreReply) {
        self.with(|core, now| core.link.handle_store(reply, now));
    }
}

impl GroupLink for Peer {
    fn member(&self) -> Option<&Member> {
        self.settings.group.as_ref()
    }

    fn standing(&self) -> GroupStanding {
        let link = &self.core.lock().link;
        GroupStanding { is_member: link.is_of_group(), keeps_chunks: link.peer_keeps_chunks() }
    }

    fn tell(self: Arc<Self>, frame: GroupFrame) -> Result<(), GroupFrame> {
        self.tell_group(frame)
    }

    fn learn_chunks(self: Arc<Self>, least_log2: u8, tags: &[u64]) {
        self.learn(|link, now| link.learn_chunks(1 << least_log2.min(16), tags, now));
    }

    fn learn_stored(self: Arc<Self>, chunks: &[PackedTag]) {
        self.learn(|link, now| link.learn_stored(chunks, now));
    }
}

impl Peer {
    /// Reports the store's state to the link on a change.
    pub fn tell_store_state(self: &Arc<Self>) {
        if self.settings.store.is_some() {
            self.touch();
        }
    }

    /// Hands the link's requests to the store, and the store's state to the link. Under the lock: puts are
    /// queued before anything is acknowledged; nothing here waits.
    pub(super) fn feed_store(self: &Arc<Self>, core: &mut Core) {
        let Some(store) = &self.settings.store else { return };
        while let Some(request) = core.link.poll_chunk_store() {
            if let Some(reply) = self.serve(store, request) {
                core.link.handle_store(reply, self.clock.now());
            }
        }
        let state = match &mut core.pending {
            None => store.state(),
            Some(share) => {
                share.set(core.link.chunks_pending());
                StoreState { neighbours_pending: share.of_neighbours(), ..store.state() }
            }
        };
        if core.store_state != Some(state) {
            core.store_state = Some(state);
            core.link.handle_store_state(state, self.clock.now());
        }
    }

    /// Has a request served by a neighbour or by the own store; the rest is answered later.
    pub(crate) fn serve(
        self: &Arc<Self>,
        store: &Arc<ChunkStore>,
        request: StoreRequest,
    ) -> Option<StoreReply> {
        if let StoreRequest::Peek { purpose: Purpose::Survey, .. } = &request {
            return self.survey(store, request);
        }
        // A neighbour is asked for a chunk by its name; a chunk on its way to the own store is soon there.
        let StoreRequest::Read { ticket, name: ChunkName::Full(name), len, key, is_brought: false } =
            &request
        else {
            return store.serve(self, request);
        };
        let Some(member) = self.settings.group.as_ref().filter(|member| member.neighbours.can_ask(key))
        else {
            return store.serve(self, request);
        };
        // A chunk on a hung disk can be read at a neighbour only.
        let held = store.can_read() && store.holds(name.tag(), *len);
        if held && (*len < LEAST_SHARED || store.is_soon()) {
            return store.serve(self, request);
        }
        let (peer, waiting, ticket) = (Arc::downgrade(self), Arc::downgrade(self), *ticket);
        let (name, len, key) = (*name, *len, key.clone());
        let again = request.clone();
        let done = move |found: Option<Bytes>| {
            let Some(peer) = peer.upgrade() else { return };
            let reply = match (found, &peer.settings.store) {
                (Some(bytes), _) => Some(StoreReply::Found { ticket, bytes }),
                (None, Some(store)) => store.serve(&peer, again),
                (None, None) => Some(StoreReply::Absent { ticket }),
            };
            if let Some(reply) = reply {
                peer.handle_chunk(reply);
            }
        };
        let wait = move |time| {
            if let Some(peer) = waiting.upgrade() {
                peer.with(|core, now| core.link.handle_store_wait(ticket, time, now));
            }
        };
        let wanted = Wanted { key, name, len, held, done: Box::new(done), wait: Box::new(wait) };
        match member.neighbours.read(wanted) {
            Ok(()) => None,
            Err(_) => store.serve(self, request),
        }
    }

    /// Finds the readable chunks: those missing in the own store may be at a neighbour.
    fn survey(self: &Arc<Self>, store: &Arc<ChunkStore>, request: StoreRequest) -> Option<StoreReply> {
        let group = self.settings.group.as_ref();
        let StoreRequest::Peek { ticket, chunks, key, .. } = &request else { return None };
        let Some(member) = group.filter(|member| member.neighbours.can_ask(key)) else {
            return store.serve(self, request);
        };
        let (ticket, places) = (*ticket, store.places(chunks, false));
        let lacks = |place: &ChunkPlace| *place == ChunkPlace::Absent;
        let lacking = chunks.iter().zip(&places).filter(|(_, place)| lacks(place));
        let chunks: Vec<Sought> = lacking.map(|(chunk, _)| *chunk).collect();
        if chunks.is_empty() {
            return Some(StoreReply::Places { ticket, places, neighbours: Vec::new() });
        }
        let peer = Arc::downgrade(self);
        let done = move |held: Vec<bool>| {
            let mut places = places;
            for (place, held) in places.iter_mut().filter(|place| lacks(place)).zip(held) {
                *place = if held { ChunkPlace::Near } else { ChunkPlace::Absent };
            }
            if let Some(peer) = peer.upgrade() {
                peer.handle_chunk(StoreReply::Places { ticket, places, neighbours: Vec::new() });
            }
        };
        let survey = Survey { key: key.clone(), chunks, done: Box::new(done) };
        match member.neighbours.survey(survey) {
            true => None,
            // As if the neighbours had everything missing here.
            false => store.serve(self, request),
        }
    }

    /// Sends a frame to a member of the group; gives it back if the peer is no member, is away, or has too
    /// full a queue.
    pub(crate) fn tell_group(self: &Arc<Self>, frame: GroupFrame) -> Result<(), GroupFrame> {
        self.with(|core, _| core.link.tell_group(frame))
    }

    /// Has the link learn the chunks readable at the peer's site, unless they are known to be of no use to
    /// the peer.
    fn learn(self: &Arc<Self>, learn: impl FnOnce(&mut Link, Now)) {
        self.with(|core, now| {
            if core.link.may_read_of_group() {
                learn(&mut core.link, now);
            }
        });
    }

    /// Saves the knowledge of the peer's store beside the logs, if they are kept and there can be any.
    /// Reports the number of bytes once the disk has them, or the disk's error, also logged once until the
    /// next success. Never waits. The knowledge is taken from the link piece by piece: each piece holds the
    /// peer's lock for no longer than a block does. Nothing is saved of a link that is over: the file then
    /// holds the best there will be, or its successor's.
    pub fn save_hints(self: &Arc<Self>) -> Option<HintsSaved> {
        self.write_hints(|peer| save_by(|at| peer.core.lock().link.save_hints(at)))
    }

    /// As [`Self::save_hints`], but erases the knowledge.
    pub fn empty_hints(self: &Arc<Self>) -> Option<HintsSaved> {
        self.write_hints(|_| Some(Vec::new()))
    }

    fn write_hints(
        self: &Arc<Self>,
        take: impl FnOnce(&Self) -> Option<Vec<u8>> + Send + 'static,
    ) -> Option<HintsSaved> {
        let file = self.hints.file.get().cloned().filter(|_| !self.core.lock().over)?;
        let peer = Arc::clone(self);
        let save = move || {
            let saved = file.write(|| take(&peer).filter(|_| !peer.core.lock().over));
            let fails = saved.is_err();
            if let Err(error) = &saved
                && !peer.hints.fails.swap(fails, Relaxed)
            {
                tracing::warn!(peer = peer.name(), %error, "cannot save what is known of its chunk store");
            }
            peer.hints.fails.store(fails, Relaxed);
            saved.map(|bytes| bytes as u64)
        };
        Some(slow_disk::run("save-hints", save))
    }
}
