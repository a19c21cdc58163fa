//! Peers' health over time: availability and nearness.

use std::time::Duration;

use oncewire_codec::Now;

use super::table::{Health, Standing};

/// Watches all peers; time is a parameter.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Vec<Seen>,
    /// All peers, clearly nearer ones first.
    order: Vec<usize>,
}

/// Observations of one peer.
#[derive(Clone, Debug, Default)]
struct Seen {
    up_since: Option<Now>,
    /// Whether it was lost since this process began.
    lost: bool,
    /// The shortest round trip of late, and when it was seen.
    nearest: Option<(Duration, Now)>,
}

impl Watch {
    pub(crate) fn new(peers: usize) -> Self {
        Self { seen: vec![Seen::default(); peers], order: (0..peers).collect() }
    }

    /// Notes each peer's present state: whether it is up, and its round trip.
    pub(crate) fn look(&mut self, peers: impl Iterator<Item = (bool, Option<Duration>)>, now: Now) {
        for (seen, (up, round_trip)) in self.seen.iter_mut().zip(peers) {
            seen.lost |= !up && seen.up_since.is_some();
            seen.up_since = up.then(|| seen.up_since.unwrap_or(now));
            if let Some(round_trip) = round_trip.filter(|_| up) {
                let stale = |at: Now| now.saturating_sub(at) >= MEMORY;
                if seen.nearest.is_none_or(|(least, at)| round_trip <= least || stale(at)) {
                    seen.nearest = Some((round_trip, now));
                }
            }
        }
        self.sort();
    }

    /// Moves a peer ahead of another only if it is clearly nearer: two about equal ones must not take turns.
    fn sort(&mut self) {
        for from in 1..self.order.len() {
            for at in (1..=from).rev() {
                let [before, behind] = [self.order[at - 1], self.order[at]];
                if !self.is_clearly_nearer(behind, before) {
                    break;
                }
                self.order.swap(at - 1, at);
            }
        }
    }

    fn is_clearly_nearer(&self, one: usize, other: usize) -> bool {
        match (self.seen[one].nearest, self.seen[other].nearest) {
            (Some((one, _)), Some((other, _))) => one * 5 / 4 + MARGIN < other,
            _ => false,
        }
    }

    /// Returns each peer's standing; `up` is its availability at this moment.
    pub(crate) fn standings(&self, up: impl Iterator<Item = bool>, now: Now) -> Vec<Standing> {
        let health = |seen: &Seen, up: bool| {
            let steady = seen.up_since.is_some_and(|since| now.saturating_sub(since) >= SETTLING);
            match up {
                false => Health::Down,
                true if seen.lost && !steady => Health::Fresh,
                true => Health::Settled,
            }
        };
        let healths = self.seen.iter().zip(up).map(|(seen, up)| health(seen, up));
        let mut standings: Vec<_> = healths.map(|health| Standing { health, place: 0 }).collect();
        for (place, peer) in self.order.iter().enumerate() {
            if let Some(standing) = standings.get_mut(*peer) {
                standing.place = place;
            }
        }
        standings
    }
}

/// How long a recovered peer must be up until it takes flows from one already up.
const SETTLING: Duration = Duration::from_secs(10);

/// Window of the shortest round trip: a queue filling and draining within it does not make a peer look far.
const MEMORY: Duration = Duration::from_secs(60);

/// Required lead of a nearer peer, beyond a fifth.
const MARGIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    fn places(watch: &Watch) -> Vec<usize> {
        watch.standings([true; 9].into_iter(), Now::ZERO).iter().map(|standing| standing.place).collect()
    }

    #[test]
    fn configured_order_holds_until_a_peer_is_clearly_nearer() {
        let mut watch = Watch::new(3);
        assert_eq!(places(&watch), [0, 1, 2]);
        let at = Now::from_secs;
        watch.look([(true, ms(40)), (true, ms(33)), (true, None)].into_iter(), at(0));
        assert_eq!(places(&watch), [0, 1, 2], "about as near");
        watch.look([(true, ms(40)), (true, ms(10)), (true, None)].into_iter(), at(1));
        assert_eq!(places(&watch), [1, 0, 2]);
        watch.look([(true, ms(8)), (true, ms(10)), (true, ms(9))].into_iter(), at(2));
        assert_eq!(places(&watch), [1, 0, 2], "and the other way it is the same");
        watch.look([(true, ms(8)), (true, ms(10)), (true, ms(1))].into_iter(), at(3));
        assert_eq!(places(&watch), [2, 1, 0]);
    }

    #[test]
    fn transient_queue_does_not_make_a_peer_far() {
        let mut watch = Watch::new(2);
        for second in 0..59 {
            let queued = if second == 0 { ms(10) } else { ms(500) };
            watch.look([(true, queued), (true, ms(40))].into_iter(), Now::from_secs(second));
            assert_eq!(places(&watch), [0, 1], "after {second} s");
        }
        watch.look([(true, ms(500)), (true, ms(40))].into_iter(), Now::from_secs(60));
        assert_eq!(places(&watch), [1, 0], "but a longer way does");
    }

    #[test]
    fn recovered_peer_must_stay_up_for_a_while() {
        let mut watch = Watch::new(1);
        let health = |watch: &Watch, up, at| watch.standings([up].into_iter(), Now::from_secs(at))[0].health;
        assert_eq!(health(&watch, true, 0), Health::Settled, "the first time it need not");
        watch.look([(true, None)].into_iter(), Now::from_secs(0));
        watch.look([(false, None)].into_iter(), Now::from_secs(1));
        assert_eq!(health(&watch, false, 1), Health::Down);
        watch.look([(true, None)].into_iter(), Now::from_secs(5));
        assert_eq!(health(&watch, true, 5), Health::Fresh);
        assert_eq!(health(&watch, true, 14), Health::Fresh);
        assert_eq!(health(&watch, true, 15), Health::Settled);
        watch.look([(false, None)].into_iter(), Now::from_secs(20));
        watch.look([(true, None)].into_iter(), Now::from_secs(21));
        assert_eq!(health(&watch, true, 22), Health::Fresh, "each time anew");
    }
}
