//! Clearing of caches: in memory at once, on disks in their time.

use std::sync::Arc;
use std::time::Duration;

use oncewire_logs::{Cleared, Logs};
use oncewire_report::ClearedReport;
use oncewire_tunnel::chunks::ChunksCleared;
use oncewire_tunnel::peer::{HintsSaved, Peer};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::state::State;

/// A peer with its logs cleared in memory, and its files being cleared.
pub(super) struct ClearingPeer {
    peer: Arc<Peer>,
    /// Bytes cleared in memory.
    memory: u64,
    logs: Option<[Cleared; 2]>,
    hints: Option<HintsSaved>,
}

impl ClearingPeer {
    pub(super) fn begin(peer: &Arc<Peer>) -> Self {
        let (memory, logs) = peer.clear_logs();
        Self { peer: Arc::clone(peer), memory, logs, hints: peer.empty_hints() }
    }

    /// Waits for the disk, but not beyond `end`, and reports the cleared bytes. Failures are added to
    /// `failed`.
    pub(super) async fn end(self, end: Instant, failed: &mut Vec<String>) -> ClearedReport {
        let name = self.peer.name();
        let mut disk = 0;
        let mut refused = None;
        for log in self.logs.into_iter().flatten() {
            match log_cleared(log, end).await {
                Ok(bytes) => disk += bytes,
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) => {
                failed.push(format!("the logs of {name} are cleared in memory, and on disk {error}"));
            }
            None => tracing::info!(peer = name, memory = self.memory, disk, "logs cleared"),
        }
        if let Some(hints) = self.hints
            && let Err(error) = hints_cleared(hints, end).await
        {
            failed.push(format!("what is known of the chunk store of {name} {error}"));
        }
        ClearedReport { peer: name.to_owned(), memory: self.memory, disk }
    }
}

/// Logs of past peers, to be removed.
pub(super) struct ClearingPast {
    pub(super) logs: Logs,
    pub(super) state: watch::Receiver<Arc<State>>,
    pub(super) changing: Arc<tokio::sync::Mutex<()>>,
}

impl ClearingPast {
    /// Removes them while no peers come and go, but waits not beyond `end`; returns the removed logs.
    pub(super) async fn clear(self, end: Instant) -> Result<Vec<ClearedReport>, String> {
        let stays = |why: &str| format!("may stay on disk: {why}");
        let late = |_| stays(&format!("it took longer than {DISK_LIMIT:?}"));
        let _changing = timeout_at(end, self.changing.lock_owned()).await.map_err(late)?;
        let state = Arc::clone(&self.state.borrow());
        let keys = state.config.peers.iter().flat_map(|peer| &peer.public_keys).copied().collect();
        let unusable = || stays("its disk was waited for in vain, or the gateway is stopping");
        let cleared = self.logs.clear_past(keys).ok_or_else(unusable)?;
        let cleared = timeout_at(end, cleared).await.map_err(late)?.map_err(|_| unusable())?;
        let cleared = cleared.map_err(|error| stays(&error.to_string()))?;
        for ClearedReport { peer, disk, .. } in &cleared {
            tracing::info!(peer, disk, "logs of a peer that is no longer there removed");
        }
        Ok(cleared)
    }
}

/// Waits until one log's files are cleared, and returns how many bytes they had.
async fn log_cleared(cleared: Cleared, end: Instant) -> Result<u64, String> {
    match timeout_at(end, cleared).await {
        Ok(Ok(cleared)) => cleared.map_err(|error| format!("they could not be: {error}")),
        Ok(Err(_)) => Err("they may not be: the gateway is stopping".to_owned()),
        Err(_) => Err(format!("they are not yet: it took longer than {DISK_LIMIT:?}")),
    }
}

/// Waits until the knowledge of a peer's store is cleared on disk.
async fn hints_cleared(saved: HintsSaved, end: Instant) -> Result<(), String> {
    match timeout_at(end, saved).await {
        Ok(Ok(saved)) => saved.map(drop).map_err(|error| format!("stays on disk: {error}")),
        Ok(Err(_)) => Err("may stay on disk: the gateway cannot start a thread for it".to_owned()),
        Err(_) => Err(format!("is still on disk: it took longer than {DISK_LIMIT:?}")),
    }
}

/// Waits until the chunk store is cleared, and returns how many bytes it had.
pub(super) async fn chunks_cleared(chunks: ChunksCleared, end: Instant) -> Result<u64, String> {
    match timeout_at(end, chunks).await {
        Ok(Ok(cleared)) => cleared.map_err(|error| format!("could not be cleared: {error}")),
        Ok(Err(_)) => {
            Err("is not cleared: too much waits for its disk, or the gateway is stopping".to_owned())
        }
        Err(_) => Err(format!("is not cleared yet: it took longer than {DISK_LIMIT:?}")),
    }
}

/// Time for all disks to clear; less than a client's patience.
pub(super) const DISK_LIMIT: Duration = Duration::from_secs(8);
