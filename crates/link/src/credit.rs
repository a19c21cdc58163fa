//! Flow control: absolute offsets granted by the receiving end as its application reads.

use oncewire_codec::Now;

use crate::learned::LearnedWindow;

/// The window of one inbound stream.
#[derive(Debug)]
pub(crate) struct Window {
    size: u64,
    initial: u64,
    consumed: u64,
    granted: u64,
    /// Whether an eighth of the peer's initial credit from the hello was taken.
    begun: bool,
    last_grant: Now,
    /// Whether the peer has used up its last grant under a waiting reader.
    used_up: bool,
    /// When a quarter of the window was taken since the last grant.
    quarter_at: Option<Now>,
}

/// The limits of a window's growth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowLimits {
    /// Bytes of the largest window.
    pub(crate) max: u64,
    /// Bytes left for the growth of all windows together.
    pub(crate) spare: u64,
    /// Whether blocks wait for chunks, and the line will stand still before more could be named and asked for.
    pub(crate) line_ends: bool,
}

/// After this time any taken bytes are granted, even a small part of the window: the far side stops reading for want
/// of credit, and after two minutes without room, a server's system gives up a closed connection.
const GRANT_EVERY: Now = Now::from_secs(60);
/// The least such grant: a block cut at the end of credit may be like no other.
const LEAST_GRANT: u64 = 256 << 10;

impl Window {
    /// Begins with `size` bytes, of which the peer knows `initial` from its hello.
    pub(crate) fn new(initial: u64, size: u64, now: Now) -> Self {
        let size = size.max(initial);
        Self {
            size,
            initial,
            consumed: 0,
            granted: size,
            begun: false,
            last_grant: now,
            used_up: false,
            quarter_at: None,
        }
    }

    /// The first flow offset beyond the peer's credit.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Bytes taken by the application.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether the peer was granted more than it knows of from the hello.
    pub(crate) fn is_extended(&self) -> bool {
        self.granted > self.initial
    }

    /// Widens the window of a new flow.
    pub(crate) fn widen(&mut self, size: u64) {
        self.granted += size.saturating_sub(self.size);
        self.size = self.size.max(size);
    }

    /// Bytes of the window.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the window beyond the initial one.
    pub(crate) fn growth(&self) -> u64 {
        self.size - self.initial
    }

    /// Notes that the peer has sent up to a flow offset, and whether the reader waits meanwhile: names may have been
    /// sent, with their bytes still to come.
    pub(crate) fn handle_sent(&mut self, end: u64, waits: bool) {
        self.used_up |= waits && end.saturating_add(self.size / 4) >= self.granted;
    }

    /// Whether more is being taken of the flow than a few words, once.
    pub(crate) fn begins(&mut self) -> bool {
        let begins = !self.begun && self.consumed >= self.initial / 8;
        self.begun |= begins;
        begins
    }

    /// Notes bytes taken by the application; returns whether a new grant is worth a frame. `waits` if it has taken
    /// everything available.
    ///
    /// The window grows, up to `max` and while `spare` bytes of memory allow it, if it limits the flow, and neither
    /// its reader nor the line does. It doubles when half of it was taken within two round trips, or the last quarter
    /// within one by a waiting reader, as on a young connection. If three quarters were sent before that under a
    /// waiting reader, a disk or answers to requests take longer than bytes on their own: it then becomes four times
    /// as large, and need not be half empty for it. A useful size is noted for future flows. A flow with more than a
    /// minute for half of its window is granted its taken bytes, and does not grow.
    pub(crate) fn consume(
        &mut self,
        bytes: u64,
        waits: bool,
        limits: &WindowLimits,
        round_trip: Now,
        learned: &mut LearnedWindow,
        now: Now,
    ) -> bool {
        self.consumed += bytes;
        let taken = self.consumed + self.size - self.granted;
        if taken < self.worth_granting(waits, limits) {
            if taken >= self.size / 4 {
                self.quarter_at.get_or_insert(now);
            }
            let is_slow = taken >= LEAST_GRANT && now.saturating_sub(self.last_grant) >= GRANT_EVERY;
            if is_slow {
                self.grant(now);
            }
            return is_slow;
        }
        let round_trip = round_trip + Now::from_millis(10);
        let within = |since: Now, round_trips: u32| now.saturating_sub(since) < round_trip * round_trips;
        let quick = within(self.last_grant, 2) || waits && self.quarter_at.is_some_and(|at| within(at, 1));
        if quick || self.used_up {
            let grown = self.size * if quick { 2 } else { 4 };
            let size = grown.min(limits.max).max(self.size);
            self.size += (size - self.size).min(limits.spare);
        }
        let needed = if self.used_up {
            self.size
        } else {
            let elapsed = now.saturating_sub(self.last_grant).as_micros().max(1);
            let in_two_round_trips = u128::from(2 * taken) * round_trip.as_micros() / elapsed;
            u64::try_from(in_two_round_trips).unwrap_or(u64::MAX).min(self.size)
        };
        learned.handle_needed(needed, now);
        self.grant(now);
        true
    }

    /// Bytes to be taken before the next grant: half of the window. A peer with used-up credit stands still until
    /// then under a waiting reader, and with most of this half on a disk so does the line. So the grant comes sooner
    /// if the line would stall and the reader still waits: as soon as it takes the first bytes, and at an eighth if
    /// the window cannot become four times as large.
    fn worth_granting(&self, waits: bool, limits: &WindowLimits) -> u64 {
        let half = self.size / 2;
        if !self.used_up || !waits || !limits.line_ends {
            return half;
        }
        let can_grow = self.size <= limits.max / 4 && self.size * 3 <= limits.spare;
        let part = if can_grow { LEAST_GRANT } else { (self.size / 8).max(4 * LEAST_GRANT) };
        part.min(half)
    }

    fn grant(&mut self, now: Now) {
        self.granted = self.consumed + self.size;
        self.last_grant = now;
        (self.quarter_at, self.used_up) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: WindowLimits = WindowLimits { max: 1 << 20, spare: 1 << 20, line_ends: true };
    const ROUND_TRIP: Now = ms(50);

    fn learned() -> LearnedWindow {
        LearnedWindow::default()
    }

    const fn ms(millis: u64) -> Now {
        Now::from_millis(millis)
    }

    #[test]
    fn quick_reader_is_given_more_and_a_slow_one_not() {
        let mut quick = Window::new(1000, 0, ms(0));
        assert!(!quick.consume(499, true, &MAX, ROUND_TRIP, &mut learned(), ms(1)));
        assert!(quick.consume(1, true, &MAX, ROUND_TRIP, &mut learned(), ms(2)));
        assert_eq!(quick.granted(), 2500);
        let mut slow = Window::new(1000, 0, ms(0));
        assert!(slow.consume(500, true, &MAX, ROUND_TRIP, &mut learned(), ms(500)));
        assert_eq!(slow.granted(), 1500);
    }

    #[test]
    fn slow_start_is_given_more_once_it_is_quick() {
        let take = |waits: bool, quarter: Now| {
            let mut window = Window::new(1000, 0, ms(0));
            assert!(!window.consume(250, waits, &MAX, ROUND_TRIP, &mut learned(), quarter));
            assert!(window.consume(250, waits, &MAX, ROUND_TRIP, &mut learned(), ms(500)));
            window.granted()
        };
        assert_eq!(take(true, ms(445)), 2500);
        assert_eq!(take(true, ms(440)), 1500);
        assert_eq!(take(false, ms(445)), 1500, "its reader was behind, and catches up");
    }

    #[test]
    fn peer_with_used_up_credit_is_granted_more_early() {
        let limits = WindowLimits { max: 16 << 20, spare: 16 << 20, line_ends: true };
        let mut window = Window::new(4 << 20, 0, ms(0));
        let take = |window: &mut Window, bytes: u64, at| {
            window.consume(bytes, true, &limits, ROUND_TRIP, &mut learned(), ms(at))
        };
        assert!(!take(&mut window, LEAST_GRANT, 400), "it has sent nothing yet");
        window.handle_sent(4 << 20, true);
        assert!(take(&mut window, 1, 500));
        assert_eq!(window.granted(), LEAST_GRANT + 1 + (16 << 20));
        // Now it is as large as it gets.
        assert!(!take(&mut window, 2 << 20, 900), "it has not sent that");
        window.handle_sent(17 << 20, true);
        let busy = WindowLimits { line_ends: false, ..limits };
        assert!(!window.consume(1, true, &busy, ROUND_TRIP, &mut learned(), ms(1000)), "the line has enough");
        assert!(
            !window.consume(1, false, &limits, ROUND_TRIP, &mut learned(), ms(1000)),
            "its reader has enough"
        );
        assert!(take(&mut window, 1, 1100));
        assert_eq!(window.granted(), LEAST_GRANT + 4 + (2 << 20) + (16 << 20));
    }

    #[test]
    fn peer_short_of_credit_with_late_bytes_is_given_more() {
        let mut window = Window::new(1000, 0, ms(0));
        window.handle_sent(700, true);
        assert!(window.consume(500, true, &MAX, ROUND_TRIP, &mut learned(), ms(500)));
        assert_eq!(window.granted(), 1500, "more than a quarter was left");
        window.handle_sent(1250, true);
        assert!(window.consume(500, true, &MAX, ROUND_TRIP, &mut learned(), ms(1000)));
        assert_eq!(window.granted(), 1000 + 4 * 1000);
        assert!(window.consume(3000, true, &MAX, ROUND_TRIP, &mut learned(), ms(1500)));
        assert_eq!(window.granted(), 4000 + 4 * 1000, "it counts once");
    }

    #[test]
    fn memory_and_maximum_bound_the_window() {
        let mut window = Window::new(1000, 0, Now::ZERO);
        let limits = WindowLimits { max: 1500, spare: u64::MAX, line_ends: true };
        window.consume(600, true, &limits, Now::from_secs(1), &mut learned(), Now::ZERO);
        assert_eq!(window.granted(), 600 + 1500);
        let mut window = Window::new(1000, 0, Now::ZERO);
        let limits = WindowLimits { max: 1 << 20, spare: 999, line_ends: true };
        window.consume(600, true, &limits, Now::from_secs(1), &mut learned(), Now::ZERO);
        assert_eq!(window.granted(), 600 + 1999, "as far as memory goes");
    }

    #[test]
    fn window_begins_as_announced_and_widens_with_the_flow() {
        let mut window = Window::new(1000, 8000, ms(0));
        assert_eq!((window.granted(), window.growth()), (8000, 7000));
        let take = |window: &mut Window, bytes: u64| {
            let grants = window.consume(bytes, false, &MAX, ROUND_TRIP, &mut learned(), ms(1000));
            (grants, window.begins())
        };
        assert_eq!(take(&mut window, 124), (false, false));
        assert_eq!(take(&mut window, 1), (false, true));
        window.widen(4000);
        assert_eq!(window.granted(), 8000);
        window.widen(10000);
        assert_eq!((window.granted(), window.growth()), (10000, 9000));
        assert_eq!(take(&mut window, 4874), (false, false));
        assert_eq!(take(&mut window, 1), (true, false));
        assert_eq!(window.granted(), 15000);
    }

    #[test]
    fn bytes_taken_in_two_round_trips_are_a_flows_need() {
        let needed = |size: u64, taken: u64, now: Now, sent: u64| {
            let (mut window, mut learned) = (Window::new(1000, size, ms(0)), learned());
            window.handle_sent(sent, true);
            assert!(window.consume(taken, true, &MAX, ROUND_TRIP, &mut learned, now));
            learned.bytes(now)
        };
        assert_eq!(needed(1000, 500, ms(1000), 500), 60);
        assert_eq!(needed(8000, 4000, ms(200), 5000), 2400);
        assert_eq!(needed(1000, 500, ms(25), 500), 2000, "no more than it has");
        assert_eq!(needed(8000, 4000, ms(1000), 7000), 32000, "disks and answers are waited for as well");
    }

    #[test]
    fn slow_reader_is_granted_each_minute_beyond_few_blocks() {
        let size = 4 << 20;
        let limits = WindowLimits { max: 16 << 20, spare: 16 << 20, line_ends: true };
        // So many bytes a second, all of them sent by the peer long ago.
        let grants = |bytes: u64| {
            let mut window = Window::new(size, 0, ms(0));
            let mut grants = Vec::new();
            for second in 1..=400 {
                window.handle_sent(window.granted(), true);
                if window.consume(bytes, false, &limits, ROUND_TRIP, &mut learned(), ms(1000 * second)) {
                    grants.push((second, window.granted() - size));
                }
            }
            assert_eq!(window.growth(), 0);
            grants
        };
        assert_eq!(grants(10_000), (1..=6).map(|grant| (60 * grant, 600_000 * grant)).collect::<Vec<_>>());
        assert_eq!(grants(2000), [(132, 264_000), (264, 528_000), (396, 792_000)]);
    }
}
