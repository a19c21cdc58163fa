//! The round trip of a link.

use oncewire_codec::Now;

/// The smoothed round trip [RFC 6298 §2], and its extremes of late.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Now>,
    /// The longest of the last minute, and its time.
    longest: (Now, Now),
    /// The shortest of this half minute and of the one before.
    shortest: [Option<Now>; 2],
    /// Start of this half minute.
    half_minute: Now,
}

/// The upper bound of a sample.
const LONGEST: Now = Now::from_secs(60);
/// Memory for the longest round trip.
const LATELY: Now = Now::from_secs(60);
/// Tolerance for estimated times of disk and line.
const LITTLE_LATER: Now = Now::from_millis(500);

impl RoundTrip {
    /// Returns the smoothed round trip, if there was a sample.
    pub(crate) fn smoothed(&self) -> Option<Now> {
        self.smoothed
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, sample: Now, now: Now) {
        // A process that was stopped reads its pongs late.
        let sample = sample.min(LONGEST);
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

    /// Whether an answer due then comes within about three round trips without a queue. A queue elsewhere than on the
    /// answer's way adds to one of them.
    pub(crate) fn fits_two_more(&self, due: Now, is_queue_elsewhere: bool) -> bool {
        let shortest = self.shortest.into_iter().flatten().min();
        let (Some(smoothed), Some(shortest)) = (self.smoothed, shortest) else { return false };
        let present = if is_queue_elsewhere { smoothed } else { shortest };
        due.saturating_sub(present) <= 2 * shortest + LITTLE_LATER
    }

    /// Returns the time that a live lane may take to answer.
    pub(crate) fn patience(&self) -> Now {
        // When a jam ends its late answers come all at once, and those on other lanes are as late.
        (self.smoothed.unwrap_or_default() * 8).max(self.longest.0 * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jam_leaves_patience_for_a_minute() {
        let mut round_trip = RoundTrip::default();
        let jam = Now::from_secs(100);
        (0..55).rev().for_each(|secs| round_trip.sample(Now::from_secs(secs), jam));
        assert!(round_trip.patience() >= Now::from_secs(54 * 2));
        for secs in 0..60 {
            round_trip.sample(Now::from_millis(100), jam + LATELY + Now::from_secs(secs));
        }
        assert!(round_trip.patience() < Now::from_secs(1), "{:?}", round_trip.patience());
    }

    #[test]
    fn queue_leaves_an_answer_no_more_time_unless_elsewhere() {
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
}
