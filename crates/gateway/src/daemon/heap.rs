//! Return of a burst's memory to the system.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::state::State;

/// Trims the heap behind each burst, for as long as the gateway runs.
pub(super) async fn run(state: watch::Receiver<Arc<State>>) {
    let mut burst = Burst::default();
    loop {
        sleep(LOOK_EVERY).await;
        let now = Arc::clone(&state.borrow());
        let flows = now.peers.iter().map(|peer| peer.status().link.flow_bytes).sum::<u64>();
        drop(now);
        let Some(resident) = resident() else { return };
        if !burst.is_over(resident, flows) {
            continue;
        }
        let trimmed = tokio::task::spawn_blocking(oncewire_sys::heap::trim).await;
        if trimmed.is_err() {
            return;
        }
        burst.trimmed(self::resident().unwrap_or(resident), flows);
    }
}

/// Memory in the looks since the last trim.
#[derive(Debug)]
struct Burst {
    /// The least memory beside flows.
    least_beside: u64,
    /// The most bytes of flows.
    most_in_flows: u64,
    /// Trims still to come, whatever the figures say: memory freed between two looks is found by them.
    trims: u32,
}

impl Default for Burst {
    fn default() -> Self {
        Self { least_beside: u64::MAX, most_in_flows: 0, trims: 0 }
    }
}

impl Burst {
    /// Whether a trim is worth its time: memory beside flows has grown, or flows have let go of theirs.
    fn is_over(&mut self, resident: u64, flows: u64) -> bool {
        let beside = resident.saturating_sub(flows);
        self.least_beside = self.least_beside.min(beside);
        self.most_in_flows = self.most_in_flows.max(flows);
        if beside - self.least_beside >= WORTHWHILE || self.most_in_flows - flows >= WORTHWHILE {
            self.trims = TRIMS_BEHIND;
        }
        let worth = self.trims > 0;
        self.trims = self.trims.saturating_sub(1);
        worth
    }

    /// Takes the memory behind a trim as in use: logs and tables that have grown.
    fn trimmed(&mut self, resident: u64, flows: u64) {
        self.least_beside = resident.saturating_sub(flows);
        self.most_in_flows = flows;
    }
}

/// Returns the anonymous memory of this process; none if the system does not report it.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// Twice, and some time for the work, fits into ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(4);

/// Trims behind a burst, for memory still in use at the first.
const TRIMS_BEHIND: u32 = 15;

/// Less than this is soon used again.
const WORTHWHILE: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_let_go_by_flows_is_trimmed() {
        let mut burst = Burst::default();
        assert!(!burst.is_over(70 << 20, 60 << 20), "nothing to compare with");
        assert!(!burst.is_over(70 << 20, 56 << 20), "half of a worthwhile amount");
        // The allocator keeps all of it: no more is resident than while flows were under way.
        assert!(burst.is_over(70 << 20, 0));
        burst.trimmed(12 << 20, 0);
        assert_eq!((1..20).filter(|_| burst.is_over(12 << 20, 0)).count(), TRIMS_BEHIND as usize - 1);
    }

    #[test]
    fn trims_follow_growth_beside_flows() {
        let mut burst = Burst::default();
        assert!(!burst.is_over(12 << 20, 0));
        assert!(!burst.is_over(70 << 20, 58 << 20), "flows hold it");
        assert!(burst.is_over(90 << 20, 58 << 20));
    }

    #[test]
    fn resident_memory_grows_with_touched_pages() {
        let Some(before) = resident() else { return };
        let touched = vec![7_u8; 64 << 20];
        let after = resident().unwrap();
        assert!(after > before + (32 << 20), "{before} then {after}");
        drop(touched);
    }
}
