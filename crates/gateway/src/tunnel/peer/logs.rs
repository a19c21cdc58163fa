//! A peer's logs between memory and disk.

use std::sync::Arc;

use tokio::time::timeout;

use oncewire_codec::wire::Hello;
use oncewire_link::{Link, LinkStats, LoadedLogs, LogLimits};

use super::Peer;
use crate::logs::{Cleared, LogWriter, Settled};
use crate::slow_disk::{self, READ_LIMIT};

impl Peer {
    /// Sets how much of each log there is memory for.
    pub(crate) fn set_log_limits(self: &Arc<Self>, limits: LogLimits) {
        self.with(|core, now| core.link.set_log_limits(limits, now));
    }

    /// Gives the memory of both logs back once they are on disk, if they are kept there and `still_idle` then holds.
    pub(crate) fn release_logs(self: &Arc<Self>, still_idle: impl Fn(&LinkStats) -> bool + Send + 'static) {
        let (peer, Some((writer, _))) = (Arc::clone(self), self.kept.clone()) else { return };
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

    /// Has the files of both logs closed, if they are kept; the result says when. Nothing more of them is kept then.
    pub(crate) fn close_logs(&self) -> Option<Settled> {
        self.kept.as_ref().map(|(writer, _)| writer.close())
    }

    /// Reads the logs again; what is not found, or fails, is forgotten at both ends.
    pub(super) fn load_logs(self: &Arc<Self>) {
        let peer = Arc::clone(self);
        self.tasks.spawn(async move {
            let (config, reader) = (peer.settings.link.clone(), peer.kept.clone().map(|(_, reader)| reader));
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

#[cfg(test)]
impl Peer {
    /// Has the logs on disk only, as after a time without traffic.
    pub(crate) fn only_on_disk(self: &Arc<Self>) {
        self.with(|core, _| assert!(core.link.release_logs()));
        self.released.send_replace(true);
    }

    pub(crate) fn is_on_disk_only(&self) -> bool {
        *self.released.borrow()
    }
}
