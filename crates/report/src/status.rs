//! The status of a gateway: counters since its start, present state.

use serde::{Deserialize, Serialize};

use super::destinations::DestinationsReport;
use super::discovery::DiscoveryReport;
use super::group::GroupReport;
use super::not_coded::NotCoded;
use super::refusals::RefusalCount;
use super::store::StoreReport;

/// The output of `oncewire status --json`. Unknown is null, lists are bounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The answering gateway's version.
    pub version: String,
    /// The gateway itself.
    pub gateway: GatewayReport,
    /// The peers, in the configuration's order.
    pub peers: Vec<PeerReport>,
    /// The entry points of flows, in the configuration's order.
    #[serde(default)]
    pub intercepts: Vec<InterceptReport>,
    /// Uncoded flows, counted by destination and reason.
    pub flows_not_coded: Vec<NotCoded>,
    /// Traffic of flows on links, by destination.
    #[serde(default)]
    pub destinations: DestinationsReport,
    /// The chunk store; none if there is to be none.
    #[serde(default)]
    pub store: Option<StoreReport>,
    /// The peers' trust groups.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// Discovery of the site's other gateways; none if not configured.
    #[serde(default)]
    pub discovery: Option<DiscoveryReport>,
}

/// The gateway itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// Its name.
    pub name: String,
    /// Its public key, in the form of `[[peer]] public_key`.
    pub public_key: String,
    /// Its addresses for peers, as bound.
    pub listen: Vec<String>,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Whether it was asked to stop and lets flows finish.
    pub draining: bool,
    /// The bytes it may use, `[cache] memory`.
    pub memory_limit: u64,
    /// The bytes of logs, tables, contexts and kept blocks now.
    pub memory_used: Option<u64>,
    /// Reason against persistence in spite of `state`, as a sentence; null if logs are persisted, or there is
    /// no `state`.
    #[serde(default)]
    pub logs_not_kept: Option<String>,
    /// Seconds since then.
    #[serde(default)]
    pub logs_not_kept_s: Option<f64>,
    /// Log lines dropped without a reader or unwritable; of the whole process.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Reason for lost intercepted connections, or lost answers of servers, as a sentence; null without
    /// losses.
    #[serde(default)]
    pub not_arriving: Option<String>,
    /// Connects failed for lack of a local port towards their destination.
    #[serde(default)]
    pub connects_without_port: u64,
    /// Connections with an unfinished TLS handshake.
    pub handshakes_pending: u64,
    /// Refusals, by reason.
    pub refused: Vec<RefusalCount>,
    /// Its announced networks.
    #[serde(default)]
    pub announces: Vec<String>,
}

/// How a link stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Flows can open.
    Up,
    /// Open flows go on, and the peer takes no new ones: it stops, or begins anew.
    Draining,
    /// We dial and have not failed yet.
    Connecting,
    /// There is no lane; a dialling side goes on trying.
    #[default]
    Down,
    /// One side refuses the other: a wrong key or another protocol version.
    Refused,
}

impl LinkState {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Connecting => "connecting",
            Self::Down => "down",
            Self::Refused => "refused",
        }
    }
}

/// A peer and the link to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The peer's name.
    pub name: String,
    /// Whether it was discovered rather than configured.
    #[serde(default)]
    pub found: bool,
    /// How the link stands.
    pub state: LinkState,
    /// Why it is not up, as a sentence.
    #[serde(default)]
    pub state_reason: Option<String>,
    /// The lanes for flows.
    pub lanes: LanesReport,
    /// Flows open now.
    pub flows_open: u64,
    /// Flows since the start.
    pub flows_total: u64,
    /// Bytes between applications, both ways.
    pub delivered: u64,
    /// Of those, bytes from our applications.
    #[serde(default)]
    pub delivered_out: u64,
    /// Of those, bytes to our applications.
    #[serde(default)]
    pub delivered_in: u64,
    /// Bytes on tunnel sockets, both ways, TLS and feedback included.
    pub wire: u64,
    /// Of those, sent ones.
    #[serde(default)]
    pub wire_out: u64,
    /// Of those, received ones.
    #[serde(default)]
    pub wire_in: u64,
    /// 1 − wire/delivered; unknown before anything was delivered.
    pub savings: Option<f64>,
    /// The smoothed round trip in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Maximum send rate in bits per second; null if there is no limit.
    #[serde(default)]
    pub rate_limit_bits_per_s: Option<u64>,
    /// The sending half.
    pub out: OutReport,
    /// The receiving half.
    #[serde(rename = "in")]
    pub inbound: InReport,
    /// Rebuilt blocks not matching their digest, at either end; none of them was delivered.
    pub mismatches: u64,
    /// Flows resumed after the loss of their lane with unacknowledged data of either end.
    pub resumes: u64,
    /// Lanes replaced for a window kept small by losses: all at the dialling end, at the other end the ones
    /// asked for by it.
    #[serde(default)]
    pub lanes_renewed: u64,
    /// Returns of the peer as a new process.
    #[serde(default)]
    pub peer_restarts: u64,
    /// The networks behind the peer, first configured ones, then announced ones.
    #[serde(default)]
    pub networks: Vec<NetworkReport>,
}

/// A network behind a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Address and length of the prefix.
    pub network: String,
    /// Whether the peer announces it; otherwise it is configured.
    pub announced: bool,
    /// Whether flows can take the peer for it.
    pub used: bool,
    /// Why it is not used, as a sentence.
    pub reason: Option<String>,
}

impl PeerReport {
    /// Fills in sums and savings from the figures by direction.
    pub fn summed(mut self) -> Self {
        self.delivered = self.delivered_out.saturating_add(self.delivered_in);
        self.wire = self.wire_out.saturating_add(self.wire_in);
        self.savings = savings(self.wire, self.delivered);
        self
    }
}

/// Returns 1 − wire/delivered, rounded to a millionth; unknown before anything was delivered.
pub(super) fn savings(wire: u64, delivered: u64) -> Option<f64> {
    (delivered > 0).then(|| ((1.0 - wire as f64 / delivered as f64) * 1e6).round() / 1e6)
}

/// The lanes for flows; control and repair have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanesReport {
    /// Lanes with a flow.
    pub busy: u32,
    /// Spare lanes, kept warm.
    pub spare: u32,
}

/// Fate of a log after a new process at either end, or after one end gave it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStartReport {
    /// Whether it went on with its old content.
    pub resumed: bool,
    /// Referenceable bytes of earlier connections; for the inbound log, at most.
    pub bytes: u64,
    /// Reason for a cold start, in words; null without one.
    pub reason: Option<String>,
}

/// The sending half of a link; bytes unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutReport {
    /// The codec in use: `endre`, `wanax`, `auto` (both), or null before the link was up.
    pub codec: Option<String>,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The log's present maximum, by the memory of both ends.
    #[serde(default)]
    pub log_limit: u64,
    /// Whether the log is idle and on disk only.
    #[serde(default)]
    pub log_on_disk: bool,
    /// The log's referenceable bytes.
    pub log_used: u64,
    /// Bytes saved lately, actual or possible, by log size: up to 256 KiB, and each further entry twice as
    /// much.
    #[serde(default)]
    pub log_worth: Vec<u64>,
    /// The log's epoch.
    pub epoch: u64,
    /// Resumptions of the log with a new process at either end.
    #[serde(default)]
    pub log_resumes: u64,
    /// Cold starts of the log.
    #[serde(default)]
    pub log_restarts: u64,
    /// Its last fate; null for the first log.
    #[serde(default)]
    pub log_start: Option<LogStartReport>,
    /// Blocks encoded.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes replaced by copies.
    pub copied: u64,
    /// Plain bytes sent as literals, before the entropy stage.
    pub literal: u64,
    /// Plain bytes of uncoded flows.
    pub uncoded: u64,
    /// Plain bytes added to the log.
    pub remembered: u64,
    /// Plain bytes not added to the log: too much was in flight, their rule's part was full, or they were
    /// noise about to push out repeats.
    pub not_remembered: u64,
    /// Unacknowledged blocks and messages.
    pub unacked: u64,
    /// Plain bytes kept until they are acknowledged.
    pub kept: u64,
    /// Blocks and messages sent again.
    pub resent: u64,
    /// Mismatches reported by the peer.
    pub mismatches: u64,
    /// Memory of log, table, contexts and kept blocks.
    pub memory: u64,
    /// Log bytes lost to a slow or failed disk; null if logs end with the process.
    pub not_saved: Option<u64>,
    /// How blocks are coded now.
    #[serde(default)]
    pub plan: PlanReport,
    /// Content sent as names.
    #[serde(default)]
    pub names: NamesOut,
}

/// Present coding of blocks, for flows without a rule; all are null if uncoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// How repeats are identified.
    pub matching: Option<String>,
    /// How markers are chosen.
    pub markers: Option<String>,
    /// The mean distance of markers.
    pub period: Option<u32>,
    /// The entropy stage of mostly new blocks.
    pub entropy: Option<String>,
    /// Trade-off of effort while encoding holds traffic up: `savings`, `speed` or `off`.
    #[serde(default)]
    pub adapt: String,
    /// Steps down from the configured effort, 0.
    pub rung: u64,
    /// How many rungs there are.
    pub rungs: u64,
    /// Reason for this rung: `configured`, `off`, `encoder_bound`, `recovering` or `probe`.
    pub reason: String,
}

/// The receiving half of a link; bytes unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InReport {
    /// The codec: `endre`, or null before the link was up.
    pub codec: Option<String>,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The log's present maximum, by the memory of both ends.
    #[serde(default)]
    pub log_limit: u64,
    /// Whether the log is idle and on disk only.
    #[serde(default)]
    pub log_on_disk: bool,
    /// The log's referenceable bytes.
    pub log_used: u64,
    /// Bytes saved lately, actual or possible, by log size, as reported by the peer: up to 256 KiB, and each
    /// further entry twice as much.
    #[serde(default)]
    pub log_worth: Vec<u64>,
    /// The log's epoch.
    pub epoch: u64,
    /// Resumptions of the log with a new process at either end.
    #[serde(default)]
    pub log_resumes: u64,
    /// Cold starts of the log.
    #[serde(default)]
    pub log_restarts: u64,
    /// Its last fate; null for the first log.
    #[serde(default)]
    pub log_start: Option<LogStartReport>,
    /// Blocks delivered.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes rebuilt from the log.
    pub copied: u64,
    /// Repeated blocks.
    pub duplicates: u64,
    /// Blocks delayed by a missing range.
    pub waited: u64,
    /// Blocks requested again for a missing reference.
    pub refetched: u64,
    /// Of those, blocks with references to content given up by this end.
    #[serde(default)]
    pub given_up: u64,
    /// Rebuilt blocks not matching their digest.
    pub mismatches: u64,
    /// Memory of log, contexts and waiting blocks.
    pub memory: u64,
    /// Log bytes lost to a slow or failed disk; null if logs end with the process.
    pub not_saved: Option<u64>,
    /// Content received as names.
    #[serde(default)]
    pub names: NamesIn,
}

/// Chunks sent to the peer as names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesOut {
    /// Whether the peer has a store and takes names; without it nothing is named.
    pub store: bool,
    /// Chunks believed to be at the peer.
    pub hints: u64,
    /// Named chunks.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Of those, chunks absent in the peer's store.
    pub absent: u64,
    /// Chunks requested by the peer, for any reason.
    pub sent: u64,
    /// Their plain bytes.
    pub sent_bytes: u64,
}

/// Chunks received as names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesIn {
    /// Named chunks.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Plain bytes by level, the largest chunks first.
    pub bytes_by_level: Vec<u64>,
    /// Chunks found in the store in time.
    pub found: u64,
    /// Their plain bytes.
    pub found_bytes: u64,
    /// Chunks named before the arrival of the blocks with them.
    pub waited: u64,
    /// Chunks absent in the store.
    pub absent: u64,
    /// Damaged chunks.
    pub failed: u64,
    /// Chunks possibly in the store but not read: too many waited, or the disk refused.
    #[serde(default)]
    pub busy: u64,
    /// Chunks requested over the network for an overloaded disk.
    pub shed: u64,
    /// Chunks too slow to read and requested as well.
    pub late: u64,
    /// Plain bytes of all chunks requested over the network.
    pub requested_bytes: u64,
    /// Of those, outstanding bytes.
    #[serde(default)]
    pub pending_bytes: u64,
    /// Estimated throughput of the path in bytes per second; 0 while unknown.
    pub path_bytes_per_s: u64,
    /// Delay of requests at the peer beyond round trip and rate, in milliseconds.
    pub path_wait_ms: u64,
    /// Blocks put into the store.
    pub put: u64,
    /// Blocks not put: the store takes nothing, or not as fast.
    pub not_put: u64,
}

/// An entry point of flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterceptReport {
    /// How: `forward`, `socks5` or `http`.
    pub mode: String,
    /// Its listening address, as bound.
    pub listen: String,
    /// The peer's name, or `auto`.
    pub peer: String,
    /// Connections since the start.
    pub connections: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_unknown_before_anything_is_delivered() {
        assert_eq!(savings(10, 0), None);
        assert_eq!(savings(25, 100), Some(0.75));
        assert_eq!(savings(150, 100), Some(-0.5));
    }

    #[test]
    fn status_json_has_sums_and_round_trips() {
        let peer = PeerReport { delivered_out: 100, wire_in: 30, ..PeerReport::default() }.summed();
        let report = StatusReport { peers: vec![peer], ..StatusReport::default() };
        let json = serde_json::to_value(&report).unwrap();
        let peer = &json["peers"][0];
        assert_eq!(
            (&peer["delivered"], &peer["wire"], &peer["savings"]),
            (&100.into(), &30.into(), &0.7.into())
        );
        assert_eq!((&peer["state"], &peer["rtt_ms"]), (&"down".into(), &serde_json::Value::Null));
        assert_eq!(peer["lanes"], serde_json::json!({"busy": 0, "spare": 0}));
        assert_eq!(serde_json::from_value::<StatusReport>(json).unwrap(), report);
    }
}
