//! Sizes of logs, shared out every second by their savings.
//!
//! Unused logs give memory back. The decisions stand in `docs/internals/log-sizes.md`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use oncewire_codec::log::{Curve, Demand, share_out};
use oncewire_config::{self as config, LogBudget, log_demand};
use oncewire_link::{LinkStats, LogLimits};
use oncewire_tunnel::peer::Peer;

use super::lending::{self, FlowMemory};
use super::state::State;

/// Knowledge of a peer's logs from one look to the next.
struct Watched {
    peer: Arc<Peer>,
    /// Their demands by configuration.
    demands: [Demand; 2],
    limits: LogLimits,
    flows: FlowMemory,
    /// Counters and time of the last traffic.
    traffic: Traffic,
    since: Instant,
}

/// Counters changed by every block and flow.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Traffic([u64; 5]);

impl Traffic {
    fn of(stats: &LinkStats) -> Self {
        Self([stats.out.blocks, stats.out.resent, stats.inbound.blocks, stats.flows_total, stats.flows_open])
    }
}

/// Initial limits of a peer's logs.
pub(super) fn first_limits(peer: &config::Peer) -> LogLimits {
    LogLimits { out: peer.memory.log_sent, inbound: peer.memory.log_received }
}

/// Shares the memory out among the present peers, for as long as the gateway runs.
pub(super) async fn run(mut state: watch::Receiver<Arc<State>>) {
    let mut now = Arc::clone(&state.borrow_and_update());
    let mut watched = watch_peers(&now, Vec::new());
    let (mut due, mut looked) = (Instant::now(), Instant::now());
    loop {
        let budget = now.config.log_budget;
        if Instant::now() >= due || budget.contested && watched.iter().any(Watched::presses) {
            look(budget, now.config.log_idle, &mut watched);
            looked = Instant::now();
            due = looked + LOOK_EVERY;
        }
        let pause = due.duration_since(Instant::now());
        let glances = budget.contested && watched.iter().any(Watched::is_busy);
        tokio::select! {
            () = tokio::time::sleep(if glances { pause.min(GLANCE_EVERY) } else { pause }) => {}
            () = any_asks(&watched) => due = Instant::now(),
            () = any_fills(&watched) => due = due.min(looked + LEAST_PAUSE),
        }
        if state.has_changed().unwrap_or(false) {
            now = Arc::clone(&state.borrow_and_update());
            watched = watch_peers(&now, watched);
            due = Instant::now();
        }
    }
}

/// Watches the present peers; knowledge of earlier ones is kept.
fn watch_peers(state: &State, mut before: Vec<Watched>) -> Vec<Watched> {
    let watch = |(settings, peer): (&config::Peer, &Arc<Peer>)| {
        let matchings = state.config.policies.matchings(&settings.name, settings.settings.plan());
        let demands = [true, false].map(|sent| log_demand(&settings.settings, matchings, sent));
        let flows = FlowMemory::of(settings.memory.flows, state.config.set_memory.flow_memory.is_some());
        match before.iter().position(|known| Arc::ptr_eq(&known.peer, peer)) {
            Some(at) => {
                let known = before.swap_remove(at);
                // The link has its last reported limit.
                let flows = FlowMemory { limit: known.flows.limit, ..flows };
                Watched { demands, flows, ..known }
            }
            None => Watched {
                demands,
                limits: first_limits(settings),
                flows,
                traffic: Traffic::of(&peer.status().link),
                since: Instant::now(),
                peer: Arc::clone(peer),
            },
        }
    };
    // Discovered peers have memory of their own.
    state.config.peers.iter().zip(&state.peers).filter(|(peer, _)| !peer.found).map(watch).collect()
}

/// Waits for a memory request by logs on disk only.
async fn any_asks(watched: &[Watched]) {
    any(watched.iter().map(|watched| watched.peer.logs.asked_for_share())).await;
}

/// Waits until logs of a peer are about to be full.
async fn any_fills(watched: &[Watched]) {
    any(watched.iter().map(|watched| watched.peer.logs.fill())).await;
}

/// Waits for the first of these.
async fn any(waits: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut waits: Vec<_> = waits.map(Box::pin).collect();
    poll_fn(|cx| match waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

fn look(budget: LogBudget, log_idle: Duration, watched: &mut [Watched]) {
    let seen: Vec<Seen> = watched.iter().map(|watched| Seen::of(&watched.peer)).collect();
    let mut demands: Vec<Demand> =
        watched.iter().zip(&seen).flat_map(|(watched, seen)| watched.ask(seen)).collect();
    let (flow_limits, bytes) = divide(budget, watched, &seen);
    if least(&demands) > bytes {
        demands.iter_mut().for_each(|demand| demand.minimum = demand.minimum.min(LEAST_LOG));
    }
    let sizes = share_out(bytes, &demands);
    // Lenders give first.
    for (watched, limit) in watched.iter_mut().zip(&flow_limits) {
        watched.set_flow_memory(watched.flows.limit.min(*limit));
    }
    let logs = watched.iter_mut().zip(&seen).zip(sizes.chunks(2).zip(demands.chunks(2)));
    for ((watched, seen), (sizes, demands)) in logs {
        if seen.takes_memory {
            watched.set_log_limits(budget, sizes, demands);
            watched.tell_when_filled(budget, &seen.stats);
        }
        watched.release_if_idle(&seen.stats, log_idle);
    }
    for (watched, limit) in watched.iter_mut().zip(flow_limits) {
        watched.set_flow_memory(limit);
    }
    // Once all others have given up their surplus.
    for (watched, _) in watched.iter().zip(&seen).filter(|(_, seen)| seen.takes_memory) {
        watched.peer.logs.grant_share();
    }
}

/// Returns each peer's flow memory, and the logs' total.
fn divide(budget: LogBudget, watched: &[Watched], seen: &[Seen]) -> (Vec<u64>, u64) {
    if !budget.contested {
        return (watched.iter().map(|watched| watched.flows.planned).collect(), budget.bytes);
    }
    let flows: Vec<_> =
        watched.iter().zip(seen).map(|(watched, seen)| (watched.flows, seen.stats.flows_reserved)).collect();
    // Including logs on disk: they may come back at any time.
    let mut fewest: Vec<Demand> = watched.iter().flat_map(|watched| watched.demands).collect();
    fewest.iter_mut().for_each(|demand| demand.minimum = demand.minimum.min(LEAST_LOG));
    lending::divide(budget.bytes, least(&fewest), &flows)
}

/// Returns the minimum size of the logs.
fn least(demands: &[Demand]) -> u64 {
    demands.iter().map(|demand| demand.cost(demand.minimum)).sum()
}

/// A peer's logs at one look.
struct Seen {
    stats: LinkStats,
    /// Whether they are in memory, or about to be.
    takes_memory: bool,
}

impl Seen {
    fn of(peer: &Peer) -> Self {
        // First: once back, they want nothing.
        let wanted = peer.logs.wants_share();
        let stats = peer.status().link;
        Self { takes_memory: wanted || !stats.inbound.released, stats }
    }
}

impl Watched {
    /// The present demands of both logs.
    fn ask(&self, seen: &Seen) -> [Demand; 2] {
        if !seen.takes_memory {
            return [Demand::default(); 2];
        }
        let LogLimits { out, inbound } = self.limits;
        let [for_out, for_inbound] = self.demands;
        let (sent, received) = (&seen.stats.out, &seen.stats.inbound);
        let is_busy = self.is_busy() || Traffic::of(&seen.stats) != self.traffic;
        // A log not yet read from disk keeps its size.
        let used = |own: u64, used: u64| if received.released { own } else { wanted(used, is_busy) };
        [
            ask(for_out, out, used(out, sent.log_used), sent.log_limit, sent.log_capacity, sent.curve),
            ask(
                for_inbound,
                inbound,
                used(inbound, received.log_used),
                received.log_limit,
                received.log_capacity,
                received.curve,
            ),
        ]
    }

    fn set_flow_memory(&mut self, limit: u64) {
        if limit != self.flows.limit {
            self.flows.limit = limit;
            self.peer.set_flow_memory(limit);
        }
    }

    /// Sets the sizes of both logs; also unchanged ones, as the call reports their worth to the peer.
    fn set_log_limits(&mut self, budget: LogBudget, sizes: &[u64], demands: &[Demand]) {
        let ([out, inbound], [for_out, for_inbound]) = (sizes, demands) else { return };
        let next = |own: u64, size: u64, demand: &Demand| match budget.contested {
            true => lending::in_steps(own, size, demand.minimum, demand.maximum),
            false => size,
        };
        let LogLimits { out: own_out, inbound: own_inbound } = self.limits;
        self.limits = LogLimits {
            out: next(own_out, *out, for_out),
            inbound: next(own_inbound, *inbound, for_inbound),
        };
        self.peer.set_log_limits(self.limits);
    }

    /// Whether there was traffic lately.
    fn is_busy(&self) -> bool {
        self.since.elapsed() < 2 * LOOK_EVERY
    }

    /// Triggers a look ahead of a growable log's filling.
    fn tell_when_filled(&self, budget: LogBudget, stats: &LinkStats) {
        let more = |own: u64, used: u64, demand: &Demand| {
            let left = own.saturating_sub(used) / 2;
            if budget.contested && own < demand.maximum && left >= LITTLE { left } else { 0 }
        };
        let [for_out, for_inbound] = &self.demands;
        self.peer.tell_when_filled(LogLimits {
            out: more(self.limits.out, stats.out.log_used, for_out),
            inbound: more(self.limits.inbound, stats.inbound.log_used, for_inbound),
        });
    }

    /// Whether flows are short of memory.
    fn presses(&self) -> bool {
        self.is_busy() && self.flows.presses(self.peer.status().link.flows_reserved)
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

/// Returns the prioritized size of a log with so many bytes: their own room, room for bytes in flight, and room to grow
/// under traffic.
fn wanted(used: u64, is_busy: bool) -> u64 {
    let more = if is_busy { used.max(GROWTH) } else { used / 3 };
    used.saturating_add(more)
}

/// Returns one log's demand. It has `own`, and gets `wanted` with priority: the unfilled part is lent.
fn ask(demand: Demand, own: u64, wanted: u64, in_use: u64, capacity: u64, curve: Curve) -> Demand {
    // Beyond the other end's memory, more of ours is of no use; twice as much lets both grow step by step.
    let useful = if in_use < own { in_use.saturating_mul(2) } else { u64::MAX };
    let maximum = demand.maximum.min(capacity).min(useful).max(demand.minimum);
    let present = wanted.max(demand.minimum).min(maximum);
    Demand { curve, present, maximum, ..demand }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks for pressed flows, with competing logs.
const GLANCE_EVERY: Duration = Duration::from_millis(250);
/// Minimum interval of looks triggered by filling logs.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
/// Prioritized growth of a log with traffic.
const GROWTH: u64 = 4 << 20;
/// No look is made before so much was remembered.
const LITTLE: u64 = 256 << 10;
/// Minimum size of a log while busy flows hold the memory for more.
const LEAST_LOG: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use oncewire_link::LinkConfig;

    use super::*;
    use oncewire_config::Usual;
    use oncewire_host::clock::Clock;
    use oncewire_host::tasks::Tasks;
    use oncewire_keys::Identity;
    use oncewire_logs::PeerLogs;
    use oncewire_tunnel::lane::options::LaneOptions;
    use oncewire_tunnel::onward::Onward;
    use oncewire_tunnel::peer::PeerSettings;
    use oncewire_tunnel::serve;

    const MIB: u64 = 1 << 20;
    const BUDGET: LogBudget = LogBudget { bytes: 20 * MIB, contested: true };

    /// A peer without a gateway.
    fn peer() -> Arc<Peer> {
        let [ours, theirs] = [1, 2].map(|seed| Identity::from_seed([seed; 32]).public_key());
        let link = LinkConfig { instance: 1, log_capacity: 8 * MIB, ..LinkConfig::default() };
        let least = LinkConfig::MIN_LOG;
        let settings = PeerSettings {
            name: "peer".to_owned(),
            keys: vec![theirs],
            address: None,
            lanes: LaneOptions::default(),
            usual: Usual::default(),
            link: LinkConfig { first: ours < theirs, ..link },
            store: None,
            first_limits: LogLimits { out: least, inbound: least },
            group: None,
            found: false,
            serve: serve::offer,
        };
        let (accounts, tasks, logs) = (Arc::default(), Arc::new(Tasks::new()), PeerLogs::default());
        Peer::new(settings, Onward::default(), ours, Clock::start(), accounts, tasks, logs)
    }

    fn watched() -> Watched {
        let peer = peer();
        let demand = Demand { minimum: MIB, maximum: 8 * MIB, quarters: 4, ..Demand::default() };
        let (traffic, since) = (Traffic::of(&peer.status().link), Instant::now());
        let limits = LogLimits { out: 8 * MIB, inbound: 8 * MIB };
        peer.set_log_limits(limits);
        let flows = FlowMemory::of(0, true);
        Watched { peer, demands: [demand; 2], limits, flows, traffic, since }
    }

    /// Each peer's log limits.
    fn limits(watched: &[Watched]) -> Vec<u64> {
        let limits = |watched: &Watched| {
            let stats = watched.peer.status().link;
            stats.out.log_limit + stats.inbound.log_limit
        };
        watched.iter().map(limits).collect()
    }

    #[tokio::test]
    async fn returning_logs_get_their_share_before_the_read() {
        let mut watched = [watched(), watched()];
        let look = |watched: &mut [Watched]| super::look(BUDGET, Duration::MAX, watched);
        watched[1].peer.only_on_disk();
        look(&mut watched);
        assert_eq!(limits(&watched), [16 * MIB, 16 * MIB], "what is not in memory takes none");
        watched[1].peer.logs.ask_for_share();
        any_asks(&watched).await;
        // Also while they are read.
        for _ in 0..3 {
            look(&mut watched);
            let limits = limits(&watched);
            assert!(limits.iter().sum::<u64>() <= BUDGET.bytes && limits[1] >= 2 * MIB, "{limits:?}");
            assert!(watched[1].peer.logs.wants_share());
        }
        let asks_no_more = tokio::time::timeout(Duration::from_millis(10), any_asks(&watched)).await.is_err();
        assert!(asks_no_more);
    }

    #[tokio::test]
    async fn full_log_gets_unused_memory_of_empty_ones() {
        let full = Demand { minimum: MIB, maximum: 16 * MIB, quarters: 4, ..Demand::default() };
        let curve = Curve::default();
        let held = |own: u64, used: u64| ask(full, own, wanted(used, used > 0), own, 16 * MIB, curve);
        let empty = held(4 * MIB, 0);
        let sizes = share_out(16 * MIB, &[held(4 * MIB, 4 * MIB), empty, empty, empty]);
        assert!(sizes[0] >= 8 * MIB && sizes[1] >= 2 * MIB, "{sizes:?}");
        // A beginning log gets room to grow from full and idle ones, and they keep their content.
        let idle = ask(full, 16 * MIB, wanted(10 * MIB, false), 16 * MIB, 16 * MIB, curve);
        let begins = ask(full, MIB, wanted(MIB, true), MIB, 16 * MIB, curve);
        let sizes = share_out(46 * MIB, &[idle, idle, idle, begins]);
        assert!(sizes[..3].iter().all(|size| *size >= 13 * MIB) && sizes[3] >= 5 * MIB, "{sizes:?}");
        // Once all are full, they have the same again.
        let full = held(4 * MIB, 4 * MIB);
        assert_eq!(share_out(16 * MIB, &[held(9 * MIB, 9 * MIB), full, full, full])[1..], [4 * MIB; 3]);
    }
}
