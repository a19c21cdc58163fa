//! Claims: one member fetches a chunk from the far side, and others of the site wait for it instead of fetching it too.

use std::collections::{BTreeMap, BTreeSet};

use oncewire_codec::Now;
use oncewire_codec::wanax::Name;

use super::trust::Failures;
use super::{MemberId, Read};

/// The chunks this gateway is responsible for, lacks, and has told somebody so.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_tag: BTreeMap<u64, Claim>,
    deadlines: BTreeSet<(Now, u64)>,
    /// How long claimed chunks have taken to come lately; none came before it is known.
    fill_time: Option<Now>,
    /// Members with broken claims.
    failures: Failures,
}

/// A chunk fetched by one gateway.
#[derive(Debug)]
struct Claim {
    by: MemberId,
    since: Now,
    deadline: Now,
    /// Whether it took too long already, so nobody waits for it any more.
    ended: bool,
    /// Whether somebody waited for so long.
    was_missed: bool,
    waiting: Vec<Waiter>,
}

/// A waiter for another's chunk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// A neighbour with a request for it.
    Member {
        /// The neighbour.
        id: MemberId,
        /// Its request.
        request: u64,
        /// The chunk's name in full.
        name: Name,
    },
    /// This gateway.
    Own(Read),
}

/// The verdict on a member without a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is to fetch the chunk itself.
    Fetch,
    /// It waits for at most so long, and hears of it in any case.
    Wait(Now),
}

/// The most chunks claimed; a member without one more fetches it.
pub(super) const MAX_CLAIMS: usize = 4096;
/// The longest wait for another's fetch.
pub(super) const MOST_WAIT: Now = Now::from_secs(1);
const LEAST_WAIT: Now = Now::from_millis(50);
/// The assumed time of a claimed chunk before one came.
const FIRST_FILL_TIME: Now = Now::from_millis(250);
/// When a claim counts as broken. What comes later than waiting allows, and before this, teaches how long to wait.
const FORGET: Now = Now::from_secs(5);

impl Claims {
    /// Says whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_tag.is_empty()
    }

    /// Decides for a member without a chunk: the first fetches it, the others wait for it.
    pub(super) fn join(&mut self, tag: u64, by: MemberId, waiter: Waiter, now: Now) -> Verdict {
        if let Some(claim) = self.by_tag.get_mut(&tag) {
            if claim.by == by || claim.ended || self.failures.rests(claim.by, now) {
                return Verdict::Fetch;
            }
            claim.waiting.push(waiter);
            return Verdict::Wait(claim.deadline.saturating_sub(now));
        }
        if self.by_tag.len() < MAX_CLAIMS {
            let life = (self.fill_time.unwrap_or(FIRST_FILL_TIME) * 2).clamp(LEAST_WAIT, MOST_WAIT);
            let deadline = now + life;
            self.deadlines.insert((deadline, tag));
            let waiting = Vec::new();
            let claim = Claim { by, since: now, deadline, ended: false, was_missed: false, waiting };
            self.by_tag.insert(tag, claim);
        }
        Verdict::Fetch
    }

    /// A chunk came `from` a member, or from this gateway: returns its waiters. If another was to bring it, that one is
    /// still to: a delivery by somebody else is no merit of it, and says nothing about the time of claims.
    pub(super) fn fill(&mut self, tag: u64, from: MemberId, now: Now) -> Vec<Waiter> {
        let Some(claim) = self.by_tag.get_mut(&tag) else { return Vec::new() };
        let waiting = std::mem::take(&mut claim.waiting);
        if claim.by == from {
            let took = now.saturating_sub(claim.since);
            self.take(tag);
            self.fill_time = Some(self.fill_time.map_or(took, |before| (before * 7 + took) / 8));
            self.failures.forgive(from);
        }
        waiting
    }

    /// One that claimed a chunk need not bring it any more.
    pub(super) fn withdraw(&mut self, tag: u64, by: MemberId) {
        if self.by_tag.get(&tag).is_some_and(|claim| claim.by == by) {
            self.take(tag);
        }
    }

    /// A neighbour is gone: returns the waiters for its claims. It waits for nothing itself any more.
    pub(super) fn leave(&mut self, id: MemberId) -> Vec<Waiter> {
        let its = |waiter: &Waiter| matches!(waiter, Waiter::Member { id: its, .. } if *its == id);
        self.by_tag.values_mut().for_each(|claim| claim.waiting.retain(|waiter| !its(waiter)));
        let tags: Vec<u64> =
            self.by_tag.iter().filter(|(_, claim)| claim.by == id).map(|(&tag, _)| tag).collect();
        tags.into_iter().filter_map(|tag| self.take(tag)).flat_map(|claim| claim.waiting).collect()
    }

    /// Returns when [`Self::expire`] has something to do.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the waiters past their time. A claim without a delivery is a failure only if somebody waited for it: the
    /// second in order may have had it, and then nobody is to bring it.
    pub(super) fn expire(&mut self, now: Now) -> Vec<Waiter> {
        let mut released = Vec::new();
        while let Some(&(deadline, tag)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, tag));
            let Some(claim) = self.by_tag.get_mut(&tag) else { continue };
            if claim.ended {
                if claim.was_missed {
                    self.failures.failed(claim.by, claim.since, now);
                }
                self.by_tag.remove(&tag);
                continue;
            }
            (claim.ended, claim.was_missed) = (true, !claim.waiting.is_empty());
            claim.deadline = claim.since + FORGET;
            self.deadlines.insert((claim.deadline, tag));
            released.append(&mut claim.waiting);
        }
        released
    }

    fn take(&mut self, tag: u64) -> Option<Claim> {
        let claim = self.by_tag.remove(&tag)?;
        self.deadlines.remove(&(claim.deadline, tag));
        Some(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: MemberId = MemberId(1);
    const SECOND: MemberId = MemberId(2);

    fn waiter(id: MemberId) -> Waiter {
        Waiter::Member { id, request: 7, name: Name([0; 20]) }
    }

    fn join(claims: &mut Claims, tag: u64, id: MemberId, now: Now) -> Verdict {
        claims.join(tag, id, waiter(id), now)
    }

    #[test]
    fn second_asker_waits_twice_the_usual_time() {
        let (mut claims, mut now) = (Claims::default(), Now::from_secs(9));
        for tag in 0..100 {
            assert_eq!(join(&mut claims, tag, FIRST, now), Verdict::Fetch);
            now += Now::from_millis(80);
            assert_eq!(claims.fill(tag, FIRST, now).len(), 0);
        }
        assert_eq!(join(&mut claims, 100, FIRST, now), Verdict::Fetch);
        assert_eq!(
            join(&mut claims, 100, FIRST, now),
            Verdict::Fetch,
            "who claimed it does not wait for itself"
        );
        assert_eq!(join(&mut claims, 100, SECOND, now), Verdict::Wait(Now::from_millis(160)));
        assert_eq!(claims.fill(100, FIRST, now).len(), 1);
        assert!(claims.is_empty() && claims.deadline().is_none());
    }

    #[test]
    fn late_chunks_lengthen_waits_and_lost_ones_end_them() {
        let (mut claims, mut now) = (Claims::default(), Now::from_secs(9));
        let mut waits = Vec::new();
        for tag in 0..40 {
            join(&mut claims, tag, FIRST, now);
            let Verdict::Wait(wait) = join(&mut claims, tag, SECOND, now) else { panic!() };
            waits.push(wait);
            assert_eq!(claims.expire(now + wait).len(), 1);
            assert_eq!(join(&mut claims, tag, SECOND, now + wait), Verdict::Fetch, "it was let go");
            now += Now::from_secs(4);
            assert_eq!(claims.fill(tag, FIRST, now).len(), 0);
        }
        assert_eq!((waits[0], waits[39]), (Now::from_millis(500), MOST_WAIT));
        join(&mut claims, 40, FIRST, now);
        join(&mut claims, 40, SECOND, now);
        claims.expire(now + MOST_WAIT);
        now += FORGET;
        claims.expire(now);
        assert!(claims.is_empty() && claims.deadline().is_none());
        join(&mut claims, 41, FIRST, now);
        assert_eq!(join(&mut claims, 41, SECOND, now), Verdict::Fetch, "it did not bring the last");
        now += Now::from_secs(2);
        join(&mut claims, 42, FIRST, now);
        assert!(matches!(join(&mut claims, 42, SECOND, now), Verdict::Wait(_)), "another chance");
        claims.fill(41, FIRST, now);
        claims.fill(42, FIRST, now);
    }

    #[test]
    fn chunk_from_another_answers_waiters_without_clearing_claims() {
        let (mut claims, now) = (Claims::default(), Now::from_secs(9));
        (1..=3).for_each(|tag| _ = join(&mut claims, tag, FIRST, now));
        (2..=3).for_each(|tag| _ = join(&mut claims, tag, SECOND, now));
        assert_eq!(join(&mut claims, 1, SECOND, now), Verdict::Wait(FIRST_FILL_TIME * 2));
        // Nobody waited for the first for too long, and for the others somebody did.
        assert_eq!(claims.fill(1, SECOND, now).len(), 1);
        assert_eq!(claims.expire(now + MOST_WAIT).len(), 2);
        for tag in [2, 3] {
            assert_eq!(claims.fill(tag, SECOND, now + MOST_WAIT).len(), 0);
        }
        assert_eq!(claims.fill_time, None);
        // One comes late from whom it should.
        assert_eq!(claims.fill(2, FIRST, now + MOST_WAIT * 2).len(), 0);
        assert_eq!(claims.fill_time, Some(MOST_WAIT * 2));
        assert!(!claims.failures.rests(FIRST, now + MOST_WAIT * 2));
        claims.expire(now + FORGET);
        assert!(claims.failures.rests(FIRST, now + FORGET), "the other never comes");
        assert!(claims.is_empty() && claims.deadline().is_none());
    }

    #[test]
    fn broken_claim_outlives_a_departure() {
        let (mut claims, mut now) = (Claims::default(), Now::from_secs(9));
        join(&mut claims, 1, FIRST, now);
        join(&mut claims, 1, SECOND, now);
        claims.expire(now + MOST_WAIT);
        now += FORGET;
        claims.expire(now);
        assert_eq!(claims.leave(FIRST).len(), 0);
        join(&mut claims, 2, FIRST, now);
        assert_eq!(join(&mut claims, 2, SECOND, now), Verdict::Fetch);
    }

    #[test]
    fn unawaited_claim_need_not_come() {
        let (mut claims, mut now) = (Claims::default(), Now::from_secs(9));
        join(&mut claims, 1, FIRST, now);
        claims.expire(now + MOST_WAIT);
        now += FORGET;
        claims.expire(now);
        assert!(claims.is_empty());
        join(&mut claims, 2, FIRST, now);
        assert!(matches!(join(&mut claims, 2, SECOND, now), Verdict::Wait(_)));
    }

    #[test]
    fn departure_ends_waits_on_both_sides() {
        let (mut claims, now) = (Claims::default(), Now::from_secs(9));
        join(&mut claims, 1, FIRST, now);
        join(&mut claims, 1, SECOND, now);
        join(&mut claims, 2, SECOND, now);
        join(&mut claims, 2, FIRST, now);
        let left = claims.leave(FIRST);
        assert!(matches!(left[..], [Waiter::Member { id: SECOND, .. }]), "{left:?}");
        assert_eq!(claims.fill(2, SECOND, now).len(), 0);
        assert!(claims.is_empty() && claims.deadline().is_none());
    }

    #[test]
    fn claims_are_bounded() {
        let (mut claims, now) = (Claims::default(), Now::from_secs(9));
        (0..2 * MAX_CLAIMS as u64).for_each(|tag| _ = join(&mut claims, tag, FIRST, now));
        assert_eq!((claims.by_tag.len(), claims.deadlines.len()), (MAX_CLAIMS, MAX_CLAIMS));
        assert_eq!(join(&mut claims, MAX_CLAIMS as u64, SECOND, now), Verdict::Fetch);
        assert_eq!(claims.expire(now + FORGET * 2).len(), 0);
        claims.expire(now + FORGET * 2);
        assert!(claims.is_empty());
    }
}
