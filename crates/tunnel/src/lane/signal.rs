//! Signals of a link to the tasks of a lane.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncewire_codec::wire::LaneId;
use oncewire_link::LaneReport;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::options;
use crate::effort::{EffortMeter, LaneEffort};

/// The link's signals to a lane's tasks.
#[derive(Debug)]
pub(crate) struct LaneSignal {
    pub(crate) id: LaneId,
    /// The link has data for this lane.
    pub(super) ready: Notify,
    pub(super) effort: LaneEffort,
    pub(super) closing: Notify,
    pub(super) overdue: Notify,
    pub(super) since: Instant,
    /// Handle for queries to the system.
    connection: OnceLock<OwnedFd>,
}

impl LaneSignal {
    pub(crate) fn new(id: LaneId, meter: &Arc<EffortMeter>) -> Self {
        Self {
            id,
            ready: Notify::new(),
            effort: LaneEffort::new(meter),
            closing: Notify::new(),
            overdue: Notify::new(),
            since: Instant::now(),
            connection: OnceLock::new(),
        }
    }

    /// Returns the system's report on the lane's sending direction, if any.
    pub(crate) fn report(&self) -> Option<LaneReport> {
        options::sending(self.connection.get()?)
    }

    pub(super) fn watch(&self, connection: Option<OwnedFd>) {
        if let Some(connection) = connection {
            // A lane is given its one connection once.
            let _ = self.connection.set(connection);
        }
    }

    /// Wakes the writer: the link has data for this lane.
    pub(crate) fn wake(&self) {
        self.effort.wake();
        self.ready.notify_one();
    }

    /// Asks the writer to end the lane once everything queued is written; it ends soon in any case.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
        self.overdue.notify_one();
    }

    pub(super) fn is_short_lived(&self) -> bool {
        self.since.elapsed() < SHORT_LIFE
    }
}

/// A lane with a shorter life counts as a failed attempt: a refusing peer is not dialled in a loop.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(1);
