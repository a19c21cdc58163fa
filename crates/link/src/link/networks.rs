//! The two gateways' announced networks: control state, sent whole on changes and after possible losses.

use oncewire_codec::wire::{Frame, MAX_NETWORKS, Network, Networks};

use super::Link;
use crate::event::Event;

/// The first protocol version in which unknown frames are passed over.
pub(super) const OPTIONAL_SINCE: u16 = 2;

/// Both sides' announcements.
pub(super) struct Announcements {
    /// Our networks.
    ours: Networks,
    /// The highest serial number sent by the peer's present process.
    heard: u64,
}

impl Default for Announcements {
    fn default() -> Self {
        // The first serial number is 1: a peer without any announcement has heard 0.
        Self { ours: Networks { serial: 1, networks: Vec::new() }, heard: 0 }
    }
}

impl Link {
    /// Tells the peer the networks fronted by this gateway, now and on each return; at first none. Networks beyond
    /// the first [`MAX_NETWORKS`] are left out.
    ///
    /// A peer of version 1 only is not told.
    pub fn announce(&mut self, mut networks: Vec<Network>) {
        networks.truncate(MAX_NETWORKS);
        if networks != self.announcements.ours.networks {
            let serial = self.announcements.ours.serial + 1;
            self.announcements.ours = Networks { serial, networks };
            self.tell_networks();
        }
    }

    /// Repeats our networks. An empty list matters, too: the peer may know an earlier process's networks.
    pub(super) fn tell_networks(&mut self) {
        if self.lanes.is_empty() || !self.peer_announces() {
            return;
        }
        self.control.retain(|frame| !matches!(frame, Frame::Networks(_)));
        self.control.push_back(Frame::Networks(self.announcements.ours.clone()));
        self.wake_control();
    }

    /// Starts over with a new process of the peer. The old one's announcement holds until the new one has spoken,
    /// unless it never will.
    pub(super) fn meet_announcer(&mut self) {
        self.announcements.heard = 0;
        if !self.peer_announces() {
            self.events.push_back(Event::Announced(Vec::new()));
        }
    }

    /// Takes the peer's announcement; frames overtake each other, so the highest serial number counts.
    pub(super) fn handle_networks(&mut self, said: Networks) {
        if said.serial > self.announcements.heard {
            self.announcements.heard = said.serial;
            self.events.push_back(Event::Announced(said.networks));
        }
    }

    fn peer_announces(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.version >= OPTIONAL_SINCE)
    }
}
