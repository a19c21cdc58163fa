//! Traffic by destination, plain and on the wire.
//!
//! A bounded table of the destinations with the most bytes.

mod heaviest;

use std::collections::BTreeMap;
use std::ops::AddAssign;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::heaviest::Heaviest;
use super::not_coded::Reason;
use super::status::savings;

/// Traffic of flows on links, by destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DestinationsReport {
    /// The destinations with the most delivered bytes, at most [`DestinationTable::MOST`]; sorted by wire
    /// bytes.
    pub rows: Vec<DestinationReport>,
    /// Everything outside the rows.
    pub other: DestinationFigures,
}

/// Traffic of the flows to one destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DestinationReport {
    /// Destination with its port, as named by applications.
    pub destination: String,
    /// The link's peer.
    pub peer: String,
    /// Traffic since the destination has a row.
    #[serde(flatten)]
    pub figures: DestinationFigures,
    /// Upper bound of earlier delivered bytes, part of [`DestinationsReport::other`].
    pub missed_at_most: u64,
}

/// Figures of several flows. Bytes unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DestinationFigures {
    /// Flows, including open ones.
    pub flows: u64,
    /// Open flows.
    pub flows_open: u64,
    /// Bytes between applications, both ways.
    pub delivered: u64,
    /// Of those, bytes from our applications.
    pub delivered_out: u64,
    /// Of those, bytes to our applications.
    pub delivered_in: u64,
    /// Frames of the flows, both ways, without TLS and without frames outside flows.
    pub wire: u64,
    /// Of those, sent ones.
    pub wire_out: u64,
    /// Of those, received ones.
    pub wire_in: u64,
    /// 1 − wire/delivered; unknown before anything was delivered.
    pub savings: Option<f64>,
    /// Delivered bytes of uncoded flows.
    pub uncoded: u64,
    /// Reason for an uncoded one among these flows, of several the last; null if all are coded.
    pub reason: Option<Reason>,
}

impl DestinationFigures {
    fn summed(mut self) -> Self {
        self.delivered = self.delivered_out.saturating_add(self.delivered_in);
        self.wire = self.wire_out.saturating_add(self.wire_in);
        self.savings = savings(self.wire, self.delivered);
        self
    }
}

impl AddAssign<&Self> for DestinationFigures {
    /// Adds the figures by direction; `summed` fills in sums and savings.
    fn add_assign(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.flows, other.flows),
            (&mut self.flows_open, other.flows_open),
            (&mut self.delivered_out, other.delivered_out),
            (&mut self.delivered_in, other.delivered_in),
            (&mut self.wire_out, other.wire_out),
            (&mut self.wire_in, other.wire_in),
            (&mut self.uncoded, other.uncoded),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.reason = other.reason.or(self.reason);
    }
}

/// Traffic of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowFigures {
    /// Its link's peer.
    pub peer: String,
    /// Its destination.
    pub destination: String,
    /// Bytes from our application, and bytes to it.
    pub delivered: [u64; 2],
    /// Bytes of its frames, sent and received.
    pub wire: [u64; 2],
    /// Why it is not coded; none if it is.
    pub reason: Option<Reason>,
}

/// The table of destinations.
///
/// It has at most [`DestinationTable::MOST`] rows, since applications choose destinations;
/// [`DestinationsReport`] describes the rest. A flow is added when it ends, and to a copy while it is open.
#[derive(Debug)]
pub struct DestinationTable {
    ended: Mutex<Ended>,
    /// Held by one report at a time.
    reporting: Mutex<()>,
}

#[derive(Debug)]
struct Ended {
    table: Table,
    /// Flows ended since the begin of a report in progress.
    since: Option<Vec<FlowFigures>>,
}

/// Open flows in a report, one peer after the other.
///
/// Each flow is either in the list or counted as ended by then: never both, nor neither, however many end
/// meanwhile.
#[derive(Debug)]
pub struct OpenFlows<'a> {
    table: &'a DestinationTable,
    flows: Vec<FlowFigures>,
    /// Number of flows ended since the begin of the report, at the time of a peer's list.
    ended: BTreeMap<String, usize>,
}

impl OpenFlows<'_> {
    /// Marks the begin of a peer's list: during it, none of the peer's flows can end, nor be added to the
    /// table.
    pub fn begin(&mut self, peer: &str) {
        let ended = self.table.ended.lock().since.as_ref().map_or(0, Vec::len);
        self.ended.insert(peer.to_owned(), ended);
    }

    /// Adds flows to that list.
    pub fn extend(&mut self, flows: impl IntoIterator<Item = FlowFigures>) {
        self.flows.extend(flows);
    }
}

impl Drop for OpenFlows<'_> {
    fn drop(&mut self) {
        self.table.ended.lock().since = None;
    }
}

type Table = Heaviest<(String, String), DestinationFigures>;

impl Default for DestinationTable {
    fn default() -> Self {
        let ended = Ended { table: Heaviest::new(Self::MOST), since: None };
        Self { ended: Mutex::new(ended), reporting: Mutex::new(()) }
    }
}

impl DestinationTable {
    /// The most destinations.
    pub const MOST: usize = 1000;

    /// Adds an ended flow.
    pub fn add(&self, flow: FlowFigures) {
        let mut ended = self.ended.lock();
        if let Some(since) = &mut ended.since {
            since.push(flow.clone());
        }
        add(&mut ended.table, flow, 0);
    }

    /// Returns the table, including the open flows' traffic so far: `list` lists them, peer by peer.
    pub fn report(&self, list: impl FnOnce(&mut OpenFlows<'_>)) -> DestinationsReport {
        let table = self.with_open(list);
        let row = |((peer, destination), row): (&(String, String), &heaviest::Row<DestinationFigures>)| {
            DestinationReport {
                destination: destination.clone(),
                peer: peer.clone(),
                figures: row.sum.clone().summed(),
                missed_at_most: row.missed_at_most,
            }
        };
        let mut rows: Vec<_> = table.rows().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.figures.wire, row.figures.delivered)));
        DestinationsReport { rows, other: table.others().clone().summed() }
    }

    /// Returns a copy of the table with every flow once: in its final state, or as listed.
    fn with_open(&self, list: impl FnOnce(&mut OpenFlows<'_>)) -> Table {
        let _alone = self.reporting.lock();
        let mut table = {
            let mut ended = self.ended.lock();
            ended.since = Some(Vec::new());
            ended.table.clone()
        };
        let mut open = OpenFlows { table: self, flows: Vec::new(), ended: BTreeMap::new() };
        list(&mut open);
        let since = self.ended.lock().since.take().unwrap_or_default();
        for (place, flow) in since.into_iter().enumerate() {
            // Flows ended later are in the list, or began after it.
            if open.ended.get(&flow.peer).is_none_or(|listed| place < *listed) {
                add(&mut table, flow, 0);
            }
        }
        std::mem::take(&mut open.flows).into_iter().for_each(|flow| add(&mut table, flow, 1));
        table
    }
}

fn add(table: &mut Table, flow: FlowFigures, open: u64) {
    let FlowFigures { peer, destination, delivered, wire, reason } = flow;
    let [delivered_out, delivered_in] = delivered;
    let weight = delivered_out.saturating_add(delivered_in);
    let figures = DestinationFigures {
        flows: 1,
        flows_open: open,
        delivered_out,
        delivered_in,
        wire_out: wire[0],
        wire_in: wire[1],
        uncoded: if reason.is_some() { weight } else { 0 },
        reason,
        ..DestinationFigures::default()
    };
    table.add((peer, destination), weight, &figures);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(destination: &str, delivered: [u64; 2], wire: [u64; 2]) -> FlowFigures {
        let (peer, destination) = ("hub".to_owned(), destination.to_owned());
        FlowFigures { peer, destination, delivered, wire, reason: None }
    }

    #[test]
    fn ended_and_open_flows_share_a_sorted_row() {
        let table = DestinationTable::default();
        table.add(flow("a:80", [100, 900], [10, 90]));
        table.add(FlowFigures { reason: Some(Reason::Tls), ..flow("b:443", [50, 350], [52, 356]) });
        let report = table.report(|open| open.extend([flow("a:80", [0, 1000], [0, 20])]));
        let [b, a] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!((a.destination.as_str(), a.figures.flows, a.figures.flows_open), ("a:80", 2, 1));
        assert_eq!((a.figures.delivered, a.figures.wire, a.figures.savings), (2000, 120, Some(0.94)));
        assert_eq!((a.figures.uncoded, a.figures.reason), (0, None));
        assert_eq!((b.figures.delivered, b.figures.wire, b.figures.savings), (400, 408, Some(-0.02)));
        assert_eq!((b.figures.uncoded, b.figures.reason), (400, Some(Reason::Tls)));
        assert_eq!(report.other, DestinationFigures::default());
        // An open flow is in the copy only.
        assert_eq!(table.report(|_| ()).rows[1].figures.delivered, 1000);
    }

    #[test]
    fn scan_of_the_world_leaves_heavy_rows_and_exact_sums() {
        let table = DestinationTable::default();
        let mut sums = [0; 3];
        for port in 0..5000 {
            table.add(flow(&format!("scan:{port}"), [10, 20], [30, 40]));
            table.add(flow("busy:80", [1000, 0], [7, 1]));
            for (sum, more) in sums.iter_mut().zip([2, 1030, 78]) {
                *sum += more;
            }
        }
        let report = table.report(|_| ());
        assert_eq!(report.rows.len(), DestinationTable::MOST);
        let all = report.rows.iter().map(|row| &row.figures).chain([&report.other]);
        let all = all.fold([0; 3], |[flows, delivered, wire], figures| {
            [flows + figures.flows, delivered + figures.delivered, wire + figures.wire]
        });
        assert_eq!(all, sums);
        let busy = report.rows.iter().find(|row| row.destination == "busy:80").unwrap();
        assert_eq!((busy.figures.flows, busy.figures.wire, busy.missed_at_most), (5000, 40_000, 0));
        assert!(report.rows.iter().all(|row| row.missed_at_most <= sums[1] / 1000));
    }

    #[test]
    fn flow_ending_during_the_list_counts_once() {
        let table = DestinationTable::default();
        let of = |peer: &str, destination| FlowFigures {
            peer: peer.to_owned(),
            ..flow(destination, [1, 2], [3, 4])
        };
        let report = table.report(|open| {
            table.add(of("hub", "ended before:80"));
            open.begin("hub");
            table.add(of("hub", "listed:80"));
            table.add(of("hub", "began later:80"));
            open.extend([of("hub", "listed:80")]);
            table.add(of("not listed", "ended:80"));
            table.add(of("other", "ended before:80"));
            open.begin("other");
        });
        let known = |report: &DestinationsReport| {
            let row = |row: &DestinationReport| {
                assert_eq!((row.figures.flows, row.figures.delivered), (1, 3));
                (row.destination.clone(), row.figures.flows_open)
            };
            let mut rows = Vec::from_iter(report.rows.iter().map(row));
            rows.sort();
            rows
        };
        let row = |destination: &str, open| (destination.to_owned(), open);
        let rows = ["ended before:80", "ended before:80", "ended:80", "listed:80"];
        let open = [0, 0, 0, 1];
        assert_eq!(known(&report), Vec::from_iter(rows.iter().zip(open).map(|(name, open)| row(name, open))));
        assert_eq!(known(&table.report(|_| ())).len(), 5);
    }

    #[test]
    fn sums_stay_exact_under_constant_flow_ends() {
        const FLOWS: usize = 20_000;
        let table = DestinationTable::default();
        let destination = |number: usize| format!("a:{}", number % 7);
        let open = Mutex::new(Vec::from_iter((0..FLOWS).map(|n| flow(&destination(n), [1, 2], [3, 4]))));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let mut open = open.lock();
                    let Some(flow) = open.pop() else { return };
                    table.add(flow);
                }
            });
            loop {
                let report = table.report(|listed| {
                    let flows = {
                        let open = open.lock();
                        listed.begin("hub");
                        open.clone()
                    };
                    listed.extend(flows);
                });
                let flows = report.rows.iter().map(|row| row.figures.flows).sum::<u64>();
                let delivered = report.rows.iter().map(|row| row.figures.delivered).sum::<u64>();
                assert_eq!((flows, delivered), (FLOWS as u64, 3 * FLOWS as u64));
                if report.rows.iter().all(|row| row.figures.flows_open == 0) {
                    break;
                }
            }
        });
    }

    #[test]
    fn rows_are_flat_in_json_and_read_again() {
        let table = DestinationTable::default();
        table.add(flow("a:80", [100, 900], [10, 90]));
        let report = table.report(|_| ());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["wire"], 100);
        assert_eq!(json["rows"][0]["reason"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<DestinationsReport>(json).unwrap(), report);
    }
}
