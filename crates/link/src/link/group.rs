//! Talk between members of a trust group, beside the flows.
//!
//! Nothing of it is repeated: a question waits only for a while, and an announcement is a hint.

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::wanax::NameKey;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{Frame, GroupFrame, Hello, LaneRole, NamesHello};

use super::Link;
use crate::event::Event;

/// Frames in wait for their lanes.
#[derive(Debug, Default)]
pub(super) struct GroupTalk {
    /// Whether the next hello comes with a valid proof.
    proved: bool,
    /// Whether both ends have shown possession of the group's key.
    pub(super) agreed: bool,
    /// Whether the peer has a chunk store.
    keeps_chunks: bool,
    control: VecDeque<GroupFrame>,
    /// Frames with content, on the repair lane.
    content: VecDeque<GroupFrame>,
    /// About the bytes of both.
    queued: usize,
}

/// The most bytes in wait for their lanes.
const MAX_QUEUED: usize = 8 << 20;
/// The most waiting bytes before more content is added, so questions and other words have room beside it.
const MAX_CONTENT: usize = 7 << 20;
/// The same for content given to keep, with room beside it for answers: as much as is asked for at a time, and more.
const MAX_GIVEN: usize = 4 << 20;

/// Returns how many bytes may wait with a frame.
fn most_with(frame: &GroupFrame) -> usize {
    match frame {
        GroupFrame::Put { .. } => MAX_GIVEN,
        frame if frame.is_content() => MAX_CONTENT,
        _ => MAX_QUEUED,
    }
}

impl Link {
    /// Says that the next hello comes with a proof that its sender holds the key of the group of
    /// [`NamesConfig::group`], and that this side's hello on that lane brought one, too. The caller has checked it.
    ///
    /// [`NamesConfig::group`]: oncewire_codec::wanax::NamesConfig::group
    pub fn handle_group_proof(&mut self) {
        self.group_talk.proved = true;
    }

    /// Takes this statement for the present hello; it does not hold for the next one.
    pub(super) fn take_group_proof(&mut self) -> bool {
        std::mem::take(&mut self.group_talk.proved)
    }

    /// Says whether the link is up and the peer is of this side's configured group, as both have proved.
    pub fn is_of_group(&self) -> bool {
        self.is_up() && self.group_talk.agreed
    }

    /// Says whether the peer has a chunk store, as its last hello said.
    pub fn peer_keeps_chunks(&self) -> bool {
        self.group_talk.keeps_chunks
    }

    /// Says whether the peer may be able to read its neighbours' chunks: it is of the group and has a chunk store, by
    /// its last hello, or has not said anything yet. Chunks unreadable during its absence are readable after its
    /// return.
    pub fn may_read_of_group(&self) -> bool {
        self.peer.is_none() || self.group_talk.agreed && self.group_talk.keeps_chunks
    }

    /// Sends a frame to a peer of the group.
    ///
    /// # Errors
    /// The frame, if the peer is not of the group, is away, or too much waits for it already: for content to keep
    /// this is sooner than for answers, and for these sooner than for questions.
    pub fn tell_group(&mut self, frame: GroupFrame) -> Result<(), GroupFrame> {
        let talk = &mut self.group_talk;
        if self.lanes.is_empty() || !talk.agreed || talk.queued + frame.size() > most_with(&frame) {
            return Err(frame);
        }
        talk.queued += frame.size();
        let (queue, role) = match frame.is_content() {
            true => (&mut talk.content, LaneRole::Repair),
            false => (&mut talk.control, LaneRole::Control),
        };
        queue.push_back(frame);
        if let Some(lane) = self.lanes.for_role(role) {
            self.wake(lane);
        }
        Ok(())
    }

    /// Takes the tags of chunks of at least `len` bytes readable for the peer, in its own store or a neighbour's.
    pub fn learn_chunks(&mut self, len: u32, tags: &[u64], now: Now) {
        let chunks: Vec<PackedTag> = tags.iter().map(|&tag| PackedTag::new(tag, len)).collect();
        self.learn_stored(&chunks, now);
    }

    /// Takes chunks readable for the peer in a neighbour's store, from the neighbour's [`Event::Stored`].
    pub fn learn_stored(&mut self, chunks: &[PackedTag], now: Now) {
        if let Some(names) = self.sender.names_mut() {
            names.handle_stored(chunks, now);
        }
    }

    /// Starts over with a new process of the peer; its hello came with a valid proof if `is_proved`.
    pub(super) fn meet_group(&mut self, hello: &Hello, is_proved: bool) {
        let agreed = is_proved && self.group_key().is_some() && hello.names.is_some();
        let keeps_chunks = hello.store.is_some();
        self.group_talk = GroupTalk { agreed, keeps_chunks, ..GroupTalk::default() };
        if let Some(names) = self.sender.names_mut() {
            names.tell_stored(agreed && keeps_chunks);
        }
    }

    /// Returns the peer's naming of chunks in its output: with the key in its hello, or between members of a group
    /// with the group's, derived by both and sent by neither.
    pub(super) fn names_of(&self, hello: &Hello) -> Option<NamesHello> {
        let group = self.group_key().filter(|_| self.group_talk.agreed);
        let key = |said: &NamesHello| group.unwrap_or(&said.key).clone();
        hello.names.as_ref().map(|said| NamesHello { key: key(said), shape: said.shape })
    }

    fn group_key(&self) -> Option<&NameKey> {
        self.config.names.as_ref()?.group.as_ref()
    }

    /// Takes a frame of the peer; without common membership it is passed over.
    pub(super) fn handle_group(&mut self, frame: GroupFrame) {
        match self.group_talk.agreed {
            true => self.events.push_back(Event::Group(frame)),
            false => self.stats.passed_over += 1,
        }
    }

    /// Forgets the waiting frames: the last lane is gone, and with it the time of the questions.
    pub(super) fn forget_group_talk(&mut self) {
        let GroupTalk { agreed, keeps_chunks, .. } = self.group_talk;
        self.group_talk = GroupTalk { agreed, keeps_chunks, ..GroupTalk::default() };
    }

    /// Appends a lane's waiting frames, up to `most` bytes and a frame more.
    pub(super) fn put_group(&mut self, content: bool, most: usize, out: &mut Vec<u8>) {
        let end = out.len() + most;
        let talk = &mut self.group_talk;
        let queue = if content { &mut talk.content } else { &mut talk.control };
        while out.len() < end
            && let Some(frame) = queue.pop_front()
        {
            talk.queued -= frame.size();
            Frame::Group(frame).encode(out);
        }
    }
}
