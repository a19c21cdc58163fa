//! The rate limit of a link, all lanes together, and the turns under it.
//!
//! Lanes ask by themselves when their sockets take more. One with a vain request waits; when the limit allows the
//! next turn, the waiting lane with the next bytes gets it and is woken. A lane with a full socket does not ask, so
//! the others have its share meanwhile. A turn is one block, or as many short ones as cross in the same time.

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, MAX_BLOCK};

use crate::lanes::Lanes;
use crate::records;
use crate::sharing::{ByClass, Priority, Shares};

/// The limit and the waiting lanes.
#[derive(Debug)]
pub(crate) struct Limiter {
    bucket: Bucket,
    shares: Shares,
    /// Lanes with vain requests, in their order; their writers are idle.
    waiting: VecDeque<LaneId>,
    /// The one of them woken to send next.
    called: Option<LaneId>,
    /// The present turn of a lane.
    turn: Option<Turn>,
}

/// A lane's output between two others'.
#[derive(Clone, Copy, Debug)]
struct Turn {
    lane: LaneId,
    class: Priority,
    /// Bytes sent in it.
    sent: usize,
}

impl Limiter {
    pub(crate) fn new(bits_per_s: u64) -> Self {
        Self {
            bucket: Bucket::new(bits_per_s),
            shares: Shares::default(),
            waiting: VecDeque::new(),
            called: None,
            turn: None,
        }
    }

    /// Bytes of one block at most: those of a few milliseconds, for a block cannot be overtaken.
    pub(crate) fn block_limit(&self) -> usize {
        self.bucket.sent_in(BLOCK_TIME).clamp(MIN_BLOCK, MAX_BLOCK)
    }

    /// Counts a lane's frames; nothing is too urgent to be counted.
    pub(crate) fn spend(&mut self, frames: &[u8], now: Now) {
        self.bucket.spend(frames.len(), records(frames).count(), now);
    }

    /// Counts sent bytes of a class, in addition to [`Self::spend`].
    pub(crate) fn charge(&mut self, class: Priority, bytes: usize) {
        self.shares.charge(class, bytes);
        if let Some(turn) = &mut self.turn {
            turn.sent += bytes;
        }
    }

    /// A lane asks for its turn, or goes on with it: the class of its next item, or none, and it waits.
    /// [`Self::end_turn`] is to follow.
    pub(crate) fn ask(&mut self, lane: LaneId, lanes: &Lanes, now: Now) -> Option<Priority> {
        // A turn without any output is none.
        if let Some(turn) = self.turn.filter(|turn| turn.sent > 0) {
            let waits = *lanes.waits(lane).of(turn.class);
            // The next item may be as long as a block, so a turn is one and a half at the most.
            let goes_on = waits && turn.lane == lane && turn.sent <= self.block_limit() / 2;
            return goes_on.then_some(turn.class);
        }
        let class = self.ask_for_turn(lane, lanes, now)?;
        self.turn = Some(Turn { lane, class, sent: 0 });
        Some(class)
    }

    /// Ends the present turn of the lane, if any.
    pub(crate) fn end_turn(&mut self) {
        self.turn = None;
    }

    fn ask_for_turn(&mut self, lane: LaneId, lanes: &Lanes, now: Now) -> Option<Priority> {
        if !lanes.waits(lane).any() {
            self.leave(lane);
            return None;
        }
        if self.called == Some(lane) {
            self.called = None;
        }
        if !self.waiting.contains(&lane) {
            self.waiting.push_back(lane);
        }
        if !self.bucket.is_open(now) || self.called.is_some() {
            return None;
        }
        self.choose(lanes).filter(|(chosen, _)| *chosen == lane).map(|(_, class)| class)
    }

    /// Forgets a waiting lane: it was given something, has nothing more, or is gone.
    pub(crate) fn leave(&mut self, lane: LaneId) {
        self.waiting.retain(|&waiting| waiting != lane);
        if self.called == Some(lane) {
            self.called = None;
        }
    }

    /// Returns the lane to be woken to send next, if any.
    pub(crate) fn call(&mut self, lanes: &Lanes, now: Now) -> Option<LaneId> {
        if self.called.is_some() || !self.bucket.is_open(now) {
            return None;
        }
        self.called = self.choose(lanes).map(|(lane, _)| lane);
        if self.called.is_none() {
            // Their items are gone, with the flows; for anything else they ask again.
            self.waiting.clear();
        }
        self.called
    }

    /// When [`Self::call`] may have somebody; none while nobody waits, or one was called.
    pub(crate) fn next_call(&self) -> Option<Now> {
        (self.called.is_none() && !self.waiting.is_empty()).then_some(self.bucket.free_at)
    }

    /// The class of the turn, and the longest-waiting lane with something of it.
    fn choose(&mut self, lanes: &Lanes) -> Option<(LaneId, Priority)> {
        let mut first = ByClass::<Option<LaneId>>::default();
        let mut waits = ByClass::<bool>::default();
        for &id in &self.waiting {
            let its = lanes.waits(id);
            for class in Priority::ALL.into_iter().filter(|&class| *its.of(class)) {
                first.of_mut(class).get_or_insert(id);
                *waits.of_mut(class) = true;
            }
        }
        let class = self.shares.pick(&waits)?;
        let lane = (*first.of(class))?;
        Some((lane, class))
    }
}

/// A token bucket, kept as the time when the link is free again.
#[derive(Debug)]
struct Bucket {
    bits_per_s: u64,
    free_at: Now,
}

impl Bucket {
    fn new(bits_per_s: u64) -> Self {
        Self { bits_per_s: bits_per_s.max(1), free_at: Now::ZERO }
    }

    fn is_open(&self, now: Now) -> bool {
        self.free_at <= now
    }

    /// Counts bytes of frames, and the overhead of TLS, TCP and IP for them and their records.
    fn spend(&mut self, bytes: usize, records: usize, now: Now) {
        if bytes == 0 {
            return;
        }
        let wire = bytes + records * RECORD_OVERHEAD + bytes.div_ceil(SEGMENT) * SEGMENT_OVERHEAD;
        let nanos = wire as u128 * 8 * 1_000_000_000 / u128::from(self.bits_per_s);
        // Unused time is lost except for the last few milliseconds, the usual lateness of timers.
        let from = self.free_at.max(now.saturating_sub(BURST));
        self.free_at = from.saturating_add(Now::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }

    fn sent_in(&self, time: Now) -> usize {
        let bytes = u128::from(self.bits_per_s) * time.as_micros() / 8_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The unused time to be made up for.
const BURST: Now = Now::from_millis(5);

/// A block takes about so long on the link, as long as it does not get too small to find repeats in.
const BLOCK_TIME: Now = Now::from_millis(8);
const MIN_BLOCK: usize = 4 << 10;

/// Header, content type and tag of a TLS 1.3 record.
const RECORD_OVERHEAD: usize = 22;

/// A segment over Ethernet's MTU, and its headers of TCP with timestamps and IPv4.
const SEGMENT: usize = 1448;
const SEGMENT_OVERHEAD: usize = 52;

#[cfg(test)]
mod tests {
    use oncewire_codec::wire::{FlowId, LaneRole};

    use super::*;

    #[test]
    fn the_rate_is_kept_and_idle_time_is_lost() {
        let mut bucket = Bucket::new(8_000_000);
        let (mut now, mut sent) = (Now::from_secs(50), 0);
        let end = now + Now::from_secs(1);
        while now < end {
            if bucket.is_open(now) {
                bucket.spend(1448 * 4, 1, now);
                sent += 1500 * 4 + RECORD_OVERHEAD;
            }
            now += Now::from_micros(700);
        }
        // A megabyte a second, the burst at the start, and the last block.
        assert!((1_000_000..1_000_000 + 5_000 + 6_100).contains(&sent), "{sent}");
    }

    #[test]
    fn each_record_is_counted() {
        // Frames of 2,003 bytes, of an unknown type.
        let frames: Vec<u8> = [&[0x7f, 0xd0, 0x0f][..], &[0; 2_000]].concat().repeat(10);
        assert_eq!(records(&frames).count(), 10);
        let mut limiter = Limiter::new(8_000_000);
        let now = Now::from_secs(50);
        limiter.spend(&frames, now);
        let wire = 20_030 + 10 * RECORD_OVERHEAD + 14 * SEGMENT_OVERHEAD;
        let free_at = now + Now::from_micros(wire as u64) - BURST;
        assert!(!limiter.bucket.is_open(free_at - Now::from_nanos(1)) && limiter.bucket.is_open(free_at));
    }

    #[test]
    fn blocks_are_as_small_as_the_rate_asks_for() {
        let limit = |rate| Limiter::new(rate).block_limit();
        assert_eq!(limit(20_000_000), 20_000);
        assert_eq!(limit(64_000), MIN_BLOCK);
        assert_eq!(limit(10_000_000_000), MAX_BLOCK);
    }

    #[test]
    fn lane_with_answers_has_turns_and_one_held_has_none() {
        let up = Now::from_secs(50);
        let (mut limiter, mut lanes) = (Limiter::new(8_000_000), Lanes::default());
        let [held, answers] = [1, 2].map(LaneId);
        [held, answers].into_iter().for_each(|lane| lanes.insert(lane, LaneRole::Flow, true, up));
        lanes.get_mut(held).unwrap().turns.push_back(Priority::Normal, FlowId(1));
        lanes.get_mut(answers).unwrap().turns.push_answer(Priority::Bulk, FlowId(2), 7);
        limiter.bucket.spend(20_000, 1, up);
        assert_eq!([answers, held].map(|lane| limiter.ask(lane, &lanes, up)), [None, None]);
        let now = limiter.next_call().unwrap();
        assert!(now > up);
        assert_eq!(limiter.call(&lanes, now), Some(held));
        assert_eq!(limiter.ask(held, &lanes, now), Some(Priority::Normal));
        let turns = &mut lanes.get_mut(held).unwrap().turns;
        let flow = turns.pop(Priority::Normal).unwrap();
        turns.hold(Priority::Normal, flow);
        assert_eq!(limiter.ask(held, &lanes, now), None);
        limiter.end_turn();
        assert_eq!(limiter.call(&lanes, now), Some(answers));
        assert_eq!(limiter.ask(answers, &lanes, now), Some(Priority::Bulk));
        assert!(lanes.pop_answer(answers, Priority::Bulk, |_, _| true).is_some());
        assert_eq!(limiter.ask(answers, &lanes, now), None);
        limiter.end_turn();
        assert_eq!((limiter.call(&lanes, now), limiter.next_call()), (None, None));
        assert!(lanes.get_mut(held).unwrap().turns.release());
        assert_eq!(limiter.ask(held, &lanes, now), Some(Priority::Normal));
    }

    #[test]
    fn answers_for_repairs_wait_with_the_repair_lane() {
        let (mut lanes, class) = (Lanes::default(), Priority::Bulk);
        lanes.answers.insert(class, FlowId(1), 3);
        let all = [(1, LaneRole::Control), (2, LaneRole::Repair), (3, LaneRole::Repair)];
        for (id, role) in all {
            lanes.insert(LaneId(id), role, true, Now::ZERO);
            let waits: Vec<u64> = (1..=id).filter(|&lane| lanes.waits(LaneId(lane)).any()).collect();
            assert_eq!(waits, [id]);
        }
        lanes.remove(LaneId(3));
        assert!(lanes.waits(LaneId(2)).any());
        assert_eq!(lanes.pop_answer(LaneId(1), class, |_, _| true), None);
        assert!(lanes.pop_answer(LaneId(2), class, |_, _| true).is_some() && !lanes.waits(LaneId(2)).any());
    }
}
