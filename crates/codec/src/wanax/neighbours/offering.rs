//! Giving neighbours what is new here and theirs to have.

use std::collections::{BTreeMap, VecDeque};

use super::{Asked, LEAST_SHARED, MAX_OFFERED, MemberId, Neighbourhood, Output, Piece};
use crate::Now;
use crate::wanax::Shape;
use crate::wire::{GroupFrame, MAX_PEEK, Sought};

/// Chunks that a neighbour lacks, as it said, and this gateway fetches: others may be waiting for them there.
#[derive(Debug, Default)]
pub(super) struct Promises {
    made_at: BTreeMap<u64, Now>,
    in_order: VecDeque<(Now, u64)>,
}

/// The most promises that are remembered, and for how long: as long as others may wait, and more.
const MAX_PROMISES: usize = 4096;
const KEEP: Now = Now::from_secs(5);

impl Promises {
    pub(super) fn make(&mut self, tag: u64, now: Now) {
        while let Some(&(made_at, oldest)) = self.in_order.front()
            && (made_at + KEEP <= now || self.in_order.len() >= MAX_PROMISES)
        {
            self.in_order.pop_front();
            // It may have been made again since.
            if self.made_at.get(&oldest) == Some(&made_at) {
                self.made_at.remove(&oldest);
            }
        }
        self.made_at.insert(tag, now);
        self.in_order.push_back((now, tag));
    }

    /// Says whether one was made, which is kept now.
    fn keep(&mut self, tag: u64) -> bool {
        self.made_at.remove(&tag).is_some()
    }
}

impl Neighbourhood {
    /// Offers chunks that are new in the own store to those that are responsible for them. What does not fit the bound
    /// on offers is not offered. What somebody may be waiting for is given at once.
    pub fn offer(&mut self, shape: Shape, mut pieces: Vec<Piece>, now: Now) {
        pieces.retain(|piece| {
            self.handle_own(piece, now);
            let member = self.responsible(piece.tag);
            let promised = self.promises.keep(piece.tag) && piece.bytes.len() >= LEAST_SHARED as usize;
            if promised && let Some(member) = member {
                self.give(member, shape, piece);
            }
            member.is_some() && !promised
        });
        let mut shares: BTreeMap<MemberId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            let Some(member) = self.responsible(piece.tag) else { continue };
            let fits = self.can_offer(member, now) && self.offered + piece.bytes.len() <= MAX_OFFERED;
            if !fits {
                self.stats.not_offered += 1;
                continue;
            }
            self.offered += piece.bytes.len();
            shares.entry(member).or_default().push(piece);
        }
        for (member, mut pieces) in shares {
            while !pieces.is_empty() {
                let rest = pieces.split_off(pieces.len().min(MAX_PEEK));
                let sought = |piece: &Piece| Sought { tag: piece.tag, len: piece.bytes.len() as u32 };
                let chunks = pieces.iter().map(sought).collect();
                let request = self.wait_for(member, Asked::Offer { pieces, shape }, now);
                self.send(member, GroupFrame::Peek { request, chunks });
                pieces = rest;
            }
        }
    }

    pub(super) fn handle_have(&mut self, from: MemberId, request: u64, held: &[bool], now: Now) {
        let Some(waiting) = self.take_from(from, request) else { return };
        if let Asked::Search(id) = waiting.what {
            return match self.handle_seen(from, id, held, now) {
                true => self.praise(&waiting, now),
                false => self.wrong(&waiting, now),
            };
        }
        let Asked::Offer { pieces, shape } = &waiting.what else {
            self.wrong(&waiting, now);
            return self.go_on(waiting.what, now);
        };
        if held.len() != pieces.len() {
            return self.wrong(&waiting, now);
        }
        self.praise(&waiting, now);
        for (piece, _) in pieces.iter().zip(held).filter(|(_, held)| !**held) {
            self.give(from, *shape, piece);
        }
    }

    fn give(&mut self, member: MemberId, shape: Shape, piece: &Piece) {
        self.stats.given += 1;
        self.stats.given_bytes += piece.bytes.len() as u64;
        let frame = GroupFrame::Put { shape, bytes: piece.bytes.clone() };
        self.outputs.push_back(Output::Send(member, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_bounded_and_kept_once() {
        let (mut promises, now) = (Promises::default(), Now::from_secs(9));
        (0..2 * MAX_PROMISES as u64).for_each(|tag| promises.make(tag, now));
        assert_eq!((promises.made_at.len(), promises.in_order.len()), (MAX_PROMISES, MAX_PROMISES));
        assert!(!promises.keep(0), "the oldest are forgotten");
        let last = 2 * MAX_PROMISES as u64 - 1;
        assert!(promises.keep(last) && !promises.keep(last));
        promises.make(1, now + KEEP);
        assert_eq!((promises.made_at.len(), promises.in_order.len()), (1, 1));
    }
}
