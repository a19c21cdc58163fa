//! `oncewire status --destinations`: savings by destination.

use std::fmt::Write as _;

use oncewire_report::{DestinationFigures, DestinationsReport};

use crate::table::{Align, Table, bytes, percent, unknown};

/// Writes the table.
pub(super) fn render(report: &DestinationsReport) -> String {
    let mut table = Table::new(&[
        ("DESTINATION", Align::Left),
        ("PEER", Align::Left),
        ("FLOWS", Align::Right),
        ("DELIVERED", Align::Right),
        ("WIRE", Align::Right),
        ("SAVINGS", Align::Right),
        ("NOT CODED", Align::Left),
    ]);
    let mut row = |destination: &str, peer: &str, figures: &DestinationFigures| {
        table.row([
            destination.to_owned(),
            peer.to_owned(),
            figures.flows.to_string(),
            bytes(figures.delivered),
            bytes(figures.wire),
            percent(figures.savings),
            not_coded(figures),
        ]);
    };
    let (shown, left) = report.rows.split_at(report.rows.len().min(MOST_ROWS));
    shown.iter().for_each(|found| row(&found.destination, &found.peer, &found.figures));
    if report.other.flows > 0 {
        row("(others)", &unknown(), &report.other);
    }
    if table.is_empty() {
        return "no flow has gone to a peer\n".to_owned();
    }
    let mut text = table.render();
    if !left.is_empty() {
        let _ = writeln!(text, "and {} more rows, with --json", left.len());
    }
    text
}

/// Returns the uncoded share, and the reason.
fn not_coded(figures: &DestinationFigures) -> String {
    let share = figures.uncoded as f64 / figures.delivered.max(1) as f64;
    match figures.reason {
        None => unknown(),
        Some(reason) => format!("{} {reason}", percent(Some(share))),
    }
}

/// More than this nobody reads; `--json` has them all.
const MOST_ROWS: usize = 100;

#[cfg(test)]
mod tests {
    use oncewire_report::{DestinationTable, FlowFigures, Reason};

    use super::*;

    fn flow(destination: &str, delivered: u64, wire: u64, reason: Option<Reason>) -> FlowFigures {
        let (peer, destination) = ("hub".to_owned(), destination.to_owned());
        FlowFigures { peer, destination, delivered: [0, delivered], wire: [0, wire], reason }
    }

    #[test]
    fn table_shows_wire_bytes_by_destination() {
        let table = DestinationTable::default();
        assert_eq!(render(&table.report(|_| ())), "no flow has gone to a peer\n");
        table.add(flow("10.0.0.5:443", 1 << 30, (1 << 30) + (20 << 20), Some(Reason::Tls)));
        table.add(flow("mirror.example:80", 1 << 20, 1 << 10, None));
        table.add(flow("mirror.example:80", 1 << 20, 1 << 10, None));
        let expected = "\
DESTINATION        PEER  FLOWS  DELIVERED     WIRE  SAVINGS  NOT CODED
10.0.0.5:443       hub       1      1 GiB  1.0 GiB   -2.0 %  100.0 % tls
mirror.example:80  hub       2      2 MiB    2 KiB   99.9 %  -
";
        assert_eq!(render(&table.report(|_| ())), expected);
        for port in 0..2000 {
            table.add(flow(&format!("10.1.0.1:{port}"), 100, 150, None));
        }
        let text = render(&table.report(|_| ()));
        assert!(text.ends_with("and 900 more rows, with --json\n"), "{text}");
        assert!(text.contains("\n(others)           -      1002 "), "{text}");
    }
}
