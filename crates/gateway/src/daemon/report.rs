//! The admin interface's source: one snapshot of peers, flows and counters.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use oncewire_codec::Layers;
use oncewire_codec::contract::{ChunkStats, LogStart, LogStarts, ReceiveStats, SendStats};
use oncewire_config::{Codec, PeerChoice};
use oncewire_intercept::Entrance;
use oncewire_link::{AdaptStats, FlowStats};
use oncewire_logs::{Logs, PersistError, PersistFailure};
use oncewire_report::{
    ClearReport, DiscoveryReport, FlowReport, FlowsReport, GatewayReport, InReport, InterceptReport,
    LanesReport, LogStartReport, NamesIn, NamesOut, OutReport, Outcome, PeerReport, PlanReport, StatusReport,
};
use oncewire_tunnel::accounts::{self, TrafficAccounts};
use oncewire_tunnel::chunks::ChunkStore;
use oncewire_tunnel::listener::TunnelDoor;
use oncewire_tunnel::neighbours::Neighbours;
use oncewire_tunnel::peer::Peer;

use super::clearing::{ClearingPast, ClearingPeer, DISK_LIMIT, chunks_cleared};
use super::state::State;
use crate::admin::{ClearRefused, Clearing, Source};
use crate::lifecycle::log_lines;

/// Everything needed for a status.
pub(super) struct Report {
    /// The part changed by a reload.
    pub(super) state: watch::Sender<Arc<State>>,
    pub(super) tunnel: Arc<TunnelDoor>,
    pub(super) accounts: Arc<TrafficAccounts>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) started: Instant,
    pub(super) store: Option<Arc<ChunkStore>>,
    pub(super) neighbours: Neighbours,
    /// The persisted logs, if any.
    pub(super) logs: Option<Logs>,
    /// State of discovery, if configured.
    pub(super) discovery: Option<Arc<watch::Sender<DiscoveryReport>>>,
    /// Held during a change of the state.
    pub(super) changing: Arc<tokio::sync::Mutex<()>>,
}

/// How long a status waits for the log.
const LOG_LIMIT: Duration = Duration::from_millis(20);

impl Source for Report {
    fn status(&self) -> StatusReport {
        let state = self.state();
        let destinations = self.accounts.destinations.report(|open| {
            state.peers.iter().for_each(|peer| peer.list_open(open));
        });
        StatusReport { destinations, ..self.figures() }
    }

    fn figures(&self) -> StatusReport {
        // By then the log has all events seen here, unless its reader is late.
        log_lines::flush(LOG_LIMIT);
        let state = self.state();
        // Discovered peers front nothing.
        let networks = state.peering.networks().into_iter().chain(std::iter::repeat_with(Vec::new));
        let peers = state.peers.iter().zip(&state.config.peers).zip(networks);
        let report = |((peer, config), networks): ((&Arc<Peer>, &oncewire_config::Peer), _)| PeerReport {
            networks,
            found: config.found,
            rate_limit_bits_per_s: config.link.rate_limit,
            ..peer_report(peer)
        };
        let peers: Vec<_> = peers.map(report).collect();
        let store = self.store.as_ref().map(|store| store.report());
        let memory = peers.iter().map(|peer| peer.out.memory + peer.inbound.memory).sum::<u64>();
        let memory = memory + store.as_ref().map_or(0, |store| store.index_memory);
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gateway: self.gateway(&state, memory),
            peers,
            intercepts: intercepts(&state),
            flows_not_coded: self.accounts.not_coded.rows(),
            store,
            groups: self.neighbours.reports(),
            discovery: self.discovery(),
            ..StatusReport::default()
        }
    }

    fn flows(&self) -> FlowsReport {
        let of = |peer: &Arc<Peer>| {
            let name = peer.name().to_owned();
            peer.flows().into_iter().map(move |(flow, age)| flow_report(&name, &flow, age))
        };
        let state = self.state();
        let on_links = state.peers.iter().flat_map(of);
        FlowsReport::new(on_links.chain(self.accounts.connections.flows()).collect())
    }

    fn clear_cache(&self, peer: Option<String>) -> Clearing {
        let state = self.state();
        let known = |name: &String| state.peers.iter().any(|peer| peer.name() == name);
        if let Some(name) = peer.as_ref().filter(|name| !known(name)) {
            let names: Vec<&str> = state.peers.iter().map(|peer| peer.name()).collect();
            let refused =
                ClearRefused::NoPeer(format!("there is no peer {name:?}; peers are {}", names.join(", ")));
            return Box::pin(std::future::ready(Err(refused)));
        }
        let chosen = state.peers.iter().filter(|known| peer.as_ref().is_none_or(|name| known.name() == name));
        // All at once: no disk holds up another.
        let clearing: Vec<_> = chosen.map(ClearingPeer::begin).collect();
        // Chunks are not sorted by peers.
        let chunks = self.store.as_ref().filter(|_| peer.is_none()).map(|store| store.clear());
        let links = state.peers.clone();
        // Their files are not ours to touch, and may hold content to be cleared.
        let unread =
            self.not_kept().why().map(|why| format!("logs that were not opened stay on disk ({why})"));
        let logs = self.logs.clone().filter(|_| peer.is_none() && unread.is_none());
        let past = logs.map(|logs| ClearingPast {
            logs,
            state: self.state.subscribe(),
            changing: Arc::clone(&self.changing),
        });
        Box::pin(async move {
            let end = Instant::now() + DISK_LIMIT;
            let (mut reports, mut failed) = (Vec::new(), Vec::from_iter(unread));
            for peer in clearing {
                reports.push(peer.end(end, &mut failed).await);
            }
            if let Some(past) = past {
                match past.clear(end).await {
                    Ok(cleared) => reports.extend(cleared),
                    Err(error) => failed.push(format!("logs of peers that are no longer there {error}")),
                }
            }
            let mut store = None;
            if let Some(chunks) = chunks {
                match chunks_cleared(chunks, end).await {
                    Ok(bytes) => store = Some(bytes),
                    Err(error) => failed.push(format!("the chunk store {error}")),
                }
            }
            links.iter().for_each(Peer::tell_store_state);
            match failed.is_empty() {
                true => Ok(ClearReport { store, ..ClearReport::of(reports) }),
                false => Err(ClearRefused::Disk(format!("{}; all else is cleared", failed.join("; ")))),
            }
        })
    }

    fn healthy(&self) -> bool {
        !*self.stopped.borrow()
    }
}

impl Report {
    /// Returns the state of discovery, if configured.
    pub(super) fn discovery(&self) -> Option<DiscoveryReport> {
        self.discovery.as_ref().map(|told| *told.borrow())
    }

    /// Returns the gateway's present state.
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Returns the record of reasons against opening logs.
    fn not_kept(&self) -> PersistFailure {
        self.logs.as_ref().map(Logs::not_kept).unwrap_or_default()
    }

    fn gateway(&self, state: &State, memory: u64) -> GatewayReport {
        // A common obstacle to all logs is more informative than a single one.
        let of_peers = || PersistError::oldest(state.peers.iter().flat_map(|peer| peer.unkept_logs()));
        let unkept = self.not_kept().unkept().or_else(of_peers);
        GatewayReport {
            name: state.config.gateway.name.clone(),
            public_key: state.config.gateway.identity.public_key().to_string(),
            listen: state.addresses().tunnel.iter().map(ToString::to_string).collect(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            draining: !self.healthy(),
            memory_limit: state.config.memory,
            memory_used: Some(memory),
            logs_not_kept_s: unkept.as_ref().map(|unkept| unkept.since.elapsed().as_secs_f64()),
            logs_not_kept: unkept.map(|unkept| unkept.why),
            log_lines_dropped: log_lines::dropped(),
            not_arriving: self.accounts.arrivals.sentence(),
            connects_without_port: self.accounts.connects.without_port(),
            handshakes_pending: self.tunnel.pending() as u64,
            refused: self.accounts.refusals.counts(),
            announces: state.config.gateway.announce.iter().map(ToString::to_string).collect(),
        }
    }
}

fn intercepts(state: &State) -> Vec<InterceptReport> {
    let report = |(intercept, entrance): (&oncewire_config::Intercept, &Arc<Entrance>)| {
        let door = entrance.door();
        InterceptReport {
            mode: door.mode().to_owned(),
            listen: entrance.address().to_string(),
            peer: match &intercept.peer {
                PeerChoice::Named(name) => name.clone(),
                PeerChoice::Auto => "auto".to_owned(),
            },
            connections: door.connections(),
        }
    };
    state.config.intercepts.iter().zip(&state.entrances).map(report).collect()
}

fn peer_report(peer: &Peer) -> PeerReport {
    let status = peer.status();
    let mut link = status.link;
    if !peer.settings.usual.coded {
        link.pace.plan = None;
    }
    let is_coded = peer.settings.usual.coded || link.out.uncoded < link.out.plain;
    PeerReport {
        name: status.name,
        state: status.state,
        state_reason: status.reason,
        lanes: LanesReport { busy: link.lanes_busy, spare: link.lanes_spare },
        flows_open: link.flows_open,
        flows_total: link.flows_total,
        delivered_out: link.delivered_out,
        delivered_in: link.delivered_in,
        wire_out: status.wire_sent,
        wire_in: status.wire_received,
        rtt_ms: link.round_trip.map(|round_trip| round_trip.as_secs_f64() * 1e3),
        mismatches: link.out.mismatches + link.inbound.mismatches,
        resumes: link.resumes,
        lanes_renewed: link.lanes_renewed,
        peer_restarts: link.peer_restarts,
        out: out_report(&link.out, &link.pace, is_coded, status.not_saved.map(|[out, _]| out)),
        inbound: in_report(&link.inbound, status.not_saved.map(|[_, inbound]| inbound)),
        ..PeerReport::default()
    }
    .summed()
}

/// Reports on a sending half; `is_coded` if flows are coded by default, or were by a rule.
fn out_report(out: &SendStats, pace: &AdaptStats, is_coded: bool, not_saved: Option<u64>) -> OutReport {
    let not_literal = [out.copied, out.uncoded, out.names.bytes];
    OutReport {
        codec: match is_coded {
            true => codec(out.log_capacity, pace.plan.map(|plan| plan.layers), out.store),
            false => (out.log_capacity > 0).then(|| Codec::None.to_string()),
        },
        log_capacity: out.log_capacity,
        log_limit: out.log_limit,
        log_on_disk: out.released,
        log_used: out.log_used,
        log_worth: out.curve.values().to_vec(),
        epoch: out.epoch,
        log_resumes: out.log_starts.resumed,
        log_restarts: out.log_starts.anew,
        log_start: log_start(&out.log_starts),
        blocks: out.blocks,
        plain: out.plain,
        copied: out.copied,
        literal: not_literal.into_iter().fold(out.plain, u64::saturating_sub),
        uncoded: out.uncoded,
        remembered: out.remembered,
        not_remembered: out.not_remembered + out.noise_left_out,
        unacked: out.unacked,
        kept: out.kept,
        resent: out.resent,
        mismatches: out.mismatches,
        memory: out.memory,
        not_saved,
        plan: plan_report(pace),
        names: names_out(out),
    }
}

fn plan_report(pace: &AdaptStats) -> PlanReport {
    PlanReport {
        matching: pace.plan.map(|plan| plan.matching.to_string()),
        markers: pace.plan.map(|plan| plan.effective_markers().to_string()),
        period: pace.plan.map(|plan| plan.period),
        entropy: pace.plan.map(|plan| plan.entropy.to_string()),
        adapt: pace.adapt.name().to_owned(),
        rung: pace.level as u64,
        rungs: pace.levels as u64,
        reason: pace.reason.name().to_owned(),
    }
}

fn in_report(inbound: &ReceiveStats, not_saved: Option<u64>) -> InReport {
    InReport {
        codec: codec(inbound.log_capacity, None, false),
        log_capacity: inbound.log_capacity,
        log_limit: inbound.log_limit,
        log_on_disk: inbound.released,
        log_used: inbound.log_used,
        log_worth: inbound.curve.values().to_vec(),
        epoch: inbound.epoch,
        log_resumes: inbound.log_starts.resumed,
        log_restarts: inbound.log_starts.anew,
        log_start: log_start(&inbound.log_starts),
        blocks: inbound.blocks,
        plain: inbound.plain,
        copied: inbound.copied,
        duplicates: inbound.duplicates,
        waited: inbound.waited,
        refetched: inbound.refetched,
        given_up: inbound.given_up,
        mismatches: inbound.mismatches,
        memory: inbound.memory,
        not_saved,
        names: names_in(&inbound.chunks),
    }
}

fn log_start(starts: &LogStarts) -> Option<LogStartReport> {
    starts.last.map(|start| match start {
        LogStart::Resumed { bytes } => LogStartReport { resumed: true, bytes, reason: None },
        LogStart::Anew { reason } => {
            LogStartReport { resumed: false, bytes: 0, reason: Some(reason.to_owned()) }
        }
    })
}

/// Names the codec in use. A half without a log has not met its peer yet; without a store at the peer, nothing is named.
fn codec(log_capacity: u64, layers: Option<Layers>, store: bool) -> Option<String> {
    let codec = match layers {
        Some(Layers::Names) => Codec::Wanax,
        Some(Layers::Both) if store => Codec::Auto,
        _ => Codec::Endre,
    };
    (log_capacity > 0).then(|| codec.to_string())
}

fn names_out(out: &SendStats) -> NamesOut {
    NamesOut {
        store: out.store,
        hints: out.hints,
        chunks: out.names.count,
        bytes: out.names.bytes,
        absent: out.absent,
        sent: out.chunks_sent,
        sent_bytes: out.chunk_bytes_sent,
    }
}

fn names_in(chunks: &ChunkStats) -> NamesIn {
    let levels = &chunks.names.by_level;
    let used = levels.iter().rposition(|bytes| *bytes > 0).map_or(0, |last| last + 1);
    NamesIn {
        chunks: chunks.names.count,
        bytes: chunks.names.bytes,
        bytes_by_level: levels.iter().take(used).copied().collect(),
        found: chunks.hits.count,
        found_bytes: chunks.hits.bytes,
        waited: chunks.waited,
        absent: chunks.absent,
        failed: chunks.failed,
        busy: chunks.busy,
        shed: chunks.shed,
        late: chunks.late,
        requested_bytes: chunks.requested_bytes,
        pending_bytes: chunks.pending_bytes,
        path_bytes_per_s: chunks.path_bytes_per_s,
        path_wait_ms: u64::try_from(chunks.path_wait.as_millis()).unwrap_or(u64::MAX),
        put: chunks.put,
        not_put: chunks.not_put,
    }
}

fn flow_report(peer: &str, flow: &FlowStats, age: Duration) -> FlowReport {
    let reason = accounts::reason(flow.outcome);
    FlowReport {
        id: Some(format!("{:032x}", flow.name)),
        peer: Some(peer.to_owned()),
        destination: flow.destination.to_string(),
        source: flow.source.map(|source| source.to_string()),
        opened_here: flow.opened_here,
        outcome: if reason.is_some() { Outcome::Uncoded } else { Outcome::Coded },
        reason,
        begins_after: flow.begins_after,
        priority: Some(flow.priority.to_string()),
        entropy: flow.entropy.map(|entropy| entropy.to_string()),
        effort: Some(flow.effort.name().to_owned()),
        age_s: age.as_secs_f64(),
        sent: flow.sent,
        received: flow.received,
        wire_sent: Some(flow.wire_sent),
        wire_received: Some(flow.wire_received),
        unacked: flow.unacked,
        waiting: flow.waiting,
    }
}

#[cfg(test)]
mod tests {
    use oncewire_codec::contract::NameCounts;
    use oncewire_codec::{MarkerKind, Matching, Plan};

    use super::*;

    #[test]
    fn copied_and_literal_bytes_are_reported_apart() {
        let names = NameCounts { count: 1, bytes: 50, ..NameCounts::default() };
        let out = SendStats {
            log_capacity: 1,
            plain: 900,
            copied: 700,
            uncoded: 50,
            names,
            ..SendStats::default()
        };
        let plan = Plan { matching: Matching::Chunk, markers: MarkerKind::Maxp, ..Plan::default() };
        let pace = AdaptStats { plan: Some(plan), ..AdaptStats::default() };
        let report = out_report(&out, &pace, true, None);
        assert_eq!((report.literal, report.codec.as_deref()), (100, Some("endre")));
        assert_eq!(report.plan.markers.as_deref(), Some("modp"), "those that are in use");
        assert_eq!(out_report(&out, &pace, false, None).codec.as_deref(), Some("none"));
    }
}
