//! The state of one flow.

mod coding;
mod inbound;
mod outbound;

use std::net::SocketAddr;

use oncewire_codec::Now;
use oncewire_codec::Plan;
use oncewire_codec::wire::{Destination, FlowId, LaneId, Message, OpenFailure, Reset, ResetReason};

pub(crate) use self::coding::Coding;
pub(crate) use self::inbound::Inbound;
pub(crate) use self::outbound::Outbound;
use crate::brought::Brought;
use crate::sharing::Priority;
use crate::stats::FlowTally;

/// One flow, at one end of the link.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) facts: FlowFacts,
    pub(crate) coding: Coding,
    /// The class by policy; none: by the bytes sent.
    pub(crate) priority: Option<Priority>,
    pub(crate) place: Placement,
    pub(crate) out: Outbound,
    pub(crate) inbound: Inbound,
    pub(crate) open: OpenState,
    pub(crate) over: Option<Over>,
    pub(crate) keepalive: Keepalive,
    /// Bytes of frames sent for it, and received for it.
    pub(crate) wire: [u64; 2],
}

/// The facts of a flow's opening.
#[derive(Debug)]
pub(crate) struct FlowFacts {
    /// The flow's name across links and logs.
    pub(crate) name: u128,
    pub(crate) destination: Destination,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) opened_at: Now,
}

/// The lanes of a flow.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// The lane of its items.
    pub(crate) lane: Option<LaneId>,
    /// The same, or the last one.
    pub(crate) last: Option<LaneId>,
    /// Whether the flow stands in its lane's queue.
    pub(crate) is_queued: bool,
    /// The lane of the peer's items.
    pub(crate) brought: Brought,
}

impl Placement {
    /// Takes the flow off its lane.
    pub(crate) fn clear(&mut self) {
        (self.lane, self.is_queued) = (None, false);
    }
}

/// Probes of applications' hosts for the flow's connections, in seconds of silence; none without.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keepalive {
    /// Of our application's host, as the peer was told.
    pub(crate) ours: Option<u16>,
    /// Of the far one.
    pub(crate) far: Option<u16>,
}

/// The progress of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    /// At the opening side: no answer yet.
    Asked,
    /// At the opening side: answered, the application not told yet.
    Answered(Result<SocketAddr, OpenFailure>),
    /// At the accepting side: the far connect is under way.
    Offered,
    /// Both sides know.
    Open,
}

/// The end of a flow other than in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) reason: ResetReason,
    /// Whether the application knows.
    pub(crate) told: bool,
}

impl Flow {
    /// Returns what it has moved.
    pub(crate) fn tally(&self) -> FlowTally {
        let [wire_sent, wire_received] = self.wire;
        FlowTally {
            destination: self.facts.destination.clone(),
            outcome: self.coding.outcome(),
            sent: self.out.sent,
            received: self.inbound.delivered(),
            wire_sent,
            wire_received,
        }
    }

    /// Returns the class of its bytes from this side: by policy, else `Bulk` from `bulk_after` bytes on.
    pub(crate) fn class(&self, bulk_after: u64) -> Priority {
        let by_size = if self.out.sent >= bulk_after { Priority::Bulk } else { Priority::Normal };
        self.priority.unwrap_or(by_size)
    }

    /// Returns the plan of its next block, if it is coded.
    pub(crate) fn next_plan(&mut self) -> Option<Plan> {
        let is_cipher = self.out.is_cipher();
        self.coding.configured().filter(|_| !is_cipher)
    }

    /// Looks for ciphers in bytes of our application; returns whether the outcome changed.
    pub(crate) fn classify_sent(&mut self, bytes: &[u8]) -> bool {
        self.coding.handle_sent(bytes, &mut self.out, self.inbound.delivered())
    }

    /// Ends the flow, both directions; an application that is yet to be told still gets earlier bytes.
    pub(crate) fn end(&mut self, reason: ResetReason, told: bool) {
        self.out.abandon();
        self.close(reason, told);
    }

    /// Ends the flow for our application, which knows; the far one gets the queued bytes, as far as credit goes, and then
    /// a reset.
    pub(crate) fn abort(&mut self, reason: ResetReason) {
        self.out.reset(reason);
        self.close(reason, true);
    }

    /// Ends the flow but still sends its waiting messages; the application needs no telling.
    pub(crate) fn end_quietly(&mut self, reason: ResetReason) {
        let messages = self.out.take_messages();
        self.end(reason, true);
        messages.into_iter().for_each(|message| self.out.push_message(message));
    }

    /// Gives the flow up: the peer did not come back. If it does later, it gets a reset. Returns whether the application
    /// is to be told.
    pub(crate) fn give_up(&mut self) -> bool {
        let is_news = self.over.is_none();
        // Bytes queued before an application ended its flow are of no more use either.
        if is_news || !self.out.is_done() {
            self.end(ResetReason::PeerLost, false);
            self.out.push_message(Message::Reset(Reset { reason: ResetReason::PeerLost, behind: None }));
        }
        is_news
    }

    fn close(&mut self, reason: ResetReason, told: bool) {
        if told {
            self.inbound.clear();
        }
        self.over.get_or_insert(Over { reason, told });
    }

    /// Whether our application has nothing more to expect and nothing more to send.
    pub(crate) fn is_done(&self) -> bool {
        // An answer in wait for the application keeps the flow.
        !matches!(self.open, OpenState::Answered(_))
            && self.out.is_done()
            && (self.over.is_some_and(|over| over.told) || self.inbound.is_end_told())
    }
}
