//! One neighbour: how busy it is, and how soon it answers.

use std::collections::VecDeque;

use oncewire_codec::Now;

use super::telling::Busy;
use super::{MAX_ASKED, MAX_ASKED_BYTES, Waiting};

/// The state of a neighbour with a live link.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) busy: Busy,
    /// When it said so last.
    pub(super) busy_said_at: Now,
    /// Requests to it without answer, but for those it put off.
    pub(super) asked: usize,
    /// The bytes of chunks among it.
    pub(super) asked_bytes: usize,
    /// Requests waiting for room, some of them perhaps over, and the bytes of all ever put there.
    pub(super) queue: VecDeque<u64>,
    pub(super) queued_bytes: usize,
    /// Chunks another is to bring, as it said.
    pub(super) put_off: usize,
    /// How many chunks it denied since it last brought one, of those it said to have.
    pub(super) denied: u32,
    /// When it last answered well.
    answered_at: Now,
    /// Its own requests without answer, but for those put off here.
    pub(super) serving: usize,
    /// Its postponed requests.
    pub(super) waits: usize,
    /// How long answers have taken lately.
    answer_time: Now,
}

/// The assumed time of an answer before there was one.
const FIRST_ANSWER_TIME: Now = Now::from_millis(50);
/// Long for a LAN, and short beside the cost of bytes on a line; a busy machine takes some of it.
const LEAST_PATIENCE: Now = Now::from_millis(100);
const MOST_PATIENCE: Now = Now::from_secs(1);

impl Member {
    pub(super) fn new() -> Self {
        Self {
            busy: Busy::default(),
            busy_said_at: Now::ZERO,
            asked: 0,
            asked_bytes: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            put_off: 0,
            denied: 0,
            answered_at: Now::ZERO,
            serving: 0,
            waits: 0,
            answer_time: FIRST_ANSWER_TIME,
        }
    }

    /// Returns how long a chunk is likely to take.
    pub(super) fn wait(&self) -> Now {
        self.busy.load.wait().max(self.answer_time)
    }

    /// Returns how long answers have taken lately.
    pub(super) fn answer_time(&self) -> Now {
        self.answer_time
    }

    /// Returns how long an answer is waited for.
    pub(super) fn patience(&self) -> Now {
        (self.answer_time * 4 + self.busy.load.wait()).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }

    /// Returns the time of a chunk requested now: of the queue before it, a window at a time.
    pub(super) fn expected(&self) -> Now {
        let windows = (self.asked_bytes + self.queued_bytes) / MAX_ASKED_BYTES;
        self.wait().saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// Says whether there is room to ask for another chunk.
    pub(super) fn has_room(&self) -> bool {
        self.asked < MAX_ASKED && self.asked_bytes < MAX_ASKED_BYTES
    }

    /// Ends what it was asked, or was to be asked.
    pub(super) fn done(&mut self, waiting: &Waiting) {
        let bytes = waiting.bytes();
        if waiting.is_put_off() {
            self.put_off = self.put_off.saturating_sub(1);
        } else if waiting.asked_at.is_some() {
            self.asked = self.asked.saturating_sub(1);
            self.asked_bytes = self.asked_bytes.saturating_sub(bytes);
        } else {
            self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        }
    }

    /// Until when an answer may come that was asked for at `asked_at`: as long as others come, it may take longer than
    /// they have.
    pub(super) fn last_moment(&self, asked_at: Now) -> Now {
        (self.answered_at + self.patience()).min(asked_at + self.longest())
    }

    /// The longest an answer is waited for while others come.
    pub(super) fn longest(&self) -> Now {
        self.patience() * 3
    }

    /// It answered what was asked at `asked_at`, and well.
    pub(super) fn answered(&mut self, asked_at: Now, now: Now) {
        self.answer_time = (self.answer_time * 7 + now.saturating_sub(asked_at)) / 8;
        self.spoke(now);
    }

    /// It said something good, which tells nothing about the time of chunks.
    pub(super) fn spoke(&mut self, now: Now) {
        self.answered_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_codec::wire::Load;

    #[test]
    fn patience_follows_answers_and_queue_within_bounds() {
        let mut member = Member::new();
        assert_eq!(member.patience(), Now::from_millis(200));
        member.busy.load = Load { queued: 9, service_us: 10_000 };
        assert_eq!(member.patience(), Now::from_millis(300));
        member.busy.load.queued = u32::MAX;
        assert_eq!(member.patience(), MOST_PATIENCE);
        member.busy.load.queued = 0;
        (0..100).for_each(|_| member.answered(Now::ZERO, Now::from_micros(100)));
        assert_eq!(member.patience(), LEAST_PATIENCE);
    }
}
