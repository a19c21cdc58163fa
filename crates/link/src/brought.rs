//! On what lane a flow comes, and whether it goes on after that was lost.

use oncewire_codec::Now;
use oncewire_codec::wire::LaneId;

/// On what lane a flow comes.
///
/// The sending end knows what was on a lane that is lost. The receiving end finds it out by what comes next: something
/// that was sent before, or anything of a flow that was coming just then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brought {
    /// The lane that brought something of it last, and when.
    last: Option<(LaneId, Now)>,
    lost: Option<Lost>,
}

/// How a flow lost the lane that it came on.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Whether it was coming just then.
    was_coming: bool,
    /// Behind the highest sequence number that had come of any flow.
    next: u64,
}

impl Brought {
    /// Whether the flow came on this lane last.
    pub(crate) fn is_on(&self, lane: LaneId) -> bool {
        self.last.is_some_and(|(last, _)| last == lane)
    }

    /// Something has come; `is_resent` says that it was sent before. Returns whether the flow goes on after it lost its
    /// lane.
    pub(crate) fn note(&mut self, lane: LaneId, seq: u64, is_resent: bool, now: Now) -> bool {
        self.last = Some((lane, now));
        self.lost.take().is_some_and(|lost| lost.was_coming || is_resent || seq < lost.next)
    }

    /// A lane is lost; the flow was coming on it if it did since a time. `next` is behind the highest sequence number that
    /// has come of any flow.
    pub(crate) fn lose(&mut self, lane: LaneId, since: Now, next: u64) {
        if let Some((_, came)) = self.last.take_if(|(last, _)| *last == lane) {
            self.lost = Some(Lost { was_coming: came >= since, next });
        }
    }

    /// The loss is counted already.
    pub(crate) fn forget_loss(&mut self) {
        self.lost = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: [LaneId; 2] = [LaneId(1), LaneId(2)];

    fn lost(since: Now) -> Brought {
        let mut brought = Brought::default();
        assert!(!brought.note(LANES[0], 7, false, Now::from_secs(1)));
        brought.lose(LANES[0], since, 10);
        brought
    }

    #[test]
    fn flow_that_came_just_then_goes_on_once() {
        let mut brought = lost(Now::from_millis(900));
        assert!(brought.note(LANES[1], 10, false, Now::from_secs(2)));
        assert!(!brought.note(LANES[1], 11, false, Now::from_secs(2)));
    }

    #[test]
    fn idle_flow_goes_on_only_with_what_was_sent_before() {
        let went_on = |seq, is_resent| {
            let mut brought = lost(Now::from_secs(2));
            brought.note(LANES[1], seq, is_resent, Now::from_secs(10))
        };
        assert!(!went_on(10, false), "it had lost nothing");
        assert!(went_on(9, false), "a number that was used");
        assert!(went_on(10, true));
    }

    #[test]
    fn loss_of_another_lane_or_one_already_counted_is_none() {
        let mut brought = lost(Now::from_millis(900));
        brought.forget_loss();
        assert!(!brought.note(LANES[1], 9, true, Now::from_secs(2)));
        brought.lose(LANES[0], Now::from_secs(1), 10);
        assert!(!brought.note(LANES[1], 9, true, Now::from_secs(2)));
    }
}
