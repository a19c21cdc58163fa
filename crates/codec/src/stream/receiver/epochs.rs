//! Epochs of the log: whether it goes on with a new peer, and when it starts over.

use super::Receiver;
use super::coming::Coming;
use crate::Now;
use crate::contract::{LogStart, ReceiveEvent};
use crate::endre::{FIRST_EPOCH, NOTHING_HERE, TOO_LITTLE};
use crate::wire::{Body, LogClaim, RefetchReason};

/// What was claimed of the log when the peer was new.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claimed {
    bytes: u64,
    /// Samples that the peer may compare.
    samples: usize,
}

impl Claimed {
    pub(crate) fn of(claim: Option<LogClaim>) -> Self {
        let of = |claim: LogClaim| Self { bytes: claim.end - claim.start, samples: claim.samples.len() };
        claim.map(of).unwrap_or_default()
    }
}

impl Receiver {
    /// Whether the first coded block of a new peer belongs to the log that is held. What came of the one before since that
    /// was claimed may be of an epoch that has the same number by chance, and is known by what lies further `ahead`.
    fn goes_on(&self, first: &Body<'_>, ahead: u64) -> bool {
        first.epoch == self.epoch && first.start.saturating_add(ahead) >= self.highest
    }

    /// Takes the epoch of a coded block: the log goes on, or starts over with the first one of a new epoch.
    pub(crate) fn take_epoch(&mut self, body: &Body<'_>, now: Now) {
        let open = self.epoch_open.take();
        let is_first = open.is_some();
        if body.epoch <= self.epoch && open.is_none_or(|ahead| self.goes_on(body, ahead)) {
            if is_first {
                self.note_start(LogStart::Resumed { bytes: self.claimed.bytes });
            }
            return;
        }
        let reason = match (is_first, &self.claimed) {
            (false, _) => "the peer has given it up",
            (true, Claimed { bytes: 0, .. }) => NOTHING_HERE,
            (true, Claimed { samples: 0, .. }) => TOO_LITTLE,
            (true, _) => "the peer has another log, or none",
        };
        // Of the first log of both ends there is nothing to say.
        let is_news = self.epoch > 0 || body.epoch > FIRST_EPOCH;
        self.start_epoch(body.epoch, now);
        if is_news {
            self.note_start(LogStart::Anew { reason });
        }
    }

    /// Counts and tells that the log goes on or starts over.
    fn note_start(&mut self, start: LogStart) {
        self.stats.log_starts.count(start);
        self.events.push_back(ReceiveEvent::LogStarts { epoch: self.epoch, start });
    }

    pub(crate) fn start_epoch(&mut self, epoch: u64, now: Now) {
        self.epoch = epoch;
        self.log.clear();
        self.written.clear();
        self.highest = 0;
        self.held.base = 0;
        self.released = None;
        self.coming = Coming::default();
        for head in self.parked.clear() {
            self.ask_again(&head, RefetchReason::Missing, now);
        }
    }
}
