//! Parked blocks: they wait for a range of the log.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Head;
use super::by_flow::ByFlow;
use super::timed::{Due, Timed};
use crate::Now;
use crate::endre::matcher::Copy;
use crate::log::RangeSet;
use crate::wire::{FlowId, MAX_RANGES, Range64};

/// A parked block.
pub(crate) struct Parked {
    pub(crate) head: Head,
    pub(crate) copies: Vec<Copy>,
    pub(crate) literals: Vec<u8>,
    /// Chunks the block names, and where they stand.
    pub(crate) named: Vec<(u32, Bytes)>,
    /// The last byte of the log it lacks; nothing is looked at before its arrival. In order, everything else has then
    /// come.
    pub(crate) lacks: u64,
    /// How often that came, and something else was lacking.
    pub(crate) wakes: u32,
    /// The lowest offset it copies from.
    pub(crate) oldest: u64,
    pub(crate) deadline: Now,
    /// How long it was waited for the last time.
    pub(crate) interval: Now,
    /// Whether its missing ranges were requested.
    pub(crate) asked: bool,
}

impl Due for Parked {
    fn due(&self) -> Option<Now> {
        Some(self.deadline)
    }
}

/// All parked blocks.
#[derive(Default)]
pub(crate) struct Parking {
    blocks: Timed<Parked>,
    by_flow: ByFlow,
    /// The blocks by the lowest offset they copy from, and by the byte they lack.
    oldest: BTreeSet<(u64, u64)>,
    lacking: BTreeSet<(u64, u64)>,
    /// The blocks with the byte they lacked.
    ready: BTreeSet<u64>,
    bytes: usize,
    /// Ranges asked for of late, for whichever block.
    asked: RangeSet,
    asked_until: Now,
    /// Ranges and copies looked at, since the start.
    pub(crate) steps: u64,
}

/// A requested range is on its way, behind a slow link's queue: many blocks may want it, and each request would bring
/// it once more. So it is given so many times the patience.
const ASKED_PATIENCE: u32 = 8;

/// Ranges asked for at once, but for those of the last block: four frames.
const MAX_ASKED: usize = 4 * MAX_RANGES;

/// A block lacking more pieces than this is asked for whole: that costs less than to ask for each of them.
const MOST_PIECES: usize = MAX_ASKED;

/// Pieces and copies looked at in one go.
const MOST_LOOKS: usize = 16 * MAX_ASKED;

/// A block is looked at again so often because a byte came that it lacked; then it is asked for whole.
pub(crate) const MOST_WAKES: u32 = 32;

const MAX_PARKED: usize = 4096;
const MAX_PARKED_BYTES: usize = 32 << 20;

impl Parking {
    /// Parks a block; returns false if there is no room.
    pub(crate) fn park(&mut self, parked: Parked) -> bool {
        let bytes = size(&parked);
        if self.blocks.len() >= MAX_PARKED || self.bytes + bytes > MAX_PARKED_BYTES {
            return false;
        }
        let seq = parked.head.seq;
        self.take(seq);
        self.bytes += bytes;
        self.by_flow.insert(&parked.head);
        self.oldest.insert((parked.oldest, seq));
        self.lacking.insert((parked.lacks, seq));
        self.blocks.insert(seq, parked);
        true
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains(seq)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether one is of a flow and begins before an offset.
    pub(crate) fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.by_flow.begins(flow, before)
    }

    /// Takes the blocks that copy something from below an offset.
    pub(crate) fn take_copying_below(&mut self, offset: u64) -> Vec<Parked> {
        let mut copying: Vec<u64> = self.oldest.range(..(offset, 0)).map(|(_, seq)| *seq).collect();
        copying.sort_unstable();
        copying.into_iter().filter_map(|seq| self.take(seq)).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn take(&mut self, seq: u64) -> Option<Parked> {
        let parked = self.blocks.remove(seq)?;
        self.bytes -= size(&parked);
        self.by_flow.remove(&parked.head);
        self.oldest.remove(&(parked.oldest, seq));
        self.lacking.remove(&(parked.lacks, seq));
        self.ready.remove(&seq);
        Some(parked)
    }

    /// Takes a late block.
    pub(crate) fn take_late(&mut self, seq: u64, now: Now) -> Option<Parked> {
        self.blocks.get(seq).filter(|parked| parked.deadline <= now)?;
        self.take(seq)
    }

    /// Notes a written range: blocks lacking a byte of it are ready to be looked at again.
    pub(crate) fn handle_written(&mut self, range: &Range64) {
        let here = |&(byte, _): &(u64, u64)| byte < range.end;
        let from = (range.start, 0);
        while let Some(&lacking) = self.lacking.range(from..).next().filter(|lacking| here(lacking)) {
            self.lacking.remove(&lacking);
            self.ready.insert(lacking.1);
            self.steps += 1;
        }
    }

    /// Takes a block with the byte it lacked.
    pub(crate) fn take_ready(&mut self) -> Option<Parked> {
        let seq = *self.ready.first()?;
        self.take(seq)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn heads(&self) -> impl Iterator<Item = &Head> {
        self.blocks.values().map(|parked| &parked.head)
    }

    /// The log ranges to be filled by waiting blocks.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range64> {
        self.heads().filter_map(Head::range)
    }

    /// Gives up all blocks and returns their heads.
    pub(crate) fn clear(&mut self) -> Vec<Head> {
        let heads = self.heads().copied().collect();
        *self = Self { asked_until: self.asked_until, steps: self.steps, ..Self::default() };
        heads
    }

    /// Asks for everything anew with the next [`Self::overdue`]: what was asked for may have been lost with a lane.
    pub(crate) fn resend_control_state(&mut self) {
        self.asked.clear();
        for seq in self.blocks.such(|parked| parked.asked) {
            self.blocks.change(seq, |parked| (parked.asked, parked.deadline) = (false, Now::ZERO));
        }
    }

    /// When [`Self::overdue`] has something to say.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.blocks.deadline()
    }

    /// Returns the ranges to request now, and the blocks to request whole: those not helped by requested ranges, and
    /// those lacking too many. `written` ranges are there, `coming` ones will be: a block lacking nothing else waits
    /// on. Once [`MAX_ASKED`] ranges are to be requested, or [`MOST_LOOKS`] were looked at, other blocks have their
    /// turn the next time.
    pub(crate) fn overdue(
        &mut self,
        now: Now,
        patience: Now,
        [written, coming]: [&RangeSet; 2],
    ) -> (RangeSet, Vec<u64>) {
        let (mut ranges, mut hopeless) = (RangeSet::default(), Vec::new());
        let (mut missing, mut news, mut looks) = (Vec::new(), Vec::new(), 0);
        if self.asked_until <= now {
            self.asked.clear();
            self.asked_until = now + patience * ASKED_PATIENCE;
        }
        let mut late: Vec<u64> = self.blocks.late(now).collect();
        late.sort_unstable();
        for seq in late {
            if news.len() >= MAX_ASKED || looks >= MOST_LOOKS {
                break;
            }
            looks += 1;
            missing.clear();
            self.blocks.change(seq, |parked| {
                if parked.asked || !parked.find_missing([written, coming], &mut missing, &mut looks) {
                    hopeless.push(seq);
                    missing.clear();
                    return;
                }
                parked.asked = !missing.is_empty();
                let longest = patience * ASKED_PATIENCE;
                parked.interval = if parked.asked { longest } else { (parked.interval * 2).min(longest) };
                parked.deadline = now + parked.interval.max(patience);
            });
            missing.iter().for_each(|range| self.asked.missing(range, &mut news));
        }
        for range in news {
            self.asked.insert(range.clone());
            ranges.insert(range);
        }
        self.steps += looks as u64;
        (ranges, hopeless)
    }
}

impl Parked {
    /// Appends the block's missing pieces neither `written` nor `coming`; returns false if there are too many of them,
    /// or of the coming ones.
    fn find_missing(
        &self,
        [written, coming]: [&RangeSet; 2],
        missing: &mut Vec<Range64>,
        looks: &mut usize,
    ) -> bool {
        let mut unwritten = Vec::new();
        for copy in &self.copies {
            if unwritten.len() > MOST_PIECES {
                break;
            }
            *looks += 1;
            written.missing_up_to(&copy.range(), MOST_PIECES + 1, &mut unwritten);
        }
        for range in unwritten.iter().take(MOST_PIECES) {
            coming.missing_up_to(range, MOST_PIECES + 1, missing);
        }
        *looks += unwritten.len() + missing.len();
        unwritten.len().max(missing.len()) <= MOST_PIECES
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
    use crate::log::LogOffset;

    const PATIENCE: Now = Now::from_secs(1);

    /// A block of one copy, of missing bytes.
    fn lacking(seq: u64, lacks: Range64, deadline: Now) -> Parked {
        let len = (lacks.end - lacks.start) as u32;
        let copies = vec![Copy { at: 0, len, source: LogOffset(lacks.start) }];
        Parked {
            head: Head::of(seq),
            copies,
            literals: Vec::new(),
            named: Vec::new(),
            lacks: lacks.end - 1,
            wakes: 0,
            oldest: lacks.start,
            deadline,
            interval: PATIENCE,
            asked: false,
        }
    }

    /// Blocks that all lack the same range, each with its deadline a patience behind the one before.
    fn parking(blocks: u64) -> Parking {
        let mut parking = Parking::default();
        for seq in 1..=blocks {
            assert!(parking.park(lacking(seq, 5000..6000, PATIENCE * seq as u32)));
        }
        parking
    }

    /// Returns how many ranges are asked for, and the blocks given up, patience by patience.
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
    fn range_lacking_in_many_blocks_is_requested_once() {
        let mut parking = parking(5);
        assert_eq!(pass(&mut parking, 1..9), (1, vec![]));
        assert_eq!(pass(&mut parking, 9..10), (0, vec![1]), "eight times the patience, and it did not come");
    }

    /// A block with so many copies of five bytes each, ten bytes apart.
    fn scattered(seq: u64, copies: usize) -> Parked {
        let source = |at| LogOffset(1_000_000 * seq + at * 10);
        let copies = (0..copies as u64).map(|at| Copy { at: at as u32 * 5, len: 5, source: source(at) });
        Parked { copies: copies.collect(), ..lacking(seq, 5000..6000, Now::ZERO) }
    }

    #[test]
    fn ranges_beyond_the_bound_are_requested_next_time() {
        let mut parking = Parking::default();
        (0..3).for_each(|seq| assert!(parking.park(scattered(seq, MOST_PIECES))));
        assert_eq!(pass(&mut parking, 1..2), (MAX_ASKED, vec![]));
        assert_eq!(parking.deadline(), Some(Now::ZERO));
        assert_eq!(pass(&mut parking, 1..2), (MAX_ASKED, vec![]));
        assert_eq!(pass(&mut parking, 1..3), (MAX_ASKED, vec![]));
    }

    #[test]
    fn block_lacking_too_many_pieces_is_requested_whole() {
        let mut parking = Parking::default();
        assert!(parking.park(scattered(1, MOST_PIECES + 1)) && parking.park(scattered(2, MOST_PIECES)));
        assert_eq!(pass(&mut parking, 1..2), (MOST_PIECES, vec![1]));
        // One copy over as many holes, and one over as much that is coming.
        let mut holes = RangeSet::default();
        (0..=MOST_PIECES as u64 + 1).for_each(|piece| holes.insert(2 * piece..2 * piece + 1));
        for sets in [[holes.clone(), RangeSet::default()], [RangeSet::default(), holes]] {
            let mut parking = Parking::default();
            assert!(parking.park(lacking(1, 0..1 << 14, Now::ZERO)));
            let [written, coming] = &sets;
            let (ranges, whole) = parking.overdue(PATIENCE, PATIENCE, [written, coming]);
            assert_eq!((ranges.len(), whole), (0, vec![1]));
            assert!(parking.steps <= 3 * MOST_PIECES as u64, "{}", parking.steps);
        }
    }

    #[test]
    fn looks_are_bounded_and_continued_next_time() {
        let mut parking = Parking::default();
        let mut written = RangeSet::default();
        (0..32_000).for_each(|piece| written.insert(2 * piece..2 * piece + 1));
        (0..4000).for_each(|seq| assert!(parking.park(lacking(seq, 0..64_000, Now::ZERO))));
        let (mut whole, mut goes, none) = (0, 0, RangeSet::default());
        while !parking.is_empty() {
            let before = parking.steps;
            let (_, given_up) = parking.overdue(PATIENCE, PATIENCE, [&written, &none]);
            let steps = parking.steps - before;
            assert!(steps <= (MOST_LOOKS + 4 * MOST_PIECES) as u64, "{steps}");
            whole += given_up.len();
            goes += 1;
            given_up.iter().for_each(|seq| drop(parking.take(*seq)));
        }
        assert!(whole == 4000 && goes < 600, "{goes}");
    }

    #[test]
    fn block_lacking_only_coming_ranges_is_checked_less_often() {
        let mut parking = Parking::default();
        assert!(parking.park(lacking(1, 0..100, PATIENCE)));
        let (none, mut coming) = (RangeSet::default(), RangeSet::default());
        coming.insert(0..200);
        let deadlines: Vec<u64> = std::iter::from_fn(|| {
            let now = parking.deadline()?;
            assert_eq!(parking.overdue(now, PATIENCE, [&none, &coming]).0.len(), 0);
            Some(now.as_secs())
        })
        .take(6)
        .collect();
        assert_eq!(deadlines, [1, 3, 7, 15, 23, 31]);
    }

    #[test]
    fn only_blocks_lacking_a_written_byte_are_ready() {
        let mut parking = Parking::default();
        for seq in 0..30 {
            assert!(parking.park(lacking(seq, 5000 + 100 * seq..5100 + 100 * seq, PATIENCE)));
        }
        parking.handle_written(&(0..5099));
        assert!(!parking.has_ready(), "its last byte is not there");
        parking.handle_written(&(5150..5300));
        let mut ready = || parking.take_ready().map(|parked| parked.head.seq);
        assert_eq!([ready(), ready(), ready()], [Some(1), Some(2), None]);
        assert_eq!(parking.steps, 2);
        parking.handle_written(&(5000..5100));
        assert!(parking.take(0).is_some() && !parking.has_ready());
        parking.handle_written(&(0..1 << 20));
        assert_eq!(std::iter::from_fn(|| parking.take_ready()).count(), 27);
        assert!(parking.is_empty() && !parking.holds(FlowId(1), u64::MAX));
    }

    #[test]
    fn requests_lost_with_a_lane_are_repeated_at_once() {
        let mut parking = parking(5);
        assert_eq!(pass(&mut parking, 1..3), (1, vec![]));
        parking.resend_control_state();
        assert_eq!(pass(&mut parking, 3..4), (1, vec![]));
    }
}
