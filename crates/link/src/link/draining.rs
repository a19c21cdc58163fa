//! Draining: control state of both ends, repeated whenever it may have been missed.
//!
//! A draining link never takes flows again, so there is nothing to number: an end's notice holds until a new instance
//! of it is met.

use oncewire_codec::wire::{Frame, OpenFailure};

use super::Link;
use super::networks::OPTIONAL_SINCE;
use crate::event::Event;

impl Link {
    /// Refuses new flows from now on, and tells the peer; open ones go on.
    ///
    /// A peer of version 1 only is not told, and neither is one without knowledge of it.
    pub fn drain(&mut self) {
        if !std::mem::replace(&mut self.draining, true) {
            self.tell_draining();
        }
    }

    /// Whether flows can be opened now: a lane is up, and the peer is not draining.
    pub fn takes_flows(&self) -> bool {
        self.is_up() && !self.peer_drains()
    }

    /// Whether the peer has said that it takes no new flows; holds beyond its last lane, until it comes anew.
    pub fn peer_drains(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.drains)
    }

    /// Repeats the draining notice, if this end drains.
    pub(super) fn tell_draining(&mut self) {
        let understood = self.peer.as_ref().is_some_and(|peer| peer.version >= OPTIONAL_SINCE);
        if self.draining && understood && !self.lanes.is_empty() {
            self.control.retain(|frame| *frame != Frame::Draining);
            self.control.push_back(Frame::Draining);
            self.wake_control();
        }
    }

    /// The peer takes no new flows.
    pub(super) fn handle_draining(&mut self) {
        if let Some(peer) = &mut self.peer
            && !std::mem::replace(&mut peer.drains, true)
        {
            self.events.push_back(Event::PeerDrains);
        }
    }

    /// Returns the failure in words known to the peer.
    pub(super) fn understood(&self, failure: OpenFailure) -> OpenFailure {
        match failure {
            OpenFailure::Draining if !self.peer.as_ref().is_some_and(|peer| peer.understands.draining) => {
                OpenFailure::Other
            }
            failure => failure,
        }
    }
}
