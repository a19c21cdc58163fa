//! The receiving half of one direction.

use std::collections::VecDeque;

use super::packet::{Ack, Content, EndOfStream, Segment};
use super::ranges::RangeSet;

/// Reassembly of segments, and the acknowledgements for them.
///
/// Every segment is acknowledged at once (no delayed acknowledgements).
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Everything below has arrived.
    next: u64,
    beyond: RangeSet,
    /// The starts of the latest ranges beyond, the latest first: for selective acknowledgements.
    recent: VecDeque<u64>,
    finish_at: Option<u64>,
    reset_at: Option<u64>,
    /// The end, as handed out.
    told: Option<EndOfStream>,
    consumed: u64,
    /// The right edge last told to the sender.
    advertised: u64,
    /// Whether bytes are thrown away, for lack of an application.
    discards: bool,
}

/// The new data of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Bytes readable for the application.
    pub(crate) readable: u64,
    /// The end of the stream, once, when everything before it has arrived. A reset may still follow a finish.
    pub(crate) end: Option<EndOfStream>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            beyond: RangeSet::default(),
            recent: VecDeque::new(),
            finish_at: None,
            reset_at: None,
            told: None,
            consumed: 0,
            advertised: RECEIVE_WINDOW,
            discards: false,
        }
    }

    /// Takes a segment; the caller then sends [`ack`](Self::ack).
    pub(crate) fn handle_segment(&mut self, segment: &Segment) -> Arrived {
        match segment.content {
            Content::End(EndOfStream::Finished) => self.finish_at = Some(segment.start),
            Content::End(EndOfStream::Reset) => self.reset_at = Some(segment.start),
            Content::Payload(_) => {}
        }
        let before = self.next;
        let mut fresh = false;
        self.beyond.insert(segment.start.max(self.next), segment.end(), |_, _| fresh = true);
        if let Some((_, end)) = self.beyond.containing(self.next) {
            self.next = end;
            self.beyond.remove_below(end);
        } else if fresh {
            self.recent.push_front(segment.start);
            self.recent.truncate(REMEMBERED_RANGES);
        }
        self.arrived_since(before)
    }

    /// Returns the acknowledgement of everything received.
    pub(crate) fn ack(&mut self) -> Ack {
        let mut ack = Ack { next: self.next, right_edge: self.right_edge(), ..Ack::default() };
        self.advertised = ack.right_edge;
        let mut slots = ack.sacks.iter_mut();
        let mut reported = RangeSet::default();
        for &start in &self.recent {
            let Some(range) = self.beyond.containing(start) else { continue };
            let mut fresh = false;
            reported.insert(range.0, range.1, |_, _| fresh = true);
            if fresh {
                let Some(slot) = slots.next() else { break };
                *slot = range;
            }
        }
        ack
    }

    /// Frees buffer space of consumed bytes; returns whether the sender should hear of it now.
    pub(crate) fn handle_consumed(&mut self, bytes: u64) -> bool {
        self.consumed = (self.consumed + bytes).min(self.next);
        self.right_edge() >= self.advertised + RECEIVE_WINDOW / 4
    }

    /// Throws away everything received from now on, because the application is gone.
    pub(crate) fn discard(&mut self) {
        self.discards = true;
    }

    fn right_edge(&self) -> u64 {
        let consumed = if self.discards { self.next } else { self.consumed };
        (consumed + RECEIVE_WINDOW).max(self.advertised)
    }

    fn arrived_since(&mut self, before: u64) -> Arrived {
        let reached = |at: Option<u64>| at.filter(|at| *at < self.next);
        let data_end = reached(self.finish_at).or(reached(self.reset_at)).unwrap_or(self.next);
        let end = match self.told {
            Some(EndOfStream::Reset) => None,
            _ if reached(self.reset_at).is_some() => Some(EndOfStream::Reset),
            None if reached(self.finish_at).is_some() => Some(EndOfStream::Finished),
            _ => None,
        };
        self.told = end.or(self.told);
        let readable = if self.discards { 0 } else { data_end.saturating_sub(before) };
        Arrived { readable, end }
    }
}

/// Receive buffer per connection and direction, in bytes.
pub const RECEIVE_WINDOW: u64 = 4 << 20;

const REMEMBERED_RANGES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn data(start: u64, len: u32) -> Segment {
        Segment { start, content: Content::Payload(len), repeated: false }
    }

    fn end(start: u64, end: EndOfStream) -> Segment {
        Segment { start, content: Content::End(end), repeated: false }
    }

    fn readable(bytes: u64) -> Arrived {
        Arrived { readable: bytes, end: None }
    }

    #[test]
    fn bytes_are_readable_in_order_for_any_order_of_arrival() {
        let mut receiver = Receiver::new();
        assert_eq!(receiver.handle_segment(&data(100, 100)), readable(0));
        assert_eq!(receiver.ack().sacks[0], (100, 200));
        assert_eq!(receiver.handle_segment(&data(300, 100)), readable(0));
        assert_eq!(receiver.ack().sacks, [(300, 400), (100, 200), (0, 0)]);
        assert_eq!(receiver.handle_segment(&data(0, 100)), readable(200));
        let ack = receiver.ack();
        assert_eq!((ack.next, ack.sacks[0], ack.sacks[1]), (200, (300, 400), (0, 0)));
        assert_eq!(receiver.handle_segment(&data(0, 100)), readable(0), "a duplicate brings nothing");
    }

    #[test]
    fn the_end_comes_after_all_bytes_and_once() {
        let mut receiver = Receiver::new();
        let finished = EndOfStream::Finished;
        assert_eq!(receiver.handle_segment(&end(100, finished)), readable(0));
        assert_eq!(receiver.handle_segment(&data(0, 100)), Arrived { readable: 100, end: Some(finished) });
        assert_eq!(receiver.handle_segment(&end(100, finished)), readable(0));
        assert_eq!(receiver.ack().next, 101);
    }

    #[test]
    fn reset_may_follow_the_finish_and_nothing_follows_it() {
        let mut receiver = Receiver::new();
        let of = |end| Arrived { readable: 0, end: Some(end) };
        assert_eq!(receiver.handle_segment(&end(0, EndOfStream::Finished)), of(EndOfStream::Finished));
        assert_eq!(receiver.handle_segment(&end(1, EndOfStream::Reset)), of(EndOfStream::Reset));
        assert_eq!(receiver.handle_segment(&end(1, EndOfStream::Reset)), readable(0));
        assert_eq!(receiver.ack().next, 2);
    }

    #[test]
    fn window_closes_on_a_stalled_reader_and_opens_on_reading() {
        let mut receiver = Receiver::new();
        receiver.handle_segment(&data(0, RECEIVE_WINDOW as u32));
        assert_eq!(receiver.ack().right_edge, RECEIVE_WINDOW);
        assert!(!receiver.handle_consumed(1000), "too little to be worth a packet");
        assert!(receiver.handle_consumed(RECEIVE_WINDOW / 4));
        assert_eq!(receiver.ack().right_edge, RECEIVE_WINDOW + RECEIVE_WINDOW / 4 + 1000);
        receiver.handle_consumed(u64::MAX / 2);
        assert_eq!(receiver.ack().right_edge, 2 * RECEIVE_WINDOW, "never beyond what arrived");
    }

    #[test]
    fn departed_application_closes_no_window() {
        let mut receiver = Receiver::new();
        receiver.discard();
        assert_eq!(receiver.handle_segment(&data(0, 5000)), readable(0));
        assert_eq!(receiver.ack().right_edge, RECEIVE_WINDOW + 5000);
    }
}
