//! State of a peer and its link.

use oncewire_link::LinkStats;
use oncewire_logs::{LogWriter, PersistError};
use oncewire_report::LinkState;

use super::Peer;

/// Counters and state of a peer at one moment.
#[derive(Debug)]
pub struct PeerStatus {
    pub name: String,
    pub state: LinkState,
    /// Why it is not up, as a sentence.
    pub reason: Option<String>,
    pub wire_received: u64,
    pub wire_sent: u64,
    pub link: LinkStats,
    /// Unsaved log bytes, sent and received; none if logs end with the process.
    pub not_saved: Option<[u64; 2]>,
}

impl Peer {
    /// Returns the reasons for deferred persistence, one per log.
    pub fn unkept_logs(&self) -> Vec<PersistError> {
        self.core.lock().log_writer.iter().flat_map(LogWriter::unkept).collect()
    }

    /// Returns its status.
    pub fn status(&self) -> PeerStatus {
        let (link, not_saved) = {
            let core = self.core.lock();
            (core.link.stats(), core.log_writer.as_ref().map(LogWriter::lost))
        };
        let trouble = self.trouble.lock().clone();
        let idle = if self.settings.address.is_some() { LinkState::Connecting } else { LinkState::Down };
        let (state, reason) = match (link.up, trouble) {
            (true, _) if link.peer_drains => (LinkState::Draining, Some(DRAINING.to_owned())),
            (true, _) => (LinkState::Up, None),
            (false, Some((state, reason))) => (state, Some(reason)),
            (false, None) => (idle, None),
        };
        PeerStatus {
            name: self.settings.name.clone(),
            state,
            reason,
            wire_received: self.wire.received(),
            wire_sent: self.wire.sent(),
            link,
            not_saved,
        }
    }
}

/// The reason for no flows on an up link.
const DRAINING: &str = "the peer takes no new flows: it stops, or begins anew";
