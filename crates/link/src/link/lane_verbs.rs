//! Lanes come and go.

use std::collections::BTreeSet;

use oncewire_codec::contract::{PeerSender, PeerState};
use oncewire_codec::wire::{FlowId, Frame, Hello, LaneId, LaneRole, ResetReason, VERSION};
use oncewire_codec::{Now, StrongKind};

use super::{Link, Peer};
use crate::config::LinkConfig;
use crate::event::{CloseReason, Event, LaneRefused, Note};
use crate::lanes::Stay;

impl Link {
    /// Registers a lane once both hellos have been exchanged.
    ///
    /// `said` is the instance in [this side's hello](Self::hello), and `peer` is the peer's hello; lane and role are
    /// those of the dialling side, and `dialled` says whether this is it. A hello of a new instance of the peer ends
    /// everything of the old one. An instance back after another does not know of the end of its common state: this
    /// end becomes another instance itself, and so tells it. A lane with another instance in this side's hello is no
    /// longer of use: the peer would go on there with the common state of the instance before.
    ///
    /// # Errors
    /// The lane cannot be used and is to be closed.
    pub fn handle_lane_up(
        &mut self,
        said: u64,
        peer: &Hello,
        lane: LaneId,
        role: LaneRole,
        dialled: bool,
        now: Now,
    ) -> Result<(), LaneRefused> {
        let is_proved = self.take_group_proof();
        if said != self.config.instance {
            return Err(LaneRefused::Outdated);
        }
        if self.lanes.get(lane).is_some() {
            return Err(LaneRefused::Duplicate);
        }
        if self.lanes.len() >= crate::MAX_LANES {
            return Err(LaneRefused::TooMany);
        }
        if peer.log_capacity < LinkConfig::MIN_LOG {
            return Err(LaneRefused::LogTooSmall(peer.log_capacity));
        }
        if self.superseded.contains(&peer.instance) {
            self.become_another(now);
            return Err(LaneRefused::Superseded);
        }
        if self.peer.as_ref().is_none_or(|known| known.instance != peer.instance) {
            self.agree_on_codec(peer)?;
            self.meet(peer, is_proved, now);
        }
        let was_down = self.lanes.is_empty();
        self.lanes.insert(lane, role, dialled, now);
        self.dead.remove(lane);
        if was_down {
            self.down_since = None;
            self.wait_anew_with_resets(now);
            self.events.push_back(Event::Up);
        }
        if was_down || role == LaneRole::Control {
            self.restate(now);
        }
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        ids.into_iter().for_each(|id| self.schedule(id));
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.ask(now);
        }
        self.wake(lane);
        self.want_lanes();
        Ok(())
    }

    /// Sets the halves up for a new instance of the peer: those of the codec that both ends have. If that is another than
    /// before, what was remembered by the other one is forgotten.
    fn agree_on_codec(&mut self, hello: &Hello) -> Result<(), LaneRefused> {
        let Some(codec) = self.codecs.agree(&hello.codecs) else {
            return Err(LaneRefused::NoCommonCodec {
                theirs: hello.codecs.ids().collect(),
                ours: self.codecs.ids(),
            });
        };
        let id = codec.id();
        let others = (self.codec.id() != id)
            .then(|| (codec.encoder(&self.config, None), codec.decoder(&self.config, None)));
        let parameters = hello.codecs.parameters(id).unwrap_or_default();
        let refused = |fault| LaneRefused::CodecParameters { codec: id, fault };
        match others {
            None => {
                self.sender.handle_parameters(parameters).map_err(refused)?;
                self.receiver.handle_parameters(parameters).map_err(refused)
            }
            Some((mut sender, mut receiver)) => {
                sender.handle_parameters(parameters).map_err(refused)?;
                receiver.handle_parameters(parameters).map_err(refused)?;
                (self.codec, self.sender, self.receiver) = (codec, sender, receiver);
                self.released = None;
                Ok(())
            }
        }
    }

    /// Starts over with a new instance of the peer.
    fn meet(&mut self, hello: &Hello, is_proved: bool, now: Now) {
        if let Some(old) = &self.peer {
            if self.superseded.len() == MAX_SUPERSEDED {
                self.superseded.pop_front();
            }
            self.superseded.push_back(old.instance);
            self.stats.peer_restarts += 1;
            self.events.push_back(Event::PeerRestarted);
        }
        let old: Vec<LaneId> = self.lanes.iter().map(|(id, _)| id).collect();
        for id in old {
            self.lanes.remove(id);
            self.leave_limiter(id, now);
            self.events.push_back(Event::CloseLane(id, CloseReason::Fenced));
        }
        self.meet_group(hello, is_proved);
        let capacity = self.config.log_capacity.min(hello.log_capacity);
        let strong = if hello.understands.highway { StrongKind::Highway } else { StrongKind::Blake3 };
        self.sender.handle_peer(PeerState {
            capacity,
            contexts: hello.contexts as usize,
            claim: hello.claim.clone(),
            store: hello.store.filter(|_| hello.understands.tags_of_48_bits),
            short_names_below: hello.short_names_below,
            is_of_group: self.group_talk.agreed,
            strong,
            continues: hello.understands.continues,
        });
        self.receiver.handle_peer(PeerSender {
            capacity,
            max_in_flight: hello.max_in_flight,
            digest_seed: hello.digest_seed,
            names: self.names_of(hello),
            strong,
            continues: hello.understands.continues,
            probe: hello.probe.clone(),
        });
        self.reset_all(ResetReason::PeerRestarted);
        self.next_seen = 0;
        self.forget_answers();
        self.control.clear();
        self.dead.clear();
        (self.peer_needs_lanes, self.told_lanes_needed) = (0, 0);
        self.peer = Some(Peer {
            instance: hello.instance,
            version: hello.version.min(VERSION),
            initial_credit: hello.initial_credit,
            understands: hello.understands,
            drains: false,
        });
        self.meet_announcer();
        self.drain_sender(now);
    }

    /// Becomes a new instance of this end, as after a restart: all agreements with the peer are over.
    fn become_another(&mut self, now: Now) {
        let lanes: Vec<LaneId> = self.lanes.iter().map(|(id, _)| id).collect();
        lanes.into_iter().for_each(|id| self.close_lane(id, CloseReason::Fenced, now));
        self.dead.clear();
        self.reset_all(ResetReason::PeerRestarted);
        self.stats.peer_restarts += 1;
        self.events.push_back(Event::PeerRestarted);
        self.superseded.clear();
        self.peer = None;
        self.config.instance = next_instance(self.config.instance);
        self.want_lanes();
    }

    /// Repeats all idempotent control state: the peer may have missed it.
    fn restate(&mut self, now: Now) {
        self.receiver.resend_control_state(now);
        self.sender.resend_control_state();
        self.tell_networks();
        self.tell_draining();
        self.restate_keepalives();
        if !self.config.dialer && !self.lanes.is_empty() {
            self.tell_lanes_needed(self.lanes_needed());
        }
        let extended =
            self.flows.values_mut().filter(|flow| flow.over.is_none() && flow.window.is_extended());
        for flow in extended {
            flow.credit_due = true;
            self.credit_due.insert(flow.id);
        }
        self.wake_control();
    }

    /// Forgets a lane with a closed socket; its flows go on with others.
    pub fn handle_lane_lost(&mut self, id: LaneId, now: Now) {
        self.forget_lane(id, Some(now), now);
    }

    /// Forgets a lane ended in order by its other end, behind all its bytes: nothing was lost if this end had left
    /// it.
    pub fn handle_lane_ended(&mut self, id: LaneId, now: Now) {
        let is_left = self.lanes.get(id).is_some_and(|lane| lane.stay == Stay::Left { told: true });
        self.forget_lane(id, Some(now).filter(|_| !is_left), now);
    }

    /// Forgets a lane; unless it ended in order, `lost` is when it was last of use.
    fn forget_lane(&mut self, id: LaneId, lost: Option<Now>, now: Now) {
        let Some(gone) = self.lanes.remove(id) else { return };
        let in_order = lost.is_none();
        // Flows in wait since the loss of another lane were counted then.
        let waiting: BTreeSet<FlowId> =
            self.flows.keys().copied().filter(|flow| self.sender.pending(*flow).lost).collect();
        self.sender.handle_lane_lost(id);
        self.receiver.handle_lane_lost(id);
        self.leave_limiter(id, now);
        let mut resumed = 0;
        let mut ids = Vec::new();
        for flow in self.flows.values_mut() {
            if flow.lane == Some(id) {
                flow.lane = None;
                flow.queued_on_lane = false;
            }
            if flow.lane.is_none() {
                ids.push(flow.id);
                resumed += u64::from(self.sender.pending(flow.id).lost && !waiting.contains(&flow.id));
            }
        }
        if let Some(at) = lost {
            self.dead.add(id);
            self.lose_brought(id, gone.is_within, at);
        }
        if self.lanes.is_empty() {
            self.down_since = Some(now);
            self.forget_group_talk();
            self.events.push_back(Event::Down);
        } else if !in_order {
            self.restate(now);
        }
        if resumed > 0 {
            self.stats.resumes += resumed;
            self.note(Note::Resumed { flows: resumed, lanes_left: !self.lanes.is_empty() });
        }
        ids.into_iter().for_each(|id| self.schedule(id));
        self.wake_for_answers();
        // A repair may have been lost with the lane; the peer asks for it again.
        self.want_lanes();
    }

    /// Gives up a lane of the link's own accord.
    pub(super) fn close_lane(&mut self, id: LaneId, reason: CloseReason, now: Now) {
        if let Some(heard) = self.lanes.get(id).map(|lane| lane.heard) {
            self.events.push_back(Event::CloseLane(id, reason));
            let lost = match reason {
                CloseReason::Left => None,
                CloseReason::Silent | CloseReason::DeadAtPeer => Some(heard),
                CloseReason::Fenced | CloseReason::Idle => Some(now),
            };
            self.forget_lane(id, lost, now);
        }
    }

    /// Flow lanes of use for this side: one for each active flow as long as the path has room for it, and some warm
    /// ones.
    fn lanes_needed(&self) -> u32 {
        let active: u32 = self.lanes.iter().map(|(_, lane)| lane.flows).sum();
        (active.min(self.lane_room.lanes()) + self.config.spare_lanes).min(self.config.max_lanes.max(1))
    }

    /// Flow lanes of use for either side.
    pub(super) fn flow_lanes(&self) -> u32 {
        self.lanes_needed().max(self.peer_needs_lanes.min(self.config.max_lanes))
    }

    /// Asks for the missing lanes: by dialling, or by a request to the peer.
    pub(super) fn want_lanes(&mut self) {
        let needed = self.lanes_needed();
        if self.config.dialer {
            let flow_lanes = self.flow_lanes();
            for (role, need) in [(LaneRole::Control, 1), (LaneRole::Repair, 1), (LaneRole::Flow, flow_lanes)]
            {
                let count = need.saturating_sub(self.lanes.kept(role));
                if self.lanes_wanted.insert(role, count).unwrap_or(0) != count {
                    self.events.push_back(Event::LanesWanted { role, count });
                }
            }
        } else if needed > self.told_lanes_needed && !self.lanes.is_empty() {
            self.tell_lanes_needed(needed);
        }
    }

    /// Takes back requests for lanes no longer needed; not at once, since flows pause and go on.
    pub(super) fn want_fewer_lanes(&mut self, now: Now) {
        let needed = self.lanes_needed();
        if self.config.dialer || needed >= self.told_lanes_needed || self.lanes.is_empty() {
            self.needs_fewer = None;
        } else if now >= *self.needs_fewer.get_or_insert(now) + FEWER_AFTER {
            self.tell_lanes_needed(needed);
        }
    }

    fn tell_lanes_needed(&mut self, needed: u32) {
        (self.told_lanes_needed, self.needs_fewer) = (needed, None);
        self.control.retain(|frame| !matches!(frame, Frame::LanesWanted(_)));
        self.control.push_back(Frame::LanesWanted(needed));
        self.wake_control();
    }

    /// The accepting side says how many flow lanes it has use for.
    pub(super) fn handle_lanes_wanted(&mut self, count: u32) {
        self.peer_needs_lanes = count;
        self.want_lanes();
    }
}

/// Returns an instance as random as the one before it (the mixer of SplitMix64).
fn next_instance(instance: u64) -> u64 {
    let mut mixed = instance.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// So long fewer lanes are needed before the peer is told: it leaves spare ones only after twice as long.
const FEWER_AFTER: Now = Now::from_secs(30);

/// Ended instances of the peer, as remembered. A forgotten one would have to live through as many restarts of the
/// peer without once dialling or being dialled.
const MAX_SUPERSEDED: usize = 64;
