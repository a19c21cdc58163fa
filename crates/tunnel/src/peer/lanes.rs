//! A peer's lanes: joining, frames, loss.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use oncewire_codec::wire::{Hello, LaneId, LaneRole};
use oncewire_keys::{Claim, ProofKey, PublicKey};
use oncewire_link::Turn;

use super::join::{Binding, Exchange, JoinError, LaneGone};
use super::{Due, Peer, times};
use crate::lane::signal::LaneSignal;

impl Peer {
    /// Encodes this side's hello to the holder of a presented key; also returns the instance it names.
    pub(crate) fn hello(
        &self,
        lane: LaneId,
        role: LaneRole,
        theirs: &PublicKey,
        binding: Option<&Binding>,
    ) -> (u64, Vec<u8>) {
        let mut out = Vec::with_capacity(256);
        let mut hello = self.core.lock().link.hello(lane, role);
        hello.group_proof = self.proving().zip(binding).map(|(key, binding)| {
            key.prove(Claim { binding, prover: &self.ours, verifier: theirs, instance: hello.instance })
        });
        hello.encode(&mut out);
        (hello.instance, out)
    }

    /// Whether the peer has proved possession of its expected group's key.
    fn is_proved(&self, theirs: &PublicKey, hello: &Hello, binding: Option<&Binding>) -> bool {
        let Some((key, binding)) = self.proving().zip(binding) else { return false };
        let claim = Claim { binding, prover: theirs, verifier: &self.ours, instance: hello.instance };
        hello.group_proof.is_some_and(|proof| key.holds(claim, &proof))
    }

    /// The key for proofs, if the peer is to be of a group and chunks are named to it.
    fn proving(&self) -> Option<&ProofKey> {
        let member = self.settings.group.as_ref().filter(|_| self.settings.link.names.is_some())?;
        Some(&member.proofs)
    }

    /// Registers a lane after both hellos; `theirs` is the peer's presented key.
    ///
    /// A hello may be late: retransmitted by the system of an ended program, or long unread. An exchange
    /// begun after the present instance was met brings no older one.
    ///
    /// # Errors
    /// If the link does not take it, or its id is in use.
    pub(crate) fn lane_up(
        self: &Arc<Self>,
        theirs: PublicKey,
        hello: &Hello,
        (lane, role): (LaneId, LaneRole),
        Exchange { began, said, dialled, binding }: Exchange,
    ) -> Result<Arc<LaneSignal>, JoinError> {
        let signal = Arc::new(LaneSignal::new(lane, &self.effort));
        let is_proved = self.is_proved(&theirs, hello, binding.as_ref());
        self.with(|core, now| {
            // Under the lock: the end of a peer must close every earlier lane.
            if self.ending.ended.load(Relaxed) {
                return Err(JoinError::Ended);
            }
            if core.lanes.contains_key(&lane) {
                return Err(JoinError::Duplicate);
            }
            let is_new = core.met.is_none_or(|(instance, _)| instance != hello.instance);
            if is_new && core.met.is_some_and(|(_, since)| began < since) {
                return Err(JoinError::Late);
            }
            // The order of keys decides on the numbering of flows; a rotated key may reverse it. It comes
            // with a new instance, and that ends all flows.
            let first = self.ours < theirs;
            if core.first != first && !is_new && !(core.flows.is_empty() && core.lanes.is_empty()) {
                return Err(JoinError::KeyChanged);
            }
            // Before the call: a LaneReady for it must find it.
            core.lanes.insert(lane, Arc::clone(&signal));
            if is_proved {
                core.link.handle_group_proof();
            }
            let joined = core.link.handle_lane_up(said, hello, lane, role, dialled, now);
            let joined = joined.map_err(JoinError::Refused);
            if joined.is_err() {
                core.lanes.remove(&lane);
            } else {
                if is_new {
                    core.met = Some((hello.instance, Instant::now()));
                    self.settings.group.iter().for_each(|member| member.speaks_with(&theirs));
                    if !is_proved && self.proving().is_some() {
                        let group = self.settings.group.as_ref().map(|member| member.group.read().clone());
                        self.lines.stranger(&group.unwrap_or_default(), hello);
                    }
                }
                if core.first != first {
                    core.link.order_keys(first);
                    core.first = first;
                }
            }
            joined
        })?;
        self.dials.forget_trouble();
        Ok(signal)
    }

    /// Reports a lane's end to the link, unless the link closed it; in order, if the peer ended it behind all
    /// its data.
    pub(crate) fn lane_lost(self: &Arc<Self>, lane: &LaneSignal, short_lived: bool, in_order: bool) {
        self.dials.note_lost(short_lived);
        self.with(|core, now| {
            if core.lanes.remove(&lane.id).is_some() {
                if in_order {
                    core.link.handle_lane_ended(lane.id, now);
                } else {
                    core.link.handle_lane_lost(lane.id, now);
                }
            }
        });
        self.dials.wake();
    }

    /// Hands received bytes to the link, turn by turn. Between turns others have the link and the CPU; work
    /// caused by the peer beyond proportion is waited for, all its lanes behind one another.
    ///
    /// # Errors
    /// If the lane is to be closed.
    pub(crate) async fn input(self: &Arc<Self>, lane: LaneId, input: &mut BytesMut) -> Result<(), LaneGone> {
        loop {
            let turn = self.input_turn(lane, input)?;
            if turn == Turn::default() {
                return Ok(());
            }
            let _gate = self.long_turns.lock().await;
            if turn.excess > 0 {
                let pause = WAIT_FOR_A_STEP.saturating_mul(u32::try_from(turn.excess).unwrap_or(u32::MAX));
                tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    fn input_turn(self: &Arc<Self>, lane: LaneId, input: &mut BytesMut) -> Result<Turn, LaneGone> {
        self.with(|core, now| {
            if !core.lanes.contains_key(&lane) {
                return Err(LaneGone::Closed);
            }
            core.link.handle_some_input(lane, input, now).map_err(LaneGone::Protocol)
        })
    }

    /// Appends the next bytes for the lane's socket; false if there are none.
    pub(crate) fn transmit(self: &Arc<Self>, lane: LaneId, out: &mut Vec<u8>) -> bool {
        self.with(|core, now| {
            // Here as well as by the timer, late under CPU shortage.
            times::pace(self, core, now);
            core.lanes.contains_key(&lane) && core.link.poll_transmit(lane, now, out)
        })
    }

    /// Returns the number of lanes to dial by role, and the number of present ones.
    pub(crate) fn lanes_wanted(&self) -> ([u32; 3], usize) {
        let core = self.core.lock();
        (core.wanted, core.lanes.len())
    }

    /// Ends all tasks of the peer, takes no more lanes, and releases all its memory: earlier connections hold
    /// a reference to it for as long as they live.
    pub fn end(self: &Arc<Self>) {
        self.close_lanes();
        self.reset_flows();
        self.tasks.end();
        let link = self.with(|core, now| {
            core.over = true;
            // The link does not report flows ending with it.
            self.count_ended(core.link.tallies());
            let link = core.link.end(now);
            self.reach.note(&core.link);
            link
        });
        // Not under the lock: freeing memory takes its time.
        drop(link);
        self.carry_out(Due { reach: true, ..Due::default() });
    }

    /// Lets every lane flush and end, and takes no more.
    pub fn close_lanes(&self) {
        let core = self.core.lock();
        self.ending.ended.store(true, Relaxed);
        core.lanes.values().for_each(|lane| lane.close());
    }

    /// Whether lanes are refused from now on.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.ended.load(Relaxed)
    }

    /// Returns the number of its lanes.
    pub fn lane_count(&self) -> usize {
        self.core.lock().lanes.len()
    }
}

/// Several times as long as a step takes.
const WAIT_FOR_A_STEP: Duration = Duration::from_nanos(100);

/// The longest single pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
