//! Frames between members of a trust group, beside the flows.
//!
//! Nothing of it is repeated: questions have a time limit, and news are hints.

use std::collections::VecDeque;

use oncewire_codec::wire::{Frame, GroupFrame, LaneRole};

/// The peer's membership, and frames in wait for their lanes.
#[derive(Debug, Default)]
pub(crate) struct GroupTalk {
    /// Whether the next hello comes with a proof that holds.
    is_proved: bool,
    /// Whether both ends have proved to hold the key of the group.
    is_member: bool,
    /// Whether the peer has a chunk store.
    keeps_chunks: bool,
    control: VecDeque<GroupFrame>,
    /// Content, for the repair lane.
    content: VecDeque<GroupFrame>,
    /// About the bytes of both.
    queued: usize,
}

/// The most bytes in wait.
const MAX_QUEUED: usize = 8 << 20;
/// The same for new content, beside which questions and other words have room.
const MAX_CONTENT: usize = 7 << 20;
/// The same for content to keep, beside which answers have room: more than is asked for at a time.
const MAX_GIVEN: usize = 4 << 20;

/// Returns the bound on waiting bytes for a frame.
fn most_with(frame: &GroupFrame) -> usize {
    match frame {
        GroupFrame::Put { .. } => MAX_GIVEN,
        frame if frame.is_content() => MAX_CONTENT,
        _ => MAX_QUEUED,
    }
}

impl GroupTalk {
    /// Notes that the next hello comes with a proof that holds.
    pub(crate) fn handle_proof(&mut self) {
        self.is_proved = true;
    }

    /// Takes the note on the present hello's proof; it says nothing of the next one.
    pub(crate) fn take_proof(&mut self) -> bool {
        std::mem::take(&mut self.is_proved)
    }

    /// Starts over with a new instance of the peer.
    pub(crate) fn meet(&mut self, is_member: bool, keeps_chunks: bool) {
        *self = Self { is_member, keeps_chunks, ..Self::default() };
    }

    /// Forgets frames in wait: the last lane is gone, and so is the time of their senders.
    pub(crate) fn forget(&mut self) {
        self.meet(self.is_member, self.keeps_chunks);
    }

    /// Whether both ends are members.
    pub(crate) fn is_member(&self) -> bool {
        self.is_member
    }

    /// Whether the peer has a chunk store.
    pub(crate) fn keeps_chunks(&self) -> bool {
        self.keeps_chunks
    }

    /// Queues a frame; returns the role of its lane.
    ///
    /// # Errors
    /// The frame, if the peer is no member or too much waits: content to keep is refused before answers, and these before
    /// questions.
    pub(crate) fn push(&mut self, frame: GroupFrame) -> Result<LaneRole, GroupFrame> {
        if !self.is_member || self.queued + frame.size() > most_with(&frame) {
            return Err(frame);
        }
        self.queued += frame.size();
        let (queue, role) = match frame.is_content() {
            true => (&mut self.content, LaneRole::Repair),
            false => (&mut self.control, LaneRole::Control),
        };
        queue.push_back(frame);
        Ok(role)
    }

    /// Appends frames for a role, up to `most` bytes and a frame more.
    pub(crate) fn put(&mut self, role: LaneRole, most: usize, out: &mut Vec<u8>) {
        let end = out.len() + most;
        let queue = if role == LaneRole::Repair { &mut self.content } else { &mut self.control };
        while out.len() < end
            && let Some(frame) = queue.pop_front()
        {
            self.queued -= frame.size();
            Frame::Group(frame).encode(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use oncewire_codec::wire::take_frame;

    use super::*;

    fn content(request: u64) -> GroupFrame {
        GroupFrame::Chunk { request, bytes: Some(Bytes::from(vec![7; 60_000])) }
    }

    #[test]
    fn strangers_are_told_nothing() {
        let mut talk = GroupTalk::default();
        assert!(talk.push(content(1)).is_err());
        talk.handle_proof();
        assert!(talk.take_proof() && !talk.take_proof());
    }

    #[test]
    fn questions_have_room_beside_content() {
        let mut talk = GroupTalk::default();
        talk.meet(true, true);
        let mut count = 0;
        while talk.push(content(count)) == Ok(LaneRole::Repair) {
            count += 1;
        }
        assert!((100..140).contains(&count), "{count}");
        assert_eq!(talk.push(GroupFrame::Pending { bytes: 7 }), Ok(LaneRole::Control));
        let mut out = Vec::new();
        talk.put(LaneRole::Repair, 100_000, &mut out);
        assert!((100_000..200_000).contains(&out.len()));
        out.clear();
        talk.put(LaneRole::Control, 100_000, &mut out);
        assert!(take_frame(&out).unwrap().is_some_and(|(.., used)| used == out.len()));
        talk.forget();
        out.clear();
        talk.put(LaneRole::Repair, 100_000, &mut out);
        assert!(out.is_empty() && talk.is_member() && talk.keeps_chunks());
    }
}
