//! Frames of the receiving half.

use super::Sender;
use crate::Now;
use crate::contract::{Feedback, Heard, PeerFault, SendEvent};
use crate::wanax::naming::Doubted;
use crate::wire::{Ack, Frame, LaneId, WireError};

impl Sender {
    /// Takes a frame from a lane.
    pub(crate) fn take_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Heard, PeerFault> {
        let none = Heard::default();
        let (feedback, heard) = match Frame::decode(kind, body)? {
            Frame::Ack(ack) => (Feedback::Ack(ack), none),
            Frame::Acked(distance) => {
                let acked = self.acked.entry(lane).or_default();
                *acked = acked.checked_add(distance).ok_or(WireError::Invalid("acknowledgement"))?;
                (Feedback::Ack(Ack { next: *acked, ranges: Vec::new() }), none)
            }
            Frame::Need(ranges) => (Feedback::Need(ranges), Heard { repairs: true, ..none }),
            Frame::Refetch(refetch) => (Feedback::Refetch(refetch), Heard { repairs: true, ..none }),
            Frame::LogHeld(held) => (Feedback::Held(held), none),
            Frame::ChunkRequest(request) => {
                let asked = Some(request.seq);
                (Feedback::Chunks(request), Heard { repairs: true, asked, ..none })
            }
            // One that is back is asked what it has.
            Frame::StoreHeld(held) => (Feedback::Store(held), Heard { control: true, ..none }),
            Frame::Probed(probed) => (Feedback::Probed(probed), none),
            _ => return Err(WireError::UnknownType(kind).into()),
        };
        self.handle_feedback(feedback, now)?;
        Ok(heard)
    }

    /// Takes what the receiving half says.
    ///
    /// # Errors
    /// Feedback on what was never sent.
    pub fn handle_feedback(&mut self, frame: Feedback, now: Now) -> Result<(), PeerFault> {
        match frame {
            Feedback::Ack(ack) => self.handle_ack(&ack, now)?,
            Feedback::Need(ranges) => self.handle_need(&ranges),
            Feedback::Refetch(refetch) => self.handle_refetch(&refetch, now),
            Feedback::Held(held) => self.log.handle_held(held),
            Feedback::Chunks(request) => self.handle_request(&request)?,
            Feedback::Store(held) => {
                if let Some(naming) = &mut self.naming {
                    naming.handle_held(&held, now);
                }
            }
            Feedback::Probed(probed) => {
                let doubted = self.naming.as_mut().and_then(|naming| naming.handle_probed(&probed, now));
                let event = |Doubted { absent, believed }| SendEvent::StoreDoubted { absent, believed };
                self.events.extend(doubted.map(event));
            }
        }
        Ok(())
    }
}
