//! Return of a burst's memory to the system.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::state::State;

/// Has the allocator give free memory back, for as long as the gateway runs.
pub(super) async fn run(state: watch::Receiver<Arc<State>>) {
    let (mut least, mut again) = (u64::MAX, 0_u32);
    loop {
        sleep(LOOK_EVERY).await;
        let now = Arc::clone(&state.borrow());
        let flows = now.peers.iter().map(|peer| peer.status().link.flow_bytes).sum::<u64>();
        drop(now);
        let Some(beside) = resident().map(|bytes| bytes.saturating_sub(flows)) else { return };
        least = least.min(beside);
        if beside - least >= WORTHWHILE {
            again = LOOKS_BEHIND;
        } else if again == 0 {
            continue;
        }
        again -= 1;
        let trimmed = tokio::task::spawn_blocking(oncewire_sys::heap::trim).await;
        if trimmed.is_err() {
            return;
        }
        // The rest is in use: logs and tables that have grown.
        least = resident().map_or(beside, |bytes| bytes.saturating_sub(flows));
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

/// Looks behind a burst: memory still in use at the first one is given back by a later one.
const LOOKS_BEHIND: u32 = 15;

/// Less than this is soon used again.
const WORTHWHILE: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_grows_with_touched_pages() {
        let Some(before) = resident() else { return };
        let touched = vec![7_u8; 64 << 20];
        let after = resident().unwrap();
        assert!(after > before + (32 << 20), "{before} then {after}");
        drop(touched);
    }
}
