//! Frames in.

use bytes::{Buf, Bytes, BytesMut};
use oncewire_codec::Now;
use oncewire_codec::contract::{Arrival, Delivery, PeerFault};
use oncewire_codec::wire::{
    FIRST_OPTIONAL, FlowId, Frame, LaneId, LaneRole, Message, Open, OpenFailure, Opened, Owner, RawFrame,
    ResetReason, WireError, owner, take_frame,
};

use super::Link;
use crate::event::{CloseReason, Event, Note, OpenRequest};
use crate::flow::OpenState;
use crate::halves::LogSide;
use crate::toll::{Toll, Turn};

/// An item of a flow that came.
#[derive(Clone, Copy, Debug)]
struct Came {
    seq: u64,
    /// Whether it says of itself that it was sent before.
    is_resent: bool,
    /// The flow offset behind its bytes, if it has any.
    end: Option<u64>,
    /// The length of its frame.
    wire: usize,
}

impl Link {
    /// Takes every whole frame at the front of `input` and leaves an incomplete one.
    ///
    /// # Errors
    /// A breach of the protocol: the lane is to be closed, and [`Self::handle_lane_lost`] called.
    pub fn handle_input(&mut self, lane: LaneId, input: &mut BytesMut, now: Now) -> Result<(), PeerFault> {
        while self.handle_some_input(lane, input, now)?.more {}
        Ok(())
    }

    /// As [`Self::handle_input`], but ends once the frames were some milliseconds of work: between turns others have
    /// the CPU, and the lock of the link.
    ///
    /// # Errors
    /// As [`Self::handle_input`].
    pub fn handle_some_input(
        &mut self,
        lane: LaneId,
        input: &mut BytesMut,
        now: Now,
    ) -> Result<Turn, PeerFault> {
        let relieves = match self.lanes.get_mut(lane) {
            Some(lane) => {
                lane.pulse.hear(now);
                !std::mem::replace(&mut lane.is_proven, true) && lane.role == LaneRole::Flow
            }
            // A fenced lane: its remaining bytes belong to the past.
            None => {
                input.clear();
                return Ok(Turn::default());
            }
        };
        let (mut taken, enough) = (0, self.halves.work() + Toll::WORK_OF_A_TURN);
        let outcome = loop {
            match take_frame(&input[taken..]) {
                Ok(Some(frame)) => {
                    let outcome = self.handle_frame(lane, frame, now);
                    taken += frame.2;
                    if let Err(error) = outcome {
                        break Err(error);
                    }
                    if self.halves.work() >= enough {
                        break Ok(true);
                    }
                }
                Ok(None) => break Ok(false),
                Err(error) => break Err(error.into()),
            }
        };
        input.advance(taken);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.pulse.count(taken as u64);
            lane.is_within = !input.is_empty();
        }
        let (round_trip, store) = (self.liveness.smoothed(), self.halves.decoder.store_mut());
        self.path.handle_arrived(taken as u64, round_trip, store, now);
        self.drain_encoder(now);
        self.drain_decoder();
        self.release_held();
        self.wake_for_feedback();
        if relieves {
            self.relieve();
        }
        self.end_left(now);
        let excess = self.toll.take_excess(self.halves.work(), taken);
        outcome.map(|more| Turn { more, excess })
    }

    /// Passes a frame on to the owner of its type.
    fn handle_frame(&mut self, lane: LaneId, frame: RawFrame<'_>, now: Now) -> Result<(), PeerFault> {
        let (kind, ..) = frame;
        match owner(kind) {
            // Frames behind the end of a lane were lost with it.
            Some(Owner::Encoder | Owner::Decoder) if self.lanes.get(lane).is_none() => Ok(()),
            Some(Owner::Encoder) => self.handle_feedback(lane, frame, now),
            Some(Owner::Decoder) => self.handle_coded(lane, frame, now),
            Some(Owner::Link | Owner::Group) => self.handle_own(lane, frame, now),
            None if kind >= FIRST_OPTIONAL => {
                self.stats.passed_over += 1;
                Ok(())
            }
            None => Err(WireError::UnknownType(kind).into()),
        }
    }

    fn handle_feedback(
        &mut self,
        lane: LaneId,
        (kind, body, _): RawFrame<'_>,
        now: Now,
    ) -> Result<(), PeerFault> {
        let heard = self.halves.encoder.handle_frame(kind, body, lane, now)?;
        if heard.repairs {
            self.wake_repairs();
        }
        if let Some(seq) = heard.asked {
            self.handle_asked(seq);
        }
        if heard.control {
            self.wake_control();
        }
        Ok(())
    }

    fn handle_coded(
        &mut self,
        lane: LaneId,
        (kind, body, wire): RawFrame<'_>,
        now: Now,
    ) -> Result<(), PeerFault> {
        match self.halves.decoder.handle_frame(kind, body, lane, now)? {
            Some(Arrival::Item { flow, seq, is_resent, end }) => {
                let came = Came { seq, is_resent, end, wire };
                if end.is_some() {
                    self.note_brought(flow, lane, came, now);
                    if let Some(lane) = self.lanes.get_mut(lane) {
                        lane.used = now;
                    }
                    self.want_logs();
                    self.drain_deliveries(now)?;
                } else {
                    self.drain_deliveries(now)?;
                    // Behind a message, since it may have opened the flow.
                    self.note_brought(flow, lane, came, now);
                }
                Ok(())
            }
            Some(Arrival::Chunks { flow }) => {
                if let Some(flow) = self.flows.get_mut(flow) {
                    flow.wire[1] += wire as u64;
                }
                self.drain_deliveries(now)
            }
            None => Ok(()),
        }
    }

    fn handle_own(
        &mut self,
        lane: LaneId,
        (kind, body, used): RawFrame<'_>,
        now: Now,
    ) -> Result<(), PeerFault> {
        match Frame::decode(kind, body)? {
            Frame::Credit { flow, limit } => {
                if let Some(flow) = self.flows.get_mut(flow) {
                    flow.wire[1] += used as u64;
                    flow.out.credit = flow.out.credit.max(limit);
                }
                self.schedule(flow);
            }
            Frame::Ping(token) => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.pulse.handle_ping(token);
                }
                self.wake(lane);
            }
            Frame::Pong(token) => self.handle_pong(lane, token, now),
            Frame::LanesWanted(count) => self.handle_lanes_wanted(count),
            Frame::LaneDead(dead) if dead != lane => {
                self.close_lane(dead, CloseReason::DeadAtPeer, now);
                self.liveness.dead.remove(dead);
            }
            Frame::LaneDead(_) => {}
            Frame::Networks(said) => {
                let news = self.announcements.handle_networks(said);
                self.events.extend(news.map(Event::Announced));
            }
            Frame::Draining => self.handle_draining(),
            Frame::LaneWorn => self.handle_lane_worn(lane, now),
            Frame::LaneLeft => self.handle_lane_left(lane),
            Frame::KeepAlive(said) => self.handle_keepalive(said),
            Frame::Group(frame) => self.handle_group(frame),
            // A codec's.
            _ => return Err(WireError::UnknownType(kind).into()),
        }
        Ok(())
    }

    /// Wakes a lane for repairs.
    fn wake_repairs(&mut self) {
        if self.halves.encoder.load().has_repairs
            && let Some(id) = self.lanes.for_role(LaneRole::Repair)
            && let Some(lane) = self.lanes.get(id)
        {
            if lane.woken {
                self.share_asked();
            } else {
                self.wake(id);
            }
        }
    }

    /// As [`Self::drain_deliveries`] without a lane to blame: bytes beyond a flow's limits are dropped.
    pub(super) fn take_deliveries(&mut self, now: Now) {
        let _ = self.drain_deliveries(now);
    }

    fn drain_deliveries(&mut self, now: Now) -> Result<(), PeerFault> {
        let mut outcome = Ok(());
        while let Some(delivery) = self.halves.decoder.poll_payload() {
            let result = match delivery {
                Delivery::Data { flow, offset, plain, fin } => {
                    self.toll.note_delivered(plain.len());
                    self.deliver(flow, offset, plain, fin)
                }
                Delivery::Message { flow, message } => self.handle_message(flow, message, now),
            };
            outcome = outcome.and(result);
        }
        outcome
    }

    fn deliver(&mut self, id: FlowId, offset: u64, plain: Bytes, fin: bool) -> Result<(), PeerFault> {
        self.note_filled(LogSide::Inbound, plain.len());
        // Blocks of a closed flow still went to the log [EndRE §6.2]; nobody waits for their bytes.
        let is_overrun = self.flows.windows.is_overrun();
        let Some(flow) = self.flows.live_mut(id) else { return Ok(()) };
        if is_overrun {
            self.refuse_bytes(id);
            return Ok(());
        }
        let news = flow.inbound.insert(id, offset, plain, fin)?;
        if news {
            self.events.push_back(Event::FlowReadable(id));
        }
        self.end_if_complete(id);
        Ok(())
    }

    /// Resets a flow of a peer with more sent bytes than there is memory for.
    fn refuse_bytes(&mut self, id: FlowId) {
        self.stats.flows_overrun += 1;
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.inbound.clear();
        flow.abort(ResetReason::Internal);
        if let Some(over) = &mut flow.over {
            over.told = false;
        }
        self.flows.drop_grant(id);
        self.events.push_back(Event::FlowReadable(id));
        self.events.push_back(Event::FlowWritable(id));
        self.schedule(id);
    }

    fn handle_message(&mut self, id: FlowId, message: Message, now: Now) -> Result<(), PeerFault> {
        match message {
            Message::Open(open) => return self.handle_open(id, open, now),
            Message::Opened(answer) => self.handle_opened(id, answer),
            Message::Reset(reset) => self.handle_reset(id, reset, now),
        }
        Ok(())
    }

    fn handle_open(&mut self, id: FlowId, open: Open, now: Now) -> Result<(), PeerFault> {
        if self.flows.is_ours(id) || self.flows.get(id).is_some() {
            return Err(PeerFault::FlowNumber { flow: id });
        }
        // The two ends count a little differently while acknowledgements are under way.
        if self.flows.len() >= 2 * crate::MAX_FLOWS {
            return Err(PeerFault::TooManyFlows);
        }
        self.want_logs();
        let plan = open.coded.then_some(self.config.plan);
        let Open { destination, source, as_client, credit_shift, .. } = open;
        let request = OpenRequest { destination, source, as_client, plan };
        let mut flow = self.new_flow(id, open.id, request.clone(), OpenState::Offered, credit_shift, now);
        if self.announcements.is_draining() || self.flows.len() >= crate::MAX_FLOWS {
            let failure =
                if self.announcements.is_draining() { OpenFailure::Draining } else { OpenFailure::Other };
            flow.out.push_message(Message::Opened(Err(self.identities.translate(failure))));
            flow.end_quietly(ResetReason::OpenFailed);
            self.flows.insert(flow);
            self.schedule(id);
            return Ok(());
        }
        self.flows.insert(flow);
        self.extend_divided(id, credit_shift);
        self.events.push_back(Event::FlowOffered { flow: id, open: request });
        Ok(())
    }

    fn handle_opened(&mut self, id: FlowId, answer: Result<Opened, OpenFailure>) {
        let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.open == OpenState::Asked) else { return };
        let unspecified = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        flow.open = OpenState::Answered(answer.map(|opened| opened.address.unwrap_or(unspecified)));
        if answer.is_ok_and(|opened| !opened.coded) {
            flow.coding.lower_by_peer();
        }
        if answer.is_err() {
            // The answer itself tells the application; no reset follows it.
            flow.end(ResetReason::OpenFailed, true);
        }
        if answer == Err(OpenFailure::Draining) {
            // The news itself travels on another lane.
            self.handle_draining();
        }
        self.events.push_back(Event::FlowReadable(id));
        self.events.push_back(Event::FlowWritable(id));
    }

    /// Counts an item of a flow, and the flow if it goes on after the loss of its lane.
    fn note_brought(&mut self, id: FlowId, lane: LaneId, came: Came, now: Now) {
        let Came { seq, is_resent, end, wire } = came;
        self.flows.see(seq);
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.wire[1] += wire as u64;
        if let Some(end) = end.filter(|_| flow.over.is_none()) {
            let waits = flow.inbound.waits(0);
            flow.inbound.window.handle_sent(end, waits);
        }
        // Repairs come on a lane of their own.
        let is_flows = |lane| self.lanes.get(lane).is_some_and(|lane| lane.role != LaneRole::Repair);
        let brought = &mut flow.place.brought;
        if (brought.is_on(lane) || is_flows(lane)) && brought.note(lane, seq, is_resent, now) {
            self.stats.resumes += 1;
            self.note(Note::WentOn);
        }
    }
}
