//! The sending half of one direction.

use std::time::Duration;

use super::congestion::{AckSample, Congestion, Policy};
use super::packet::{Ack, Content, EndOfStream, Kind, MSS, Segment};
use super::rate::RateMeter;
use super::receiver::RECEIVE_WINDOW;
use super::rtt::Rtt;
use super::scoreboard::{Newly, Scoreboard};
use crate::Now;

/// The kernel's view of the sending half of a connection, as in Linux's TCP_INFO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendingReport {
    /// The congestion window, in segments.
    pub window: u64,
    /// The window in segments at the end of slow start; `None` if nothing has set one.
    pub slow_start_threshold: Option<u64>,
    /// The latest delivery rate not limited by the application, in segments a second.
    pub segments_per_s: f64,
    /// The shortest round trip so far.
    pub least_rtt: Option<Duration>,
    /// Written but unacknowledged bytes.
    pub outstanding: u64,
}

/// Sends one stream reliably within its windows.
#[derive(Debug)]
pub(crate) struct Sender {
    policy: Box<dyn Congestion>,
    board: Scoreboard,
    rtt: Rtt,
    meter: RateMeter,
    /// Bytes written by the application.
    written: u64,
    /// Places in sequence space behind the bytes.
    finish_at: Option<u64>,
    reset_at: Option<u64>,
    unacknowledged: u64,
    /// The first place never sent.
    next: u64,
    right_edge: u64,
    repair: Repair,
    alarm: Option<Alarm>,
    /// The time at which a segment behind later ones counts as lost.
    overdue_at: Option<Now>,
    /// When pacing allows the next segment, and whether one waits for it.
    pace_at: Now,
    pace_waits: bool,
    probe_due: bool,
    window_probe_due: bool,
    /// Whether a probe was sent since the last delivery.
    probed: bool,
    timeouts: u32,
    /// Doublings of the timeout since the last measured round trip [RFC 6298 §5.5 to 5.7]: with too short a timeout
    /// every segment is sent twice, so no round trip can be measured.
    backed_off: u32,
    /// Probes sent since the receiver last opened its window.
    window_probes: u32,
    next_round: u64,
    window_limited: bool,
    last_sent_at: Option<Now>,
    /// The most bytes waiting for the window, beside those under way.
    most_unsent: u64,
    /// Whether the application was told of too little room to wait for more.
    starved: bool,
    dead: bool,
}

/// Whether losses are being repaired, and up to which place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    None,
    /// After fast retransmit: the window does not grow.
    Recovery(u64),
    /// After a timeout: slow start goes on meanwhile.
    Timeout(u64),
}

#[derive(Clone, Copy, Debug)]
struct Alarm {
    at: Now,
    reason: AlarmReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlarmReason {
    /// The tail may be lost: send its last segment again [RFC 8985 §7].
    TailProbe,
    Retransmission,
    /// The window is closed and its opening may have been lost.
    WindowProbe,
}

impl Sender {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy: policy.start(),
            board: Scoreboard::default(),
            rtt: Rtt::default(),
            meter: RateMeter::default(),
            written: 0,
            finish_at: None,
            reset_at: None,
            unacknowledged: 0,
            next: 0,
            right_edge: RECEIVE_WINDOW,
            repair: Repair::None,
            alarm: None,
            overdue_at: None,
            pace_at: Now::ZERO,
            pace_waits: false,
            probe_due: false,
            window_probe_due: false,
            probed: false,
            timeouts: 0,
            backed_off: 0,
            window_probes: 0,
            next_round: 0,
            window_limited: false,
            last_sent_at: None,
            most_unsent: u64::MAX,
            starved: false,
            dead: false,
        }
    }

    /// Takes the round trip of the handshake.
    pub(crate) fn handle_handshake(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
    }

    /// Lets no more bytes wait for the window, as `TCP_NOTSENT_LOWAT` does.
    pub(crate) fn limit_unsent(&mut self, bytes: u64) {
        self.most_unsent = bytes;
    }

    /// Returns how many bytes the application may write.
    ///
    /// The buffer grows with the window, as Linux's autotuning makes it, between 128 KiB and 4 MiB.
    pub(crate) fn room(&self) -> u64 {
        if self.finish_at.is_some() || self.reset_at.is_some() || self.dead {
            return 0;
        }
        let buffered = self.buffer().saturating_sub(self.written - self.unacknowledged.min(self.written));
        buffered.min(self.most_unsent.saturating_sub(self.unsent()))
    }

    /// Takes written bytes, at most [`room`](Self::room); returns how many were taken.
    pub(crate) fn handle_written(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.room());
        self.written += taken;
        self.starved |= !self.is_writable();
        taken
    }

    /// Tells once of new room after there was little.
    pub(crate) fn take_writable(&mut self) -> bool {
        let writable = self.starved && self.is_writable();
        self.starved &= !writable;
        writable
    }

    /// Whether there is enough room to wake a writer for it: Linux's thresholds.
    fn is_writable(&self) -> bool {
        self.room() >= (self.buffer() / 4).min(self.most_unsent / 2)
    }

    fn unsent(&self) -> u64 {
        self.written.saturating_sub(self.next)
    }

    /// Ends the stream behind the written bytes.
    pub(crate) fn finish(&mut self) {
        if self.finish_at.is_none() && self.reset_at.is_none() {
            self.finish_at = Some(self.written);
        }
    }

    /// Ends the stream behind the sent bytes; unsent ones are dropped.
    pub(crate) fn reset(&mut self) {
        if self.reset_at.is_some() {
            return;
        }
        self.finish_at = self.finish_at.filter(|at| *at < self.next);
        if self.finish_at.is_none() {
            self.written = self.next;
        }
        self.reset_at = Some(self.next.max(self.written));
    }

    /// Returns the kernel's view of the sending half.
    pub(crate) fn report(&self) -> SendingReport {
        SendingReport {
            window: self.policy.window(),
            slow_start_threshold: self.policy.slow_start_threshold(),
            segments_per_s: self.meter.latest(),
            least_rtt: self.rtt.least(),
            outstanding: self.written - self.unacknowledged.min(self.written),
        }
    }

    /// Stops for good.
    pub(crate) fn kill(&mut self) {
        self.dead = true;
        self.alarm = None;
        self.overdue_at = None;
        self.pace_waits = false;
    }

    /// Tells whether nothing remains to be sent or acknowledged, ever.
    pub(crate) fn is_done(&self) -> bool {
        let end = self.reset_at.or(self.finish_at);
        self.dead || end.is_some_and(|end| self.unacknowledged > end)
    }

    /// Tells whether the path is given up: too many timeouts in a row.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.timeouts > MAX_TIMEOUTS
    }

    /// Returns the next packet to send now.
    pub(crate) fn poll_transmit(&mut self, now: Now) -> Option<Kind> {
        self.pace_waits = false;
        if self.dead {
            return None;
        }
        if std::mem::take(&mut self.window_probe_due) {
            return Some(Kind::WindowProbe);
        }
        let probe = std::mem::take(&mut self.probe_due);
        if !probe && !self.may_send(now) {
            return None;
        }
        let idle = self.board.is_empty();
        let snapshot = self.meter.snapshot(idle, now);
        let segment = if self.board.has_lost() {
            self.board.resend_lost(snapshot, now)
        } else if let Some(content) = self.peek_content() {
            self.restart_after_idle(idle, now);
            let segment = Segment { start: self.next, content, repeated: false };
            self.board.send(self.next, content, snapshot, now);
            self.next = segment.end();
            Some(segment)
        } else if probe {
            self.board.resend_last(snapshot, now)
        } else {
            None
        }?;
        self.note_sent(now);
        Some(Kind::Data(segment))
    }

    /// Takes an acknowledgement into account.
    pub(crate) fn handle_ack(&mut self, ack: &Ack, now: Now) {
        if self.dead {
            return;
        }
        if ack.right_edge > self.right_edge {
            self.right_edge = ack.right_edge;
            self.window_probes = 0;
        }
        if let Some(Alarm { reason: AlarmReason::WindowProbe, .. }) = self.alarm {
            self.alarm = None;
            self.timeouts = 0;
        }
        let newly = self.board.handle_ack(ack, now);
        self.unacknowledged = self.unacknowledged.max(ack.next);
        if newly.segments == 0 {
            return;
        }
        if let Some(rtt) = newly.rtt {
            self.rtt.sample(rtt);
            self.backed_off = 0;
        }
        self.timeouts = 0;
        self.probed = false;
        if let Repair::Recovery(until) | Repair::Timeout(until) = self.repair
            && self.unacknowledged >= until
        {
            self.repair = Repair::None;
        }
        self.find_losses(now);
        let sample = self.sample(&newly, now);
        self.policy.handle_ack(&sample);
        self.arm(now);
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout), then to transmit.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        let pace = self.pace_waits.then_some(self.pace_at);
        [self.alarm.map(|alarm| alarm.at), self.overdue_at, pace].into_iter().flatten().min()
    }

    /// Handles the due timers.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        if self.overdue_at.is_some_and(|at| at <= now) {
            self.find_losses(now);
        }
        let Some(alarm) = self.alarm.filter(|alarm| alarm.at <= now) else { return };
        match alarm.reason {
            AlarmReason::TailProbe => {
                self.probed = true;
                self.probe_due = true;
            }
            AlarmReason::WindowProbe => {
                self.timeouts += 1;
                self.window_probes += 1;
                self.window_probe_due = true;
            }
            AlarmReason::Retransmission => {
                self.timeouts += 1;
                self.backed_off += 1;
                self.board.lose_all();
                self.overdue_at = None;
                if !matches!(self.repair, Repair::Timeout(_)) {
                    self.policy.handle_timeout(now);
                }
                self.repair = Repair::Timeout(self.next);
            }
        }
        self.arm(now);
    }

    /// Checks congestion window and pacing; notes the limit in effect.
    fn may_send(&mut self, now: Now) -> bool {
        let content = self.peek_content();
        if !self.board.has_lost() && matches!(content, Some(Content::End(_))) {
            // A real stream's end rides on its last segment and costs no window.
            return true;
        }
        if !self.board.has_lost() && content.is_none() {
            self.window_limited = false;
            if self.board.in_flight() < self.policy.window() {
                self.meter.handle_app_limited(self.board.in_flight());
            }
            self.watch_closed_window(now);
            return false;
        }
        if self.board.in_flight() >= self.policy.window() {
            self.window_limited = true;
            return false;
        }
        self.pace_waits = self.policy.pacing_segments_per_s().is_some() && self.pace_at > now;
        !self.pace_waits
    }

    /// The next content in sequence space, if the receiver has room for it.
    fn peek_content(&self) -> Option<Content> {
        if self.next < self.written {
            let allowed = self.written.min(self.right_edge).checked_sub(self.next)?;
            let bytes = u32::try_from(allowed).unwrap_or(MSS).min(MSS);
            return (bytes > 0).then_some(Content::Payload(bytes));
        }
        if self.finish_at == Some(self.next) {
            Some(Content::End(EndOfStream::Finished))
        } else if self.reset_at == Some(self.next) {
            Some(Content::End(EndOfStream::Reset))
        } else {
            None
        }
    }

    fn watch_closed_window(&mut self, now: Now) {
        if self.next < self.written && self.board.is_empty() && self.alarm.is_none() {
            let at = now + backed_off(self.rtt.retransmission_timeout(), self.window_probes);
            self.alarm = Some(Alarm { at, reason: AlarmReason::WindowProbe });
        }
    }

    fn restart_after_idle(&mut self, idle: bool, now: Now) {
        if let Some(last) = self.last_sent_at.filter(|_| idle) {
            self.policy.handle_idle(now.saturating_sub(last), self.rtt.retransmission_timeout());
        }
    }

    fn note_sent(&mut self, now: Now) {
        self.last_sent_at = Some(now);
        if let Some(rate) = self.policy.pacing_segments_per_s() {
            self.pace_at = self.pace_at.max(now) + Duration::from_secs_f64(1.0 / rate);
        }
        // A running retransmission timer goes on [RFC 6298 §5.1]; the tail begins anew with each segment.
        if self.alarm.is_none_or(|alarm| alarm.reason != AlarmReason::Retransmission) {
            self.arm(now);
        }
    }

    fn find_losses(&mut self, now: Now) {
        let (losses, overdue_at) = self.board.detect_losses(self.rtt.reordering_window(), now);
        self.overdue_at = overdue_at;
        if losses > 0 && self.repair == Repair::None {
            self.repair = Repair::Recovery(self.next);
            self.policy.handle_loss(now);
        }
    }

    fn sample(&mut self, newly: &Newly, now: Now) -> AckSample {
        let mut rate = None;
        let mut round_start = false;
        if let Some((snapshot, sent_at)) = newly.latest {
            rate = self.meter.handle_delivered(newly.segments, snapshot, sent_at, now);
            if snapshot.delivered >= self.next_round {
                round_start = true;
                self.next_round = self.meter.delivered();
            }
        }
        AckSample {
            now,
            segments: newly.segments,
            delivered: self.meter.delivered(),
            in_flight: self.board.in_flight(),
            rtt: newly.rtt,
            smoothed_rtt: self.rtt.smoothed(),
            round_start,
            rate,
            in_recovery: matches!(self.repair, Repair::Recovery(_)),
            window_limited: self.window_limited,
        }
    }

    fn arm(&mut self, now: Now) {
        if self.board.is_empty() {
            self.alarm = None;
            return;
        }
        let timeout = backed_off(self.rtt.retransmission_timeout(), self.backed_off);
        let probe = self.rtt.smoothed().filter(|_| {
            self.repair == Repair::None && !self.probed && self.timeouts == 0 && !self.board.has_lost()
        });
        self.alarm = Some(match probe {
            Some(smoothed) => {
                let wait = (smoothed * 2).max(MIN_TAIL_PROBE).min(timeout);
                Alarm { at: now + wait, reason: AlarmReason::TailProbe }
            }
            None => Alarm { at: now + timeout, reason: AlarmReason::Retransmission },
        });
    }

    fn buffer(&self) -> u64 {
        (self.policy.window() * u64::from(MSS) * 2).clamp(MIN_SEND_BUFFER, MAX_SEND_BUFFER)
    }
}

fn backed_off(timeout: Duration, times: u32) -> Duration {
    timeout.saturating_mul(1 << times.min(16)).min(MAX_RTO)
}

/// Bounds of the send buffer in bytes, unacknowledged data included.
const MIN_SEND_BUFFER: u64 = 128 << 10;
const MAX_SEND_BUFFER: u64 = 4 << 20;
/// Timeouts in a row after which the connection is given up; with the back-off this takes minutes.
const MAX_TIMEOUTS: u32 = 10;
const MIN_TAIL_PROBE: Duration = Duration::from_millis(10);
const MAX_RTO: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::tcp::receiver::RECEIVE_WINDOW;

    /// All segments arrive in order, and are acknowledged after this time.
    const ROUND_TRIP: Duration = Duration::from_secs(3);

    #[test]
    fn short_timeout_stays_doubled_until_a_measured_round_trip() {
        let mut sender = Sender::new(Policy::Cubic);
        sender.handle_handshake(Duration::from_millis(100));
        sender.written = 100 * u64::from(MSS);
        let (mut now, mut repeated, mut arrived) = (Now::ZERO, 0, 0);
        let mut acks = VecDeque::new();
        while !sender.is_acknowledged() && now < Now::from_secs(300) {
            while let Some(Kind::Data(segment)) = sender.poll_transmit(now) {
                repeated += usize::from(segment.repeated);
                if segment.start <= arrived {
                    arrived = segment.end().max(arrived);
                }
                acks.push_back((now + ROUND_TRIP, arrived));
            }
            let next_ack = acks.front().map(|(at, _)| *at);
            now = [next_ack, sender.next_timeout()].into_iter().flatten().min().unwrap();
            if next_ack == Some(now) {
                let (_, next) = acks.pop_front().unwrap();
                let right_edge = next + RECEIVE_WINDOW;
                sender.handle_ack(&Ack { next, sacks: Default::default(), right_edge }, now);
            }
            sender.handle_timeout(now);
        }
        assert!(sender.is_acknowledged(), "{} of 100 segments in {now:?}", arrived / u64::from(MSS));
        assert!(repeated <= 30, "{repeated} of 100 segments were sent again");
    }

    impl Sender {
        fn is_acknowledged(&self) -> bool {
            self.unacknowledged == self.written
        }
    }
}
