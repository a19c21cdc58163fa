//! How much a flow may send: the receiving end grants absolute flow offsets as its application reads.

use oncewire_codec::Now;

/// The window of one inbound stream.
#[derive(Debug)]
pub(crate) struct Window {
    size: u64,
    initial: u64,
    consumed: u64,
    granted: u64,
    last_grant: Now,
    /// Whether the peer has used up what it was granted last while the reader waited for bytes.
    used_up: bool,
}

impl Window {
    pub(crate) fn new(initial: u64, now: Now) -> Self {
        Self { size: initial, initial, consumed: 0, granted: initial, last_grant: now, used_up: false }
    }

    /// The first flow offset that the peer may not send.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Whether the peer was granted more than it knows of from the hello.
    pub(crate) fn is_extended(&self) -> bool {
        self.granted > self.initial
    }

    /// Bytes of the window beyond the initial one.
    pub(crate) fn growth(&self) -> u64 {
        self.size - self.initial
    }

    /// Notes that the peer has sent up to a flow offset while the reader waits: what it sent may be names, of which the
    /// bytes come later.
    pub(crate) fn handle_sent(&mut self, end: u64) {
        self.used_up |= end.saturating_add(self.size / 4) >= self.granted;
    }

    /// Notes that the application took bytes; returns whether a new grant is worth a frame.
    ///
    /// The window grows, up to `max` and while `spare` bytes of memory allow it, if it limits the flow, and neither its
    /// reader nor the line does. It doubles when half of it was taken within two round trips. If three quarters were sent
    /// before that while the reader waited, a disk or answers to requests take longer than bytes that come by themselves:
    /// it then becomes four times as large, since it has longer to wait until it can grow again.
    pub(crate) fn consume(&mut self, bytes: u64, max: u64, spare: u64, round_trip: Now, now: Now) -> bool {
        self.consumed += bytes;
        if self.consumed + self.size - self.granted < self.size / 2 {
            return false;
        }
        let quick = now.saturating_sub(self.last_grant) < round_trip * 2 + Now::from_millis(20);
        if quick || self.used_up {
            let size = (self.size * if quick { 2 } else { 4 }).min(max).max(self.size);
            if size - self.size <= spare {
                self.size = size;
            }
        }
        self.granted = self.consumed + self.size;
        self.last_grant = now;
        self.used_up = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_reader_is_given_more_and_a_slow_one_is_not() {
        let (ms, max) = (Now::from_millis, 1 << 20);
        let mut quick = Window::new(1000, ms(0));
        assert!(!quick.consume(499, max, max, ms(50), ms(1)));
        assert!(quick.consume(1, max, max, ms(50), ms(2)));
        assert_eq!(quick.granted(), 2500);
        let mut slow = Window::new(1000, ms(0));
        assert!(slow.consume(500, max, max, ms(50), ms(500)));
        assert_eq!(slow.granted(), 1500);
    }

    #[test]
    fn a_peer_that_has_sent_all_it_may_is_given_more_however_late_its_bytes_are() {
        let (ms, max) = (Now::from_millis, 1 << 20);
        let mut window = Window::new(1000, ms(0));
        window.handle_sent(700);
        assert!(window.consume(500, max, max, ms(50), ms(500)));
        assert_eq!(window.granted(), 1500, "a quarter was left");
        window.handle_sent(1250);
        assert!(window.consume(500, max, max, ms(50), ms(1000)));
        assert_eq!(window.granted(), 1000 + 4 * 1000);
        assert!(window.consume(3000, max, max, ms(50), ms(1500)));
        assert_eq!(window.granted(), 4000 + 4 * 1000, "it counts once");
    }

    #[test]
    fn memory_and_maximum_bound_the_window() {
        let mut window = Window::new(1000, Now::ZERO);
        window.consume(600, 1500, u64::MAX, Now::from_secs(1), Now::ZERO);
        assert_eq!(window.granted(), 600 + 1500);
        let mut window = Window::new(1000, Now::ZERO);
        window.consume(600, 1 << 20, 999, Now::from_secs(1), Now::ZERO);
        assert_eq!(window.granted(), 1600);
    }
}
