//! A peer's logs between memory and disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::time::timeout;

use oncewire_codec::wire::Hello;
use oncewire_link::{Link, LinkStats, LoadedLogs, LogLimits, LogSide};

use super::Peer;
use crate::logs::{Cleared, LogReader, LogWriter, PeerLogs, Settled};
use crate::slow_disk::{self, READ_LIMIT};

/// Where both logs are kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) writer: LogWriter,
    pub(super) reader: LogReader,
    /// Whether all that is remembered is there, so that its memory can be given back.
    pub(super) whole: AtomicBool,
}

impl Peer {
    /// Sets how much of each log there is memory for.
    pub(crate) fn set_log_limits(self: &Arc<Self>, limits: LogLimits) {
        self.with(|core, now| core.link.set_log_limits(limits, now));
    }

    /// Gives the memory of both logs back once they are on disk, if they are kept there and `still_idle` then holds.
    pub(crate) fn release_logs(self: &Arc<Self>, still_idle: impl Fn(&LinkStats) -> bool + Send + 'static) {
        let (peer, Some(kept)) = (Arc::clone(self), self.kept.get().filter(|kept| kept.whole.load(Relaxed)))
        else {
            return;
        };
        let writer = kept.writer.clone();
        self.tasks.spawn(async move {
            // An error means that the writing has ended.
            let settled = writer.settle().await.unwrap_or(false);
            let released = settled
                && peer.with(|core, _| {
                    let released = still_idle(&core.link.stats()) && core.link.release_logs();
                    // Under the lock, as where they come back, so that it says what is so.
                    released.then(|| peer.released.send_replace(true)).is_some()
                });
            if released {
                tracing::info!(peer = peer.name(), "its logs are idle and now on disk only");
            }
        });
    }

    /// Says whether its logs are not kept, but may be from now on.
    pub(crate) fn may_keep_logs(&self) -> bool {
        self.may_keep && self.kept.get().is_none()
    }

    /// Keeps both logs from now on, and what is known of the peer's chunk store, if that can be done here: on a disk
    /// that has nothing of them yet. What they hold already is written too, as fast as the disk takes it.
    pub(crate) fn keep_logs(self: &Arc<Self>, logs: PeerLogs) {
        let Some((writer, reader)) = logs.writer.zip(logs.reader) else { return };
        self.with(|core, _| {
            if self.kept.set(Kept { writer: writer.clone(), reader, whole: AtomicBool::new(false) }).is_ok() {
                core.log_writer = Some(writer);
            }
        });
        if let Some(hints) = logs.hints {
            // Together with the logs, or not at all.
            let _ = self.hints.set(hints);
        }
        self.tasks.spawn(Arc::clone(self).write_rest());
    }

    /// Writes what both logs hold that was remembered before they were kept. A log of which only fingerprints are in
    /// memory has nothing to write.
    async fn write_rest(self: Arc<Self>) {
        let Some(kept) = self.kept.get() else { return };
        for side in [LogSide::Out, LogSide::Inbound] {
            let (mut from, mut written) = (0, 0);
            // What is remembered meanwhile is written anyhow.
            while written < self.settings.link.log_capacity {
                let bytes = self.write_some(kept, side, &mut from);
                // An error means that the writing has ended.
                if !kept.writer.settle().await.unwrap_or(false) {
                    return;
                }
                if bytes == 0 {
                    break;
                }
                written += bytes;
            }
        }
        kept.whole.store(self.settings.link.keeps_bytes, Relaxed);
    }

    /// Queues a few pieces of a log from an offset on, and moves it behind them; returns how many bytes.
    fn write_some(&self, kept: &Kept, side: LogSide, from: &mut u64) -> u64 {
        let mut bytes = 0;
        for _ in 0..AT_ONCE {
            // Under the lock, so that nothing newer lies where a piece comes; for each by itself, as it is copied there.
            let core = self.core.lock();
            let Some(piece) = core.link.log_piece(side, *from) else { break };
            let len = piece.plain.len() as u64;
            (*from, bytes) = (piece.start + len, bytes + len);
            kept.writer.write(side, piece);
        }
        bytes
    }

    /// Has the files of both logs closed, if they are kept; the result says when. Nothing more of them is kept then.
    pub(crate) fn close_logs(&self) -> Option<Settled> {
        self.kept.get().map(|kept| kept.writer.close())
    }

    /// Reads the logs again; what is not found, or fails, is forgotten at both ends.
    pub(super) fn load_logs(self: &Arc<Self>) {
        let peer = Arc::clone(self);
        self.tasks.spawn(async move {
            let config = peer.settings.link.clone();
            let reader = peer.kept.get().map(|kept| kept.reader.clone());
            let limits = peer.log_limits();
            let read = move || reader.map(|reader| LoadedLogs::new(&config, reader.read(limits)));
            let loaded = timeout(READ_LIMIT, slow_disk::run("logs-load", read)).await;
            if loaded.is_err() {
                tracing::warn!(
                    peer = peer.name(),
                    "the disk takes too long to read its logs; they begin anew"
                );
            }
            // The thread reported a panic.
            let loaded = loaded.ok().and_then(Result::ok).flatten().unwrap_or_default();
            peer.with(|core, now| {
                if !core.over {
                    core.link.restore_logs(loaded, now);
                }
                peer.released.send_replace(false);
            });
            tracing::info!(peer = peer.name(), "its logs are back in memory");
        });
    }

    /// Waits until the logs are in memory, if the peer that says this hello would miss them.
    pub(crate) async fn ready_for(self: &Arc<Self>, hello: &Hello) {
        self.ready_if(|link| link.needs_logs_for(hello)).await;
    }

    /// Waits until the logs are in memory, if the link is down.
    pub(crate) async fn ready_to_come_up(self: &Arc<Self>) {
        self.ready_if(Link::needs_logs_to_come_up).await;
    }

    async fn ready_if(self: &Arc<Self>, needed: impl FnOnce(&Link) -> bool) {
        let mut released = self.released.subscribe();
        let wanted = self.with(|core, _| {
            let needed = needed(&core.link);
            if needed {
                core.link.want_logs();
            }
            needed
        });
        if wanted {
            // An error means that the gateway ends.
            let _ = released.wait_for(|released| !released).await;
        }
    }

    /// Forgets both logs here, in memory at once and on disk as soon as the results come. Returns how many bytes of
    /// them could be referred to.
    pub(crate) fn clear_logs(self: &Arc<Self>) -> (u64, Option<[Cleared; 2]>) {
        self.with(|core, now| {
            let stats = core.link.stats();
            core.link.clear_logs(now);
            // Under the lock, so that it comes behind all that was remembered before and ahead of what is next.
            let on_disk = core.log_writer.as_ref().map(LogWriter::clear);
            (stats.out.log_used + stats.inbound.log_used, on_disk)
        })
    }

    fn log_limits(&self) -> LogLimits {
        let stats = self.status().link;
        LogLimits { out: stats.out.log_limit, inbound: stats.inbound.log_limit }
    }
}

/// Pieces of a log that wait for the disk at once where it is written as a whole.
const AT_ONCE: usize = 64;

#[cfg(test)]
impl Peer {
    /// Has the logs on disk only, as after a time without traffic.
    pub(crate) fn only_on_disk(self: &Arc<Self>) {
        self.with(|core, _| assert!(core.link.release_logs()));
        self.released.send_replace(true);
    }

    /// Whether the disk has all that is remembered.
    pub(crate) fn has_whole_logs(&self) -> bool {
        self.kept.get().is_some_and(|kept| kept.whole.load(Relaxed))
    }

    pub(crate) fn is_on_disk_only(&self) -> bool {
        *self.released.borrow()
    }
}
