//! How much memory each log has: shared out anew every second by what logs save, and given back by those that nobody
//! uses. The decisions stand in `docs/design/log-sizes.md`.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use oncewire_codec::cache::{Curve, Demand, share_out};
use oncewire_link::{LinkStats, LogLimits};

use super::state::State;
use crate::config::{self, log_demand};
use crate::tunnel::peer::Peer;

/// What is known of a peer's logs from one look to the next.
struct Watched {
    peer: Arc<Peer>,
    /// What they ask for as far as the configuration says.
    demands: [Demand; 2],
    limits: LogLimits,
    /// What was counted when there was traffic last, and when that was.
    traffic: Traffic,
    since: Instant,
}

/// Counts that change with every block and flow.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Traffic([u64; 5]);

impl Traffic {
    fn of(stats: &LinkStats) -> Self {
        Self([stats.out.blocks, stats.out.resent, stats.inbound.blocks, stats.flows_total, stats.flows_open])
    }
}

/// What the logs of a peer begin with.
pub(super) fn first_limits(peer: &config::Peer) -> LogLimits {
    LogLimits { out: peer.memory.log_sent, inbound: peer.memory.log_received }
}

/// Shares the memory out for as long as the gateway runs, among the peers that it then has.
pub(super) async fn run(mut state: watch::Receiver<Arc<State>>) {
    let mut now = Arc::clone(&state.borrow_and_update());
    let mut watched = watch_peers(&now, Vec::new());
    loop {
        look(now.config.log_budget.bytes, now.config.log_idle, &mut watched);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = any_asks(&watched) => {}
        }
        if state.has_changed().unwrap_or(false) {
            now = Arc::clone(&state.borrow_and_update());
            watched = watch_peers(&now, watched);
        }
    }
}

/// Watches the peers that there are now; what is known of those that were there before is kept.
fn watch_peers(state: &State, mut before: Vec<Watched>) -> Vec<Watched> {
    let watch = |(settings, peer): (&config::Peer, &Arc<Peer>)| {
        let matchings = state.config.policies.matchings(&settings.name, settings.settings.plan());
        let demands = [true, false].map(|sent| log_demand(&settings.settings, matchings, sent));
        match before.iter().position(|known| Arc::ptr_eq(&known.peer, peer)) {
            Some(at) => Watched { demands, ..before.swap_remove(at) },
            None => Watched {
                demands,
                limits: first_limits(settings),
                traffic: Traffic::of(&peer.status().link),
                since: Instant::now(),
                peer: Arc::clone(peer),
            },
        }
    };
    // Those that were found have memory of their own.
    state.config.peers.iter().zip(&state.peers).filter(|(peer, _)| !peer.found).map(watch).collect()
}

/// Waits until logs that are on disk only ask for memory.
async fn any_asks(watched: &[Watched]) {
    let mut asking: Vec<_> = watched.iter().map(|watched| Box::pin(watched.peer.asked_for_share())).collect();
    poll_fn(|cx| match asking.iter_mut().any(|asked| asked.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

fn look(budget: u64, log_idle: Duration, watched: &mut [Watched]) {
    let seen: Vec<Seen> = watched.iter().map(|watched| Seen::of(&watched.peer)).collect();
    let demands: Vec<Demand> =
        watched.iter().zip(&seen).flat_map(|(watched, seen)| watched.ask(seen)).collect();
    let sizes = share_out(budget, &demands);
    for ((watched, seen), sizes) in watched.iter_mut().zip(&seen).zip(sizes.chunks(2)) {
        if let [out, inbound] = *sizes
            && seen.takes_memory
        {
            watched.limits = LogLimits { out, inbound };
            watched.peer.set_log_limits(watched.limits);
        }
        watched.release_if_idle(&seen.stats, log_idle);
    }
    // Once all others have given up what these get.
    for (watched, _) in watched.iter().zip(&seen).filter(|(_, seen)| seen.takes_memory) {
        watched.peer.grant_share();
    }
}

/// A peer's logs as they are at one look.
struct Seen {
    stats: LinkStats,
    /// Whether they are in memory, or about to be.
    takes_memory: bool,
}

impl Seen {
    fn of(peer: &Peer) -> Self {
        // First: they want nothing any more once they are back.
        let wanted = peer.wants_share();
        let stats = peer.status().link;
        Self { takes_memory: wanted || !stats.inbound.released, stats }
    }
}

impl Watched {
    /// What both logs ask for now.
    fn ask(&self, seen: &Seen) -> [Demand; 2] {
        if !seen.takes_memory {
            return [Demand::default(); 2];
        }
        let LogLimits { out, inbound } = self.limits;
        let [for_out, for_inbound] = self.demands;
        let (sent, received) = (&seen.stats.out, &seen.stats.inbound);
        [
            ask(for_out, out, sent.log_limit, sent.log_capacity, sent.curve),
            ask(for_inbound, inbound, received.log_limit, received.log_capacity, received.curve),
        ]
    }

    fn release_if_idle(&mut self, stats: &LinkStats, log_idle: Duration) {
        let traffic = Traffic::of(stats);
        if traffic != self.traffic {
            (self.traffic, self.since) = (traffic, Instant::now());
        }
        let holds = stats.out.log_used + stats.inbound.log_used > 0;
        if holds && !stats.inbound.released && self.since.elapsed() >= log_idle {
            self.since = Instant::now();
            self.peer.release_logs(move |stats| Traffic::of(stats) == traffic);
        }
    }
}

fn ask(demand: Demand, own: u64, in_use: u64, capacity: u64, curve: Curve) -> Demand {
    // Where the other end has less memory, more of ours is of no use; twice as much lets both grow step by step.
    let useful = if in_use < own { in_use.saturating_mul(2) } else { u64::MAX };
    let maximum = demand.maximum.min(capacity).min(useful).max(demand.minimum);
    Demand { curve, present: own, maximum, ..demand }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use oncewire_link::LinkConfig;

    use super::*;
    use crate::tunnel::lane::testing::{config, peer_with};

    const MIB: u64 = 1 << 20;
    const BUDGET: u64 = 20 * MIB;

    fn watched() -> Watched {
        let peer = peer_with(LinkConfig { log_capacity: 8 * MIB, ..config(1) });
        let demand = Demand { minimum: MIB, maximum: 8 * MIB, quarters: 4, ..Demand::default() };
        let (traffic, since) = (Traffic::of(&peer.status().link), Instant::now());
        let limits = LogLimits { out: 8 * MIB, inbound: 8 * MIB };
        peer.set_log_limits(limits);
        Watched { peer, demands: [demand; 2], limits, traffic, since }
    }

    /// What the logs of each may hold.
    fn limits(watched: &[Watched]) -> Vec<u64> {
        let limits = |watched: &Watched| {
            let stats = watched.peer.status().link;
            stats.out.log_limit + stats.inbound.log_limit
        };
        watched.iter().map(limits).collect()
    }

    #[tokio::test]
    async fn logs_that_come_back_have_their_share_before_they_are_read() {
        let mut watched = [watched(), watched()];
        let look = |watched: &mut [Watched]| super::look(BUDGET, Duration::MAX, watched);
        watched[1].peer.only_on_disk();
        look(&mut watched);
        assert_eq!(limits(&watched), [16 * MIB, 16 * MIB], "what is not in memory takes none");
        watched[1].peer.ask_for_share();
        any_asks(&watched).await;
        // Also while they are read.
        for _ in 0..3 {
            look(&mut watched);
            let limits = limits(&watched);
            assert!(limits.iter().sum::<u64>() <= BUDGET && limits[1] >= 2 * MIB, "{limits:?}");
            assert!(watched[1].peer.wants_share());
        }
        let asks_no_more = tokio::time::timeout(Duration::from_millis(10), any_asks(&watched)).await.is_err();
        assert!(asks_no_more);
    }
}
