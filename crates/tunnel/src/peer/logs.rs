//! A peer's logs between memory and disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use oncewire_codec::wire::Hello;
use oncewire_host::slow_disk::{self, READ_LIMIT};
use oncewire_link::{Link, LinkStats, LoadedLogs, LogLimits, LogSide, SavedLogs};
use oncewire_logs::{Cleared, LogWriter, PeerLogs};

use super::Peer;
use super::disk::{Kept, Share};

impl Peer {
    /// Sets the memory limit of each log.
    pub fn set_log_limits(self: &Arc<Self>, limits: LogLimits) {
        self.with(|core, now| core.link.set_log_limits(limits, now));
    }

    /// Has [`DiskLogs::fill`](super::DiskLogs::fill) return once either log has grown by so much; 0 is never.
    pub fn tell_when_filled(self: &Arc<Self>, more: LogLimits) {
        self.with(|core, _| core.link.tell_when_filled(more));
    }

    /// Sets the memory of flows.
    pub fn set_flow_memory(self: &Arc<Self>, bytes: u64) {
        self.with(|core, _| core.link.set_flow_memory(bytes));
    }

    /// Gives the memory of both logs back once they are on disk, if they are kept there and `still_idle` then
    /// holds. Pieces skipped by a slow disk are written first.
    pub fn release_logs(self: &Arc<Self>, still_idle: impl Fn(&LinkStats) -> bool + Send + 'static) {
        let peer = Arc::clone(self);
        self.tasks.spawn(async move {
            let Some(kept) = peer.logs.kept.get() else { return };
            // The holder waits for the disk.
            let Ok(_turn) = kept.turn.try_lock() else { return };
            if !kept.is_whole() {
                if !peer.settings.link.keeps_bytes {
                    return;
                }
                peer.write_rest(kept).await;
            }
            // An error means the end of the writer.
            let settled = kept.writer.settle().await.unwrap_or(false);
            let released = settled
                && peer.with(|core, _| {
                    let stats = core.link.stats();
                    let may_go = kept.is_whole() && still_idle(&stats);
                    core.used_at_release = [stats.out.log_used, stats.inbound.log_used];
                    let released = may_go && core.link.release_logs();
                    // Under the lock, as on their return: the flag must match the state.
                    released.then(|| peer.logs.released.send_replace(true)).is_some()
                });
            if released {
                tracing::info!(peer = peer.name(), "its logs are idle and now on disk only");
            }
        });
    }

    /// Keeps both logs from now on, and the knowledge of the peer's chunk store, if possible: on a disk
    /// without a copy yet. Their present content is written too, at the disk's speed.
    pub fn keep_logs(self: &Arc<Self>, logs: PeerLogs) {
        let Some((writer, reader)) = logs.writer.zip(logs.reader) else { return };
        self.with(|core, _| {
            if self.logs.kept.set(Kept::new(writer.clone(), reader)).is_ok() {
                core.log_writer = Some(writer);
            }
        });
        if let Some(hints) = logs.hints {
            // Together with the logs, or not at all.
            let _ = self.hints.file.set(hints);
        }
        let peer = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Some(kept) = peer.logs.kept.get() {
                let _turn = kept.turn.lock().await;
                peer.write_rest(kept).await;
            }
        });
    }

    /// Writes the content of both logs from before persistence, or skipped. A log with only fingerprints in
    /// memory has nothing to write, and does not become complete.
    async fn write_rest(&self, kept: &Kept) {
        let skipped = kept.writer.skipped();
        for side in [LogSide::Out, LogSide::Inbound] {
            let (mut from, mut written) = (0, 0);
            // Pieces added meanwhile are written anyhow.
            while written < self.settings.link.log_capacity {
                let bytes = self.write_some(kept, side, &mut from);
                // An error means the end of the writer.
                if !kept.writer.settle().await.unwrap_or(false) {
                    return;
                }
                if bytes == 0 {
                    break;
                }
                written += bytes;
            }
        }
        if self.settings.link.keeps_bytes {
            kept.note_whole_since(skipped);
        }
    }

    /// Queues a few pieces of a log from an offset on, and moves it behind them; returns the number of bytes.
    fn write_some(&self, kept: &Kept, side: LogSide, from: &mut u64) -> u64 {
        let mut bytes = 0;
        for _ in 0..AT_ONCE {
            // Under the lock: nothing newer may take a piece's place; one lock per piece, as it is copied
            // there.
            let core = self.core.lock();
            let Some(piece) = core.link.log_piece(side, *from) else { break };
            let len = piece.plain.len() as u64;
            (*from, bytes) = (piece.start + len, bytes + len);
            kept.writer.write(side, piece);
        }
        bytes
    }

    /// Reads the logs again, up to their memory limit; unfound or failed parts are forgotten at both ends.
    pub(super) fn load_logs(self: &Arc<Self>) {
        let peer = Arc::clone(self);
        self.tasks.spawn(async move {
            let config = peer.settings.link.clone();
            // As agreed by both ends.
            let capacity = peer.status().link.inbound.log_capacity;
            let reader = peer.logs.kept.get().map(|kept| kept.reader.clone());
            if reader.is_some() {
                peer.logs.ask_for_share();
                let mut share = peer.logs.share.subscribe();
                // Without an arbiter of memory it keeps its old limits.
                let _ = timeout(SHARE_LIMIT, share.wait_for(|share| *share != Share::Asked)).await;
            }
            let limits = peer.log_limits();
            let read = move || {
                reader.map(|reader| {
                    let saved = reader.read(limits);
                    (saved.out.is_some(), LoadedLogs::new(&config, saved, capacity))
                })
            };
            let loaded = timeout(READ_LIMIT, slow_disk::run("logs-load", read)).await;
            if loaded.is_err() {
                tracing::warn!(
                    peer = peer.name(),
                    "the disk takes too long to read its logs; they begin anew"
                );
            }
            // The thread reported a panic.
            let (has_sent, loaded) = loaded.ok().and_then(Result::ok).flatten().unwrap_or_default();
            let missing = peer.with(|core, now| {
                if !core.over {
                    core.link.restore_logs(loaded, now);
                }
                peer.logs.released.send_replace(false);
                peer.logs.share.send_replace(Share::Idle);
                let ([sent, received], inbound) = (core.used_at_release, core.link.stats().inbound);
                let missing = received.min(inbound.log_limit).saturating_sub(inbound.log_used);
                if has_sent { missing } else { missing + sent }
            });
            match missing {
                0 => tracing::info!(peer = peer.name(), "its logs are back in memory"),
                _ => tracing::warn!(
                    peer = peer.name(),
                    missing,
                    "its logs are back in memory, but for bytes that are not on the disk any more, which cross anew"
                ),
            }
        });
    }

    /// Waits for the logs to be in memory, if the sender of this hello would miss them.
    pub(crate) async fn ready_for(self: &Arc<Self>, hello: &Hello) {
        self.ready_if(|link| link.needs_logs_for(hello)).await;
    }

    /// Waits until the logs are in memory, if the link is down.
    pub(crate) async fn ready_to_come_up(self: &Arc<Self>) {
        self.ready_if(Link::needs_logs_to_come_up).await;
    }

    async fn ready_if(self: &Arc<Self>, needed: impl FnOnce(&Link) -> bool) {
        let mut released = self.logs.released.subscribe();
        let wanted = self.with(|core, _| {
            let needed = needed(&core.link);
            if needed {
                core.link.want_logs();
            }
            needed
        });
        if wanted {
            // An error means the end of the gateway.
            let _ = released.wait_for(|released| !released).await;
        }
    }

    /// Forgets both logs here, in memory at once and on disk as soon as the results come. Returns the number
    /// of referenceable bytes.
    pub fn clear_logs(self: &Arc<Self>) -> (u64, Option<[Cleared; 2]>) {
        self.with(|core, now| {
            let stats = core.link.stats();
            core.link.clear_logs(now);
            core.used_at_release = [0; 2];
            // Under the lock: behind all earlier pieces and before the next.
            let on_disk = core.log_writer.as_ref().map(LogWriter::clear);
            // Nothing can be missing.
            self.logs.kept.get().into_iter().for_each(Kept::note_whole);
            (stats.out.log_used + stats.inbound.log_used, on_disk)
        })
    }

    fn log_limits(&self) -> LogLimits {
        let stats = self.status().link;
        LogLimits { out: stats.out.log_limit, inbound: stats.inbound.log_limit }
    }
}

/// How long returning logs wait for their share of memory: no time at all unless the gateway has no arbiter.
const SHARE_LIMIT: Duration = Duration::from_millis(500);

/// Queue length of pieces for the disk while a whole log is written.
const AT_ONCE: usize = 64;

/// For tests of the gateway.
impl Peer {
    /// Has the logs on disk only, as after a time without traffic.
    ///
    /// # Panics
    /// If the link is busy.
    pub fn only_on_disk(self: &Arc<Self>) {
        assert!(self.with(|core, _| core.link.release_logs()), "the link is busy");
        self.logs.released.send_replace(true);
    }

    /// The disk's content of its logs, if they are kept.
    pub fn logs_on_disk(&self) -> Option<SavedLogs> {
        self.logs.kept.get().map(|kept| kept.reader.read(self.log_limits()))
    }
}
