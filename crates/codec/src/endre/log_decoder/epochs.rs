//! Epochs of the log: whether it goes on with a new peer, and when it starts over.

use super::LogDecoder;
use crate::contract::LogStart;
use crate::endre::{FIRST_EPOCH, NOTHING_HERE, TOO_LITTLE};
use crate::wire::{Body, LogClaim};

/// The open question of a new peer's epoch, named with its first coded block.
pub(crate) struct Opening {
    /// Set until then: how far beyond that block the bytes of the peer before may reach.
    ahead: Option<u64>,
    claimed: Claimed,
}

/// The claim made of the log when the peer was new.
#[derive(Clone, Copy, Debug, Default)]
struct Claimed {
    bytes: u64,
    /// Samples for the peer to compare.
    samples: usize,
}

impl Claimed {
    fn of(claim: Option<LogClaim>) -> Self {
        let of = |claim: LogClaim| Self { bytes: claim.end - claim.start, samples: claim.samples.len() };
        claim.map(of).unwrap_or_default()
    }
}

impl Opening {
    pub(crate) fn new(max_in_flight: u64) -> Self {
        Self { ahead: Some(max_in_flight), claimed: Claimed::default() }
    }
}

/// The effect of a coded block on the epoch.
#[derive(Default)]
pub(crate) struct Turn {
    /// Whether another epoch begins.
    pub(crate) is_new: bool,
    /// The start of a log to be reported.
    pub(crate) start: Option<LogStart>,
}

impl LogDecoder {
    /// Meets a new instance of the peer; without a claim the log starts over.
    pub(crate) fn meet(&mut self, capacity: u64, max_in_flight: u64) {
        self.opening.ahead = Some(self.max_in_flight.max(max_in_flight));
        self.max_in_flight = max_in_flight;
        (self.peer.limit, self.peer.serial) = (u64::MAX, 0);
        // Without a claim the peer may begin again with any epoch and offset.
        if self.claim().is_none() {
            self.start_epoch(0);
        }
        if self.log.capacity() != capacity {
            self.resize(capacity);
        }
        self.apply_limit();
        self.opening.claimed = Claimed::of(self.claim());
    }

    /// Whether the first coded block of a new peer belongs to the log at hand. Bytes of the peer before, received since the
    /// claim, may be of an epoch with the same number by chance; they lie further `ahead`.
    fn goes_on(&self, first: &Body<'_>, ahead: u64) -> bool {
        first.epoch == self.epoch && first.start.saturating_add(ahead) >= self.highest
    }

    /// Takes the epoch of a coded block: the log goes on, or starts over with the first one of a new epoch.
    pub(crate) fn handle_epoch(&mut self, body: &Body<'_>) -> Turn {
        let ahead = self.opening.ahead.take();
        let (is_first, claimed) = (ahead.is_some(), self.opening.claimed);
        if body.epoch <= self.epoch && ahead.is_none_or(|ahead| self.goes_on(body, ahead)) {
            let start = is_first.then_some(LogStart::Resumed { bytes: claimed.bytes });
            return Turn { is_new: false, start };
        }
        let reason = match (is_first, claimed) {
            (false, _) => "the peer has given it up",
            (true, Claimed { bytes: 0, .. }) => NOTHING_HERE,
            (true, Claimed { samples: 0, .. }) => TOO_LITTLE,
            (true, _) => "the peer has another log, or none",
        };
        // Of the first log of both ends there is nothing to say.
        let is_news = self.epoch > 0 || body.epoch > FIRST_EPOCH;
        self.start_epoch(body.epoch);
        Turn { is_new: true, start: is_news.then_some(LogStart::Anew { reason }) }
    }

    fn start_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.log.clear();
        self.written.clear();
        self.highest = 0;
        self.base = 0;
        self.released = None;
    }
}
