//! The stream to our application: order, window, memory.

use bytes::Bytes;
use oncewire_codec::contract::PeerFault;
use oncewire_codec::wire::FlowId;

use crate::budget::{Budget, Part};
use crate::credit::Window;
use crate::reassembly::Reassembly;

/// The receiving direction of one flow.
#[derive(Debug)]
pub(crate) struct Inbound {
    stream: Reassembly,
    pub(crate) window: Window,
    /// The share of this window in the first credits of all flows.
    #[expect(dead_code, reason = "it counts for as long as the flow is there")]
    first_credit: Part,
    /// Bytes that came and were not taken.
    held: Part,
    /// Bytes given to our application.
    delivered: u64,
    /// Whether the application knows of the stream's end.
    is_end_told: bool,
}

impl Inbound {
    /// Starts with a window.
    pub(crate) fn new(window: Window, budget: &Budget) -> Self {
        let mut first_credit = Part::of(&budget.first_credits);
        first_credit.set(window.size() - window.growth());
        Self {
            stream: Reassembly::default(),
            window,
            first_credit,
            held: Part::of(&budget.received),
            delivered: 0,
            is_end_told: false,
        }
    }

    /// Takes a block; returns whether there is something new to read.
    ///
    /// # Errors
    /// As [`Reassembly::insert`].
    pub(crate) fn insert(
        &mut self,
        flow: FlowId,
        offset: u64,
        plain: Bytes,
        fin: bool,
    ) -> Result<bool, PeerFault> {
        let news = self.stream.insert(flow, offset, plain, fin, self.window.granted())?;
        self.count();
        Ok(news)
    }

    /// Counts the bytes that came and were not taken.
    pub(crate) fn count(&mut self) {
        self.held.set(self.stream.taken_in().saturating_sub(self.window.consumed()));
    }

    /// Takes the next bytes for our application.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.stream.pop()?;
        self.delivered += bytes.len() as u64;
        Some(bytes)
    }

    /// Returns the bytes given to our application.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the first flow offset that is not in order yet.
    pub(crate) fn next(&self) -> u64 {
        self.stream.next()
    }

    /// Whether there are bytes to take.
    pub(crate) fn has_ready(&self) -> bool {
        self.stream.has_ready()
    }

    /// Whether all was taken and the stream has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.stream.is_finished()
    }

    /// Whether the application knows of the stream's end.
    pub(crate) fn is_end_told(&self) -> bool {
        self.is_end_told
    }

    /// Takes the news of the stream's end, once.
    pub(crate) fn take_end(&mut self) -> bool {
        self.stream.is_finished() && !std::mem::replace(&mut self.is_end_told, true)
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self) {
        self.stream.clear();
        self.held.set(0);
    }

    /// Whether our application, with `taking` bytes now, has taken all. The shell may be faster: its bytes wait there
    /// for an application that does not read.
    pub(crate) fn waits(&self, taking: u64) -> bool {
        !self.stream.has_ready() && self.window.consumed() + taking >= self.delivered
    }
}

#[cfg(test)]
mod tests {
    use oncewire_codec::Now;

    use super::*;

    #[test]
    fn bytes_count_until_they_are_taken() {
        let budget = Budget::new(1 << 20);
        let mut inbound = Inbound::new(Window::new(1000, 0, Now::ZERO), &budget);
        assert_eq!(budget.first_credits.bytes(), 1000);
        let block = || Bytes::from_static(&[7; 100]);
        assert!(!inbound.insert(FlowId(1), 100, block(), true).unwrap());
        assert!(inbound.insert(FlowId(1), 0, block(), false).unwrap());
        assert_eq!(budget.received.bytes(), 200);
        assert!(!inbound.take_end() && inbound.waits(0) == inbound.window.consumed().gt(&0));
        assert!(inbound.pop().is_some() && inbound.pop().is_some());
        assert_eq!(inbound.delivered(), 200);
        assert!(!inbound.waits(199) && inbound.waits(200));
        assert!(inbound.take_end() && !inbound.take_end());
        inbound.clear();
        assert_eq!(budget.received.bytes(), 0);
        drop(inbound);
        assert_eq!(budget.first_credits.bytes(), 0);
    }

    #[test]
    fn bytes_beyond_the_window_are_a_fault() {
        let budget = Budget::new(1 << 20);
        let mut inbound = Inbound::new(Window::new(99, 0, Now::ZERO), &budget);
        let fault = inbound.insert(FlowId(1), 0, Bytes::from_static(&[7; 100]), false);
        assert_eq!(fault, Err(PeerFault::BeyondCredit { flow: FlowId(1) }));
    }
}
