//! A peer's log lines, each kind at a limited rate.

use std::time::Duration;

use oncewire_codec::wire::{Destination, Hello};
use oncewire_host::log_throttle::LogThrottle;
use oncewire_link::Note;

/// The limits of all kinds.
#[derive(Debug)]
pub(super) struct Lines {
    peer: String,
    pace: LogThrottle,
    /// Notes repeated with each new lane or store.
    note: LogThrottle,
    /// A breaking link loses its lanes one by one.
    resume: LogThrottle,
    /// Two gateways with one key may restart each other's links without end.
    restart: LogThrottle,
    /// A peer can ask for any number of blocks again.
    mismatch: LogThrottle,
    /// Applications at either end can ask for denied destinations at any rate.
    denied: LogThrottle,
    /// Each instance of it may be outside its group.
    stranger: LogThrottle,
}

impl Lines {
    pub(super) fn new(peer: &str) -> Self {
        Self {
            peer: peer.to_owned(),
            pace: LogThrottle::default(),
            note: burst(),
            resume: LogThrottle::default(),
            restart: LogThrottle::default(),
            mismatch: LogThrottle::default(),
            denied: burst(),
            stranger: LogThrottle::default(),
        }
    }

    /// Logs a note of the link.
    pub(super) fn note(&self, note: &Note) {
        let (log, is_common) = match note {
            Note::Paced(_) => (&self.pace, true),
            Note::Mismatch(_) => (&self.mismatch, true),
            Note::Resumed { .. } | Note::WentOn => (&self.resume, true),
            _ => (&self.note, false),
        };
        let Some(held_back) = log.due() else { return };
        let held_back = (is_common || held_back > 0).then_some(held_back);
        tracing::info!(peer = self.peer, held_back, "{note}");
    }

    /// Logs a peer with a new instance.
    pub(super) fn restarted(&self) {
        if let Some(held_back) = self.restart.due() {
            let peer = &self.peer;
            tracing::warn!(
                peer,
                held_back,
                "the peer was restarted, or began its link anew; its old flows were reset"
            );
        }
    }

    /// Logs a denied destination.
    pub(super) fn denied(&self, destination: &Destination, why: &str) {
        if let Some(held_back) = self.denied.due() {
            tracing::warn!(peer = self.peer, %destination, held_back, "{why}");
        }
    }

    /// Logs a peer outside its expected group.
    pub(super) fn stranger(&self, group: &str, hello: &Hello) {
        if let Some(held_back) = self.stranger.due() {
            let why = match hello.group_proof {
                None => "its version is older, or its configuration names no group for us",
                Some(_) => "it holds another key",
            };
            let peer = &self.peer;
            tracing::warn!(
                peer,
                group,
                held_back,
                "the peer does not prove that it holds the group's key ({why}); nothing of the group is shared with it"
            );
        }
    }
}

/// A few lines in each period.
pub(super) fn burst() -> LogThrottle {
    LogThrottle::bursts(BURST, BURST_PERIOD)
}

/// Lines about a peer's coming and going in each [`BURST_PERIOD`].
const BURST: u32 = 8;

const BURST_PERIOD: Duration = Duration::from_secs(60);
