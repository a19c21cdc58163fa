//! Reassembly of a flow's blocks in the order of the stream.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::contract::PeerFault;
use oncewire_codec::transfer::MAX_UNACKED;
use oncewire_codec::wire::FlowId;

use crate::pieces::Pieces;

/// The most early blocks of a flow, in wait for an unacknowledged one.
const MOST_EARLY: usize = MAX_UNACKED as usize;

/// The inbound stream of one flow; its memory is bounded by granted credit, and the number of its pieces, too, since
/// they may be of one byte.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// The first flow offset not in order yet.
    next: u64,
    early: BTreeMap<u64, Bytes>,
    /// Bytes in `early`.
    held: u64,
    ready: Pieces,
    end: Option<u64>,
    highest: u64,
}

impl Reassembly {
    /// Takes a block; returns whether there is something new to read.
    ///
    /// # Errors
    /// Bytes beyond `granted`, or behind the stream's end, or too many early blocks.
    pub(crate) fn insert(
        &mut self,
        flow: FlowId,
        offset: u64,
        plain: Bytes,
        fin: bool,
        granted: u64,
    ) -> Result<bool, PeerFault> {
        let end = offset.saturating_add(plain.len() as u64);
        if end > granted {
            return Err(PeerFault::BeyondCredit { flow });
        }
        let moved = fin && self.end.is_some_and(|known| known != end);
        if moved || self.end.is_some_and(|known| end > known) || (fin && end < self.highest) {
            return Err(PeerFault::BehindEnd { flow });
        }
        self.highest = self.highest.max(end);
        if fin {
            self.end = Some(end);
        }
        if !plain.is_empty() && end > self.next {
            // Blocks of an honest sender never overlap, so together they fit into its credit.
            let is_too_much = self.held + plain.len() as u64 > granted - self.next.min(granted);
            if is_too_much || (offset > self.next && self.early.len() >= MOST_EARLY) {
                return Err(PeerFault::BeyondCredit { flow });
            }
            self.held += plain.len() as u64;
            if let Some(replaced) = self.early.insert(offset, plain) {
                self.held -= replaced.len() as u64;
            }
        }
        let mut news = fin && self.next == end;
        while let Some(entry) = self.early.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (offset, mut plain) = entry.remove_entry();
            self.held -= plain.len() as u64;
            let known = (self.next - offset) as usize;
            if known < plain.len() {
                let fresh = plain.split_off(known);
                self.next += fresh.len() as u64;
                self.ready.push(fresh);
                news = true;
            }
        }
        Ok(news)
    }

    /// The first flow offset not in order yet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The received bytes, in order or not.
    pub(crate) fn taken_in(&self) -> u64 {
        self.next + self.held
    }

    /// Takes the next bytes in order.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop()
    }

    /// Whether everything was taken and the stream has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.ready.is_empty() && self.end == Some(self.next)
    }

    /// Whether there is something to take.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Drops all received bytes.
    pub(crate) fn clear(&mut self) {
        self.early.clear();
        self.held = 0;
        self.ready.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_in_any_order_become_the_stream(
            order in Just((0usize..30).collect::<Vec<_>>()).prop_shuffle(),
            lens in prop::collection::vec(1usize..20, 30),
        ) {
            let mut starts = vec![0usize];
            lens.iter().for_each(|len| starts.push(starts[starts.len() - 1] + len));
            let stream: Vec<u8> = (0..starts[30]).map(|i| (i * 7) as u8).collect();
            let (mut flow, mut out) = (Reassembly::default(), Vec::new());
            for i in order {
                let plain = Bytes::copy_from_slice(&stream[starts[i]..starts[i + 1]]);
                prop_assert!(!flow.is_finished());
                flow.insert(FlowId(1), starts[i] as u64, plain, i == 29, stream.len() as u64).unwrap();
                while let Some(bytes) = flow.pop() {
                    out.extend_from_slice(&bytes);
                }
            }
            prop_assert_eq!(out, stream);
            prop_assert!(flow.is_finished());
        }
    }

    #[test]
    fn bytes_beyond_credit_or_end_are_the_peers_fault() {
        let mut flow = Reassembly::default();
        let (id, byte) = (FlowId(2), Bytes::from_static(b"x"));
        assert_eq!(flow.insert(id, 10, byte.clone(), false, 10), Err(PeerFault::BeyondCredit { flow: id }));
        flow.insert(id, 4, byte.clone(), true, 10).unwrap();
        assert_eq!(flow.insert(id, 5, byte.clone(), false, 10), Err(PeerFault::BehindEnd { flow: id }));
        assert_eq!(flow.insert(id, 2, byte, true, 10), Err(PeerFault::BehindEnd { flow: id }));
        let mut flow = Reassembly::default();
        let piece = Bytes::from_static(b"12345");
        flow.insert(id, 1, piece.clone(), false, 10).unwrap();
        flow.insert(id, 2, piece.clone(), false, 10).unwrap();
        assert_eq!(flow.insert(id, 3, piece, false, 10), Err(PeerFault::BeyondCredit { flow: id }));
    }
}
