//! The retransmit buffer: unacknowledged blocks and messages of the sending half.
//!
//! It holds the plain bytes of every unacknowledged block, so a lost lane, a repair and a resumed flow are one and the
//! same: send the item again, self-contained, under its old sequence number.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::endre::tokens::Copy;
use crate::wanax::hints::PackedTag;
use crate::wire::{Ack, Digest, FlowId, LaneId, Message, NameEntry, Range64};

/// The most items that may be unacknowledged; the receiving half refuses numbers further ahead than this.
pub const MAX_UNACKED: u64 = 16 * 1024;

/// What an item carries.
#[derive(Clone, Debug)]
pub enum Content {
    /// A block of a flow.
    Block {
        /// Flow offset of the first byte.
        offset: u64,
        /// The plain bytes.
        plain: Bytes,
        /// Whether the stream ends behind them.
        fin: bool,
        /// Whether the flow is coded.
        coded: bool,
    },
    /// A message.
    Message(Message),
}

/// How a block was coded, to be sent once more in the same words: what it refers to cannot be overwritten before it is
/// acknowledged, and was sent earlier.
#[derive(Clone, Debug)]
pub struct Coded {
    /// The copies of the block's residue: of all its bytes without names.
    pub copies: Vec<Copy>,
    /// What the block is checked against.
    pub digest: Digest,
}

/// One unacknowledged block or message.
#[derive(Clone, Debug)]
pub struct Item {
    /// The flow.
    pub flow: FlowId,
    /// The lane the item was last sent on; `None` when that lane was lost.
    pub lane: Option<LaneId>,
    /// The content.
    pub content: Content,
    /// The epoch of `start`.
    pub epoch: u64,
    /// The log's head when the item was encoded.
    pub start: u64,
    /// Whether the block took a range of the log at `start`.
    pub remembered: bool,
    /// The log ranges the block copied from.
    pub sources: Vec<Range64>,
    /// How the block was coded, if little of it crossed.
    pub coded: Option<Coded>,
    /// The entropy context the block went through.
    pub slot: Option<usize>,
    /// The block's parts named.
    pub names: Vec<NameEntry>,
    /// Whether the receiving half puts the block into its chunk store.
    pub keep: bool,
    /// The chunks that are then there.
    pub news: Vec<PackedTag>,
    /// The named chunks the receiving half did not have, by index.
    pub absent: BTreeSet<u32>,
    /// The named chunks sent by themselves though not said to be absent, by index: their presence is unknown.
    pub crossed: BTreeSet<u32>,
    /// Those of them sent since the item last went by its names: earlier ones may be lost.
    pub crossing: BTreeSet<u32>,
    /// Whether it was sent whole since it last went by its names.
    pub whole: bool,
    /// Whether the receiving half found the block is not what it should be.
    pub mistaken: bool,
}

impl Item {
    /// Makes an item that is not remembered, copies from nowhere and names nothing.
    pub fn new(flow: FlowId, lane: Option<LaneId>, content: Content, epoch: u64, start: u64) -> Self {
        Self {
            flow,
            lane,
            content,
            epoch,
            start,
            remembered: false,
            sources: Vec::new(),
            coded: None,
            slot: None,
            names: Vec::new(),
            keep: false,
            news: Vec::new(),
            absent: BTreeSet::new(),
            crossed: BTreeSet::new(),
            crossing: BTreeSet::new(),
            whole: false,
            mistaken: false,
        }
    }

    /// The range of the log the item took, if it took one.
    pub fn range(&self) -> Option<Range64> {
        match &self.content {
            Content::Block { plain, .. } if self.remembered => {
                Some(self.start..self.start + plain.len() as u64)
            }
            _ => None,
        }
    }

    /// Whether a chunk the item names crosses or crossed, whether the receiving half has it or not.
    pub fn has_crossed(&self, index: u32) -> bool {
        self.whole || self.crossed.contains(&index)
    }

    /// Whether such a chunk crosses, or did on lanes that still are.
    pub fn crosses(&self, index: u32) -> bool {
        self.whole || self.crossing.contains(&index)
    }

    /// Memory beside the plain bytes.
    fn attached(&self) -> u64 {
        let copies = self.coded.as_ref().map_or(0, |coded| size_of_val(&coded.copies[..]));
        (size_of_val(&self.names[..]) + size_of_val(&self.news[..]) + copies) as u64
    }

    fn kept(&self) -> u64 {
        match &self.content {
            Content::Block { plain, .. } => plain.len() as u64,
            Content::Message(_) => 0,
        }
    }
}

/// An item to be sent again out of turn.
#[derive(Debug)]
pub struct Repair<'a> {
    /// The flow's open, if that is unacknowledged too.
    pub open: Option<(u64, &'a Item)>,
    /// The item's sequence number.
    pub seq: u64,
    /// The item.
    pub item: &'a Item,
}

/// What has been sent and not been acknowledged, by sequence number.
#[derive(Debug, Default)]
pub struct RetransmitBuffer {
    next_seq: u64,
    items: BTreeMap<u64, Item>,
    by_flow: BTreeMap<FlowId, FlowItems>,
    repairs: BTreeSet<u64>,
    kept_bytes: u64,
    attached_bytes: u64,
}

#[derive(Debug, Default)]
struct FlowItems {
    unacked: u64,
    lost: BTreeSet<u64>,
    /// The flow's open, while it is unacknowledged.
    open: Option<u64>,
}

impl RetransmitBuffer {
    /// Adds an item under the next sequence number, which it returns.
    pub fn push(&mut self, item: Item) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let flow = self.by_flow.entry(item.flow).or_default();
        flow.unacked += 1;
        if matches!(item.content, Content::Message(Message::Open(_))) {
            flow.open.get_or_insert(seq);
        }
        self.kept_bytes += item.kept();
        self.attached_bytes += item.attached();
        self.items.insert(seq, item);
        seq
    }

    /// The number the next item will get.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Whether another item may be sent.
    pub fn has_room(&self) -> bool {
        self.oldest_seq().is_none_or(|oldest| self.next_seq - oldest < MAX_UNACKED)
    }

    /// The log's head when the oldest unacknowledged item was encoded.
    pub fn oldest_start(&self) -> Option<u64> {
        self.items.first_key_value().map(|(_, item)| item.start)
    }

    /// The number of the oldest unacknowledged item.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.items.first_key_value().map(|(&seq, _)| seq)
    }

    /// Removes the acknowledged items, and shows each to `each`; flows without any other go to `settled`.
    pub fn acknowledge(&mut self, ack: &Ack, settled: &mut Vec<FlowId>, mut each: impl FnMut(&Item)) {
        while let Some(oldest) = self.oldest_seq().filter(|&seq| seq < ack.next) {
            self.remove(oldest, settled, &mut each);
        }
        for range in &ack.ranges {
            let seqs: Vec<u64> = self.items.range(range.clone()).map(|(&seq, _)| seq).collect();
            for seq in seqs {
                self.remove(seq, settled, &mut each);
            }
        }
    }

    fn remove(&mut self, seq: u64, settled: &mut Vec<FlowId>, each: &mut impl FnMut(&Item)) {
        let Some(item) = self.items.remove(&seq) else { return };
        each(&item);
        self.kept_bytes -= item.kept();
        self.attached_bytes -= item.attached();
        self.repairs.remove(&seq);
        if let Some(flow) = self.by_flow.get_mut(&item.flow) {
            flow.lost.remove(&seq);
            flow.open = flow.open.filter(|open| *open != seq);
            flow.unacked -= 1;
            if flow.unacked == 0 {
                self.by_flow.remove(&item.flow);
                settled.push(item.flow);
            }
        }
    }

    /// Marks everything last sent on the lane as to be sent again; calls `each` for every such item.
    pub fn lose_lane(&mut self, lane: LaneId, mut each: impl FnMut(&Item)) {
        for (&seq, item) in &mut self.items {
            if item.lane == Some(lane) {
                item.lane = None;
                self.by_flow.entry(item.flow).or_default().lost.insert(seq);
                each(item);
            }
        }
    }

    /// Whether the flow has items whose lane was lost.
    pub fn has_lost(&self, flow: FlowId) -> bool {
        self.by_flow.get(&flow).is_some_and(|flow| !flow.lost.is_empty())
    }

    /// Takes the flow's first lost item, now to be sent on `lane`.
    pub fn take_lost(&mut self, flow: FlowId, lane: LaneId) -> Option<(u64, &Item)> {
        let seq = self.by_flow.get_mut(&flow)?.lost.pop_first()?;
        let item = self.items.get_mut(&seq)?;
        item.lane = Some(lane);
        Some((seq, item))
    }

    /// Asks for an item to be sent again; returns it if it is still unacknowledged.
    pub fn request_repair(&mut self, seq: u64) -> Option<&Item> {
        let item = self.items.get(&seq)?;
        self.repairs.insert(seq);
        Some(item)
    }

    /// Asks for an item to be sent again rebuilt wrongly; returns it if that is news.
    pub fn request_mistaken(&mut self, seq: u64) -> Option<&Item> {
        let item = self.items.get_mut(&seq)?;
        self.repairs.insert(seq);
        let is_news = !std::mem::replace(&mut item.mistaken, true);
        Some(&*item).filter(|_| is_news)
    }

    /// Asks for every item overlapping one of the log ranges to be sent again; returns the number of items looked at:
    /// those overlapping, those among them without a range, and some twenty for each range.
    pub fn request_ranges(&mut self, ranges: &[Range64]) -> usize {
        let mut looked_at = 0;
        for range in ranges {
            let first = self.last_before(range.start, &mut looked_at);
            for (&seq, item) in self.items.range(first..) {
                looked_at += 1;
                if item.start >= range.end {
                    break;
                }
                if item.range().is_some_and(|own| own.start < range.end && own.end > range.start) {
                    self.repairs.insert(seq);
                }
            }
        }
        looked_at
    }

    /// Returns the number of the last item encoded when the log's head was below an offset, or of the first item:
    /// starts grow with the numbers, and of those before it none reaches the offset.
    fn last_before(&self, offset: u64, looked_at: &mut usize) -> u64 {
        let mut found = self.oldest_seq().unwrap_or(self.next_seq);
        let (mut from, mut to) = (found, self.next_seq);
        while from < to {
            let middle = from + (to - from) / 2;
            *looked_at += 1;
            match self.items.range(middle..to).next() {
                Some((&seq, item)) if item.start < offset => (found, from) = (seq, seq + 1),
                _ => to = middle,
            }
        }
        found
    }

    /// Whether repairs wait.
    pub fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Takes the next repair, preceded by its flow's open if that is unacknowledged too: the repair may
    /// overtake it.
    pub fn take_repair(&mut self) -> Option<Repair<'_>> {
        let seq = self.repairs.pop_first()?;
        let item = self.items.get(&seq)?;
        let open = self.by_flow.get(&item.flow).and_then(|flow| flow.open).filter(|open| *open < seq);
        let open = open.and_then(|open| Some((open, self.items.get(&open)?)));
        Some(Repair { open, seq, item })
    }

    /// Unacknowledged items of a flow.
    pub fn unacked(&self, flow: FlowId) -> u64 {
        self.by_flow.get(&flow).map_or(0, |flow| flow.unacked)
    }

    /// Notes named chunks lacking at the receiving half, by index, and whether it puts the block for that; returns the
    /// bytes of the newly noted ones.
    pub fn note_absent(&mut self, seq: u64, indexes: &[u32], keep: bool) -> u64 {
        let Some(Item { names, absent, keep: kept, .. }) = self.items.get_mut(&seq) else { return 0 };
        *kept |= keep;
        let lens = indexes.iter().filter_map(|&index| {
            let entry = names.get(index as usize)?;
            absent.insert(index).then_some(u64::from(entry.len))
        });
        lens.sum()
    }

    /// Notes that chunks an item names cross, by index, whether the receiving half has them or not.
    pub fn note_crossed(&mut self, seq: u64, indexes: &[u32]) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.crossed.extend(indexes);
            item.crossing.extend(indexes);
        }
    }

    /// Notes that an item goes whole, or once more by its names: then its earlier frames were lost, and absent chunks
    /// are to be sent. Chunks requested before may have come all the same.
    pub fn note_whole(&mut self, seq: u64, whole: bool) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.whole = whole;
            item.crossing.clear();
        }
    }

    /// An item, if it is unacknowledged.
    pub fn item(&self, seq: u64) -> Option<&Item> {
        self.items.get(&seq)
    }

    /// Whether the item is unacknowledged.
    pub fn is_unacked(&self, seq: u64) -> bool {
        self.items.contains_key(&seq)
    }

    /// Plain bytes kept.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Memory of what is kept beside plain bytes: names and tags of chunks.
    pub fn attached_bytes(&self) -> u64 {
        self.attached_bytes
    }

    /// Unacknowledged items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Forgets everything: the peer restarted.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Destination, Open};

    fn item(flow: u32, start: u64, content: Content) -> Item {
        Item { remembered: true, ..Item::new(FlowId(flow), None, content, 1, start) }
    }

    fn block(start: u64, len: usize) -> Item {
        let plain = Bytes::from(vec![0; len]);
        item(1, start, Content::Block { offset: 0, plain, fin: false, coded: true })
    }

    fn message(flow: u32, message: Message) -> Item {
        Item { remembered: false, ..item(flow, 0, Content::Message(message)) }
    }

    /// A full buffer of blocks of one byte, from an offset on.
    fn full(start: u64) -> RetransmitBuffer {
        let mut buffer = RetransmitBuffer::default();
        (0..MAX_UNACKED).for_each(|at| _ = buffer.push(block(start + at, 1)));
        buffer
    }

    fn repairs(buffer: &mut RetransmitBuffer) -> Vec<u64> {
        std::iter::from_fn(|| buffer.take_repair().map(|repair| repair.seq)).collect()
    }

    #[test]
    fn request_for_many_ranges_looks_at_few_other_items() {
        let many = 256;
        let ranges = |from: u64| (0..many).map(|i| from + 2 * i..from + 2 * i + 1).collect::<Vec<_>>();
        let mut buffer = full(1 << 40);
        for nothing in [ranges(0), ranges(1 << 41)] {
            let looked_at = buffer.request_ranges(&nothing);
            assert!(looked_at <= 20 * many as usize && !buffer.has_repairs(), "{looked_at}");
        }
        let looked_at = buffer.request_ranges(&ranges((1 << 40) + 8000));
        assert!(looked_at <= 20 * many as usize, "{looked_at}");
        assert_eq!(repairs(&mut buffer), (0..many).map(|i| 8000 + 2 * i).collect::<Vec<u64>>());
    }

    #[test]
    fn repair_follows_its_flows_unacknowledged_open() {
        let mut buffer = RetransmitBuffer::default();
        let destination = Destination::from(SocketAddr::from(([10, 0, 0, 1], 80)));
        let open = Message::Open(Open {
            id: 1,
            destination,
            source: None,
            coded: true,
            as_client: false,
            credit_shift: 0,
        });
        buffer.push(message(1, open.clone()));
        buffer.push(message(2, open));
        (2..6).for_each(|start| _ = buffer.push(block(start, 1)));
        let mut opens = |acked: &[u64]| {
            let ranges = acked.iter().map(|&seq| seq..seq + 1).collect();
            buffer.acknowledge(&Ack { next: 0, ranges }, &mut Vec::new(), |_| {});
            (0..6).for_each(|seq| _ = buffer.request_repair(seq));
            std::iter::from_fn(|| {
                buffer.take_repair().map(|repair| (repair.seq, repair.open.map(|open| open.0)))
            })
            .collect::<Vec<_>>()
        };
        let with = |open| [(2, open), (3, open), (4, open), (5, open)];
        assert_eq!(opens(&[]), [&[(0, None), (1, None)][..], &with(Some(0))[..]].concat());
        assert_eq!(opens(&[1]), [&[(0, None)][..], &with(Some(0))[..]].concat());
        assert_eq!(opens(&[0]), with(None));
    }

    proptest! {
        #[test]
        fn every_overlapping_item_is_requested(
            items in prop::collection::vec((1usize..6, any::<bool>(), 0u8..4), 0..60),
            ranges in prop::collection::vec((0u64..150, 1u64..20), 1..8),
        ) {
            let (mut buffer, mut head, mut acked) = (RetransmitBuffer::default(), 3, Vec::new());
            for (len, remembered, fate) in items {
                let seq = buffer.push(Item { remembered, ..block(head, len) });
                head += if remembered { len as u64 } else { 0 };
                acked.extend((fate == 0).then_some(seq..seq + 1));
            }
            buffer.acknowledge(&Ack { next: 0, ranges: acked }, &mut Vec::new(), |_| {});
            let ranges: Vec<Range64> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let overlaps = |own: &Range64| {
                ranges.iter().any(|range| own.clone().any(|offset| range.contains(&offset)))
            };
            let of = |(seq, item): (&u64, &Item)| item.range().is_some_and(|own| overlaps(&own)).then_some(*seq);
            let expected: Vec<u64> = buffer.items.iter().filter_map(of).collect();
            buffer.request_ranges(&ranges);
            prop_assert_eq!(repairs(&mut buffer), expected);
        }
    }
}
