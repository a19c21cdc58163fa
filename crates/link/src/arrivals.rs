//! Whether the line brings as much as it can.

use oncewire_codec::Now;

/// Recently received bytes, by the second.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    second: Now,
    bytes: u64,
    /// Those of the second before.
    before: u64,
}

impl Arrivals {
    /// Takes note of received bytes.
    pub(crate) fn handle(&mut self, bytes: u64, now: Now) {
        self.pass(now);
        self.bytes += bytes;
    }

    /// Whether the last whole second brought less than half of a line of this rate; not, if the rate is unknown.
    pub(crate) fn have_room(&mut self, bytes_per_s: u64, now: Now) -> bool {
        self.pass(now);
        self.before.saturating_mul(2) < bytes_per_s
    }

    fn pass(&mut self, now: Now) {
        let passed = now.saturating_sub(self.second);
        if passed >= SECOND {
            self.before = if passed < SECOND * 2 { self.bytes } else { 0 };
            (self.second, self.bytes) = (now, 0);
        }
    }
}

const SECOND: Now = Now::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_room_after_less_than_half_its_rate() {
        let (mut arrivals, at) = (Arrivals::default(), |ms: u64| Now::from_millis(10_000 + ms));
        arrivals.handle(600, at(0));
        assert!(arrivals.have_room(1000, at(900)), "before that nothing came");
        assert!(!arrivals.have_room(1000, at(1000)));
        assert!(arrivals.have_room(1201, at(1900)));
        assert!(!arrivals.have_room(0, at(1900)), "its rate is not known");
        arrivals.handle(400, at(1950));
        assert!(arrivals.have_room(1000, at(2000)));
        assert!(arrivals.have_room(1, at(4000)), "nothing came for long");
    }
}
