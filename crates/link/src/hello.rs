//! Identity of both ends, as hellos say it.

use std::collections::VecDeque;

use oncewire_codec::wire::{Hello, OpenFailure, Understood, VERSION};

/// The instance of this end, and the present and earlier ones of the peer.
#[derive(Debug)]
pub(crate) struct Identities {
    instance: u64,
    peer: Option<Peer>,
    /// Earlier instances of the peer, met by this instance.
    superseded: VecDeque<u64>,
}

/// The peer's last hello.
#[derive(Debug)]
struct Peer {
    instance: u64,
    /// The protocol version of the link.
    version: u16,
    initial_credit: u64,
    understands: Understood,
    /// Whether it refuses new flows.
    drains: bool,
}

/// The first protocol version with optional frames.
const OPTIONAL_SINCE: u16 = 2;

/// Superseded instances in memory. A forgotten one would have lived through as many restarts of the peer without
/// dialling or being dialled.
const MAX_SUPERSEDED: usize = 64;

impl Identities {
    /// Starts without a peer.
    pub(crate) fn new(instance: u64) -> Self {
        Self { instance, peer: None, superseded: VecDeque::new() }
    }

    /// Returns the instance of this end.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    /// Whether the peer was met.
    pub(crate) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Whether this is the present instance of the peer.
    pub(crate) fn is_known(&self, instance: u64) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.instance == instance)
    }

    /// Whether another instance of the peer followed this one.
    pub(crate) fn is_superseded(&self, instance: u64) -> bool {
        self.superseded.contains(&instance)
    }

    /// Takes a new instance of the peer; returns whether it replaces another.
    pub(crate) fn meet(&mut self, hello: &Hello) -> bool {
        let new = Peer {
            instance: hello.instance,
            version: hello.version.min(VERSION),
            initial_credit: hello.initial_credit,
            understands: hello.understands,
            drains: false,
        };
        let Some(old) = self.peer.replace(new) else { return false };
        if self.superseded.len() == MAX_SUPERSEDED {
            self.superseded.pop_front();
        }
        self.superseded.push_back(old.instance);
        true
    }

    /// Gives this end another instance, and forgets the peer.
    pub(crate) fn renew(&mut self) {
        *self = Self::new(next_instance(self.instance));
    }

    /// Returns the protocol version of the link.
    pub(crate) fn version(&self) -> Option<u16> {
        self.peer.as_ref().map(|peer| peer.version)
    }

    /// Returns the peer's initial credit for flows; 0 before it was met.
    pub(crate) fn initial_credit(&self) -> u64 {
        self.peer.as_ref().map_or(0, |peer| peer.initial_credit)
    }

    /// Returns the peer's abilities beyond its version.
    pub(crate) fn understands(&self) -> Understood {
        self.peer.as_ref().map(|peer| peer.understands).unwrap_or_default()
    }

    /// Whether the peer takes optional frames.
    pub(crate) fn takes_optional_frames(&self) -> bool {
        self.version().is_some_and(|version| version >= OPTIONAL_SINCE)
    }

    /// Whether the peer refuses new flows.
    pub(crate) fn peer_drains(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.drains)
    }

    /// Notes that the peer refuses new flows; returns whether that is news.
    pub(crate) fn handle_draining(&mut self) -> bool {
        self.peer.as_mut().is_some_and(|peer| !std::mem::replace(&mut peer.drains, true))
    }

    /// Returns a failure in the peer's terms.
    pub(crate) fn translate(&self, failure: OpenFailure) -> OpenFailure {
        match failure {
            OpenFailure::Draining if !self.understands().draining => OpenFailure::Other,
            failure => failure,
        }
    }
}

/// Returns an instance as random as the one before it (the mixer of SplitMix64).
fn next_instance(instance: u64) -> u64 {
    let mut mixed = instance.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use oncewire_codec::Now;
    use oncewire_codec::wire::{LaneId, LaneRole};

    use super::*;
    use crate::{Link, LinkConfig};

    fn hello(instance: u64) -> Hello {
        let config = LinkConfig { instance, ..LinkConfig::default() };
        Link::new(config, Now::ZERO).hello(LaneId(1), LaneRole::Control)
    }

    #[test]
    fn replaced_instances_are_superseded() {
        let mut ends = Identities::new(1);
        assert!(!ends.has_peer() && !ends.meet(&hello(2)));
        assert!(ends.is_known(2) && !ends.is_superseded(2));
        assert!(ends.meet(&hello(3)));
        assert!(ends.is_known(3) && ends.is_superseded(2));
        (4..200).for_each(|instance| assert!(ends.meet(&hello(instance))));
        assert_eq!(ends.superseded.len(), MAX_SUPERSEDED);
        ends.renew();
        assert!(!ends.has_peer() && !ends.is_superseded(198) && ends.instance() != 1);
    }

    #[test]
    fn draining_peer_is_news_once_per_instance() {
        let mut ends = Identities::new(1);
        assert!(!ends.handle_draining(), "nobody was met");
        ends.meet(&hello(2));
        assert!(ends.handle_draining() && !ends.handle_draining() && ends.peer_drains());
        ends.meet(&hello(3));
        assert!(!ends.peer_drains());
    }

    #[test]
    fn failures_are_told_in_terms_of_the_peer() {
        let mut ends = Identities::new(1);
        ends.meet(&hello(2));
        assert_eq!(ends.translate(OpenFailure::Draining), OpenFailure::Draining);
        ends.meet(&Hello { understands: Understood::default(), version: 1, ..hello(3) });
        assert_eq!(ends.translate(OpenFailure::Draining), OpenFailure::Other);
        assert_eq!(ends.translate(OpenFailure::Refused), OpenFailure::Refused);
        assert!(!ends.takes_optional_frames());
    }
}
