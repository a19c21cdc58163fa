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
}

impl Window {
    pub(crate) fn new(initial: u64, now: Now) -> Self {
        Self { size: initial, initial, consumed: 0, granted: initial, last_grant: now }
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

    /// Notes that the application took bytes; returns whether a new grant is worth a frame.
    ///
    /// The window doubles, up to `max` and while `spare` bytes of memory allow it, when half of it was used up
    /// within two round trips: then it is the window that limits the flow, and not its reader.
    pub(crate) fn consume(&mut self, bytes: u64, max: u64, spare: u64, round_trip: Now, now: Now) -> bool {
        self.consumed += bytes;
        if self.consumed + self.size - self.granted < self.size / 2 {
            return false;
        }
        let quick = now.saturating_sub(self.last_grant) < round_trip * 2 + Now::from_millis(20);
        if quick && self.size < max && self.size <= spare {
            self.size = (self.size * 2).min(max);
        }
        self.granted = self.consumed + self.size;
        self.last_grant = now;
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
    fn memory_and_maximum_bound_the_window() {
        let mut window = Window::new(1000, Now::ZERO);
        window.consume(600, 1500, u64::MAX, Now::from_secs(1), Now::ZERO);
        assert_eq!(window.granted(), 600 + 1500);
        let mut window = Window::new(1000, Now::ZERO);
        window.consume(600, 1 << 20, 999, Now::from_secs(1), Now::ZERO);
        assert_eq!(window.granted(), 1600);
    }
}
