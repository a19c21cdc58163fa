//! The log layer of a sending half: copies, the choice of blocks to remember, doubt about ranges.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::FIRST_EPOCH;
use super::density::Density;
use super::matcher::{Copy, next_hint};
use super::remote_log::{RemoteLog, Searched, Settings};
use super::savings::SavingsReport;
use super::suspects::Suspects;
use crate::contract::{LogStart, LogWrite};
use crate::log::{LogOffset, Quotas};
use crate::stream::SenderConfig;
use crate::transfer::RetransmitBuffer;
use crate::wire::{FlowId, LogClaim, Range64};
use crate::{Now, Plan};

/// The receiver's log as known here, and the flows through it.
pub(crate) struct LogEncoder {
    pub(crate) remote: RemoteLog,
    pub(crate) savings: SavingsReport,
    quotas: Quotas,
    /// The log place of the flow's next bytes if it goes on with its repeat.
    diagonals: BTreeMap<FlowId, LogOffset>,
    /// How finely each flow is searched.
    densities: BTreeMap<FlowId, Density>,
    suspects: Suspects,
    writes: VecDeque<LogWrite>,
    persist: bool,
    /// The window of references is measured from the oldest unacknowledged block.
    #[cfg(test)]
    pub(crate) planted_error: bool,
}

/// The log's part in a block.
#[derive(Clone, Copy, Default)]
pub(crate) struct Eliminated {
    /// Whether the block is to be remembered.
    pub(crate) remembered: bool,
    /// Whether the block is noise without room in the log.
    pub(crate) left_out: bool,
    /// The outcome of the search, for [`LogEncoder::remember`].
    searched: Searched,
}

impl LogEncoder {
    /// Starts with an empty log.
    pub(crate) fn new(config: &SenderConfig) -> Self {
        Self {
            remote: RemoteLog::new(config.capacity, Settings::of(config)),
            savings: SavingsReport::new(config.capacity),
            quotas: Quotas::new(config.capacity),
            diagonals: BTreeMap::new(),
            densities: BTreeMap::new(),
            suspects: Suspects::default(),
            writes: VecDeque::new(),
            persist: config.persist,
            #[cfg(test)]
            planted_error: false,
        }
    }

    /// Meets a new instance of the peer with its claim; returns whether the log goes on, unless both ends have their first.
    pub(crate) fn meet(&mut self, capacity: u64, claim: Option<&LogClaim>) -> Option<LogStart> {
        self.diagonals.clear();
        self.remote.forget_held();
        let claimed = claim.map_or(0, |claim| claim.epoch);
        let epoch = self.remote.epoch().max(claimed) + 1;
        if self.remote.capacity() != capacity {
            self.quotas = Quotas::new(capacity);
            if !self.remote.resize(capacity) {
                return Some(self.start_epoch(epoch, "another log capacity"));
            }
        }
        let is_first = claimed == 0 && self.remote.is_new() && self.remote.epoch() <= FIRST_EPOCH;
        if is_first {
            return None;
        }
        Some(match self.remote.resume(claim) {
            Ok(bytes) => LogStart::Resumed { bytes },
            Err(reason) => self.start_epoch(epoch, reason),
        })
    }

    /// Starts an epoch.
    fn start_epoch(&mut self, epoch: u64, reason: &'static str) -> LogStart {
        self.remote.start_epoch(epoch);
        self.quotas.clear();
        self.diagonals.clear();
        self.suspects.clear();
        LogStart::Anew { reason }
    }

    /// Starts the next epoch.
    fn start_next_epoch(&mut self, reason: &'static str) -> LogStart {
        self.start_epoch(self.remote.epoch() + 1, reason)
    }

    /// Rule 3: the first offset a block encoded now may refer to.
    pub(crate) fn floor(&self, _sent: &RetransmitBuffer) -> u64 {
        #[cfg(test)]
        if self.planted_error {
            return self.remote.floor(_sent.oldest_start().unwrap_or(self.remote.head()));
        }
        self.remote.floor(self.remote.head())
    }

    /// Bytes of the log without acknowledgement.
    fn in_flight(&self, sent: &RetransmitBuffer) -> u64 {
        let head = self.remote.head();
        head - sent.oldest_start().unwrap_or(head)
    }

    /// The oldest unacknowledged block, or the next one.
    fn oldest(&self, sent: &RetransmitBuffer) -> u64 {
        #[cfg(test)]
        if self.planted_error {
            return sent.next_seq();
        }
        sent.oldest_seq().unwrap_or(sent.next_seq())
    }

    /// Whether `len` more bytes may be remembered now: by rule 2, and by the quota of their class.
    pub(crate) fn may_remember(&self, len: usize, plan: &Plan, sent: &RetransmitBuffer) -> bool {
        let (head, len) = (self.remote.head(), len as u64);
        self.remote.has_room(self.in_flight(sent) + len, len, self.oldest(sent))
            && plan.quota.is_none_or(|quota| self.quotas.allows(quota, head, len))
    }

    /// Replaces `copies` by those of a block, and decides whether the block is remembered.
    pub(crate) fn eliminate(
        &mut self,
        flow: FlowId,
        plain: &[u8],
        plan: &Plan,
        sent: &RetransmitBuffer,
        copies: &mut Vec<Copy>,
    ) -> Eliminated {
        self.remote.note_next(self.in_flight(sent) + plain.len() as u64);
        let (floor, hint) = (self.floor(sent), self.diagonals.get(&flow).copied());
        let density = self.densities.entry(flow).or_default();
        let mut searched = self.remote.find(&density.refine(plan), plain, floor, hint, copies);
        density.note(plain.len(), copies);
        match next_hint(copies, plain.len()) {
            Some(hint) => drop(self.diagonals.insert(flow, hint)),
            None => drop(self.diagonals.remove(&flow)),
        }
        let held = self.remote.holds(plain.len(), copies);
        if held || !self.may_remember(plain.len(), plan, sent) {
            return Eliminated { searched, ..Eliminated::default() };
        }
        let remembered = self.remote.takes(plain, copies, &mut searched);
        Eliminated { remembered, left_out: !remembered, searched }
    }

    /// Takes a block of a flow past the log.
    pub(crate) fn pass(&mut self, flow: FlowId) {
        self.diagonals.remove(&flow);
    }

    /// Takes a short block past the log; the flow may go on behind it with its repeat.
    pub(crate) fn pass_short(&mut self, flow: FlowId, plain_len: usize) {
        let behind = self.diagonals.remove(&flow).and_then(|LogOffset(at)| at.checked_add(plain_len as u64));
        if let Some(at) = behind.filter(|at| *at <= self.remote.head()) {
            self.diagonals.insert(flow, LogOffset(at));
        }
    }

    /// Remembers a block at the head, with its copies.
    pub(crate) fn remember(
        &mut self,
        flow: FlowId,
        plain: &Bytes,
        plan: &Plan,
        copies: &[Copy],
        eliminated: Eliminated,
    ) {
        let (epoch, start) = (self.remote.epoch(), self.remote.head());
        if self.persist {
            self.writes.push_back(LogWrite { epoch, start, plain: plain.clone() });
        }
        if let Some(quota) = plan.quota {
            self.quotas.take(quota.class, start, plain.len() as u64);
        }
        self.remote.remember(plain, copies, eliminated.searched);
        // Another flow with the same bytes may have gone on behind them by the time this flow does.
        self.diagonals.entry(flow).or_insert(LogOffset(self.remote.head()));
    }

    /// Notes the references of a sent block.
    pub(crate) fn note_sent(&mut self, seq: u64, sources: &[Range64], sent: &RetransmitBuffer) {
        self.remote.note_sent(seq, sources, self.oldest(sent));
    }

    /// Returns how many of the bytes go on with the repeat of the flow's last block.
    pub(crate) fn repeated(&self, flow: FlowId, bytes: &[u8], sent: &RetransmitBuffer) -> usize {
        let source = self.diagonals.get(&flow);
        source.map_or(0, |&source| self.remote.equal_at(source, self.floor(sent), bytes))
    }

    /// Notes a block rebuilt wrongly, or its tags: the flow follows no diagonal.
    pub(crate) fn handle_mistaken(&mut self, flow: FlowId) {
        self.diagonals.remove(&flow);
    }

    /// Refers no more to the ranges of a wrong block, or starts an epoch if there are too many of either; `counts`: only the
    /// log can have been wrong.
    pub(crate) fn suspect(&mut self, sources: &[Range64], counts: bool, now: Now) -> Option<LogStart> {
        sources.iter().for_each(|source| self.remote.distrust(source.clone()));
        let are_many = self.suspects.add(sources.len(), counts, now);
        let is_over = are_many || self.remote.holes().len() > super::suspects::MOST_HOLES;
        is_over.then(|| self.start_next_epoch("repeated mismatches"))
    }

    /// Forgets everything remembered.
    pub(crate) fn clear(&mut self) -> LogStart {
        self.remote.clear();
        self.start_next_epoch("cleared")
    }

    /// Gives the memory of the log back.
    pub(crate) fn release(&mut self) {
        self.remote.release();
        self.diagonals.clear();
    }

    /// Gives back what a flow holds.
    pub(crate) fn finish_flow(&mut self, flow: FlowId) {
        self.diagonals.remove(&flow);
        self.densities.remove(&flow);
    }

    /// Takes the next piece of log for the disk.
    pub(crate) fn poll_write(&mut self) -> Option<LogWrite> {
        self.writes.pop_front()
    }
}
