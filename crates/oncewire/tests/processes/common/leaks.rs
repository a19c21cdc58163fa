//! A gateway's resources, for comparison before and after.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::gateway::Gateway;
use super::wait::pause;

/// Descriptors of a gateway, by kind.
///
/// Sockets are counted without those of lanes for flows; these come and go by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, usize>);

impl Files {
    /// The open ones at present, seen from the gateway's host.
    pub(crate) fn of(gateway: &Gateway) -> Self {
        let lanes = &gateway.peer()["lanes"];
        let lanes = ["busy", "spare"].iter().filter_map(|key| lanes[key].as_u64()).sum::<u64>();
        let mut kinds = gateway.files_by_kind();
        if let Some(sockets) = kinds.get_mut("socket") {
            *sockets = sockets.saturating_sub(usize::try_from(lanes).unwrap());
        }
        Self(kinds)
    }

    /// Waits until no kind has more than before; panics with both counts otherwise.
    pub(crate) fn wait_for(&self, limit: Duration, now: impl Fn() -> Option<Self>) {
        let start = Instant::now();
        loop {
            let now = now();
            if now.as_ref().is_some_and(|now| now.within(self)) {
                return;
            }
            assert!(start.elapsed() < limit, "open are {now:?}, and were {self:?} before");
            pause();
        }
    }

    fn within(&self, before: &Self) -> bool {
        self.0.iter().all(|(kind, &now)| {
            let kept = match kind.as_str() {
                "pipe" => POOLED,
                "segment" => SEGMENTS,
                _ => 0,
            };
            now <= before.0.get(kind).copied().unwrap_or(0) + kept
        })
    }
}

/// Open files of a chunk store.
const SEGMENTS: usize = 64;

/// Ends of pipes kept by a gateway for the next direct connection.
const POOLED: usize = 64;
