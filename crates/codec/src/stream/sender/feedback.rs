//! Frames of the receiving half.

use super::Sender;
use crate::Now;
use crate::contract::{Feedback, Heard, PeerFault, SendEvent};
use crate::wanax::naming::Doubted;
use crate::wire::{Ack, Frame, LaneId, WireError};

impl Sender {
    /// Reads a frame of feedback from a lane; returns its effect on others, too.
    pub(super) fn read_feedback(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
    ) -> Result<(Feedback, Heard), PeerFault> {
        let none = Heard::default();
        Ok(match Frame::decode(kind, body)? {
            Frame::Ack(ack) => (Feedback::Ack(ack), none),
            Frame::Acked(distance) => (Feedback::Ack(self.transfer.ack_by(lane, distance)?), none),
            Frame::Need(ranges) => (Feedback::Need(ranges), Heard { repairs: true, ..none }),
            Frame::Refetch(refetch) => (Feedback::Refetch(refetch), Heard { repairs: true, ..none }),
            Frame::LogHeld(held) => (Feedback::Held(held), none),
            Frame::ChunkRequest(request) => {
                let asked = Some(request.seq);
                (Feedback::Chunks(request), Heard { repairs: true, asked, ..none })
            }
            // A store that is back is probed.
            Frame::StoreHeld(held) => (Feedback::Store(held), Heard { control: true, ..none }),
            Frame::Probed(probed) => (Feedback::Probed(probed), none),
            _ => return Err(WireError::UnknownType(kind).into()),
        })
    }

    /// Takes what the receiving half says.
    ///
    /// # Errors
    /// Feedback on what was never sent.
    pub fn handle_feedback(&mut self, frame: Feedback, now: Now) -> Result<(), PeerFault> {
        match frame {
            Feedback::Ack(ack) => self.handle_ack(&ack, now)?,
            Feedback::Need(ranges) => self.stats.steps += self.transfer.handle_need(&ranges),
            Feedback::Refetch(refetch) => self.handle_refetch(&refetch, now),
            Feedback::Held(held) => self.log.remote.handle_held(held),
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

    fn handle_ack(&mut self, ack: &Ack, now: Now) -> Result<(), PeerFault> {
        let Self { transfer, naming, events, scratch, .. } = self;
        transfer.handle_ack(ack, &mut scratch.settled, |item| {
            if let Some(naming) = naming {
                let stored = naming.settle(item, now);
                events.extend((!stored.is_empty()).then_some(SendEvent::Stored(stored)));
            }
        })?;
        events.extend(scratch.settled.drain(..).map(SendEvent::Settled));
        Ok(())
    }
}
