//! A sender's record of its segments on the way.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::packet::{Ack, Content, Segment};
use super::ranges::RangeSet;
use super::rate::Snapshot;
use crate::Now;

/// Every segment from the first unacknowledged to the last sent.
///
/// Losses are found by order of transmission, as RACK and QUIC do [RFC 8985, RFC 9002 §6.1]: a transmission is lost
/// if one sent three or more later was delivered, or if any later one was and a reordering window has passed. This
/// finds lost retransmissions, too; counting duplicate acknowledgements does not.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    sent: VecDeque<Sent>,
    /// (transmission, start of the segment), oldest first; entries of delivered segments are dropped lazily.
    transmissions: VecDeque<(u64, u64)>,
    sacked: RangeSet,
    /// Starts of lost segments, not yet sent again.
    lost: BTreeSet<u64>,
    next_transmission: u64,
    /// One above the latest transmission known to have been delivered.
    delivered_transmission: u64,
    in_flight: u64,
}

#[derive(Clone, Debug)]
struct Sent {
    start: u64,
    content: Content,
    transmission: u64,
    at: Now,
    state: State,
    /// Sent more than once: its round trip is ambiguous.
    repeated: bool,
    snapshot: Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Delivered,
    Lost,
}

/// The news of one acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newly {
    /// Segments delivered.
    pub(crate) segments: u64,
    /// Round trip of the latest of them sent only once.
    pub(crate) rtt: Option<Duration>,
    /// The snapshot of the latest transmission among them, for a rate sample, and its time.
    pub(crate) latest: Option<(Snapshot, Now)>,
    latest_transmission: u64,
}

impl Scoreboard {
    /// Returns segments sent, not delivered and not known to be lost.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Tells whether nothing waits for an acknowledgement.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Tells whether a lost segment waits to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Notes a segment sent for the first time.
    pub(crate) fn send(&mut self, start: u64, content: Content, snapshot: Snapshot, now: Now) {
        let transmission = self.count_transmission(start);
        self.sent.push_back(Sent {
            start,
            content,
            transmission,
            at: now,
            state: State::InFlight,
            repeated: false,
            snapshot,
        });
    }

    /// Takes the first lost segment to be sent again.
    pub(crate) fn resend_lost(&mut self, snapshot: Snapshot, now: Now) -> Option<Segment> {
        let start = self.lost.pop_first()?;
        let index = self.index(start)?;
        self.resend(index, snapshot, now)
    }

    /// Takes the last undelivered segment to be sent again as a probe.
    pub(crate) fn resend_last(&mut self, snapshot: Snapshot, now: Now) -> Option<Segment> {
        let index = self.sent.iter().rposition(|sent| sent.state != State::Delivered)?;
        let sent = self.sent.get(index)?;
        match sent.state {
            State::InFlight => self.in_flight -= 1,
            _ => {
                self.lost.remove(&sent.start);
            }
        }
        self.resend(index, snapshot, now)
    }

    /// Takes an acknowledgement into account.
    pub(crate) fn handle_ack(&mut self, ack: &Ack, now: Now) -> Newly {
        let mut newly = Newly::default();
        while let Some(first) = self.sent.front_mut().filter(|s| s.start + s.content.span() <= ack.next) {
            deliver(first, &mut self.in_flight, &mut self.lost, &mut newly, now);
            self.sent.pop_front();
        }
        self.sacked.remove_below(ack.next);
        for (start, end) in ack.sacks {
            let sent = &mut self.sent;
            let (in_flight, lost) = (&mut self.in_flight, &mut self.lost);
            self.sacked.insert(start.max(ack.next), end, |from, to| {
                let first = sent.partition_point(|s| s.start < from);
                for segment in sent.range_mut(first..).take_while(|s| s.start < to) {
                    deliver(segment, in_flight, lost, &mut newly, now);
                }
            });
        }
        if newly.latest.is_some() {
            self.delivered_transmission = self.delivered_transmission.max(newly.latest_transmission + 1);
        }
        newly
    }

    /// Marks segments lost by now; returns their number, and the time of the next check.
    pub(crate) fn detect_losses(&mut self, window: Duration, now: Now) -> (u64, Option<Now>) {
        let mut losses = 0;
        while let Some(&(transmission, start)) = self.transmissions.front() {
            if transmission >= self.delivered_transmission {
                return (losses, None);
            }
            let index = self.index(start).filter(|index| {
                self.sent
                    .get(*index)
                    .is_some_and(|s| s.transmission == transmission && s.state == State::InFlight)
            });
            if let Some(sent) = index.and_then(|index| self.sent.get_mut(index)) {
                let overdue_at = sent.at + window;
                if transmission + REORDERING_SEGMENTS >= self.delivered_transmission && overdue_at > now {
                    return (losses, Some(overdue_at));
                }
                sent.state = State::Lost;
                self.lost.insert(start);
                self.in_flight -= 1;
                losses += 1;
            }
            self.transmissions.pop_front();
        }
        (losses, None)
    }

    /// Marks all undelivered segments as lost, after a timeout.
    pub(crate) fn lose_all(&mut self) {
        for sent in self.sent.iter_mut().filter(|s| s.state == State::InFlight) {
            sent.state = State::Lost;
            self.lost.insert(sent.start);
        }
        self.transmissions.clear();
        self.in_flight = 0;
    }

    fn resend(&mut self, index: usize, snapshot: Snapshot, now: Now) -> Option<Segment> {
        let start = self.sent.get(index)?.start;
        let transmission = self.count_transmission(start);
        let sent = self.sent.get_mut(index)?;
        sent.transmission = transmission;
        sent.at = now;
        sent.state = State::InFlight;
        sent.repeated = true;
        sent.snapshot = snapshot;
        Some(Segment { start, content: sent.content, repeated: true })
    }

    fn count_transmission(&mut self, start: u64) -> u64 {
        let transmission = self.next_transmission;
        self.next_transmission += 1;
        self.transmissions.push_back((transmission, start));
        self.in_flight += 1;
        transmission
    }

    fn index(&self, start: u64) -> Option<usize> {
        self.sent.binary_search_by_key(&start, |s| s.start).ok()
    }
}

fn deliver(sent: &mut Sent, in_flight: &mut u64, lost: &mut BTreeSet<u64>, newly: &mut Newly, now: Now) {
    match sent.state {
        State::Delivered => return,
        State::InFlight => *in_flight -= 1,
        State::Lost => {
            lost.remove(&sent.start);
        }
    }
    sent.state = State::Delivered;
    newly.segments += 1;
    if newly.latest.is_none() || sent.transmission >= newly.latest_transmission {
        newly.latest_transmission = sent.transmission;
        newly.latest = Some((sent.snapshot, sent.at));
        if !sent.repeated {
            newly.rtt = Some(now.saturating_sub(sent.at));
        }
    }
}

/// Later transmissions delivered before an earlier one counts as lost at once [RFC 5681's three].
const REORDERING_SEGMENTS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for n in 0..segments {
            board.send(n * 100, Content::Payload(100), Snapshot::default(), MS * n as u32);
        }
        board
    }

    fn sack(next: u64, start: u64, end: u64) -> Ack {
        Ack { next, sacks: [(start, end), (0, 0), (0, 0)], right_edge: u64::MAX }
    }

    #[test]
    fn a_cumulative_acknowledgement_delivers_all_below() {
        let mut board = board(4);
        let newly = board.handle_ack(&sack(300, 0, 0), 50 * MS);
        assert_eq!((newly.segments, newly.rtt, board.in_flight()), (3, Some(48 * MS), 1));
        assert_eq!(board.handle_ack(&sack(300, 0, 0), 60 * MS).segments, 0);
    }

    #[test]
    fn three_later_deliveries_make_a_segment_lost() {
        let mut board = board(6);
        board.handle_ack(&sack(100, 200, 300), 50 * MS);
        assert_eq!(board.detect_losses(100 * MS, 50 * MS), (0, Some(101 * MS)));
        board.handle_ack(&sack(100, 200, 400), 51 * MS);
        board.handle_ack(&sack(100, 200, 500), 52 * MS);
        assert_eq!(board.detect_losses(100 * MS, 52 * MS), (1, None));
        let resent = board.resend_lost(Snapshot::default(), 52 * MS).unwrap();
        assert_eq!((resent.start, resent.repeated), (100, true));
        assert!(!board.has_lost());
    }

    #[test]
    fn gap_beyond_the_window_is_lost_without_three_deliveries() {
        let mut board = board(3);
        board.handle_ack(&sack(100, 200, 300), 50 * MS);
        assert_eq!(board.detect_losses(60 * MS, 61 * MS), (1, None));
    }

    #[test]
    fn lost_retransmission_is_found_by_later_segments() {
        let mut board = board(6);
        board.handle_ack(&sack(100, 200, 600), 50 * MS);
        assert_eq!(board.detect_losses(MS * 90, 50 * MS).0, 1);
        board.resend_lost(Snapshot::default(), 50 * MS);
        for n in 6..10 {
            board.send(n * 100, Content::Payload(100), Snapshot::default(), 50 * MS);
        }
        board.handle_ack(&sack(100, 200, 900), 100 * MS);
        assert_eq!(board.detect_losses(MS * 90, 100 * MS).0, 1);
        assert!(board.has_lost());
    }

    #[test]
    fn a_timeout_loses_all_but_the_delivered() {
        let mut board = board(5);
        board.handle_ack(&sack(0, 200, 300), 50 * MS);
        board.lose_all();
        let mut starts = Vec::new();
        while let Some(segment) = board.resend_lost(Snapshot::default(), 300 * MS) {
            starts.push(segment.start);
        }
        assert_eq!(starts, [0, 100, 300, 400]);
        assert_eq!(board.in_flight(), 4);
    }

    #[test]
    fn a_late_delivery_takes_a_segment_from_the_lost() {
        let mut board = board(5);
        board.handle_ack(&sack(0, 100, 500), 50 * MS);
        board.detect_losses(90 * MS, 50 * MS);
        assert!(board.has_lost());
        board.handle_ack(&sack(500, 0, 0), 55 * MS);
        assert!(!board.has_lost() && board.is_empty());
        assert_eq!(board.in_flight(), 0);
    }
}
