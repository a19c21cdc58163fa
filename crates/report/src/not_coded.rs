//! Reasons for uncoded flows, in a bounded table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Outcome of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// In a lane, redundancy is eliminated.
    Coded,
    /// Uncoded, in a lane.
    Uncoded,
    /// The gateway connected by itself, in the clear.
    Direct,
    /// Never taken in.
    Bypassed,
    /// Turned away.
    Refused,
}

impl Outcome {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coded => "coded",
            Self::Uncoded => "uncoded",
            Self::Direct => "direct",
            Self::Bypassed => "bypassed",
            Self::Refused => "refused",
        }
    }
}

/// Why a flow is not coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A `[[policy]]` of this gateway with `none` or `direct`.
    Policy,
    /// A `[[policy]]` of the peer lowered it to `none`.
    PeerPolicy,
    /// Its bytes are TLS, without repeats.
    Tls,
    /// Its bytes are ssh, without repeats.
    Ssh,
    /// Its bytes are encrypted messages of SMB 3, without repeats.
    Smb,
    /// The peer is gone.
    PeerLost,
    /// No peer fronts the destination.
    NoPeer,
    /// It is another gateway's tunnel to a peer of this one.
    Tunnel,
    /// The link has its maximum of flows.
    TooManyFlows,
    /// The destination is forbidden to the connecting gateway, the peer's or this one.
    NotAllowed,
}

impl Reason {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::PeerPolicy => "peer_policy",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
            Self::Smb => "smb",
            Self::PeerLost => "peer_lost",
            Self::NoPeer => "no_peer",
            Self::Tunnel => "tunnel",
            Self::TooManyFlows => "too_many_flows",
            Self::NotAllowed => "not_allowed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Uncoded flows with one destination, outcome and reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCoded {
    /// The peer's name; null if none was chosen.
    pub peer: Option<String>,
    /// Their destination; [`NotCodedTable::OTHERS`] once the table is full.
    pub destination: String,
    /// Their outcome.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
    /// How many.
    pub count: u64,
    /// Their bytes, both ways.
    pub bytes: u64,
}

/// The counters of one row.
#[derive(Debug, Default)]
pub struct NotCodedCounter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl NotCodedCounter {
    /// Counts bytes of a flow as they pass.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// The table of uncoded flows.
///
/// It has at most [`NotCodedTable::MOST`] destinations, since applications choose them; the excess is counted
/// under [`NotCodedTable::OTHERS`].
#[derive(Debug, Default)]
pub struct NotCodedTable {
    rows: Mutex<BTreeMap<Key, Arc<NotCodedCounter>>>,
}

type Key = (Option<String>, String, Outcome, Reason);

impl NotCodedTable {
    /// The most destinations.
    pub const MOST: usize = 500;
    /// The destination of all flows without a row of their own.
    pub const OTHERS: &'static str = "(others)";

    /// Counts a flow, and returns the counter of its bytes.
    pub fn count(
        &self,
        peer: Option<&str>,
        destination: &impl fmt::Display,
        outcome: Outcome,
        reason: Reason,
    ) -> Arc<NotCodedCounter> {
        self.count_all(1, peer, destination, outcome, reason)
    }

    /// Counts several flows as [`NotCodedTable::count`] counts one.
    pub fn count_all(
        &self,
        flows: u64,
        peer: Option<&str>,
        destination: &impl fmt::Display,
        outcome: Outcome,
        reason: Reason,
    ) -> Arc<NotCodedCounter> {
        let mut key = (peer.map(str::to_owned), destination.to_string(), outcome, reason);
        let mut rows = self.rows.lock();
        if rows.len() >= Self::MOST && !rows.contains_key(&key) {
            // Peers, outcomes and reasons are few, so these rows are few too.
            key.1 = Self::OTHERS.to_owned();
        }
        let counter = Arc::clone(rows.entry(key).or_default());
        counter.count.fetch_add(flows, Relaxed);
        counter
    }

    /// Returns the rows, sorted by their flows, the most first.
    pub fn rows(&self) -> Vec<NotCoded> {
        let row = |((peer, destination, outcome, reason), counter): (&Key, &Arc<NotCodedCounter>)| NotCoded {
            peer: peer.clone(),
            destination: destination.clone(),
            outcome: *outcome,
            reason: *reason,
            count: counter.count.load(Relaxed),
            bytes: counter.bytes.load(Relaxed),
        };
        let mut rows: Vec<_> = self.rows.lock().iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_counted_by_destination_outcome_and_reason() {
        let table = NotCodedTable::default();
        for _ in 0..3 {
            table.count(Some("hub"), &"a:22", Outcome::Uncoded, Reason::Policy).add_bytes(10);
        }
        table.count(Some("hub"), &"a:443", Outcome::Uncoded, Reason::Tls);
        let rows = table.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].destination.as_str(), rows[0].count, rows[0].bytes), ("a:22", 3, 30));
    }

    #[test]
    fn scanning_application_does_not_fill_the_memory() {
        let table = NotCodedTable::default();
        for port in 0..5000 {
            table.count(None, &format_args!("a:{port}"), Outcome::Direct, Reason::PeerLost).add_bytes(1);
        }
        let rows = table.rows();
        assert_eq!(rows.len(), NotCodedTable::MOST + 1);
        assert_eq!(rows[0].destination, NotCodedTable::OTHERS);
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 5000);
        assert_eq!(rows.iter().map(|row| row.bytes).sum::<u64>(), 5000);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for reason in [
            Reason::Policy,
            Reason::PeerPolicy,
            Reason::Tls,
            Reason::Smb,
            Reason::PeerLost,
            Reason::TooManyFlows,
            Reason::NotAllowed,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        for outcome in
            [Outcome::Coded, Outcome::Uncoded, Outcome::Direct, Outcome::Bypassed, Outcome::Refused]
        {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
    }
}
