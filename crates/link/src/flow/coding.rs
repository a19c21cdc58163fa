//! Coding of one flow: plan, policies of both ends, and ciphers in its streams.

use oncewire_codec::Plan;

use super::Outbound;
use crate::classify::{Cipher, Recogniser, Turn};
use crate::stats::FlowOutcome;

/// The plan of a flow, and the kinds of its two streams.
#[derive(Debug)]
pub(crate) struct Coding {
    plan: Option<Plan>,
    /// Whether the peer's policy took the plan away.
    is_lowered_by_peer: bool,
    /// The cipher in either stream.
    cipher: Option<Begun>,
    sent: Recogniser,
    /// Since our side has begun TLS.
    received: Option<Box<Recogniser>>,
}

/// A cipher in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) cipher: Cipher,
    /// Bytes of the stream before its first record.
    pub(crate) after: u64,
}

impl Coding {
    /// Starts with a plan, or without one by whose policy.
    pub(crate) fn new(plan: Option<Plan>, is_lowered_by_peer: bool) -> Self {
        Self { plan, is_lowered_by_peer, cipher: None, sent: Recogniser::new(), received: None }
    }

    /// Returns the configured plan, cipher or not.
    pub(crate) fn configured(&self) -> Option<Plan> {
        self.plan
    }

    /// Returns the cipher of a flow with a plan.
    pub(crate) fn cipher(&self) -> Option<Begun> {
        self.plan.and(self.cipher)
    }

    /// Returns the plan of a flow without a cipher.
    pub(crate) fn plan(&self) -> Option<Plan> {
        self.plan.filter(|_| self.cipher.is_none())
    }

    /// Replaces the plan by that of our policy; an uncoded flow stays so.
    pub(crate) fn replan(&mut self, plan: Option<Plan>) {
        self.plan = self.plan.and(plan);
    }

    /// Drops the plan for the peer's policy.
    pub(crate) fn lower_by_peer(&mut self) {
        self.is_lowered_by_peer |= self.plan.take().is_some();
    }

    /// Returns what becomes of the flow's bytes.
    pub(crate) fn outcome(&self) -> FlowOutcome {
        match (self.plan, self.cipher) {
            (None, _) if self.is_lowered_by_peer => FlowOutcome::PeerPolicy,
            (None, _) => FlowOutcome::Policy,
            (Some(_), Some(begun)) => FlowOutcome::Cipher(begun.cipher),
            (Some(_), None) => FlowOutcome::Coded,
        }
    }

    /// Looks for ciphers in bytes of our application before they are queued in `out`; `delivered` counts the bytes in
    /// the other direction. Returns whether the outcome changed.
    pub(crate) fn handle_sent(&mut self, bytes: &[u8], out: &mut Outbound, delivered: u64) -> bool {
        if self.plan.is_none() {
            return false;
        }
        let (before, cipher) = (self.cipher, &mut self.cipher);
        self.sent.handle(bytes, |turn| {
            out.turn(turn.at, turn.cipher.is_some());
            *cipher = begun(turn);
        });
        if self.received.is_none() && self.sent.has_hello() {
            self.received = Some(Box::new(Recogniser::from(delivered)));
        }
        self.cipher != before
    }

    /// Looks for ciphers in bytes for our application; returns whether the outcome changed.
    pub(crate) fn handle_received(&mut self, bytes: &[u8]) -> bool {
        let (before, cipher) = (self.cipher, &mut self.cipher);
        if let Some(kind) = &mut self.received {
            kind.handle(bytes, |turn| *cipher = begun(turn));
        }
        self.cipher != before
    }
}

fn begun(turn: Turn) -> Option<Begun> {
    turn.cipher.map(|cipher| Begun { cipher, after: turn.begins })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_policy_takes_the_plan_away_for_good() {
        let mut coding = Coding::new(Some(Plan::default()), false);
        assert_eq!(coding.outcome(), FlowOutcome::Coded);
        coding.replan(None);
        coding.lower_by_peer();
        coding.replan(Some(Plan::default()));
        assert_eq!((coding.outcome(), coding.plan()), (FlowOutcome::Policy, None));
        let mut coding = Coding::new(Some(Plan::default()), false);
        coding.lower_by_peer();
        assert_eq!(coding.outcome(), FlowOutcome::PeerPolicy);
        assert_eq!(Coding::new(None, true).outcome(), FlowOutcome::PeerPolicy);
    }
}
