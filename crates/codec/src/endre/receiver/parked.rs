//! Blocks that wait for a range of the log which has not arrived yet.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Head;
use super::timed::{Due, Timed};
use crate::Now;
use crate::cache::RangeSet;
use crate::endre::matcher::Copy;
use crate::wire::{MAX_RANGES, Range64};

/// A block that waits.
pub(super) struct Parked {
    pub(super) head: Head,
    pub(super) copies: Vec<Copy>,
    pub(super) literals: Vec<u8>,
    /// Chunks that the block names, and where they stand.
    pub(super) named: Vec<(u32, Bytes)>,
    /// The first range that it lacks; nothing else is looked at until that is there.
    pub(super) lacks: Range64,
    /// The lowest offset that it copies from.
    pub(super) oldest: u64,
    pub(super) deadline: Now,
    /// Whether what it lacks was asked for.
    pub(super) asked: bool,
}

impl Due for Parked {
    fn due(&self) -> Option<Now> {
        Some(self.deadline)
    }
}

/// All blocks that wait.
#[derive(Default)]
pub(super) struct Parking {
    blocks: Timed<Parked>,
    /// The blocks by the lowest offset that they copy from, and by the start of what they lack: each block that is rebuilt
    /// may end the wait of others.
    oldest: BTreeSet<(u64, u64)>,
    lacking: BTreeSet<(u64, u64)>,
    bytes: usize,
    /// Ranges that were asked for of late, for whichever block.
    asked: RangeSet,
    asked_until: Now,
}

/// What was asked for is on its way, behind whatever waits for a slow link: many blocks may want it, and each asking
/// would bring it once more. So it is given so many times the patience.
const ASKED_PATIENCE: u32 = 8;

/// Ranges that are asked for at once, but for those of the last block: four frames.
const MAX_ASKED: usize = 4 * MAX_RANGES;

const MAX_PARKED: usize = 4096;
const MAX_PARKED_BYTES: usize = 32 << 20;

impl Parking {
    /// Parks a block; returns false if there is no room.
    pub(super) fn park(&mut self, parked: Parked) -> bool {
        let bytes = size(&parked);
        if self.blocks.len() >= MAX_PARKED || self.bytes + bytes > MAX_PARKED_BYTES {
            return false;
        }
        let seq = parked.head.seq;
        self.take(seq);
        self.bytes += bytes;
        self.oldest.insert((parked.oldest, seq));
        self.lacking.insert((parked.lacks.start, seq));
        self.blocks.insert(seq, parked);
        true
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains(seq)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Takes the blocks that copy something from below an offset.
    pub(super) fn take_copying_below(&mut self, offset: u64) -> Vec<Parked> {
        let mut copying: Vec<u64> = self.oldest.range(..(offset, 0)).map(|(_, seq)| *seq).collect();
        copying.sort_unstable();
        copying.into_iter().filter_map(|seq| self.take(seq)).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<Parked> {
        let parked = self.blocks.remove(seq)?;
        self.bytes -= size(&parked);
        self.oldest.remove(&(parked.oldest, seq));
        self.lacking.remove(&(parked.lacks.start, seq));
        Some(parked)
    }

    /// Takes a block that has waited long enough for what it lacks to be asked for.
    pub(super) fn take_late(&mut self, seq: u64, now: Now) -> Option<Parked> {
        self.blocks.get(seq).filter(|parked| parked.deadline <= now)?;
        self.take(seq)
    }

    /// Takes a block that has what it lacked. Those that lack what begins in the same hole of `written` are passed over at
    /// once.
    pub(super) fn take_ready(&mut self, written: &RangeSet) -> Option<Parked> {
        let mut from = (0, 0);
        while let Some(&(start, seq)) = self.lacking.range(from..).next() {
            let next = written.from(start)?;
            if next.start > start {
                from = (next.start, 0);
            } else if self.blocks.get(seq).is_some_and(|parked| written.contains(&parked.lacks)) {
                return self.take(seq);
            } else {
                from = (start, seq + 1);
            }
        }
        None
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.blocks.values().map(|parked| &parked.head)
    }

    /// The log ranges that blocks will fill which wait.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range64> {
        self.heads().filter_map(Head::range)
    }

    /// Gives up all blocks and returns their heads.
    pub(super) fn clear(&mut self) -> Vec<Head> {
        self.bytes = 0;
        self.asked.clear();
        self.oldest.clear();
        self.lacking.clear();
        let heads = self.heads().copied().collect();
        self.blocks.clear();
        heads
    }

    /// Asks for everything anew with the next [`Self::overdue`]: what was asked for may have been lost with a lane.
    pub(super) fn restate(&mut self) {
        self.asked.clear();
        for seq in self.blocks.such(|parked| parked.asked) {
            self.blocks.change(seq, |parked| (parked.asked, parked.deadline) = (false, Now::ZERO));
        }
    }

    /// When [`Self::overdue`] has something to say.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.blocks.deadline()
    }

    /// Returns the ranges to ask for now, and the blocks for which that was done before and did not help. `written` is what
    /// is there, `coming` what will be: a block that lacks nothing else waits on. Blocks that come to lack more than
    /// [`MAX_ASKED`] ranges together have their turn the next time.
    pub(super) fn overdue(
        &mut self,
        now: Now,
        patience: Now,
        [written, coming]: [&RangeSet; 2],
    ) -> (RangeSet, Vec<u64>) {
        let (mut ranges, mut hopeless) = (RangeSet::default(), Vec::new());
        let (mut unwritten, mut missing, mut news) = (Vec::new(), Vec::new(), Vec::new());
        if self.asked_until <= now {
            self.asked.clear();
            self.asked_until = now + patience * ASKED_PATIENCE;
        }
        let mut late: Vec<u64> = self.blocks.late(now).collect();
        late.sort_unstable();
        for seq in late {
            if news.len() >= MAX_ASKED {
                break;
            }
            self.blocks.change(seq, |parked| {
                if parked.asked {
                    hopeless.push(seq);
                    return;
                }
                for copy in &parked.copies {
                    written.missing(&copy.range(), &mut unwritten);
                }
                unwritten.drain(..).for_each(|range| coming.missing(&range, &mut missing));
                parked.asked = !missing.is_empty();
                parked.deadline = now + if parked.asked { patience * ASKED_PATIENCE } else { patience };
            });
            missing.drain(..).for_each(|range| self.asked.missing(&range, &mut news));
        }
        for range in news {
            self.asked.insert(range.clone());
            ranges.insert(range);
        }
        (ranges, hopeless)
    }
}

fn size(parked: &Parked) -> usize {
    let named: usize = parked.named.iter().map(|(_, chunk)| chunk.len()).sum();
    named
        + size_of_val(&parked.named[..])
        + parked.literals.len()
        + size_of_val(&parked.copies[..])
        + size_of::<Parked>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::LogOffset;

    const PATIENCE: Now = Now::from_secs(1);

    /// A block that is one copy of what it lacks.
    fn lacking(seq: u64, lacks: Range64, deadline: Now) -> Parked {
        let len = (lacks.end - lacks.start) as u32;
        let copies = vec![Copy { at: 0, len, source: LogOffset(lacks.start) }];
        let (head, literals, named, oldest) = (Head::of(seq), Vec::new(), Vec::new(), lacks.start);
        Parked { head, copies, literals, named, lacks, oldest, deadline, asked: false }
    }

    /// Blocks that all lack the same range, each with its deadline a patience behind the one before.
    fn parking(blocks: u64) -> Parking {
        let mut parking = Parking::default();
        for seq in 1..=blocks {
            assert!(parking.park(lacking(seq, 5000..6000, PATIENCE * seq as u32)));
        }
        parking
    }

    /// Returns how many ranges are asked for, and the blocks that are given up, patience by patience.
    fn pass(parking: &mut Parking, patiences: std::ops::Range<u32>) -> (usize, Vec<u64>) {
        let (mut asked, mut hopeless) = (0, Vec::new());
        for patience in patiences {
            let (ranges, given_up) =
                parking.overdue(PATIENCE * patience, PATIENCE, [&RangeSet::default(); 2]);
            asked += ranges.len();
            given_up.iter().for_each(|seq| drop(parking.take(*seq)));
            hopeless.extend(given_up);
        }
        (asked, hopeless)
    }

    #[test]
    fn what_many_blocks_lack_is_asked_for_once() {
        let mut parking = parking(5);
        assert_eq!(pass(&mut parking, 1..9), (1, vec![]));
        assert_eq!(pass(&mut parking, 9..10), (0, vec![1]), "eight times the patience, and it did not come");
    }

    #[test]
    fn what_finds_no_room_in_what_is_asked_for_has_its_turn_the_next_time() {
        let mut parking = parking(3);
        let many = MAX_ASKED as u64;
        for number in 0..3 {
            let mut parked = parking.take(number + 1).unwrap();
            let source = |at| LogOffset(1_000_000 * number + at * 10);
            parked.copies =
                (0..many).map(|at| Copy { at: at as u32 * 5, len: 5, source: source(at) }).collect();
            parked.deadline = Now::ZERO;
            assert!(parking.park(parked));
        }
        assert_eq!(pass(&mut parking, 1..2), (MAX_ASKED, vec![]));
        assert_eq!(parking.deadline(), Some(Now::ZERO));
        assert_eq!(pass(&mut parking, 1..2), (MAX_ASKED, vec![]));
        assert_eq!(pass(&mut parking, 1..3), (MAX_ASKED, vec![]));
    }

    #[test]
    fn whoever_has_what_it_lacked_is_found_among_those_that_wait_on() {
        let mut parking = Parking::default();
        // Of each three, the first lacks a whole kilobyte, the second its end and what lies behind, the third the latter.
        for seq in 0..30 {
            let kilobyte = 5000 + seq / 3 * 3000;
            let lacks = [
                kilobyte..kilobyte + 1000,
                kilobyte + 900..kilobyte + 1100,
                kilobyte + 1000..kilobyte + 1500,
            ];
            assert!(parking.park(lacking(seq, lacks[seq as usize % 3].clone(), PATIENCE)));
        }
        let mut written = RangeSet::default();
        assert!(parking.take_ready(&written).is_none());
        for third in [7, 2, 9, 0, 1, 8, 3, 6, 5, 4] {
            let kilobyte = 5000 + third * 3000;
            let mut ready = || parking.take_ready(&written).map(|parked| parked.head.seq);
            assert_eq!(ready(), None);
            written.insert(kilobyte..kilobyte + 1000);
            let mut ready = || parking.take_ready(&written).map(|parked| parked.head.seq);
            assert_eq!((ready(), ready()), (Some(3 * third), None));
            written.insert(kilobyte + 1000..kilobyte + 2000);
            let mut ready = || parking.take_ready(&written).map(|parked| parked.head.seq);
            assert_eq!([ready(), ready(), ready()], [Some(3 * third + 1), Some(3 * third + 2), None]);
        }
        assert!(parking.is_empty());
    }

    #[test]
    fn what_may_have_been_lost_with_a_lane_is_asked_for_again_at_once() {
        let mut parking = parking(5);
        assert_eq!(pass(&mut parking, 1..3), (1, vec![]));
        parking.restate();
        assert_eq!(pass(&mut parking, 3..4), (1, vec![]));
    }
}
