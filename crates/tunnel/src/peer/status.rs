//! State of a peer and its link.

use oncewire_link::LinkStats;
use oncewire_logs::LogWriter;
use oncewire_report::LinkState;

use super::Peer;

/// Counters and state of a peer at one moment.
#[derive(Debug)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// The state of its link.
    pub state: LinkState,
    /// Why it is not up, as a sentence.
    pub reason: Option<String>,
    /// Bytes received on sockets.
    pub wire_received: u64,
    /// Bytes sent on sockets.
    pub wire_sent: u64,
    /// The counters of its link.
    pub link: LinkStats,
    /// Unsaved log bytes, sent and received; none if logs end with the process.
    pub not_saved: Option<[u64; 2]>,
}

impl PeerStatus {
    pub(super) fn of(peer: &Peer) -> Self {
        let (link, not_saved) = {
            let core = peer.core.lock();
            (core.link.stats(), core.log_writer.as_ref().map(LogWriter::lost))
        };
        let trouble = peer.dials.trouble();
        let idle = if peer.settings.address.is_some() { LinkState::Connecting } else { LinkState::Down };
        let (state, reason) = match (link.up, trouble) {
            (true, _) if link.peer_drains => (LinkState::Draining, Some(DRAINING.to_owned())),
            (true, _) => (LinkState::Up, None),
            (false, Some((state, reason))) => (state, Some(reason)),
            (false, None) => (idle, None),
        };
        Self {
            name: peer.settings.name.clone(),
            state,
            reason,
            wire_received: peer.wire.received(),
            wire_sent: peer.wire.sent(),
            link,
            not_saved,
        }
    }
}

/// The reason for no flows on an up link.
const DRAINING: &str = "the peer takes no new flows: it stops, or begins anew";
