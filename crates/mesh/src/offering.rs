//! Giving neighbours what is new here and theirs to have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use oncewire_codec::Now;
use oncewire_codec::wanax::{LEAST_SHARED, Shape};
use oncewire_codec::wire::{GroupFrame, MAX_PEEK, Sought};

use super::{Asked, MAX_OFFERED, MemberId, Neighbourhood, Output, Piece, responsible};

/// Chunks a neighbour lacks, as it said, and this gateway fetches: others may be waiting for them there.
#[derive(Debug, Default)]
pub(super) struct Promises {
    made_at: BTreeMap<u64, Now>,
    in_order: VecDeque<(Now, u64)>,
}

/// The most promises remembered, and for how long: as long as others may wait, and more.
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

    /// Says whether one was made, kept now.
    fn keep(&mut self, tag: u64) -> bool {
        self.made_at.remove(&tag).is_some()
    }
}

impl Piece {
    fn range(&self) -> Range<u64> {
        let start = u64::from(self.at);
        start..start + self.bytes.len() as u64
    }

    /// Says whether it is a part of another piece of its block.
    fn lies_in(&self, other: &Range<u64>) -> bool {
        let own = self.range();
        other.start <= own.start && own.end <= other.end && *other != own
    }
}

impl Neighbourhood {
    /// Offers new chunks of the own store, all of one block, to the members responsible for them, and the own share to
    /// the next in order, so another has all of it when this one dies. Chunks beyond the bound on offers are not
    /// offered, nor are those within a larger one for the same neighbour: a gift is cut there like a block. A chunk
    /// with possible waiters is given at once, shared or not.
    pub fn offer(&mut self, shape: Shape, mut pieces: Vec<Piece>, now: Now) {
        let mut larger: BTreeMap<MemberId, Vec<Range<u64>>> = BTreeMap::new();
        pieces.retain(|piece| {
            self.handle_own(piece, now);
            let member = self.responsible(piece.tag);
            let promised = self.promises.keep(piece.tag) && piece.bytes.len() >= LEAST_SHARED as usize;
            if promised && let Some(member) = member {
                self.give(member, shape, piece);
                larger.entry(member).or_default().push(piece.range());
            }
            !(promised && member.is_some()) && piece.is_shared
        });
        pieces.sort_by_key(|piece| Reverse(piece.bytes.len()));
        let mut shares: BTreeMap<MemberId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            let Some(member) = self.keeper(&piece, &larger) else { continue };
            let fits = self.can_offer(member, now) && self.offered + piece.bytes.len() <= MAX_OFFERED;
            if !fits {
                self.stats.not_offered += 1;
                continue;
            }
            self.offered += piece.bytes.len();
            larger.entry(member).or_default().push(piece.range());
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

    /// Returns the second holder of a chunk, unless it is given `larger` ones with it: for the own share, any neighbour
    /// with one of them will do.
    fn keeper(&self, piece: &Piece, larger: &BTreeMap<MemberId, Vec<Range<u64>>>) -> Option<MemberId> {
        let has = |ranges: &Vec<Range<u64>>| ranges.iter().any(|range| piece.lies_in(range));
        match self.responsible(piece.tag) {
            Some(member) => Some(member).filter(|member| !larger.get(member).is_some_and(has)),
            None if larger.values().any(has) => None,
            None => responsible(self.members.keys().copied(), piece.tag),
        }
    }

    pub(super) fn handle_have(&mut self, from: MemberId, request: u64, held: &[bool], now: Now) {
        let Some(waiting) = self.take_from(from, request) else { return };
        let answers = match waiting.asked {
            Asked::Search(id) => Some(self.handle_seen(from, id, held, now)),
            Asked::Survey(id) => Some(self.handle_surveyed(id, held)),
            Asked::Chunk { .. } | Asked::Offer { .. } => None,
        };
        if let Some(answers) = answers {
            return if answers { self.praise(&waiting, now) } else { self.wrong(&waiting, now) };
        }
        let Asked::Offer { pieces, shape } = &waiting.asked else {
            self.wrong(&waiting, now);
            return self.go_on(waiting.asked, now);
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
    use oncewire_codec::wanax::NameKey;

    /// Offers of some pieces of one block, by tag, range and responsible neighbour.
    fn offered(machine: &mut Neighbourhood, pieces: &[(u64, Range<u32>)]) -> Vec<(u64, Vec<u64>)> {
        let piece = |(tag, range): &(u64, Range<u32>)| Piece {
            tag: *tag,
            bytes: vec![7; range.len()].into(),
            at: range.start,
            is_shared: true,
        };
        machine.offer(Shape::default(), pieces.iter().map(piece).collect(), Now::from_secs(9));
        std::iter::from_fn(|| machine.poll_output())
            .filter_map(|output| match output {
                Output::Send(to, GroupFrame::Peek { chunks, .. }) => {
                    Some((to.0, chunks.iter().map(|sought| sought.tag).collect()))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn chunk_within_an_offered_larger_one_is_not_offered() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        (2..=3).for_each(|id| _ = machine.handle_up(MemberId(id)));
        let of = |machine: &Neighbourhood, id, nth| {
            (0..).filter(|tag| machine.responsible(*tag) == Some(MemberId(id))).nth(nth).unwrap()
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|nth| of(&machine, 2, nth));
        let [e, f] = [0, 1].map(|nth| of(&machine, 3, nth));
        // In the order of a tree: parts before what they are parts of.
        let pieces =
            [(b, 0..8000), (e, 8000..16_000), (c, 60_000..68_000), (a, 0..64_000), (d, 64_000..70_000)];
        assert_eq!(offered(&mut machine, &pieces), [(2, vec![a, c, d]), (3, vec![e])]);
        // One of the same length is no part.
        assert_eq!(offered(&mut machine, &[(a, 0..64_000), (b, 0..64_000)]), [(2, vec![a, b])]);
        // A promised one is given in any case, and its parts need no offer.
        machine.promises.make(b, Now::from_secs(9));
        machine.promises.make(f, Now::from_secs(9));
        let given = machine.stats.given;
        let pieces = [(a, 0..64_000), (b, 0..8000), (f, 0..64_000), (e, 0..8000)];
        assert_eq!(offered(&mut machine, &pieces), [(2, vec![a])]);
        assert_eq!(machine.stats.given - given, 2);
    }

    #[test]
    fn own_chunk_goes_next_unless_within_a_larger_one() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        (2..=3).for_each(|id| _ = machine.handle_up(MemberId(id)));
        let next = |tag| responsible([2, 3].map(MemberId), tag);
        let tag = |machine: &Neighbourhood, own: bool, id| {
            let is_own = |tag: &u64| machine.responsible(*tag).is_none() == own;
            (0..).filter(is_own).find(|tag| next(*tag) == Some(MemberId(id))).unwrap()
        };
        let [ours, of_three] = [tag(&machine, true, 2), tag(&machine, false, 3)];
        let part = (0..).find(|tag| machine.responsible(*tag).is_none() && *tag != ours).unwrap();
        let pieces = [(part, 0..8000), (of_three, 8000..16_000), (ours, 0..64_000)];
        assert_eq!(offered(&mut machine, &pieces), [(2, vec![ours]), (3, vec![of_three])]);
        // Alone it lies in nothing.
        let id = next(part).unwrap().0;
        assert_eq!(offered(&mut machine, &[(part, 0..8000)]), [(id, vec![part])]);
    }

    #[test]
    fn part_of_an_oversized_chunk_is_offered_itself() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        machine.handle_up(MemberId(2));
        let theirs: Vec<u64> = (0..).filter(|tag| machine.responsible(*tag).is_some()).take(2).collect();
        machine.offered = MAX_OFFERED - 8000;
        let pieces = [(theirs[0], 0..64_000), (theirs[1], 0..8000)];
        assert_eq!(offered(&mut machine, &pieces), [(2, vec![theirs[1]])]);
        assert_eq!(machine.stats.not_offered, 1);
    }

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
