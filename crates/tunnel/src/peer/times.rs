//! A peer's timed work.

use std::sync::Arc;

use oncewire_codec::Now;

use super::{Core, Peer};
use crate::effort::PACING;

impl Peer {
    /// Reports the lanes' load to the link while there is data to encode; runs as long as the gateway.
    pub async fn run_pacing(self: Arc<Self>) {
        loop {
            self.effort.busy().await;
            // Earlier effort belongs to no stretch of work.
            self.effort.take();
            self.effort.look_around();
            loop {
                tokio::time::sleep(PACING).await;
                self.effort.look_around();
                if self.with(|core, now| self.pace(core, now)) {
                    break;
                }
            }
        }
    }

    /// Reports the effort to the link if due, and returns whether nothing is left to report.
    pub(super) fn pace(&self, core: &mut Core, now: Now) -> bool {
        let Some(effort) = self.effort.take_due() else { return false };
        core.link.handle_load(effort, now);
        effort.active.is_zero() && core.link.is_as_configured()
    }

    /// Calls the link at each of its deadlines; runs as long as the gateway.
    pub async fn run_timer(self: Arc<Self>) {
        loop {
            let next = {
                let mut core = self.core.lock();
                core.armed = core.link.poll_timeout();
                core.armed
            };
            match next {
                None => self.timer.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(self.clock.instant(at)) => {
                            self.with(|core, now| core.link.handle_timeout(now));
                            // It works in portions, and may have more to do at once.
                            tokio::task::yield_now().await;
                        }
                        () = self.timer.notified() => {}
                    }
                }
            }
        }
    }
}
