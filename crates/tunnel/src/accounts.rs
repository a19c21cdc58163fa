//! Accounts behind the status: refusals, uncoded flows, traffic.

pub(crate) mod arrivals;
pub mod direct;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use oncewire_host::connects::ConnectShortage;
use oncewire_host::limits::Shortage;
use oncewire_link::{Cipher, FlowOutcome, FlowStats};
use oncewire_report::{DestinationTable, NotCodedCounter, NotCodedTable, Outcome, Reason, Refusals};

use self::arrivals::Arrivals;
use self::direct::{Direct, DirectTable};

/// Counters shared by listeners, interceptions and peers.
#[derive(Debug, Default)]
pub struct TrafficAccounts {
    /// Refused clients and lanes, by reason.
    pub refusals: Refusals,
    /// Flows without coding.
    pub not_coded: NotCodedTable,
    /// Traffic by destination.
    pub destinations: DestinationTable,
    /// Open direct connections of this gateway.
    pub connections: Arc<DirectTable>,
    /// Losses of intercepted connections.
    pub arrivals: Arrivals,
    /// Failed accepts for lack of files.
    pub shortage: Shortage,
    /// Failed connects for lack of ports or files.
    pub connects: Arc<ConnectShortage>,
    /// Held by each client connection with requests served here.
    requests: Arc<()>,
}

impl TrafficAccounts {
    /// Counts a client connection with requests served here, as long as the result lives.
    pub fn serving(&self) -> Arc<()> {
        Arc::clone(&self.requests)
    }

    /// Returns the number of such connections. Once the gateway stops, each has a request in progress.
    pub fn served(&self) -> u64 {
        (Arc::strong_count(&self.requests) - 1) as u64
    }

    /// Notes a direct connection of this gateway, for want of `peer` if there is one; open until the result
    /// is dropped.
    pub fn direct(
        &self,
        peer: Option<&str>,
        destination: &impl Display,
        source: SocketAddr,
        reason: Reason,
    ) -> Direct {
        let counter = self.not_coded.count(peer, destination, Outcome::Direct, reason);
        self.connections.enter(destination, source, reason, counter)
    }
}

/// One flow's part of the table of uncoded flows.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Bytes not counted in the table.
    bytes: u64,
    looks: u8,
    counter: Option<(Reason, Arc<NotCodedCounter>)>,
    /// Whether the flow was coded again after an uncoded part.
    is_coded_again: bool,
}

impl Tally {
    /// Counts bytes of the flow, either way.
    pub(crate) fn add(&mut self, bytes: usize) {
        match &self.counter {
            Some((_, counter)) if !self.is_coded_again => counter.add_bytes(bytes as u64),
            _ => self.bytes += bytes as u64,
        }
    }

    /// Whether the link should be asked for the flow's outcome with each block: that shows in the first
    /// bytes. The link reports a later cipher by itself.
    pub(crate) fn is_curious(&self) -> bool {
        self.counter.is_none() && self.looks < LOOKS
    }

    /// Notes the link's report on the flow. Bytes before a cipher count as coded.
    pub(crate) fn learn(&mut self, accounts: &TrafficAccounts, peer: &str, flow: &FlowStats) {
        self.looks = self.looks.saturating_add(1);
        let Some(reason) = reason(flow.outcome) else {
            self.is_coded_again = self.counter.is_some();
            return;
        };
        let is_known = self.counter.as_ref().is_some_and(|(known, _)| *known == reason);
        if is_known && !self.is_coded_again {
            return;
        }
        if !is_known {
            let counter = accounts.not_coded.count(Some(peer), &flow.destination, Outcome::Uncoded, reason);
            counter.add_bytes(self.bytes.saturating_sub(flow.begins_after.unwrap_or(0)));
            self.counter = Some((reason, counter));
        }
        (self.bytes, self.is_coded_again) = (0, false);
    }
}

/// Returns the reason for an uncoded flow on a link; none if it is coded.
pub fn reason(outcome: FlowOutcome) -> Option<Reason> {
    match outcome {
        FlowOutcome::Coded => None,
        FlowOutcome::Policy => Some(Reason::Policy),
        FlowOutcome::PeerPolicy => Some(Reason::PeerPolicy),
        FlowOutcome::Cipher(Cipher::Tls) => Some(Reason::Tls),
        FlowOutcome::Cipher(Cipher::Ssh) => Some(Reason::Ssh),
        FlowOutcome::Cipher(Cipher::Smb) => Some(Reason::Smb),
    }
}

/// Looks at a coded flow: once per block, at its start.
const LOOKS: u8 = 16;
