//! What the path from the peer carries, from when its bytes arrive.
//!
//! The planner of [`shed`](super::shed) needs the rate of requested chunks. Only the peer knows when its sockets are
//! full; this end sees when bytes arrive. A window is some round trips with bytes, and their number is the rate. A
//! higher rate is always believed, since the path did carry it; a lower one only of windows with more to send at the
//! peer: while an [answer is overdue](Demand::Overdue), or without pauses unexplained by the known rate, unless blocks
//! [wait here](Demand::Held), so the peer may not be allowed to send. A trickling flow says nothing.
//!
//! So a slower path is found out by the first late answers; one never busy is thought slower than it is, and shed
//! chunks bring traffic, and with it the truth.

use crate::Now;

/// The receiving half's knowledge of the peer's bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    Unknown,
    /// Blocks wait for what is read here, and their flows' credit with them: the peer may have nothing it may send.
    Held,
    /// What was asked for should have come: the peer has more to send than the path brings.
    Overdue,
}

/// Bytes a second a path carries; 0 is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRate {
    /// As it was seen: a lower bound, until the path was busy once.
    pub known: u64,
    /// The purpose of shedding. A path with only a lower bound may carry more: requests find it out sooner, or are
    /// overdue.
    pub hoped: u64,
}

impl PathRate {
    /// Of a path that was busy.
    pub const fn of(bytes_per_s: u64) -> Self {
        Self { known: bytes_per_s, hoped: bytes_per_s }
    }

    /// Whether more is hoped for than is known.
    pub const fn is_hope(&self) -> bool {
        self.hoped > self.known
    }
}

/// The rate at which a path carries, learnt from arrivals.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathEstimate {
    bytes_per_s: Option<f64>,
    /// Whether all windows so far had pauses, so only a lower bound is known.
    unproven: bool,
    window: Option<Window>,
}

/// Bytes that came one soon after the other.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// When bytes last came before, or the first came, which are then not counted: they travelled earlier.
    since: Now,
    last: Now,
    bytes: u64,
    /// Whether the peer may have had nothing to send in between.
    paused: bool,
    /// Whether an answer was overdue whenever something came.
    overdue: bool,
}

impl PathEstimate {
    /// Takes note of bytes that arrived, of all lanes together. `now` never decreases.
    pub fn handle_arrived(&mut self, bytes: u64, round_trip: Now, demand: Demand, now: Now) {
        let overdue = demand == Demand::Overdue;
        let begun = Window { since: now, last: now, bytes: 0, paused: false, overdue };
        let Some(window) = self.window.filter(|window| !self.is_over(window, bytes, round_trip, now)) else {
            self.window = Some(begun);
            return;
        };
        let paused =
            window.paused || demand == Demand::Held || !self.explains(&window, bytes, SHORT_GAP, now);
        let bytes = window.bytes + bytes;
        let window = Window { last: now, bytes, paused, overdue: overdue && window.overdue, ..window };
        self.window = Some(window);
        let span = now.saturating_sub(window.since);
        if window.bytes >= WINDOW_BYTES && span >= WINDOW.max(WINDOW_ROUND_TRIPS * round_trip) {
            self.learn(window.bytes as f64 / span.as_secs_f64(), window.overdue || !paused);
            self.window = Some(begun);
        }
    }

    /// Returns what is known of it.
    pub fn rate(&self) -> PathRate {
        let Some(known) = self.bytes_per_s.map(|rate| (rate as u64).max(1)) else {
            return PathRate::default();
        };
        PathRate { known, hoped: known.saturating_mul(if self.unproven { HOPED } else { 1 }) }
    }

    /// Whether the bytes came so late a lost packet does not explain it either.
    fn is_over(&self, window: &Window, bytes: u64, round_trip: Now, now: Now) -> bool {
        let short = IDLE + 2 * round_trip;
        let idle = !window.overdue && !self.explains(window, bytes, short, now);
        idle || now.saturating_sub(window.last) > LONGEST_GAP
    }

    /// Whether so many bytes came no later than a busy path would have brought them, or after a short gap.
    fn explains(&self, window: &Window, bytes: u64, short: Now, now: Now) -> bool {
        let gap = now.saturating_sub(window.last);
        gap <= short
            || self.bytes_per_s.is_none_or(|known| bytes as f64 >= known * PAUSED * gap.as_secs_f64())
    }

    fn learn(&mut self, seen: f64, busy: bool) {
        let known = self.bytes_per_s.unwrap_or(seen);
        self.unproven = !busy && (self.unproven || self.bytes_per_s.is_none());
        if seen > known {
            self.bytes_per_s = Some((known + RISING * (seen - known)).max(seen / MORE));
        } else if busy || self.bytes_per_s.is_none() {
            self.bytes_per_s = Some(known + FALLING * (seen - known));
        }
    }
}

/// A window holds at least so much, so what one write of the peer brings does not make a rate.
const WINDOW_BYTES: u64 = 64 * 1024;
/// And lasts at least so long: bytes held in a socket are averaged with the following ones.
const WINDOW: Now = Now::from_millis(100);
/// And so many round trips: bytes behind a lost packet come at once, after its arrival.
const WINDOW_ROUND_TRIPS: u32 = 4;
/// A pause the scheduling of two machines explains.
const SHORT_GAP: Now = Now::from_millis(50);
/// With two round trips, a pause that losing a packet explains.
const IDLE: Now = Now::from_millis(200);
/// A pause after which nothing is of one piece. Frames of 64 KiB take 8 s at 64 kbit/s.
const LONGEST_GAP: Now = Now::from_secs(10);
/// Bytes that came at less than this share of the known rate came after a pause.
const PAUSED: f64 = 0.5;
/// A window may have brought so many times the path's rate, from one round trip's backlog.
const MORE: f64 = 1.25;
/// For a never busy path, so many times the known rate is hoped for.
const HOPED: u64 = 2;
const RISING: f64 = 0.5;
const FALLING: f64 = 0.25;

#[cfg(test)]
mod tests {
    use oncewire_netem::tcp::congestion::Policy;
    use oncewire_netem::tcp::{Account, ConnectionId, Event, Network, Side};
    use oncewire_netem::{LinkParams, Queue};

    use super::*;

    const ROUND_TRIP: Now = Now::from_millis(200);

    /// A server writing through a modelled TCP connection, and its reader's estimate.
    struct Bench {
        network: Network,
        connection: ConnectionId,
        estimate: PathEstimate,
        /// Arrived, and not yet a whole record.
        held: u64,
        record: u64,
        demand: Demand,
        now: Now,
    }

    impl Bench {
        fn new(megabits_per_s: f64, record: u64) -> Self {
            let params = LinkParams {
                rate_bits_per_s: Some((megabits_per_s * 1e6) as u64),
                delay: ROUND_TRIP / 2,
                queue: Queue::Time(ROUND_TRIP),
                ..LinkParams::default()
            };
            let mut network = Network::new(params.clone(), params).unwrap();
            let connection = network.connect(Side::Near, Policy::Cubic, Account(0), Now::ZERO).unwrap();
            let estimate = PathEstimate::default();
            let (held, demand, now) = (0, Demand::Unknown, Now::ZERO);
            let mut bench = Self { network, connection, estimate, held, record, demand, now };
            bench.pass(Now::from_secs(1), 0, Now::from_secs(1));
            bench
        }

        /// Lets time pass in which the server writes `bytes` each `every`.
        fn pass(&mut self, time: Now, bytes: u64, every: Now) {
            let end = self.now + time;
            let mut write_at = self.now;
            while self.now < end {
                if self.now >= write_at {
                    let most = self.network.room(self.connection, Side::Far);
                    self.network.handle_written(self.connection, Side::Far, bytes.min(most), self.now);
                    write_at += every;
                }
                let due = self.network.poll_timeout().unwrap_or(end);
                self.now = due.min(write_at).min(end).max(self.now + Now::from_nanos(1));
                self.network.handle_timeout(self.now);
                self.drain();
            }
        }

        fn drain(&mut self) {
            while let Some(event) = self.network.poll_event() {
                match event {
                    Event::Incoming(id) => self.network.accept(id, self.now),
                    Event::Readable { side: Side::Near, bytes, .. } => {
                        self.network.handle_consumed(self.connection, Side::Near, bytes, self.now);
                        self.held += bytes;
                        let whole = self.held / self.record * self.record;
                        self.held -= whole;
                        if whole > 0 {
                            self.estimate.handle_arrived(whole, ROUND_TRIP, self.demand, self.now);
                        }
                    }
                    _ => {}
                }
            }
        }

        /// The estimate as a share of what the path carries of payload.
        fn share(&self, megabits_per_s: f64) -> f64 {
            let payload = megabits_per_s * 1e6 / 8.0 * 1448.0 / 1500.0;
            self.estimate.rate().known as f64 / payload
        }
    }

    const SECOND: Now = Now::from_secs(1);
    const MILLISECOND: Now = Now::from_millis(1);

    #[test]
    fn busy_path_is_measured_at_any_record_size() {
        for (rate, record) in [(0.512, 1), (0.512, 16_384), (0.512, 65_536), (10.0, 16_384), (100.0, 65_536)]
        {
            let mut bench = Bench::new(rate, record);
            bench.pass(20 * SECOND, 1 << 20, MILLISECOND);
            let share = bench.share(rate);
            assert!((0.75..=1.1).contains(&share), "{share} at {rate} Mbit/s in records of {record}");
        }
    }

    #[test]
    fn nothing_is_known_before_enough_has_arrived() {
        let mut bench = Bench::new(10.0, 1000);
        bench.pass(SECOND, 30_000, 2 * SECOND);
        assert_eq!(bench.estimate.rate(), PathRate::default());
    }

    #[test]
    fn never_busy_path_is_hoped_to_carry_more() {
        let mut bench = Bench::new(20.0, 1000);
        bench.demand = Demand::Held;
        bench.pass(5 * SECOND, 12_500, 100 * MILLISECOND);
        let rate = bench.estimate.rate();
        assert!((100_000..160_000).contains(&rate.known), "{rate:?}");
        assert_eq!(rate.hoped, 2 * rate.known);
        bench.demand = Demand::Unknown;
        bench.pass(20 * SECOND, 1 << 20, MILLISECOND);
        assert!(!bench.estimate.rate().is_hope());
        let share = bench.share(20.0);
        assert!((0.75..=1.1).contains(&share), "{share}");
        // A wait for reads here does not make it unknown again.
        bench.demand = Demand::Held;
        bench.pass(5 * SECOND, 12_500, 100 * MILLISECOND);
        assert!(!bench.estimate.rate().is_hope());
    }

    #[test]
    fn a_trickle_does_not_pass_for_a_slow_path() {
        let mut bench = Bench::new(20.0, 1000);
        bench.pass(10 * SECOND, 1 << 20, MILLISECOND);
        // What was written has arrived.
        bench.pass(2 * SECOND, 0, SECOND);
        let before = bench.share(20.0);
        // A megabit a second.
        bench.pass(60 * SECOND, 12_500, 100 * MILLISECOND);
        assert_eq!(bench.share(20.0), before);
    }

    #[test]
    fn peer_without_credit_does_not_pass_for_a_slow_path() {
        let mut bench = Bench::new(20.0, 1000);
        bench.pass(10 * SECOND, 1 << 20, MILLISECOND);
        bench.pass(2 * SECOND, 0, SECOND);
        let before = bench.share(20.0);
        // Without a pause, a little for each block read.
        bench.demand = Demand::Held;
        bench.pass(60 * SECOND, 2_000, 10 * MILLISECOND);
        assert_eq!(bench.share(20.0), before);
    }

    #[test]
    fn occasional_frames_do_not_pass_for_a_slow_path() {
        let mut bench = Bench::new(20.0, 1);
        bench.pass(10 * SECOND, 1 << 20, MILLISECOND);
        bench.pass(2 * SECOND, 0, SECOND);
        let before = bench.share(20.0);
        bench.pass(60 * SECOND, 40, SECOND);
        bench.pass(SECOND / 2, 100_000, SECOND);
        assert!(bench.share(20.0) >= before);
    }

    #[test]
    fn slower_path_is_believed_once_answers_are_overdue() {
        let mut estimate = PathEstimate::default();
        let arrive = |estimate: &mut PathEstimate, demand: Demand, from: u64, seconds: u64, every_ms: u64| {
            for at in (0..seconds * 1000).step_by(every_ms as usize) {
                let now = Now::from_millis(from * 1000 + at);
                estimate.handle_arrived(16_384, ROUND_TRIP, demand, now);
            }
            estimate.rate().known
        };
        let before = arrive(&mut estimate, Demand::Unknown, 0, 10, 10);
        assert!(before > 1_500_000);
        assert_eq!(arrive(&mut estimate, Demand::Held, 10, 20, 128), before);
        let slower = arrive(&mut estimate, Demand::Overdue, 30, 30, 128);
        assert!((115_000..180_000).contains(&slower), "{slower}");
    }
}
