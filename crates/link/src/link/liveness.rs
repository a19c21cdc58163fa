//! Time: round trips, silence, and flows' patience with a lost peer.

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole, Message, Reset, ResetReason};

use super::Link;
use crate::event::{CloseReason, Event, Note};
use crate::lanes::Stay;
use crate::limit::Limiter;
use crate::timing::Timing;

/// The smoothed round trip [RFC 6298 §2].
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Now>,
    /// The longest of late, and when it was seen.
    longest: (Now, Now),
    /// The shortest of this half minute and of the one before, and when this one began.
    shortest: [Option<Now>; 2],
    half_minute: Now,
}

impl RoundTrip {
    pub(super) fn smoothed(&self) -> Option<Now> {
        self.smoothed
    }

    fn sample(&mut self, sample: Now, now: Now) {
        self.smoothed = Some(match self.smoothed {
            None => sample,
            Some(smoothed) => (smoothed * 7 + sample) / 8,
        });
        let (longest, seen) = self.longest;
        if sample >= longest || now >= seen + LATELY {
            self.longest = (sample, now);
        }
        if now >= self.half_minute + LATELY / 2 {
            self.half_minute = now;
            self.shortest = [None, self.shortest[0]];
        }
        let [this, _] = &mut self.shortest;
        *this = Some(this.map_or(sample, |shortest| shortest.min(sample)));
    }

    /// Whether an answer at `due` comes no later than after three round trips without a queue, or little later; one
    /// of them counts with its present queue, unless the queue is for the answer's own bytes.
    pub(super) fn fits_two_more(&self, due: Now, is_queue_elsewhere: bool) -> bool {
        let shortest = self.shortest.into_iter().flatten().min();
        let (Some(smoothed), Some(shortest)) = (self.smoothed, shortest) else { return false };
        let present = if is_queue_elsewhere { smoothed } else { shortest };
        due.saturating_sub(present) <= 2 * shortest + LITTLE_LATER
    }

    /// The time for a live lane's answer.
    fn patience(&self) -> Now {
        // When a jam ends its late answers come all at once, and those on other lanes are as late.
        (self.smoothed.unwrap_or_default() * 8).max(self.longest.0 * 2)
    }
}

/// No sample of the round trip counts for more.
const LONGEST_ROUND_TRIP: Now = Now::from_secs(60);
/// For so long a long round trip is not forgotten.
const LATELY: Now = Now::from_secs(60);
/// Tolerance for the estimates of disk and line.
const LITTLE_LATER: Now = Now::from_millis(500);
/// A spare lane beyond those kept warm is closed after this long.
const IDLE_LANE: Now = Now::from_secs(60);

impl Link {
    /// When lanes are asked, and dead.
    pub(super) fn timing(&self) -> Timing {
        let round_trip = self.round_trip.smoothed().unwrap_or_default();
        Timing::new(self.config.dead_after, self.round_trip.patience(), round_trip, self.config.first)
    }

    pub(super) fn handle_pong(&mut self, lane: LaneId, token: u64, now: Now) {
        let sent = Now::from_micros(token);
        self.dead.handle_pong(lane, sent);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.answered = true;
        }
        if sent <= now {
            // A process after a stop reads its pongs late.
            self.round_trip.sample((now - sent).min(LONGEST_ROUND_TRIP), now);
            let patience = self.round_trip.smoothed().unwrap_or_default() * 2;
            self.receiver.handle_patience(patience.max(Now::from_millis(50)));
        }
    }

    /// When [`Self::handle_timeout`] is to be called; changes with every other call.
    pub fn poll_timeout(&self) -> Option<Now> {
        let (timing, probing) = (self.timing(), self.lanes.for_role(LaneRole::Control));
        let lanes = self.lanes.iter().filter_map(|(id, lane)| {
            let next_ping = lane.ask_at(&timing, probing == Some(id));
            next_ping.into_iter().chain(lane.silent_at(&timing)).chain(lane.look_at).min()
        });
        let suspects = self.suspects(&timing).map(|(at, ..)| at);
        // The rest of closed flows is given up, too, and then nothing is left.
        let resume = self
            .down_since
            .filter(|_| self.flows.values().any(|flow| flow.over.is_none() || flow.out.holds_stream()))
            .map(|since| since + self.config.resume_window);
        let receiver = self.receiver.poll_timeout().filter(|_| self.is_up());
        let turn = self.limiter.as_ref().and_then(Limiter::next_call);
        let reset = self.resets.first().map(|(at, _)| *at).filter(|_| self.is_up());
        lanes.chain(suspects).chain(resume).chain(receiver).chain(turn).chain(reset).min()
    }

    /// Handles the due timers.
    pub fn handle_timeout(&mut self, now: Now) {
        // Without a lane there is nobody to ask; pending requests are repeated when one comes.
        if self.is_up() {
            self.receiver.handle_timeout(now);
            self.take_deliveries(now);
            self.end_overdue(now);
        }
        if self.receiver.has_urgent_frame() {
            self.wake_control();
        }
        self.check_lanes(now);
        self.call_next(now);
        if let Some(since) = self.down_since
            && now >= since + self.config.resume_window
        {
            self.give_up();
        }
    }

    /// Lanes to be asked because of another's silence, the times, and whether their answers are due as soon: all
    /// those silent since the ping on the one that stands for the link; and all those silent as long as one whose
    /// silence was noticed on use.
    fn suspects(&self, timing: &Timing) -> impl Iterator<Item = (Now, LaneId, bool)> {
        let probing = self.lanes.for_role(LaneRole::Control).and_then(|id| self.lanes.get(id)?.asked);
        let doubted = self.lanes.iter().filter_map(|(_, lane)| lane.doubted_at()).min();
        let (dead, suspect) = (timing.dead, timing.suspect);
        self.lanes.iter().filter_map(move |(id, lane)| {
            let by_doubt = doubted.filter(|asked| lane.is_unasked_since(asked.saturating_sub(dead)));
            let by_probe = probing.filter(|asked| lane.is_unasked_since(*asked));
            let is_doubted = by_doubt.is_some();
            by_doubt.into_iter().chain(by_probe).min().map(|asked| (asked + suspect, id, is_doubted))
        })
    }

    fn check_lanes(&mut self, now: Now) {
        let (timing, probing) = (self.timing(), self.lanes.for_role(LaneRole::Control));
        let mut silent: Vec<LaneId> = Vec::new();
        let suspects = self.suspects(&timing).filter(|(at, ..)| *at <= now);
        let mut due: Vec<(LaneId, bool)> = suspects.map(|(_, id, is_doubted)| (id, is_doubted)).collect();
        for (id, lane) in self.lanes.iter() {
            if lane.silent_at(&timing).is_some_and(|at| at <= now) {
                silent.push(id);
            } else if lane.ask_at(&timing, probing == Some(id)).is_some_and(|at| at <= now) {
                due.push((id, false));
            }
        }
        for (id, is_doubted) in due {
            if let Some(lane) = self.lanes.get_mut(id) {
                lane.ask(now);
                lane.doubted |= is_doubted;
            }
            self.wake(id);
        }
        silent.into_iter().for_each(|id| self.close_lane(id, CloseReason::Silent, now));
        self.want_fewer_lanes(now);
        self.leave_idle(now);
        self.end_left(now);
        self.look_at_lanes(now);
    }

    /// The dialling side leaves spare lanes after a while without use. If both sides dial, one waits for longer: both
    /// would leave the same surplus, each of its own lanes, and dial it again.
    fn leave_idle(&mut self, now: Now) {
        let waits = !self.config.first && self.lanes.iter().any(|(_, lane)| !lane.dialled);
        let idle_for = if waits { IDLE_LANE * 5 / 4 } else { IDLE_LANE };
        let surplus = self.lanes.kept(LaneRole::Flow).saturating_sub(self.flow_lanes());
        let idle: Vec<LaneId> = self
            .lanes
            .iter()
            .filter(|(_, lane)| {
                let is_spare = lane.role == LaneRole::Flow && lane.flows == 0 && lane.stay == Stay::Kept;
                lane.dialled && is_spare && lane.used + idle_for <= now
            })
            .map(|(id, _)| id)
            .take(surplus as usize)
            .collect();
        idle.into_iter().for_each(|id| self.leave(id));
    }

    /// The peer did not come back in time; if it does later, it is told of the flows' end.
    fn give_up(&mut self) {
        let mut flows = 0;
        for (&id, flow) in &mut self.flows {
            if flow.over.is_some() {
                // The queue before its application's end is of no more use either.
                if !flow.out.is_done() {
                    flow.out.abandon();
                    flow.out
                        .push_message(Message::Reset(Reset { reason: ResetReason::PeerLost, behind: None }));
                }
                continue;
            }
            flows += 1;
            flow.end(ResetReason::PeerLost, false);
            flow.out.push_message(Message::Reset(Reset { reason: ResetReason::PeerLost, behind: None }));
            self.events.push_back(Event::FlowReadable(id));
            self.events.push_back(Event::FlowWritable(id));
        }
        if flows > 0 {
            self.note(Note::GaveUp { flows });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::{Bytes, BytesMut};
    use oncewire_codec::wire::Frame;

    use super::*;
    use crate::config::LinkConfig;
    use crate::event::OpenRequest;
    use crate::lanes::Lanes;

    #[test]
    fn queue_of_flows_ended_by_applications_goes_with_the_peer() {
        let config = |first| LinkConfig { instance: u64::from(first), first, ..LinkConfig::default() };
        let mut link = Link::new(config(true), Now::ZERO);
        let (lane, role) = (LaneId(1), LaneRole::Control);
        let hello = Link::new(config(false), Now::ZERO).hello(lane, role);
        link.handle_lane_up(1, &hello, lane, role, true, Now::ZERO).unwrap();
        let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let request = OpenRequest { destination, source: None, as_client: false, plan: None };
        let flow = link.open_flow(request, Now::ZERO).unwrap();
        let room = |link: &Link| link.flows[&flow].out.room(1 << 20);
        let empty = room(&link);
        link.handle_payload(flow, Bytes::from(vec![7; 100_000]), Now::ZERO).unwrap();
        link.handle_lane_lost(lane, Now::ZERO);
        link.abort_flow(flow, ResetReason::Application, Now::ZERO);
        assert_eq!(link.poll_timeout(), Some(link.config.resume_window));
        link.handle_timeout(link.config.resume_window / 2);
        assert_eq!(room(&link), empty - 100_000);
        link.handle_timeout(link.config.resume_window);
        assert_eq!(room(&link), empty);
        assert_eq!(link.poll_timeout(), None, "there is nothing left to give up");
    }

    #[test]
    fn burst_of_late_answers_does_not_make_lanes_dead() {
        let mut round_trip = RoundTrip::default();
        let jam = Now::from_secs(100);
        (0..75).rev().for_each(|secs| round_trip.sample(Now::from_secs(secs), jam));
        assert!(round_trip.patience() >= Now::from_secs(74 * 2));
        for secs in 0..60 {
            round_trip.sample(Now::from_millis(100), jam + LATELY + Now::from_secs(secs));
        }
        assert!(round_trip.patience() < Now::from_secs(1), "{:?}", round_trip.patience());
    }

    #[test]
    fn queue_leaves_an_answer_no_time_unless_elsewhere() {
        let mut round_trip = RoundTrip::default();
        let (at, ms) = (|secs| Now::from_secs(100 + secs), Now::from_millis);
        assert!(!round_trip.fits_two_more(ms(1), true), "nothing is known");
        round_trip.sample(ms(100), at(0));
        let fits =
            |round_trip: &RoundTrip, due| [false, true].map(|other| round_trip.fits_two_more(ms(due), other));
        assert_eq!([800, 801].map(|due| fits(&round_trip, due)), [[true; 2], [false; 2]]);
        (1..58u64).for_each(|secs| round_trip.sample(ms(2100), at(secs)));
        let smoothed = round_trip.smoothed().unwrap();
        assert!(smoothed > ms(2000));
        assert_eq!(
            [800, 801, 2000].map(|due| fits(&round_trip, due)),
            [[true; 2], [false, true], [false, true]]
        );
        assert!(!round_trip.fits_two_more(smoothed + ms(701), true));
        // A minute later the path is another one.
        (58..70u64).for_each(|secs| round_trip.sample(ms(2100), at(secs)));
        assert_eq!(fits(&round_trip, 6700), [true; 2]);
        round_trip.sample(ms(90), at(71));
        assert_eq!(fits(&round_trip, 771), [false, true]);
    }

    #[test]
    fn wait_of_a_link_is_bounded_for_any_round_trip() {
        let mut link = Link::new(LinkConfig::default(), Now::ZERO);
        let at = |minute: u64| Now::from_secs(60 * minute);
        (1..99).for_each(|minute| link.handle_pong(LaneId(1), 0, at(minute)));
        assert_eq!(link.timing().dead, LinkConfig::LONGEST_SILENCE);
    }

    /// The times of a link with lanes dead after so many seconds.
    fn timing(dead: u64) -> Timing {
        Timing::new(Some(Now::from_secs(dead)), Now::from_millis(400), Now::from_millis(50), true)
    }

    #[test]
    fn lane_is_dead_once_asked_with_time_to_answer() {
        let (mut lanes, lane, up) = (Lanes::default(), LaneId(1), Now::from_secs(100));
        lanes.insert(lane, LaneRole::Flow, true, up);
        let lane = lanes.get_mut(lane).unwrap();
        assert_eq!(lane.silent_at(&timing(40)), None, "it was not asked");
        lane.ask(up + Now::from_secs(10));
        lane.ask(up + Now::from_secs(20));
        assert_eq!(lane.silent_at(&timing(40)), Some(up + Now::from_secs(40)));
        // A limit reduced since then does not count from before the question.
        assert_eq!(lane.silent_at(&timing(8)), Some(up + Now::from_secs(13)));
        // The time of a question still unsent counts from the last arrival.
        lane.hear(up + Now::from_secs(30));
        assert_eq!(lane.silent_at(&timing(40)), Some(up + Now::from_secs(70)));
    }

    #[test]
    fn lane_is_asked_for_its_debt_or_its_role() {
        let (mut lanes, up) = (Lanes::default(), Now::from_secs(100));
        lanes.insert(LaneId(1), LaneRole::Flow, true, up);
        let lane = lanes.get_mut(LaneId(1)).unwrap();
        let (timing, secs) = (timing(10), |secs: f64| up + Now::from_secs_f64(secs));
        assert_eq!(lane.ask_at(&timing, false), None, "it is at rest");
        assert_eq!(lane.ask_at(&timing, true), Some(secs(5.0)));
        lane.answered = true;
        assert_eq!(lane.ask_at(&timing, true), Some(secs(5.3125)), "it is the peer's turn");
        assert!(!lane.speak(100, timing.dead, secs(1.0)));
        assert!(!lane.speak(100, timing.dead, secs(2.0)));
        assert_eq!(lane.ask_at(&timing, false), None, "what was sent is acknowledged");
        lane.flows = 1;
        assert_eq!(lane.ask_at(&timing, false), Some(secs(3.5)));
        lane.hear(secs(3.0));
        assert_eq!(lane.ask_at(&timing, false), None);
        lane.moved = 1 << 20;
        assert_eq!(lane.ask_at(&timing, false), Some(secs(2.5)), "its round trip counts");
        lane.ask(secs(3.0));
        assert_eq!(lane.ask_at(&timing, true), None, "it waits for its writer");
    }

    #[test]
    fn lane_unheard_for_long_is_doubted_on_use() {
        let (mut lanes, up) = (Lanes::default(), Now::from_secs(100));
        lanes.insert(LaneId(1), LaneRole::Flow, true, up);
        let lane = lanes.get_mut(LaneId(1)).unwrap();
        let (timing, use_at) = (timing(10), up + Now::from_secs(60));
        assert!(lane.speak(100, timing.dead, use_at));
        assert_eq!(lane.silent_at(&timing), Some(use_at + Now::from_secs(1)));
        assert!(!lane.speak(100, timing.dead, use_at));
        lane.hear(use_at);
        assert_eq!(lane.silent_at(&timing), None);
        assert!(!lane.speak(100, timing.dead, use_at + timing.dead - Now::from_millis(1)));
    }

    #[test]
    fn lanes_for_crowded_flows_are_not_closed_and_redialled() {
        let config = |first| LinkConfig {
            instance: u64::from(first),
            first,
            dialer: first,
            spare_lanes: 1,
            max_lanes: 8,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config(true), Now::ZERO);
        let meet = |link: &mut Link, lane: u64, role| {
            let hello = Link::new(config(false), Now::ZERO).hello(LaneId(lane), role);
            link.handle_lane_up(1, &hello, LaneId(lane), role, true, Now::ZERO).unwrap();
        };
        meet(&mut link, 1, LaneRole::Control);
        meet(&mut link, 2, LaneRole::Flow);
        for _ in 0..5 {
            let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
            let request = OpenRequest { destination, source: None, as_client: false, plan: None };
            let flow = link.open_flow(request, Now::ZERO).unwrap();
            link.handle_payload(flow, Bytes::from_static(b"not acknowledged"), Now::ZERO).unwrap();
        }
        (1..3).for_each(|lane| while link.poll_transmit(LaneId(lane), Now::ZERO, &mut Vec::new()) {});
        (3..8).for_each(|lane| meet(&mut link, lane, LaneRole::Flow));
        let later = IDLE_LANE * 2;
        for lane in 1..8 {
            let mut heard = Vec::new();
            Frame::Ping(1).encode(&mut heard);
            link.handle_input(LaneId(lane), &mut BytesMut::from(&heard[..]), later).unwrap();
        }
        link.handle_timeout(later);
        let events: Vec<Event> = std::iter::from_fn(|| link.poll_event()).collect();
        assert!(!events.iter().any(|event| matches!(event, Event::CloseLane(..))), "{events:?}");
        assert_eq!(link.stats().lanes, 7);
    }
}
