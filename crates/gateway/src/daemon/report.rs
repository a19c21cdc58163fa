//! What the admin interface tells: one snapshot of peers, flows and counters.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use oncewire_codec::contract::{ReceiveStats, SendStats};
use oncewire_link::{FlowStats, PaceStats};

use super::LocalAddresses;
use crate::admin::Source;
use crate::config::{Config, PeerChoice};
use crate::intercept::Door;
use crate::ledger::{self, Ledger};
use crate::telemetry::{
    FlowReport, FlowsReport, GatewayReport, InReport, InterceptReport, LanesReport, OutReport, Outcome,
    PeerReport, PlanReport, StatusReport,
};
use crate::tunnel::listener::TunnelDoor;
use crate::tunnel::peer::Peer;

/// Everything that a status is read from.
pub(super) struct Report {
    pub(super) config: Arc<Config>,
    pub(super) addresses: LocalAddresses,
    pub(super) peers: Vec<Arc<Peer>>,
    pub(super) tunnel: Arc<TunnelDoor>,
    pub(super) doors: Vec<Arc<Door>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) started: Instant,
}

impl Source for Report {
    fn status(&self) -> StatusReport {
        let peers: Vec<_> = self.peers.iter().map(|peer| peer_report(peer)).collect();
        let memory = peers.iter().map(|peer| peer.out.memory + peer.inbound.memory).sum();
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gateway: self.gateway(memory),
            peers,
            intercepts: self.intercepts(),
            flows_not_coded: self.ledger.not_coded.rows(),
        }
    }

    fn flows(&self) -> FlowsReport {
        let of = |peer: &Arc<Peer>| {
            let name = peer.name().to_owned();
            peer.flows().into_iter().map(move |(flow, age)| flow_report(&name, &flow, age))
        };
        FlowsReport::new(self.peers.iter().flat_map(of).collect())
    }

    fn healthy(&self) -> bool {
        !*self.stopped.borrow()
    }
}

impl Report {
    fn gateway(&self, memory: u64) -> GatewayReport {
        GatewayReport {
            name: self.config.gateway.name.clone(),
            public_key: self.config.gateway.identity.public_key().to_string(),
            listen: self.addresses.tunnel.iter().map(ToString::to_string).collect(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            draining: !self.healthy(),
            memory_limit: self.config.memory,
            memory_used: Some(memory),
            handshakes_pending: self.tunnel.pending() as u64,
            refused: self.ledger.refusals.counts(),
        }
    }

    fn intercepts(&self) -> Vec<InterceptReport> {
        let places = self.config.intercepts.iter().zip(&self.doors).zip(&self.addresses.intercepts);
        let report = |((intercept, door), address): ((&crate::config::Intercept, &Arc<Door>), _)| {
            let address: &std::net::SocketAddr = address;
            InterceptReport {
                mode: door.mode().to_owned(),
                listen: address.to_string(),
                peer: match &intercept.peer {
                    PeerChoice::Named(name) => name.clone(),
                    PeerChoice::Auto => "auto".to_owned(),
                },
                connections: door.connections(),
            }
        };
        places.map(report).collect()
    }
}

fn peer_report(peer: &Peer) -> PeerReport {
    let status = peer.status();
    let link = status.link;
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
        peer_restarts: link.peer_restarts,
        out: out_report(&link.out, &link.pace),
        inbound: in_report(&link.inbound),
        ..PeerReport::default()
    }
    .summed()
}

fn out_report(out: &SendStats, pace: &PaceStats) -> OutReport {
    OutReport {
        codec: codec(out.log_capacity),
        log_capacity: out.log_capacity,
        log_used: out.log_used,
        epoch: out.epoch,
        blocks: out.blocks,
        plain: out.plain,
        copied: out.copied,
        literal: out.plain.saturating_sub(out.copied).saturating_sub(out.uncoded),
        uncoded: out.uncoded,
        remembered: out.remembered,
        not_remembered: out.not_remembered,
        unacked: out.unacked,
        kept: out.kept,
        resent: out.resent,
        mismatches: out.mismatches,
        memory: out.memory,
        plan: plan_report(pace),
    }
}

fn plan_report(pace: &PaceStats) -> PlanReport {
    PlanReport {
        matching: pace.plan.map(|plan| plan.matching.to_string()),
        markers: pace.plan.map(|plan| plan.markers.to_string()),
        period: pace.plan.map(|plan| plan.period),
        entropy: pace.plan.map(|plan| plan.entropy.to_string()),
        rung: pace.rung as u64,
        rungs: pace.rungs as u64,
        reason: pace.reason.name().to_owned(),
    }
}

fn in_report(inbound: &ReceiveStats) -> InReport {
    InReport {
        codec: codec(inbound.log_capacity),
        log_capacity: inbound.log_capacity,
        log_used: inbound.log_used,
        epoch: inbound.epoch,
        blocks: inbound.blocks,
        plain: inbound.plain,
        copied: inbound.copied,
        duplicates: inbound.duplicates,
        waited: inbound.waited,
        refetched: inbound.refetched,
        mismatches: inbound.mismatches,
        memory: inbound.memory,
    }
}

/// A half without a log has not met its peer yet.
fn codec(log_capacity: u64) -> Option<String> {
    (log_capacity > 0).then(|| "endre".to_owned())
}

fn flow_report(peer: &str, flow: &FlowStats, age: Duration) -> FlowReport {
    let reason = ledger::reason(flow.outcome, flow.opened_here);
    FlowReport {
        id: Some(format!("{:032x}", flow.name)),
        peer: Some(peer.to_owned()),
        destination: flow.destination.to_string(),
        source: flow.source.map(|source| source.to_string()),
        opened_here: flow.opened_here,
        outcome: if reason.is_some() { Outcome::Uncoded } else { Outcome::Coded },
        reason,
        age_s: age.as_secs_f64(),
        sent: flow.sent,
        received: flow.received,
        unacked: flow.unacked,
        waiting: flow.waiting,
    }
}
