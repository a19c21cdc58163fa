//! Blocks waiting for named chunks, from the store or over the network, whichever is there first.

mod awaited;
pub(crate) mod blocks;
mod planning;
pub(crate) mod queue;
mod read_queues;
mod reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use self::awaited::Awaited;
use self::blocks::{Blocks, Fetch};
use self::planning::Plans;
use self::queue::{Queue, Room};
use self::read_queues::ReadPlace;
use self::reads::Reads;
use super::NameKey;
use super::shed::Path;
use crate::Now;
use crate::contract::{NameCounts, StoreReply, StoreRequest};
use crate::endre::matcher::Copy;
use crate::log::Arrived;
use crate::transfer::Head;
use crate::transfer::by_flow::ByFlow;
use crate::wire::{ChunkReason, ChunkRequest, FlowId, NameEntry, Range64};

/// All blocks waiting for chunks, and the requests they make.
#[derive(Default)]
pub(crate) struct Fetching {
    pub(crate) blocks: Blocks,
    pub(crate) awaited: Awaited,
    pub(crate) reads: Reads,
    pub(crate) requests: VecDeque<StoreRequest>,
    pub(crate) queue: Queue,
    /// The blocks of [`Self::blocks`] by their flows.
    by_flow: ByFlow,
    /// Blocks waiting for room, and that others wait for.
    pub(crate) wanted: BTreeSet<u64>,
    pub(crate) room: Room,
    pub(crate) bytes: usize,
    /// Plain bytes that were asked for over the network and are not there.
    pub(crate) asked_bytes: u64,
    /// Blocks with requests to be sent.
    due: BTreeSet<u64>,
    pub(crate) plans: Plans,
    pub(crate) counts: FetchCounts,
}

/// What became of named chunks, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchCounts {
    pub(crate) names: NameCounts,
    pub(crate) hits: NameCounts,
    pub(crate) waited: u64,
    pub(crate) absent: u64,
    pub(crate) failed: u64,
    pub(crate) busy: u64,
    pub(crate) shed: u64,
    pub(crate) late: u64,
    pub(crate) requested_bytes: u64,
}

/// A request is repeated for the first time after so many times the patience and twice what the answer should take, and
/// then after twice as long each time: lanes lose nothing, so only a lane lost unnoticed can have lost it.
const ASK_PATIENCE: u32 = 8;

/// What a block needs before it can be rebuilt.
pub(crate) struct Wanted<'a> {
    pub(crate) head: Head,
    pub(crate) copies: &'a [Copy],
    pub(crate) literals: &'a [u8],
    pub(crate) entries: &'a [NameEntry],
    /// The key of names, if there is a store to ask.
    pub(crate) key: Option<&'a NameKey>,
}

impl Fetching {
    /// Asks for a block's chunks, or waits for the blocks bringing them and have not `arrived`.
    pub(crate) fn begin(&mut self, wanted: &Wanted<'_>, arrived: &Arrived, patience: Now, now: Now) {
        let Wanted { head, copies, literals, entries, key } = wanted;
        let mut fetch = Fetch {
            head: *head,
            copies: copies.to_vec(),
            literals: literals.to_vec(),
            entries: entries.to_vec(),
            chunks: vec![None; entries.len()],
            wanting: entries.len(),
            awaited: BTreeMap::new(),
            key: key.cloned(),
            peeks: BTreeMap::new(),
            reads: BTreeMap::new(),
            asked: BTreeSet::new(),
            due: BTreeMap::new(),
            read_deadline: None,
            progress: None,
            trial: None,
            patience,
            ask_deadline: Now::MAX,
            ask_interval: patience * ASK_PATIENCE,
        };
        self.bytes += fetch.size();
        entries.iter().for_each(|entry| self.counts.names.count(entry));
        match key {
            Some(_) => {
                let mut here = Vec::with_capacity(entries.len());
                for (index, entry) in (0..).zip(*entries) {
                    match entry.brought_by(head.seq).filter(|&seq| !arrived.contains(seq)) {
                        None => here.push(index),
                        Some(seq) => self.wait(&mut fetch, index, seq, patience, now),
                    }
                }
                self.peek(&mut fetch, here, now);
            }
            None => {
                (0..entries.len() as u32).for_each(|index| self.ask(&mut fetch, index, ChunkReason::Absent))
            }
        }
        self.by_flow.insert(head);
        self.blocks.insert(head.seq, fetch);
    }

    /// Has an entry read.
    pub(crate) fn read(&mut self, fetch: &mut Fetch, index: u32, place: ReadPlace) {
        let (Some(entry), Some(key)) = (fetch.entries.get(index as usize), fetch.key.clone()) else { return };
        let NameEntry { name, len, behind, .. } = *entry;
        let is_brought = behind.is_some();
        let request = |ticket| StoreRequest::Read { ticket, name, len, key, is_brought };
        fetch.reads.insert(self.reads.open(fetch.head.seq, place, request), index);
    }

    /// Requests an entry over the network, unless done. If it was done for a slow store, the sending half is told of an
    /// absent chunk, so it does not name the chunk again.
    pub(crate) fn ask(&mut self, fetch: &mut Fetch, index: u32, reason: ChunkReason) {
        let Some(entry) = fetch.entries.get(index as usize) else { return };
        if fetch.asked.insert(index) {
            self.asked_bytes += u64::from(entry.len);
            self.counts.requested_bytes += u64::from(entry.len);
        } else if reason == ChunkReason::Shed {
            return;
        }
        fetch.due.insert(index, reason);
        self.due.insert(fetch.head.seq);
    }

    /// Takes an answer of the store; returns the block if it brought the last chunk it waited for.
    pub(crate) fn handle_store(&mut self, reply: StoreReply, now: Now) -> Option<Fetch> {
        let ticket = reply.ticket();
        let is_done = !matches!(reply, StoreReply::Busy { .. });
        let seq = self.reads.end(ticket, is_done)?;
        self.note_disk(now);
        let mut fetch = self.blocks.remove(seq)?;
        if let StoreReply::Places { places, neighbours, .. } = &reply {
            if let Some(asked) = fetch.peeks.remove(&ticket) {
                self.plan(&mut fetch, &asked, places, neighbours, now);
            }
        } else if let Some(index) = fetch.reads.remove(&ticket)
            && let Some(entry) = fetch.entries.get(index as usize).copied()
        {
            // A missing chunk is put, or it would be missed again, and then its parts, level by level.
            fetch.head.keep |= !matches!(reply, StoreReply::Found { .. } | StoreReply::Busy { .. });
            match reply {
                StoreReply::Found { bytes, .. } if bytes.len() == entry.len as usize => {
                    self.reads.handle_brought();
                    if self.fill(&mut fetch, index, bytes) {
                        self.counts.hits.count(&entry);
                    }
                }
                StoreReply::Absent { .. } => {
                    self.counts.absent += 1;
                    self.ask_if_lacking(&mut fetch, index, ChunkReason::Absent);
                }
                StoreReply::Found { .. } | StoreReply::Failed { .. } | StoreReply::Places { .. } => {
                    self.counts.failed += 1;
                    self.ask_if_lacking(&mut fetch, index, ChunkReason::Absent);
                }
                StoreReply::Busy { .. } => {
                    self.counts.busy += 1;
                    self.ask_if_lacking(&mut fetch, index, ChunkReason::Shed);
                }
            }
        }
        self.put_back(seq, fetch, now)
    }

    /// Gives a read, and with it its block, needing all of them, more time.
    pub(crate) fn handle_wait(&mut self, ticket: u64, until: Now) {
        if let Some(seq) = self.reads.block_of(ticket) {
            self.blocks.change(seq, |fetch| {
                fetch.read_deadline = fetch.read_deadline.map(|deadline| deadline.max(until));
            });
        }
    }

    fn ask_if_lacking(&mut self, fetch: &mut Fetch, index: u32, reason: ChunkReason) {
        if matches!(fetch.chunks.get(index as usize), Some(None)) {
            self.ask(fetch, index, reason);
        }
    }

    /// Returns the flow of a block that is being fetched.
    pub(crate) fn flow_of(&self, seq: u64) -> Option<FlowId> {
        self.blocks.get(seq).map(|fetch| fetch.head.flow)
    }

    /// Takes chunks asked for, one behind the other; returns the block if nothing else is wanting.
    pub(crate) fn handle_chunks(
        &mut self,
        seq: u64,
        indexes: &[u32],
        mut bytes: Bytes,
        now: Now,
    ) -> Option<Fetch> {
        let mut fetch = self.blocks.remove(seq)?;
        self.plans.backlog.handle_answered(seq, now);
        for &index in indexes {
            let Some(entry) = fetch.entries.get(index as usize) else { break };
            let len = entry.len as usize;
            if len > bytes.len() {
                break;
            }
            self.fill(&mut fetch, index, bytes.split_to(len));
        }
        self.put_back(seq, fetch, now)
    }

    /// Returns how many bytes the chunks have that are named, if all belong to the block.
    pub(crate) fn len_of(&self, seq: u64, indexes: &[u32]) -> Option<usize> {
        let fetch = self.blocks.get(seq)?;
        indexes.iter().map(|&index| fetch.entries.get(index as usize).map(|entry| entry.len as usize)).sum()
    }

    /// Puts a chunk in its place; returns whether it was wanting.
    fn fill(&mut self, fetch: &mut Fetch, index: u32, bytes: Bytes) -> bool {
        let Some(place) = fetch.chunks.get_mut(index as usize) else { return false };
        let wanting = place.is_none();
        if fetch.asked.remove(&index) {
            self.asked_bytes -= fetch.entries.get(index as usize).map_or(0, |entry| u64::from(entry.len));
            fetch.due.remove(&index);
        }
        place.get_or_insert(bytes);
        fetch.wanting -= usize::from(wanting);
        wanting
    }

    /// Lets a block wait on, or returns it if it has all that it waited for.
    fn put_back(&mut self, seq: u64, fetch: Fetch, now: Now) -> Option<Fetch> {
        if fetch.wanting == 0 {
            self.let_go(&fetch);
            self.note_disk(now);
            if let Some(trial) = fetch.trial {
                self.plans.gain.end(trial, self.plans.state.service_time, now);
            }
            return Some(fetch);
        }
        self.blocks.insert(seq, fetch);
        None
    }

    /// Forgets the requests of a block no longer there.
    fn let_go(&mut self, fetch: &Fetch) {
        self.bytes -= fetch.size();
        self.by_flow.remove(&fetch.head);
        self.due.remove(&fetch.head.seq);
        self.plans.backlog.forget(fetch.head.seq);
        for ticket in fetch.reads.keys().chain(fetch.peeks.keys()) {
            self.reads.close(*ticket);
        }
        for seq in fetch.awaited.keys() {
            self.awaited.leave(*seq, fetch.head.seq);
            self.note_wanted(*seq);
        }
        let asked = fetch.asked.iter().filter_map(|&index| fetch.entries.get(index as usize));
        self.asked_bytes -= asked.map(|entry| u64::from(entry.len)).sum::<u64>();
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains(seq) || self.queue.contains(seq)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.queue.bytes()
    }

    /// Gives a block up: it came otherwise.
    pub(crate) fn take(&mut self, seq: u64) {
        let _ = self.take_queued(seq);
        if let Some(fetch) = self.blocks.remove(seq) {
            self.let_go(&fetch);
        }
    }

    /// Gives all blocks up; answers that are still to come belong to nobody.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.awaited.clear();
        self.reads.clear();
        self.plans.backlog.forget_all();
        self.requests.clear();
        self.queue = Queue::default();
        self.by_flow.clear();
        self.wanted.clear();
        self.due.clear();
        (self.bytes, self.asked_bytes) = (0, 0);
    }

    /// Whether one is of a flow and begins before an offset.
    pub(crate) fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.by_flow.begins(flow, before) || self.queue.holds(flow, before)
    }

    /// The log ranges to be filled by blocks being fetched, or to be fetched once there is room. Blocks in a queue that
    /// nothing empties fill none: all may wait for just them.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range64> {
        let queued = (!self.is_stuck()).then(|| self.queue.heads()).into_iter().flatten();
        self.blocks.values().map(|fetch| &fetch.head).chain(queued).filter_map(Head::range)
    }

    pub(crate) fn poll_request(&mut self) -> Option<StoreRequest> {
        let (room, service_time) = (self.room, self.plans.state.service_time);
        let most = |disk, done| match disk {
            0 => room.reads_of(service_time, done),
            _ => room.reads,
        };
        self.requests.pop_front().or_else(|| self.reads.poll(most))
    }

    /// Returns the chunks waiting at the store others asked for.
    pub(crate) fn of_others(&self) -> u32 {
        self.plans.state.queued.saturating_sub(self.reads.asked())
    }

    /// Says again, with the next requests, what was asked for: it may have been lost with a lane.
    pub(crate) fn resend_control_state(&mut self) {
        self.awaited.resend_control_state();
        self.plans.backlog.forget_all();
        for seq in self.blocks.asking() {
            self.blocks.change(seq, Fetch::repeat);
            self.due.insert(seq);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.blocks.deadline().into_iter().chain(self.awaited.deadline()).min()
    }

    /// Requests late reads over the network, and repeats old requests.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        for seq in self.blocks.late(now).collect::<Vec<u64>>() {
            let Some(mut fetch) = self.blocks.remove(seq) else { continue };
            if fetch.ask_deadline <= now && !fetch.asked.is_empty() {
                fetch.repeat();
                self.due.insert(seq);
            }
            let is_late = fetch.read_deadline.is_some_and(|deadline| deadline <= now);
            if is_late && !self.wait_longer(&mut fetch, now) {
                fetch.read_deadline = None;
                let unsaid = fetch.peeks.values().flatten();
                let late: Vec<u32> = fetch.reads.values().chain(unsaid).copied().collect();
                // What the store was not even asked for would take its time for nothing.
                fetch.reads.retain(|&ticket, _| !self.reads.withdraw(ticket));
                for index in late {
                    self.counts.late += u64::from(!fetch.asked.contains(&index));
                    self.ask_if_lacking(&mut fetch, index, ChunkReason::Shed);
                }
            }
            self.blocks.insert(seq, fetch);
        }
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes the next request to be sent.
    pub(crate) fn poll_chunk_request(&mut self, now: Now) -> Option<ChunkRequest> {
        while let Some(&seq) = self.due.first() {
            // Its own bytes are among those asked for.
            let path = Path { pending: self.asked_bytes, others: self.others(), ..self.plans.path };
            let expected = (path.bytes_per_s > 0).then(|| path.time(0));
            let patience =
                expected.map_or(Now::ZERO, |time| time.saturating_add(self.plans.backlog.wait(now)));
            if let Some(Some((reason, indexes))) =
                self.blocks.change(seq, |fetch| fetch.take_due(patience, now))
            {
                if let Some(expected) = expected {
                    let hoped = Path { bytes_per_s: self.plans.hoped_rate, ..path }.time(0);
                    self.plans.backlog.handle_asked(seq, expected, hoped, now);
                }
                return Some(ChunkRequest { seq, reason, indexes });
            }
            self.due.remove(&seq);
        }
        None
    }
}
