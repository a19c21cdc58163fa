//! A peer's timed work.

use std::sync::Arc;

use oncewire_codec::Now;

use super::{Core, Peer};
use crate::effort::PACING;

/// Reports the lanes' load to the link while there is data to encode; runs as long as the gateway.
pub async fn run_pacing(peer: Arc<Peer>) {
    loop {
        peer.effort.busy().await;
        // Earlier effort belongs to no stretch of work.
        peer.effort.take();
        peer.effort.look_around();
        loop {
            tokio::time::sleep(PACING).await;
            peer.effort.look_around();
            if peer.with(|core, now| pace(&peer, core, now)) {
                break;
            }
        }
    }
}

/// Reports the effort to the link if due, and returns whether nothing is left to report.
pub(super) fn pace(peer: &Peer, core: &mut Core, now: Now) -> bool {
    let Some(effort) = peer.effort.take_due() else { return false };
    core.link.handle_load(effort, now);
    effort.active.is_zero() && core.link.is_as_configured()
}

/// Calls the link at each of its deadlines; runs as long as the gateway.
pub async fn run_timer(peer: Arc<Peer>) {
    loop {
        let next = {
            let mut core = peer.core.lock();
            core.armed = core.link.poll_timeout();
            core.armed
        };
        match next {
            None => peer.timer.notified().await,
            Some(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(peer.clock.instant(at)) => {
                        peer.with(|core, now| core.link.handle_timeout(now));
                        // It works in portions, and may have more to do at once.
                        tokio::task::yield_now().await;
                    }
                    () = peer.timer.notified() => {}
                }
            }
        }
    }
}
