//! Control frames in wait: networks, draining, keep-alive, needs of lanes.
//!
//! All of it is control state: the latest word counts, and all is said again on a new control lane.

use std::collections::VecDeque;
use std::mem::discriminant;

use oncewire_codec::wire::{Frame, KeepAlive, MAX_NETWORKS, Network, Networks};

/// Words of this end for the control lane, and the peer's networks.
#[derive(Debug)]
pub(crate) struct Announcements {
    queue: VecDeque<Frame<'static>>,
    /// Our networks.
    networks: Networks,
    /// The highest serial number of networks from the peer's present process.
    heard: u64,
    /// Whether this end refuses new flows.
    is_draining: bool,
}

impl Default for Announcements {
    fn default() -> Self {
        // Serial numbers begin at 1: a peer that has heard nothing has heard 0.
        let networks = Networks { serial: 1, networks: Vec::new() };
        Self { queue: VecDeque::new(), networks, heard: 0, is_draining: false }
    }
}

impl Announcements {
    /// Queues a frame in place of an earlier one of its kind, and of keep-alive of its flow.
    pub(crate) fn say(&mut self, frame: Frame<'static>) {
        self.queue.retain(|other| !is_replaced(other, &frame));
        self.queue.push_back(frame);
    }

    /// Takes the next frame.
    pub(crate) fn pop(&mut self) -> Option<Frame<'static>> {
        self.queue.pop_front()
    }

    /// Starts over with a new instance of the peer. Networks of the old one hold until the new one has spoken.
    pub(crate) fn meet(&mut self) {
        self.queue.clear();
        self.heard = 0;
    }

    /// Replaces our networks, up to the first [`MAX_NETWORKS`]; returns whether they are news.
    pub(crate) fn set_networks(&mut self, mut networks: Vec<Network>) -> bool {
        networks.truncate(MAX_NETWORKS);
        let is_news = networks != self.networks.networks;
        if is_news {
            self.networks = Networks { serial: self.networks.serial + 1, networks };
        }
        is_news
    }

    /// Queues our networks, also without any: the peer may know those of an earlier process.
    pub(crate) fn say_networks(&mut self) {
        self.say(Frame::Networks(self.networks.clone()));
    }

    /// Takes the peer's networks, if they are news. Frames overtake each other, so the highest serial number counts.
    pub(crate) fn handle_networks(&mut self, said: Networks) -> Option<Vec<Network>> {
        let is_news = said.serial > self.heard;
        self.heard = self.heard.max(said.serial);
        is_news.then_some(said.networks)
    }

    /// Refuses new flows for good; returns whether that is news.
    pub(crate) fn drain(&mut self) -> bool {
        !std::mem::replace(&mut self.is_draining, true)
    }

    /// Whether this end refuses new flows.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Queues the draining notice, if this end drains.
    pub(crate) fn say_draining(&mut self) {
        if self.is_draining {
            self.say(Frame::Draining);
        }
    }

    /// Queues all keep-alives anew.
    pub(crate) fn say_keepalives(&mut self, all: impl Iterator<Item = KeepAlive>) {
        self.queue.retain(|frame| !matches!(frame, Frame::KeepAlive(_)));
        self.queue.extend(all.map(Frame::KeepAlive));
    }
}

fn is_replaced(old: &Frame<'_>, new: &Frame<'_>) -> bool {
    match (old, new) {
        (Frame::KeepAlive(old), Frame::KeepAlive(new)) => old.flow == new.flow,
        (old, new) => discriminant(old) == discriminant(new),
    }
}

#[cfg(test)]
mod tests {
    use oncewire_codec::wire::FlowId;

    use super::*;

    fn keepalive(flow: u32, seconds: u16) -> KeepAlive {
        KeepAlive { flow: FlowId(flow), seconds }
    }

    #[test]
    fn latest_frame_of_a_kind_is_said_once() {
        let mut announcements = Announcements::default();
        for frame in [
            Frame::LanesWanted(1),
            Frame::KeepAlive(keepalive(1, 10)),
            Frame::KeepAlive(keepalive(3, 10)),
            Frame::LanesWanted(2),
            Frame::KeepAlive(keepalive(1, 0)),
        ] {
            announcements.say(frame);
        }
        announcements.say_draining();
        let said: Vec<Frame<'_>> = std::iter::from_fn(|| announcements.pop()).collect();
        let expected =
            [Frame::KeepAlive(keepalive(3, 10)), Frame::LanesWanted(2), Frame::KeepAlive(keepalive(1, 0))];
        assert_eq!(said, expected);
        assert!(announcements.drain() && !announcements.drain());
        announcements.say_draining();
        assert_eq!(announcements.pop(), Some(Frame::Draining));
    }

    #[test]
    fn networks_with_an_older_serial_are_no_news() {
        let mut announcements = Announcements::default();
        let said = |serial| Networks { serial, networks: Vec::new() };
        assert!(announcements.handle_networks(said(3)).is_some());
        assert!(announcements.handle_networks(said(3)).is_none());
        assert!(announcements.handle_networks(said(2)).is_none());
        announcements.meet();
        assert!(announcements.handle_networks(said(1)).is_some());
        assert!(!announcements.set_networks(Vec::new()), "there were none");
    }
}
