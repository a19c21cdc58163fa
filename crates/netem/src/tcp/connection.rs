//! One connection: a handshake and two directions.

use super::congestion::Policy;
use super::network::{Account, ConnectError, ConnectionId, Event, Side};
use super::packet::{EndOfStream, Kind, Segment};
use super::receiver::Receiver;
use super::rtt::INITIAL_RTO;
use super::sender::{Sender, SendingReport};
use crate::Now;

/// Both ends of one modelled connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) account: Account,
    opener: Side,
    opening: Opening,
    answering: Answering,
    ends: [End; 2],
    /// Set when nothing more will happen.
    over: bool,
}

/// The results of a call to a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) packets: Vec<(Side, Kind)>,
    pub(crate) events: Vec<Event>,
}

#[derive(Debug)]
struct End {
    sender: Sender,
    receiver: Receiver,
    /// The application is gone: it reset, was reset, or never came to be.
    gone: bool,
}

/// The opener's half of the handshake.
#[derive(Clone, Copy, Debug)]
enum Opening {
    Syn(Attempt),
    Done,
}

/// The other side's half.
#[derive(Clone, Copy, Debug)]
enum Answering {
    Nothing,
    /// The application was asked.
    Asked,
    SynAck(Attempt),
    Refused,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    first_at: Now,
    count: u32,
    again_at: Now,
}

impl Connection {
    /// Opens a connection: its SYN goes out at once.
    pub(crate) fn open(
        id: ConnectionId,
        account: Account,
        opener: Side,
        policy: Policy,
        now: Now,
        out: &mut Outbox,
    ) -> Self {
        let end = || End { sender: Sender::new(policy), receiver: Receiver::new(), gone: false };
        out.packets.push((opener, Kind::Syn));
        let opening = Opening::Syn(Attempt::first(now));
        let answering = Answering::Nothing;
        Self { id, account, opener, opening, answering, ends: [end(), end()], over: false }
    }

    /// Tells whether the connection can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns how many bytes an application may write.
    pub(crate) fn room(&self, side: Side) -> u64 {
        self.end(side).sender.room()
    }

    /// Limits the bytes of a side waiting for its window.
    pub(crate) fn limit_unsent(&mut self, side: Side, bytes: u64) {
        self.end_mut(side).sender.limit_unsent(bytes);
    }

    /// Returns the kernel's view of a side's sending half.
    pub(crate) fn report(&self, side: Side) -> SendingReport {
        self.end(side).sender.report()
    }

    /// Answers the opener: connected.
    pub(crate) fn accept(&mut self, now: Now, out: &mut Outbox) {
        if matches!(self.answering, Answering::Asked) {
            self.answering = Answering::SynAck(Attempt::first(now));
            out.packets.push((self.opener.other(), Kind::SynAck));
        }
    }

    /// Answers the opener: refused.
    pub(crate) fn refuse(&mut self, out: &mut Outbox) {
        if matches!(self.answering, Answering::Asked) {
            self.answering = Answering::Refused;
            out.packets.push((self.opener.other(), Kind::Refused));
        }
    }

    /// Takes bytes written by an application; returns their number.
    pub(crate) fn handle_written(&mut self, side: Side, bytes: u64) -> u64 {
        self.end_mut(side).sender.handle_written(bytes)
    }

    /// Ends an application's stream in order.
    pub(crate) fn finish(&mut self, side: Side) {
        self.end_mut(side).sender.finish();
    }

    /// Ends both directions because an application reset.
    pub(crate) fn reset(&mut self, side: Side, out: &mut Outbox) {
        if matches!(self.opening, Opening::Syn(_)) {
            // Nothing was exchanged in order for an end to follow.
            if side == self.opener {
                self.abandon(out);
            } else {
                out.events.push(Event::Failed(self.id, ConnectError::Refused));
                self.over = true;
            }
            return;
        }
        let end = self.end_mut(side);
        end.gone = true;
        end.sender.reset();
        end.receiver.discard();
    }

    /// Frees receive buffer.
    pub(crate) fn handle_consumed(&mut self, side: Side, bytes: u64, out: &mut Outbox) {
        let receiver = &mut self.end_mut(side).receiver;
        if receiver.handle_consumed(bytes) {
            out.packets.push((side, Kind::Ack(receiver.ack())));
        }
    }

    /// Takes a packet received at `at`.
    pub(crate) fn handle_packet(&mut self, at: Side, kind: Kind, now: Now, out: &mut Outbox) {
        match kind {
            Kind::Syn => self.handle_syn(out),
            Kind::SynAck => self.handle_syn_ack(now, out),
            Kind::Refused => self.handle_refused(out),
            Kind::Data(segment) => {
                self.complete_handshake(at, now);
                self.handle_segment(at, &segment, out);
            }
            Kind::Ack(ack) => {
                self.complete_handshake(at, now);
                self.end_mut(at).sender.handle_ack(&ack, now);
            }
            Kind::WindowProbe => {
                let ack = self.end_mut(at).receiver.ack();
                out.packets.push((at, Kind::Ack(ack)));
            }
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        let opening = match self.opening {
            Opening::Syn(attempt) => Some(attempt.again_at),
            Opening::Done => None,
        };
        let answering = match self.answering {
            Answering::SynAck(attempt) => Some(attempt.again_at),
            _ => None,
        };
        let [near, far] = self.ends.each_ref().map(|end| end.sender.next_timeout());
        [opening, answering, near, far].into_iter().flatten().min()
    }

    /// Handles the due timers.
    pub(crate) fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        if let Opening::Syn(attempt) = &mut self.opening
            && attempt.again_at <= now
        {
            if !attempt.retry(now) {
                out.events.push(Event::Failed(self.id, ConnectError::TimedOut));
                self.abandon(out);
                return;
            }
            out.packets.push((self.opener, Kind::Syn));
        }
        if let Answering::SynAck(attempt) = &mut self.answering
            && attempt.again_at <= now
        {
            if !attempt.retry(now) {
                self.fail(out);
                return;
            }
            out.packets.push((self.opener.other(), Kind::SynAck));
        }
        for end in &mut self.ends {
            end.sender.handle_timeout(now);
        }
        if self.ends.iter().any(|end| end.sender.has_timed_out()) {
            self.fail(out);
        }
    }

    /// Sends as much as possible, and tells applications of changes; to be called after every other call.
    pub(crate) fn transmit(&mut self, now: Now, out: &mut Outbox) {
        for side in [Side::Near, Side::Far] {
            if !self.may_send(side) {
                continue;
            }
            let id = self.id;
            let end = self.end_mut(side);
            while let Some(kind) = end.sender.poll_transmit(now) {
                out.packets.push((side, kind));
            }
            if !end.gone && end.sender.take_writable() {
                out.events.push(Event::Writable { connection: id, side });
            }
        }
        self.over |= self.ends.iter().all(|end| end.sender.is_done());
    }

    fn handle_syn(&mut self, out: &mut Outbox) {
        let peer = self.opener.other();
        match self.answering {
            Answering::Nothing => {
                self.answering = Answering::Asked;
                out.events.push(Event::Incoming(self.id));
            }
            Answering::SynAck(_) => out.packets.push((peer, Kind::SynAck)),
            Answering::Refused => out.packets.push((peer, Kind::Refused)),
            Answering::Asked | Answering::Done => {}
        }
    }

    fn handle_syn_ack(&mut self, now: Now, out: &mut Outbox) {
        let opener = self.opener;
        if let Opening::Syn(attempt) = self.opening {
            self.opening = Opening::Done;
            if attempt.count == 1 {
                self.end_mut(opener).sender.handle_handshake(now.saturating_sub(attempt.first_at));
            }
            out.events.push(Event::Connected(self.id));
        }
        // A repeated SYN-ACK means the loss of this one.
        let ack = self.end_mut(opener).receiver.ack();
        out.packets.push((opener, Kind::Ack(ack)));
    }

    fn handle_refused(&mut self, out: &mut Outbox) {
        if matches!(self.opening, Opening::Syn(_)) {
            out.events.push(Event::Failed(self.id, ConnectError::Refused));
            self.over = true;
        }
    }

    fn complete_handshake(&mut self, at: Side, now: Now) {
        if at != self.opener
            && let Answering::SynAck(attempt) = self.answering
        {
            self.answering = Answering::Done;
            if attempt.count == 1 {
                self.end_mut(at).sender.handle_handshake(now.saturating_sub(attempt.first_at));
            }
        }
    }

    fn handle_segment(&mut self, at: Side, segment: &Segment, out: &mut Outbox) {
        let id = self.id;
        let end = self.end_mut(at);
        let arrived = end.receiver.handle_segment(segment);
        out.packets.push((at, Kind::Ack(end.receiver.ack())));
        if end.gone {
            if arrived.end == Some(EndOfStream::Reset) {
                end.sender.kill();
            }
            return;
        }
        if arrived.readable > 0 {
            out.events.push(Event::Readable { connection: id, side: at, bytes: arrived.readable });
        }
        match arrived.end {
            Some(EndOfStream::Finished) => out.events.push(Event::Finished { connection: id, side: at }),
            Some(EndOfStream::Reset) => {
                out.events.push(Event::Reset { connection: id, side: at });
                end.gone = true;
                end.receiver.discard();
                end.sender.kill();
            }
            None => {}
        }
    }

    /// Gives the connection up and tells every remaining application.
    fn fail(&mut self, out: &mut Outbox) {
        for side in [Side::Near, Side::Far] {
            if !std::mem::replace(&mut self.end_mut(side).gone, true) {
                out.events.push(Event::Reset { connection: self.id, side });
            }
        }
        self.over = true;
    }

    /// Ends a failed opening, and tells the other application if it was asked.
    fn abandon(&mut self, out: &mut Outbox) {
        if matches!(self.answering, Answering::Asked | Answering::SynAck(_)) {
            out.events.push(Event::Reset { connection: self.id, side: self.opener.other() });
        }
        self.over = true;
    }

    fn may_send(&self, side: Side) -> bool {
        if side == self.opener {
            matches!(self.opening, Opening::Done)
        } else {
            matches!(self.answering, Answering::Done)
        }
    }

    fn end(&self, side: Side) -> &End {
        let [near, far] = &self.ends;
        match side {
            Side::Near => near,
            Side::Far => far,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End {
        let [near, far] = &mut self.ends;
        match side {
            Side::Near => near,
            Side::Far => far,
        }
    }
}

impl Attempt {
    fn first(now: Now) -> Self {
        Self { first_at: now, count: 1, again_at: now + INITIAL_RTO }
    }

    /// Counts another attempt; false when there were enough.
    fn retry(&mut self, now: Now) -> bool {
        if self.count >= MAX_ATTEMPTS {
            return false;
        }
        self.again_at = now + INITIAL_RTO * 2u32.pow(self.count);
        self.count += 1;
        true
    }
}

/// SYNs before a connection attempt is given up, after about a minute.
const MAX_ATTEMPTS: u32 = 6;
