//! What the members of a trust group say to each other beside the flows.
//!
//! Nothing of it is repeated: who asks waits for so long and no longer, and what is told is a hint.

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::wanax::NameKey;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{Frame, GroupFrame, Hello, LaneRole, NamesHello};

use super::Link;
use crate::event::Event;

/// Frames that wait for their lanes.
#[derive(Debug, Default)]
pub(super) struct GroupTalk {
    /// Whether the next hello comes with a proof that was found to hold.
    proved: bool,
    /// Whether both ends have shown that they hold the key of the group.
    pub(super) agreed: bool,
    /// Whether the peer has a chunk store.
    keeps_chunks: bool,
    control: VecDeque<GroupFrame>,
    /// What brings content, on the repair lane.
    content: VecDeque<GroupFrame>,
    /// About the bytes of both.
    queued: usize,
}

/// The most bytes that wait for their lanes.
const MAX_QUEUED: usize = 8 << 20;
/// The most that may wait already for content to be added, so that questions and other words have room beside it.
const MAX_CONTENT: usize = 7 << 20;
/// The same of content that is given to keep, beside which answers have room: as much as is asked for at a time, and more.
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
    /// Says that the hello which is handed over next comes with a proof that its sender holds the key of the group of
    /// [`NamesConfig::group`], and that this side's hello on that lane brought one, too. The caller has checked it.
    ///
    /// [`NamesConfig::group`]: oncewire_codec::wanax::NamesConfig::group
    pub fn handle_group_proof(&mut self) {
        self.group_talk.proved = true;
    }

    /// Takes what was said of the hello that comes now; of the next one it says nothing.
    pub(super) fn take_group_proof(&mut self) -> bool {
        std::mem::take(&mut self.group_talk.proved)
    }

    /// Says whether the link is up and the peer is of the group that this side's configuration names, as both have proved.
    pub fn is_of_group(&self) -> bool {
        self.is_up() && self.group_talk.agreed
    }

    /// Says whether the peer has a chunk store, as its last hello said.
    pub fn peer_keeps_chunks(&self) -> bool {
        self.group_talk.keeps_chunks
    }

    /// Says whether the peer may be able to read what its neighbours have: it is of the group and has a chunk store, as its last
    /// hello said, or has not said anything yet. What it cannot read while it is away it can when it is back.
    pub fn may_read_of_group(&self) -> bool {
        self.peer.is_none() || self.group_talk.agreed && self.group_talk.keeps_chunks
    }

    /// Sends a frame to a peer of the group.
    ///
    /// # Errors
    /// The frame, if the peer is not of the group, is away, or too much waits for it already: for what it is given to keep that
    /// is sooner than for answers, and for these sooner than for questions.
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

    /// Takes the tags of chunks of at least `len` bytes that the peer can read, in its own store or a neighbour's.
    pub fn learn_chunks(&mut self, len: u32, tags: &[u64], now: Now) {
        let chunks: Vec<PackedTag> = tags.iter().map(|&tag| PackedTag::new(tag, len)).collect();
        self.learn_stored(&chunks, now);
    }

    /// Takes chunks that the peer can read in a neighbour's store, as [`Event::Stored`] said of that.
    pub fn learn_stored(&mut self, chunks: &[PackedTag], now: Now) {
        if let Some(names) = self.sender.names_mut() {
            names.handle_stored(chunks, now);
        }
    }

    /// Starts over with a new process of the peer, whose hello came with a proof that holds if `is_proved`.
    pub(super) fn meet_group(&mut self, hello: &Hello, is_proved: bool) {
        let agreed = is_proved && self.group_key().is_some() && hello.names.is_some();
        let keeps_chunks = hello.store.is_some();
        self.group_talk = GroupTalk { agreed, keeps_chunks, ..GroupTalk::default() };
        if let Some(names) = self.sender.names_mut() {
            names.tell_stored(agreed && keeps_chunks);
        }
    }

    /// Returns how the peer names chunks in what it sends: with the key that its hello says, or between members of a group
    /// with that of the group, which both derive and neither says.
    pub(super) fn names_of(&self, hello: &Hello) -> Option<NamesHello> {
        let group = self.group_key().filter(|_| self.group_talk.agreed);
        let key = |said: &NamesHello| group.unwrap_or(&said.key).clone();
        hello.names.as_ref().map(|said| NamesHello { key: key(said), shape: said.shape })
    }

    fn group_key(&self) -> Option<&NameKey> {
        self.config.names.as_ref()?.group.as_ref()
    }

    /// Takes what the peer says; from a peer that is not of the group it is passed over.
    pub(super) fn handle_group(&mut self, frame: GroupFrame) {
        match self.group_talk.agreed {
            true => self.events.push_back(Event::Group(frame)),
            false => self.stats.passed_over += 1,
        }
    }

    /// Forgets what waits: the last lane is gone, and so is the time of those who asked.
    pub(super) fn forget_group_talk(&mut self) {
        let GroupTalk { agreed, keeps_chunks, .. } = self.group_talk;
        self.group_talk = GroupTalk { agreed, keeps_chunks, ..GroupTalk::default() };
    }

    /// Appends what waits for a lane, up to `most` bytes and a frame more.
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
