//! An inbound flow's lane, and its resumption after the lane's loss.

use oncewire_codec::Now;
use oncewire_codec::wire::LaneId;

/// The lane of an inbound flow.
///
/// The sending end knows the content of a lost lane. The receiving end finds it out from later frames: one sent
/// before, or any of a flow received just before the loss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brought {
    /// The lane of its last frame, and the time.
    last: Option<(LaneId, Now)>,
    lost: Option<Lost>,
}

/// The loss of a flow's lane.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Whether it was coming just then.
    was_coming: bool,
    /// Behind the highest sequence number received of any flow.
    next: u64,
}

impl Brought {
    /// Whether the flow came on this lane last.
    pub(crate) fn is_on(&self, lane: LaneId) -> bool {
        self.last.is_some_and(|(last, _)| last == lane)
    }

    /// Something has come; `is_resent` if it was sent before. Returns whether the flow resumes after the loss of its
    /// lane.
    pub(crate) fn note(&mut self, lane: LaneId, seq: u64, is_resent: bool, now: Now) -> bool {
        self.last = Some((lane, now));
        self.lost.take().is_some_and(|lost| lost.was_coming || is_resent || seq < lost.next)
    }

    /// A lane is lost; the flow was coming on it if it did since a time. `next` is behind the highest sequence number
    /// received of any flow.
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
    fn flow_received_just_before_resumes_once() {
        let mut brought = lost(Now::from_millis(900));
        assert!(brought.note(LANES[1], 10, false, Now::from_secs(2)));
        assert!(!brought.note(LANES[1], 11, false, Now::from_secs(2)));
    }

    #[test]
    fn idle_flow_resumes_only_with_resent_frames() {
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
