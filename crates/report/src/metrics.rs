//! The status as OpenMetrics text, as read by Prometheus.
//!
//! Labels are peer, direction, intercept, group, outcome, reason and result: sets bounded by the
//! configuration or this code. Destinations, chosen by applications, are summed over.
//! `docs/reference/json.md` has a row for each name.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::status::{LinkState, PeerReport, StatusReport};
use super::store::StoreCondition;

/// Writes a status as metrics.
pub fn encode(status: &StatusReport) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status.clone())));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// One status, encoded on request.
#[derive(Debug)]
struct Snapshot(StatusReport);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.gateway(&mut encoder)?;
        self.traffic(&mut encoder)?;
        self.links(&mut encoder)?;
        self.codecs(&mut encoder)?;
        self.names(&mut encoder)?;
        self.store(&mut encoder)?;
        self.groups(&mut encoder)?;
        self.flows(&mut encoder)
    }
}

/// The value of one sample and its labels.
type Sample<'a> = (Vec<(&'static str, &'a str)>, Value);

/// A sample's value.
enum Value {
    Count(u64),
    Level(f64),
}

impl Snapshot {
    fn gateway(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gateway = &self.0.gateway;
        let labels = vec![("version", self.0.version.as_str()), ("name", gateway.name.as_str())];
        write(encoder, "build_info", "Constant 1 with the version and name", [(labels, Value::Level(1.0))])?;
        write(
            encoder,
            "uptime_seconds",
            "Seconds since the start",
            [(vec![], Value::Level(gateway.uptime_s))],
        )?;
        let draining = f64::from(u8::from(gateway.draining));
        write(encoder, "draining", "1 while flows finish before a stop", [(vec![], Value::Level(draining))])?;
        let limit = gateway.memory_limit as f64;
        write(encoder, "memory_limit_bytes", "Configured memory", [(vec![], Value::Level(limit))])?;
        let used = gateway.memory_used.map(|used| (vec![], Value::Level(used as f64)));
        write(encoder, "memory_used_bytes", "Memory of logs, tables, contexts and kept blocks", used)?;
        let unkept = f64::from(u8::from(gateway.logs_not_kept.is_some()));
        let help = "1 while logs are not kept on disk that are to be";
        write(encoder, "logs_not_kept", help, [(vec![], Value::Level(unkept))])?;
        let dropped = [(vec![], Value::Count(gateway.log_lines_dropped))];
        write(encoder, "log_lines_dropped", "Log lines that were dropped or could not be written", dropped)?;
        let portless = [(vec![], Value::Count(gateway.connects_without_port))];
        write(encoder, "connects_without_port", "Connects for which no local port was left", portless)?;
        let pending = gateway.handshakes_pending as f64;
        write(
            encoder,
            "handshakes_pending",
            "Connections before the end of TLS",
            [(vec![], Value::Level(pending))],
        )?;
        let refused = gateway
            .refused
            .iter()
            .map(|row| (vec![("reason", row.reason.as_str())], Value::Count(row.count)));
        write(encoder, "refused", "What was turned away", refused)?;
        let intercepts = self.0.intercepts.iter().map(|intercept| {
            let labels = vec![("mode", intercept.mode.as_str()), ("intercept", intercept.listen.as_str())];
            (labels, Value::Count(intercept.connections))
        });
        write(encoder, "intercepted_connections", "Connections taken in", intercepts)
    }

    fn traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let delivered = "Bytes that applications sent, by direction as seen from this gateway";
        self.counts_both_ways(encoder, "delivered_bytes", delivered, |peer| {
            (peer.delivered_out, peer.delivered_in)
        })?;
        let wire = "Bytes on tunnel sockets, TLS and feedback included";
        self.counts_both_ways(encoder, "wire_bytes", wire, |peer| (peer.wire_out, peer.wire_in))?;
        let copied = "Plain bytes replaced by, or rebuilt from, copies";
        self.counts_both_ways(encoder, "copied_bytes", copied, |peer| {
            (peer.out.copied, peer.inbound.copied)
        })?;
        self.counts_both_ways(encoder, "blocks", "Blocks", |peer| (peer.out.blocks, peer.inbound.blocks))?;
        let mismatches = "Rebuilt blocks that did not match their digest; none was delivered";
        self.counts_both_ways(encoder, "mismatches", mismatches, |peer| {
            (peer.out.mismatches, peer.inbound.mismatches)
        })
    }

    fn links(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let draining = |peer: &PeerReport| peer.state == LinkState::Draining;
        let up = |peer: &PeerReport| f64::from(u8::from(peer.state == LinkState::Up || draining(peer)));
        self.levels(encoder, "peer_up", "1 while the link is up", |peer| Some(up(peer)))?;
        let help = "1 while the link is up and the peer takes no new flows";
        self.levels(encoder, "peer_draining", help, |peer| Some(f64::from(u8::from(draining(peer)))))?;
        let rtt = |peer: &PeerReport| peer.rtt_ms.map(|rtt_ms| rtt_ms / 1000.0);
        self.levels(encoder, "round_trip_seconds", "Smoothed round trip", rtt)?;
        let lanes = "Lanes for flows that carry one";
        self.levels(encoder, "lanes_busy", lanes, |peer| Some(f64::from(peer.lanes.busy)))?;
        let lanes = "Lanes for flows that are kept warm";
        self.levels(encoder, "lanes_spare", lanes, |peer| Some(f64::from(peer.lanes.spare)))?;
        self.levels(encoder, "flows_open", "Flows open now", |peer| Some(peer.flows_open as f64))?;
        self.counts(encoder, "flows", "Flows", |peer| peer.flows_total)?;
        self.counts(encoder, "resumes", "Flows that lost their lane and went on", |peer| peer.resumes)?;
        self.counts_both_ways(
            encoder,
            "log_resumes",
            "Times that the log went on with a new process",
            |peer| (peer.out.log_resumes, peer.inbound.log_resumes),
        )?;
        self.counts_both_ways(encoder, "log_restarts", "Times that the log started over", |peer| {
            (peer.out.log_restarts, peer.inbound.log_restarts)
        })?;
        let renewed = "Lanes in whose place another came because losses had left them a small window";
        self.counts(encoder, "lanes_renewed", renewed, |peer| peer.lanes_renewed)?;
        self.counts(encoder, "peer_restarts", "Times that the peer came as a new process", |peer| {
            peer.peer_restarts
        })?;
        let resent = "Blocks and messages sent again";
        self.counts(encoder, "resent", resent, |peer| peer.out.resent)
    }

    fn codecs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let capacity = |peer: &PeerReport| (peer.out.log_capacity, peer.inbound.log_capacity);
        self.levels_both_ways(encoder, "log_capacity_bytes", "What the log can hold", capacity)?;
        let used = |peer: &PeerReport| (peer.out.log_used, peer.inbound.log_used);
        self.levels_both_ways(encoder, "log_used_bytes", "What the log holds", used)?;
        let memory = |peer: &PeerReport| (peer.out.memory, peer.inbound.memory);
        self.levels_both_ways(encoder, "codec_memory_bytes", "Memory of log, table and contexts", memory)?;
        let rung = "Steps below the configured plan, 0 as configured";
        self.levels(encoder, "codec_rung", rung, |peer| Some(peer.out.plan.rung as f64))?;
        let rungs = "Steps of effort, that of the configured plan included";
        self.levels(encoder, "codec_rungs", rungs, |peer| Some(peer.out.plan.rungs as f64))?;
        let not_saved = "Log bytes that were not saved because the disk was too slow or failed";
        self.counts_both_ways(encoder, "log_not_saved_bytes", not_saved, |peer| {
            (peer.out.not_saved.unwrap_or(0), peer.inbound.not_saved.unwrap_or(0))
        })?;
        let kept = "Plain bytes kept until they are acknowledged";
        self.levels(encoder, "kept_bytes", kept, |peer| Some(peer.out.kept as f64))
    }

    fn names(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let named = "Plain bytes of chunks that were named instead of being sent";
        self.counts_both_ways(encoder, "named_bytes", named, |peer| {
            (peer.out.names.bytes, peer.inbound.names.bytes)
        })?;
        let samples = self.0.peers.iter().flat_map(|peer| {
            let names = &peer.inbound.names;
            let count =
                |result, count| (vec![("peer", label(peer)), ("result", result)], Value::Count(count));
            [
                count("found", names.found),
                count("absent", names.absent),
                count("failed", names.failed),
                count("busy", names.busy),
                count("shed", names.shed),
                count("late", names.late),
            ]
        });
        write(encoder, "named_chunks", "What became of chunks that the peer named", samples)?;
        let requested = "Plain bytes of named chunks that were asked for over the network";
        self.counts(encoder, "requested_bytes", requested, |peer| peer.inbound.names.requested_bytes)?;
        let pending = "Of those, bytes that have not come";
        self.levels(encoder, "pending_bytes", pending, |peer| Some(peer.inbound.names.pending_bytes as f64))?;
        let rate = |peer: &PeerReport| Some(peer.inbound.names.path_bytes_per_s).filter(|rate| *rate > 0);
        let help = "What load shedding takes the path to carry";
        self.levels(encoder, "path_bytes_per_second", help, |peer| rate(peer).map(|rate| rate as f64))?;
        let help = "How long what is asked for waits at the peer beyond what round trip and rate explain";
        let wait = |peer: &PeerReport| rate(peer).map(|_| peer.inbound.names.path_wait_ms as f64 / 1e3);
        self.levels(encoder, "path_wait_seconds", help, wait)
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(store) = &self.0.store else { return Ok(()) };
        let level = |value: f64| [(vec![], Value::Level(value))];
        let open = f64::from(u8::from(store.state == StoreCondition::Open));
        write(encoder, "store_open", "1 while the chunk store is read and written", level(open))?;
        write(encoder, "store_size_bytes", "Disk that the chunk store may take", level(store.size as f64))?;
        write(encoder, "store_used_bytes", "Disk that the chunk store takes", level(store.used as f64))?;
        let index = "Memory of the chunk store's index";
        write(encoder, "store_index_bytes", index, level(store.index_memory as f64))?;
        let oldest = store.oldest_secs.map(|age| (vec![], Value::Level(age as f64)));
        write(encoder, "store_oldest_seconds", "Age of the oldest chunk", oldest)?;
        let queue = "Reads of chunks that wait or are being served";
        write(encoder, "store_queue", queue, level(store.queue as f64))?;
        let oldest_read = store.oldest_read_ms as f64 / 1e3;
        write(encoder, "store_oldest_read_seconds", "Age of the oldest read", level(oldest_read))?;
        let aside = "Files of the chunk store that the disk refuses to read";
        write(encoder, "store_set_aside", aside, level(store.set_aside as f64))?;
        let given_up = "Of those, files that count as lost";
        write(encoder, "store_given_up", given_up, level(store.given_up as f64))?;
        let service = store.service_time_us as f64 / 1e6;
        write(encoder, "store_service_seconds", "Time of a read once it is its turn", level(service))?;
        let count = |result: &'static str, count: u64| (vec![("result", result)], Value::Count(count));
        let reads = [
            count("found", store.found),
            count("damaged", store.damaged),
            count("unreadable", store.unreadable),
            count("turned_away", store.turned_away),
            count("absent", store.absent),
        ];
        write(encoder, "store_reads", "Chunks that links asked for", reads)?;
        let puts = [count("taken", store.puts), count("dropped", store.dropped)];
        write(encoder, "store_puts", "Blocks that links put", puts)?;
        let replaced = "Blocks that were stored again, since the disk refuses to read where they were";
        write(encoder, "store_replaced", replaced, [(vec![], Value::Count(store.replaced))])?;
        let written = [(vec![], Value::Count(store.written))];
        write(encoder, "store_written_bytes", "Bytes written to the store's disk", written)
    }

    fn groups(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let groups = || self.0.groups.iter().map(|group| (group, vec![("group", group.name.as_str())]));
        let there = groups().map(|(group, labels)| (labels, Value::Level(group.neighbours as f64)));
        write(encoder, "group_neighbours", "Neighbours with a chunk store that are up", there)?;
        let pending = "Bytes of chunks that they have asked other sites for and not got";
        let waits =
            groups().map(|(group, labels)| (labels, Value::Level(group.neighbours_pending_bytes as f64)));
        write(encoder, "group_neighbours_pending_bytes", pending, waits)?;
        let asked = groups().flat_map(|(group, labels)| {
            let results = [
                ("found", group.found),
                ("absent", group.absent),
                ("late", group.late),
                ("wrong", group.wrong),
            ];
            results.map(|(result, count)| {
                let labels = labels.iter().copied().chain([("result", result)]).collect();
                (labels, Value::Count(count))
            })
        });
        write(encoder, "group_asked", "Chunks that neighbours were asked for, and what came of it", asked)?;
        let found = groups().map(|(group, labels)| (labels, Value::Count(group.found_bytes)));
        write(encoder, "group_found_bytes", "Bytes of chunks that neighbours had", found)?;
        let given = groups().map(|(group, labels)| (labels, Value::Count(group.given_bytes)));
        write(encoder, "group_given_bytes", "Bytes of chunks that neighbours were given to keep", given)
    }

    fn flows(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows: BTreeMap<(&str, &'static str, &'static str), (u64, u64)> = BTreeMap::new();
        for row in &self.0.flows_not_coded {
            let key = (row.peer.as_deref().unwrap_or(""), row.outcome.name(), row.reason.name());
            let (count, bytes) = rows.entry(key).or_default();
            *count += row.count;
            *bytes += row.bytes;
        }
        let labels = |&(peer, outcome, reason): &(_, _, _)| {
            let labels: Vec<(&'static str, &str)> =
                vec![("peer", peer), ("outcome", outcome), ("reason", reason)];
            labels
        };
        let counts = rows.iter().map(|(key, (count, _))| (labels(key), Value::Count(*count)));
        write(encoder, "flows_not_coded", "Flows that were not coded", counts)?;
        let bytes = rows.iter().map(|(key, (_, bytes))| (labels(key), Value::Count(*bytes)));
        write(encoder, "flows_not_coded_bytes", "Bytes of flows that were not coded", bytes)
    }

    fn counts(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&PeerReport) -> u64,
    ) -> fmt::Result {
        let samples =
            self.0.peers.iter().map(|peer| (vec![("peer", peer.name.as_str())], Value::Count(value(peer))));
        write(encoder, name, help, samples)
    }

    fn levels(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&PeerReport) -> Option<f64>,
    ) -> fmt::Result {
        let sample = |peer| Some((vec![("peer", label(peer))], Value::Level(value(peer)?)));
        write(encoder, name, help, self.0.peers.iter().filter_map(sample))
    }

    fn both_ways(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&PeerReport) -> (Value, Value),
    ) -> fmt::Result {
        let samples = self.0.peers.iter().flat_map(|peer| {
            let (out, inbound) = value(peer);
            let labels = |direction| vec![("peer", label(peer)), ("direction", direction)];
            [(labels("out"), out), (labels("in"), inbound)]
        });
        write(encoder, name, help, samples)
    }

    fn counts_both_ways(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        count: impl Fn(&PeerReport) -> (u64, u64),
    ) -> fmt::Result {
        self.both_ways(encoder, name, help, |peer| {
            let (out, inbound) = count(peer);
            (Value::Count(out), Value::Count(inbound))
        })
    }

    fn levels_both_ways(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        level: impl Fn(&PeerReport) -> (u64, u64),
    ) -> fmt::Result {
        self.both_ways(encoder, name, help, |peer| {
            let (out, inbound) = level(peer);
            (Value::Level(out as f64), Value::Level(inbound as f64))
        })
    }
}

fn label(peer: &PeerReport) -> &str {
    &peer.name
}

/// Writes one metric with its samples; all are of the kind of the first, and none means no metric.
fn write<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = Sample<'a>>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    let Some((_, first)) = samples.peek() else { return Ok(()) };
    let kind = match first {
        Value::Count(_) => MetricType::Counter,
        Value::Level(_) => MetricType::Gauge,
    };
    let name = format!("oncewire_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, kind)?;
    for (labels, value) in samples {
        let sample = metric.encode_family(&labels)?;
        match value {
            Value::Count(count) => ConstCounter::new(count).encode(sample)?,
            Value::Level(level) => ConstGauge::new(level).encode(sample)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
