//! How much memory each log has: shared out anew every second by what logs save, and given back by those that nobody
//! uses. The decisions stand in `docs/design/log-sizes.md`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use oncewire_codec::cache::{Curve, Demand, share_out};
use oncewire_link::{LinkStats, LogLimits};

use super::state::State;
use crate::config::{self, Config, log_demand};
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
        look(&now.config, &mut watched);
        tokio::time::sleep(LOOK_EVERY).await;
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

fn look(config: &Config, watched: &mut [Watched]) {
    let stats: Vec<LinkStats> = watched.iter().map(|watched| watched.peer.status().link).collect();
    let demands: Vec<Demand> =
        watched.iter().zip(&stats).flat_map(|(watched, stats)| watched.ask(stats)).collect();
    let sizes = share_out(config.log_budget.bytes, &demands);
    for ((watched, stats), sizes) in watched.iter_mut().zip(&stats).zip(sizes.chunks(2)) {
        if let [out, inbound] = *sizes
            && !stats.inbound.released
        {
            watched.limits = LogLimits { out, inbound };
            watched.peer.set_log_limits(watched.limits);
        }
        watched.release_if_idle(stats, config.log_idle);
    }
}

impl Watched {
    /// What both logs ask for now.
    fn ask(&self, stats: &LinkStats) -> [Demand; 2] {
        let LogLimits { out, inbound } = self.limits;
        let [for_out, for_inbound] = self.demands;
        [
            ask(
                for_out,
                out,
                stats.out.log_limit,
                stats.out.log_capacity,
                stats.out.curve,
                stats.inbound.released,
            ),
            ask(
                for_inbound,
                inbound,
                stats.inbound.log_limit,
                stats.inbound.log_capacity,
                stats.inbound.curve,
                stats.inbound.released,
            ),
        ]
    }

    fn release_if_idle(&mut self, stats: &LinkStats, log_idle: Duration) {
        let traffic = Traffic::of(stats);
        if traffic != self.traffic {
            (self.traffic, self.since) = (traffic, Instant::now());
        }
        let holds = stats.out.log_used + stats.inbound.log_used > 0;
        // The files are laid out for our own capacity; logs of a smaller one are not found in them.
        let [out, inbound] = self.demands.map(|demand| demand.maximum);
        let whole = (stats.out.log_capacity, stats.inbound.log_capacity) == (out, inbound);
        if holds && whole && !stats.inbound.released && self.since.elapsed() >= log_idle {
            self.since = Instant::now();
            self.peer.release_logs(move |stats| Traffic::of(stats) == traffic);
        }
    }
}

fn ask(demand: Demand, own: u64, in_use: u64, capacity: u64, curve: Curve, released: bool) -> Demand {
    if released {
        return Demand::default();
    }
    // Where the other end has less memory, more of ours is of no use; twice as much lets both grow step by step.
    let useful = if in_use < own { in_use.saturating_mul(2) } else { u64::MAX };
    let maximum = demand.maximum.min(capacity).min(useful).max(demand.minimum);
    Demand { curve, present: own, maximum, ..demand }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
