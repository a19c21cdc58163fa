//! The status of a gateway: counters since its start, and its state now.

use serde::{Deserialize, Serialize};

use super::destinations::DestinationsReport;
use super::discovery::DiscoveryReport;
use super::group::GroupReport;
use super::not_coded::NotCoded;
use super::refusals::RefusalCount;
use super::store::StoreReport;

/// Everything that `oncewire status --json` prints. Unknown is null, lists are bounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The version of the gateway that answers.
    pub version: String,
    /// The gateway itself.
    pub gateway: GatewayReport,
    /// The peers, in the configuration's order.
    pub peers: Vec<PeerReport>,
    /// The places where flows are taken in, in the configuration's order.
    #[serde(default)]
    pub intercepts: Vec<InterceptReport>,
    /// Flows that were not coded, counted by where they went and why.
    pub flows_not_coded: Vec<NotCoded>,
    /// What flows on links have moved, by where they went.
    #[serde(default)]
    pub destinations: DestinationsReport,
    /// The chunk store; none if there is to be none.
    #[serde(default)]
    pub store: Option<StoreReport>,
    /// The trust groups that peers are in.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// The search for other gateways of the site; none if none are looked for.
    #[serde(default)]
    pub discovery: Option<DiscoveryReport>,
}

/// The gateway itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// Its name.
    pub name: String,
    /// Its public key, as `[[peer]] public_key` takes it.
    pub public_key: String,
    /// The addresses where peers reach it, as bound.
    pub listen: Vec<String>,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Whether it was asked to stop and lets flows finish.
    pub draining: bool,
    /// The bytes it may use, `[cache] memory`.
    pub memory_limit: u64,
    /// The bytes of logs, tables, contexts and kept blocks now.
    pub memory_used: Option<u64>,
    /// Why logs are not kept that `state` is to keep, as a sentence; null if they are, or there is no `state`.
    #[serde(default)]
    pub logs_not_kept: Option<String>,
    /// Seconds since that is so.
    #[serde(default)]
    pub logs_not_kept_s: Option<f64>,
    /// Log lines that were dropped since nobody took them, or that could not be written; of the whole process.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Why connections that were taken in, or servers' answers, do not arrive here, as a sentence; null if they do.
    #[serde(default)]
    pub not_arriving: Option<String>,
    /// Connects that failed since every local port was taken towards their destination.
    #[serde(default)]
    pub connects_without_port: u64,
    /// Connections that have not finished TLS yet.
    pub handshakes_pending: u64,
    /// What was turned away, by reason.
    pub refused: Vec<RefusalCount>,
    /// The networks that it announces.
    #[serde(default)]
    pub announces: Vec<String>,
}

/// How a link stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Flows can open.
    Up,
    /// Flows that are open go on, and the peer takes no new ones: it stops, or begins anew.
    Draining,
    /// We dial and have not failed yet.
    Connecting,
    /// There is no lane; a dialling side goes on trying.
    #[default]
    Down,
    /// One side does not want the other: a wrong key or another protocol version.
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
    /// Whether it was found and stands in no file.
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
    /// Bytes that applications sent, both ways.
    pub delivered: u64,
    /// Of those, what our applications sent.
    #[serde(default)]
    pub delivered_out: u64,
    /// Of those, what our applications were given.
    #[serde(default)]
    pub delivered_in: u64,
    /// Bytes on tunnel sockets, both ways, TLS and feedback included.
    pub wire: u64,
    /// Of those, what we sent.
    #[serde(default)]
    pub wire_out: u64,
    /// Of those, what we received.
    #[serde(default)]
    pub wire_in: u64,
    /// 1 − wire/delivered; unknown before anything was delivered.
    pub savings: Option<f64>,
    /// The smoothed round trip in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Bits a second that are sent to it at most; null if there is no limit.
    #[serde(default)]
    pub rate_limit_bits_per_s: Option<u64>,
    /// The sending half.
    pub out: OutReport,
    /// The receiving half.
    #[serde(rename = "in")]
    pub inbound: InReport,
    /// Rebuilt blocks that did not match their digest, at either end; none of them was delivered.
    pub mismatches: u64,
    /// Flows that lost their lane with something on it, which either end had sent, and went on.
    pub resumes: u64,
    /// Lanes in whose place another came because losses had left them a small window: all where lanes are dialled, at the
    /// other end those that it asked for.
    #[serde(default)]
    pub lanes_renewed: u64,
    /// Times that the peer came back as a new process.
    #[serde(default)]
    pub peer_restarts: u64,
    /// The networks behind the peer, first those that are configured, then those that it announces.
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
    /// Fills in the sums and the savings from what is known by direction.
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
    /// Lanes that carry a flow.
    pub busy: u32,
    /// Lanes that are kept warm.
    pub spare: u32,
}

/// What became of a log when either end was another process, or when one of them gave it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStartReport {
    /// Whether it went on with what was remembered.
    pub resumed: bool,
    /// Bytes of earlier connections that could be referred to; of what is received, at most.
    pub bytes: u64,
    /// Why it started over, in words; null if it did not.
    pub reason: Option<String>,
}

/// The sending half of a link; bytes unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutReport {
    /// The codec in use: `endre`, `wanax`, `auto` (both), or null before the link was up.
    pub codec: Option<String>,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The most that the log holds now, by the memory that both ends have for it.
    #[serde(default)]
    pub log_limit: u64,
    /// Whether the log is idle and on disk only.
    #[serde(default)]
    pub log_on_disk: bool,
    /// The log's bytes that can be referred to.
    pub log_used: u64,
    /// Bytes saved lately, or that would have been, by the log's size: up to 256 KiB, and each further entry twice as
    /// much.
    #[serde(default)]
    pub log_worth: Vec<u64>,
    /// The log's epoch.
    pub epoch: u64,
    /// Times that the log went on after either end was another process.
    #[serde(default)]
    pub log_resumes: u64,
    /// Times that it started over.
    #[serde(default)]
    pub log_restarts: u64,
    /// What became of it last; null if it is the first one.
    #[serde(default)]
    pub log_start: Option<LogStartReport>,
    /// Blocks encoded.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes that were replaced by copies.
    pub copied: u64,
    /// Plain bytes that crossed as literals, before the entropy stage.
    pub literal: u64,
    /// Plain bytes of flows that are not coded.
    pub uncoded: u64,
    /// Plain bytes that were remembered in the log.
    pub remembered: u64,
    /// Plain bytes that were not remembered because too much was in flight, their rule had its part of the log, or they were
    /// noise that would have pushed out what repeats.
    pub not_remembered: u64,
    /// Blocks and messages that are not acknowledged.
    pub unacked: u64,
    /// Plain bytes kept until they are acknowledged.
    pub kept: u64,
    /// Blocks and messages sent again.
    pub resent: u64,
    /// Mismatches that the peer reported.
    pub mismatches: u64,
    /// Memory of log, table, contexts and kept blocks.
    pub memory: u64,
    /// Bytes of the log that were not saved because the disk was too slow or failed; null if logs end with the process.
    pub not_saved: Option<u64>,
    /// How blocks are coded now.
    #[serde(default)]
    pub plan: PlanReport,
    /// What was named instead of being sent.
    #[serde(default)]
    pub names: NamesOut,
}

/// How blocks are coded now, unless a rule says otherwise for their flow; all are null when they are not coded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// How repeats are identified.
    pub matching: Option<String>,
    /// How markers are chosen.
    pub markers: Option<String>,
    /// The mean distance of markers.
    pub period: Option<u32>,
    /// The entropy stage of blocks that are mostly new.
    pub entropy: Option<String>,
    /// What effort is traded for while encoding holds traffic up: `savings`, `speed` or `off`.
    #[serde(default)]
    pub adapt: String,
    /// How far down from what is configured, which is 0.
    pub rung: u64,
    /// How many rungs there are.
    pub rungs: u64,
    /// Why it is this rung: `configured`, `off`, `encoder_bound`, `recovering` or `probe`.
    pub reason: String,
}

/// The receiving half of a link; bytes unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InReport {
    /// The codec: `endre`, or null before the link was up.
    pub codec: Option<String>,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The most that the log holds now, by the memory that both ends have for it.
    #[serde(default)]
    pub log_limit: u64,
    /// Whether the log is idle and on disk only.
    #[serde(default)]
    pub log_on_disk: bool,
    /// The log's bytes that can be referred to.
    pub log_used: u64,
    /// Bytes saved lately, or that would have been, by the log's size, as the peer tells: up to 256 KiB, and each
    /// further entry twice as much.
    #[serde(default)]
    pub log_worth: Vec<u64>,
    /// The log's epoch.
    pub epoch: u64,
    /// Times that the log went on after either end was another process.
    #[serde(default)]
    pub log_resumes: u64,
    /// Times that it started over.
    #[serde(default)]
    pub log_restarts: u64,
    /// What became of it last; null if it is the first one.
    #[serde(default)]
    pub log_start: Option<LogStartReport>,
    /// Blocks delivered.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes that were rebuilt from the log.
    pub copied: u64,
    /// Blocks that came twice.
    pub duplicates: u64,
    /// Blocks that had to wait for a range.
    pub waited: u64,
    /// Blocks asked for again because what they refer to was missing.
    pub refetched: u64,
    /// Of those, the ones that referred to what this end had given up.
    #[serde(default)]
    pub given_up: u64,
    /// Rebuilt blocks that did not match their digest.
    pub mismatches: u64,
    /// Memory of log, contexts and waiting blocks.
    pub memory: u64,
    /// Bytes of the log that were not saved because the disk was too slow or failed; null if logs end with the process.
    pub not_saved: Option<u64>,
    /// What the peer named instead of sending it.
    #[serde(default)]
    pub names: NamesIn,
}

/// Chunks that were named to the peer instead of being sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesOut {
    /// Whether the peer has a store and takes names; without it nothing is named.
    pub store: bool,
    /// Chunks that the peer is thought to have.
    pub hints: u64,
    /// Chunks that were named.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Of those, the ones that the peer's store did not have.
    pub absent: u64,
    /// Chunks that the peer asked for, for whatever reason.
    pub sent: u64,
    /// Their plain bytes.
    pub sent_bytes: u64,
}

/// Chunks that the peer named instead of sending them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesIn {
    /// Chunks that were named.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Plain bytes by level, the largest chunks first.
    pub bytes_by_level: Vec<u64>,
    /// Chunks that the store had, in time.
    pub found: u64,
    /// Their plain bytes.
    pub found_bytes: u64,
    /// Chunks that were named before the blocks that bring them were there.
    pub waited: u64,
    /// Chunks that the store did not have.
    pub absent: u64,
    /// Chunks that were damaged.
    pub failed: u64,
    /// Chunks that the store may have and did not read: too many waited, or the disk refused.
    #[serde(default)]
    pub busy: u64,
    /// Chunks that were asked for over the network since the disk had too much to do.
    pub shed: u64,
    /// Chunks that took too long to read and were asked for as well.
    pub late: u64,
    /// Plain bytes of all chunks that were asked for over the network.
    pub requested_bytes: u64,
    /// Of those, what has not come.
    #[serde(default)]
    pub pending_bytes: u64,
    /// Bytes a second that the path is taken to carry; 0 while that is not known.
    pub path_bytes_per_s: u64,
    /// How long what is asked for waits at the peer beyond what round trip and rate explain, in milliseconds.
    pub path_wait_ms: u64,
    /// Blocks that were put into the store.
    pub put: u64,
    /// Blocks that were not put since the store takes nothing, or not as fast.
    pub not_put: u64,
}

/// A place where flows are taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterceptReport {
    /// How: `forward`, `socks5` or `http`.
    pub mode: String,
    /// Where it listens, as bound.
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
    fn the_json_has_sums_and_is_read_again() {
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
