//! Counts of refusals: strangers, garbage, forbidden requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// Reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A tunnel connection presented an unknown key.
    UnknownKey,
    /// A tunnel connection spoke no TLS, or broke it off.
    BadHandshake,
    /// A tunnel connection took too long over its handshake.
    HandshakeTimeout,
    /// A tunnel connection was dropped for a newer one: too many were pending.
    HandshakeEvicted,
    /// A peer speaks another version of the protocol, or sent no valid hello.
    BadHello,
    /// A client's request was malformed or late.
    BadRequest,
    /// A client was not within `allow_from`.
    NotAllowedFrom,
    /// A client gave a wrong name or password.
    BadCredentials,
    /// A peer asked for a destination forbidden to it.
    NotAllowedTo,
    /// A flow's peer was gone and `on_peer_loss` is `refuse`, or no peer fits.
    PeerLost,
    /// Some table was full.
    TooMany,
}

impl Refusal {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::UnknownKey,
        Self::BadHandshake,
        Self::HandshakeTimeout,
        Self::HandshakeEvicted,
        Self::BadHello,
        Self::BadRequest,
        Self::NotAllowedFrom,
        Self::BadCredentials,
        Self::NotAllowedTo,
        Self::PeerLost,
        Self::TooMany,
    ];

    /// Returns the name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownKey => "unknown_key",
            Self::BadHandshake => "bad_handshake",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HandshakeEvicted => "handshake_evicted",
            Self::BadHello => "bad_hello",
            Self::BadRequest => "bad_request",
            Self::NotAllowedFrom => "not_allowed_from",
            Self::BadCredentials => "bad_credentials",
            Self::NotAllowedTo => "not_allowed_to",
            Self::PeerLost => "peer_lost",
            Self::TooMany => "too_many",
        }
    }
}

/// Count of refusals for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalCount {
    /// The reason.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// The refusal counters.
#[derive(Debug, Default)]
pub struct Refusals {
    counters: [AtomicU64; Refusal::ALL.len()],
}

impl Refusals {
    /// Counts one.
    pub fn count(&self, refusal: Refusal) {
        if let Some(counter) = self.counters.get(refusal as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Returns all counters, zeros included.
    pub fn counts(&self) -> Vec<RefusalCount> {
        let count = |(refusal, counter): (Refusal, &AtomicU64)| RefusalCount {
            reason: refusal.name().to_owned(),
            count: counter.load(Relaxed),
        };
        Refusal::ALL.into_iter().zip(&self.counters).map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let refusals = Refusals::default();
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| refusals.count(refusal));
        }
        let counts = refusals.counts();
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!((counts[at].reason.as_str(), counts[at].count), (refusal.name(), at as u64 + 1));
        }
    }
}
