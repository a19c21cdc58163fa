//! What the demonstration reports.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::args::{Args, QUEUE};
use super::corpus::Corpus;
use super::stage::{LANE_CONGESTION, PathFacts};
use super::steps::Step;
use crate::table::percent_of;

/// The whole report; its JSON is documented and stable.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) link: LinkFacts,
    pub(crate) rows: Vec<Row>,
    /// Whether every byte arrived as it was sent; a run that cannot say so fails instead.
    pub(crate) verified: bool,
}

/// The link that was emulated.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LinkFacts {
    rate_bits_per_s: u64,
    rtt_ms: u64,
    /// Share of packets, each way.
    loss: f64,
}

/// One file in one step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) step: Step,
    pub(crate) path: String,
    /// Bytes of the file.
    pub(crate) delivered: u64,
    /// TCP payload that crossed the link without oncewire, both ways.
    pub(crate) wire_direct: u64,
    /// TCP payload that crossed the link between the gateways, both ways, TLS included.
    pub(crate) wire: u64,
    pub(crate) seconds_direct: f64,
    pub(crate) seconds: f64,
}

impl LinkFacts {
    pub(crate) fn of(args: &Args) -> Self {
        let rtt_ms = u64::try_from(args.rtt.0.as_millis()).unwrap_or(u64::MAX);
        Self { rate_bits_per_s: args.rate.0, rtt_ms, loss: args.loss }
    }
}

impl Row {
    /// Returns 1 − wire / delivered.
    fn savings(&self) -> f64 {
        1.0 - self.wire as f64 / self.delivered.max(1) as f64
    }

    fn speed_up(&self) -> f64 {
        self.seconds_direct / self.seconds.max(1e-6)
    }

    /// Adds another row's figures to this one's.
    fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.wire_direct += other.wire_direct;
        self.wire += other.wire;
        self.seconds_direct += other.seconds_direct;
        self.seconds += other.seconds;
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 8)?;
        row.serialize_field("step", self.step.key())?;
        row.serialize_field("path", &self.path)?;
        row.serialize_field("delivered", &self.delivered)?;
        row.serialize_field("wire_direct", &self.wire_direct)?;
        row.serialize_field("wire", &self.wire)?;
        row.serialize_field("savings", &self.savings())?;
        row.serialize_field("seconds_direct", &self.seconds_direct)?;
        row.serialize_field("seconds", &self.seconds)?;
        row.end()
    }
}

/// Prints what is about to be shown.
pub(crate) fn print_setting(out: &mut impl Write, args: &Args, corpus: &Corpus) -> io::Result<()> {
    writeln!(
        out,
        "Emulated link: {} each way, {} ms round trip, {} % loss each way, {} ms queue (seed {}).",
        args.rate,
        args.rtt.0.as_millis(),
        trimmed(args.loss * 100.0),
        QUEUE.as_millis(),
        args.seed,
    )?;
    writeln!(
        out,
        "Congestion control on it: {} without oncewire, {LANE_CONGESTION} between the gateways.",
        args.congestion
    )?;
    let count = corpus.files.len();
    let files = if count == 1 { "file" } else { "files" };
    writeln!(out, "{count} {files}, {}: {}.\n", bytes(corpus.total()), corpus.origin)
}

/// Prints a row per step, and one per file if there are few.
pub(crate) fn print_table(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let sums = sums(&report.rows);
    let files = report.rows.len() / sums.len().max(1);
    let per_file = (2..=FILES_SHOWN_EACH).contains(&files);
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    for sum in &sums {
        if per_file {
            let of_step = report.rows.iter().filter(|row| row.step == sum.step);
            lines.extend(of_step.map(|row| cells(row, &format!("{}: {}", row.step, row.path))));
        }
        let name = if per_file { format!("{}: all", sum.step) } else { sum.step.to_string() };
        lines.push(cells(sum, &name));
    }
    let mut widths = [0; HEADINGS.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for line in &lines {
        let [name, figures @ ..] = line;
        let [name_width, figure_widths @ ..] = widths;
        write!(out, "{name:<name_width$}")?;
        for (cell, width) in figures.iter().zip(figure_widths) {
            write!(out, "   {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints what the table does not say by itself.
pub(crate) fn print_notes(
    out: &mut impl Write,
    report: &Report,
    baseline_seconds: Option<f64>,
    path: &PathFacts,
) -> io::Result<()> {
    if report.verified {
        writeln!(out, "\nEvery byte was compared, and all were equal.")?;
    }
    writeln!(
        out,
        "A restart costs the near gateway its logs, which are in memory here; what it knows then is its chunk store."
    )?;
    if let (Some(seconds), Some(first)) = (baseline_seconds, sums(&report.rows).first()) {
        writeln!(
            out,
            "Congestion control alone: without oncewire but with {LANE_CONGESTION}, the first time takes {} \
             instead of {}.",
            time(seconds),
            time(first.seconds_direct)
        )?;
    }
    writeln!(
        out,
        "Bytes are TCP payload both ways, TLS included. With headers, acknowledgements and repetitions the link \
         carried {} without and {} with oncewire; it lost {} packets and dropped {} at full queues.",
        bytes(path.direct.packets_bytes()),
        bytes(path.oncewire.packets_bytes()),
        path.lost,
        path.dropped,
    )
}

/// Adds up the files of each step.
fn sums(rows: &[Row]) -> Vec<Row> {
    let mut sums: Vec<Row> = Vec::new();
    for row in rows {
        match sums.iter_mut().find(|sum| sum.step == row.step) {
            Some(sum) => sum.add(row),
            None => sums.push(Row { path: String::new(), ..row.clone() }),
        }
    }
    sums
}

fn cells(row: &Row, name: &str) -> [String; HEADINGS.len()] {
    [
        name.to_owned(),
        bytes(row.delivered),
        bytes(row.wire_direct),
        bytes(row.wire),
        percent_of(row.savings(), 1),
        time(row.seconds_direct),
        time(row.seconds),
        format!("{:.1} ×", row.speed_up()),
    ]
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

fn time(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// Writes a number without needless digits: 0.1, not 0.1000 or 0.10000000000000001.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const HEADINGS: [&str; 8] =
    ["", "delivered", "direct wire", "oncewire wire", "savings", "direct time", "oncewire time", "speed-up"];
/// Up to so many files each get a row of their own.
const FILES_SHOWN_EACH: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::path::PathTraffic;
    use super::*;

    fn row(step: Step, path: &str, wire: u64, seconds: f64) -> Row {
        Row {
            step,
            path: path.to_owned(),
            delivered: 1_000_000,
            wire_direct: 1_000_100,
            wire,
            seconds_direct: 2.0,
            seconds,
        }
    }

    fn report(files: &[&str]) -> Report {
        let mut rows = Vec::new();
        for (step, wire, seconds) in [
            (Step::First, 250_000, 0.8),
            (Step::Again, 2_000, 0.25),
            (Step::Edit, 9_000, 0.25),
            (Step::Restart, 12_000, 0.5),
        ] {
            rows.extend(files.iter().map(|path| row(step, path, wire, seconds)));
        }
        let link = LinkFacts { rate_bits_per_s: 20_000_000, rtt_ms: 80, loss: 0.001 };
        Report { link, rows, verified: true }
    }

    fn table(report: &Report) -> String {
        let mut out = Vec::new();
        print_table(&mut out, report).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_the_documented_form() {
        let mut report = report(&["a.rs"]);
        report.rows.truncate(1);
        let expected = r#"{"link":{"rate_bits_per_s":20000000,"rtt_ms":80,"loss":0.001},"rows":[{"step":"first","path":"a.rs","delivered":1000000,"wire_direct":1000100,"wire":250000,"savings":0.75,"seconds_direct":2.0,"seconds":0.8}],"verified":true}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), expected);
    }

    #[test]
    fn the_table_shows_each_step() {
        let expected = "
                  delivered   direct wire   oncewire wire   savings   direct time   oncewire time   speed-up
first time          1.00 MB       1.00 MB        250.0 kB    75.0 %        2.00 s          0.80 s      2.5 ×
again               1.00 MB       1.00 MB          2.0 kB    99.8 %        2.00 s          0.25 s      8.0 ×
after an edit       1.00 MB       1.00 MB          9.0 kB    99.1 %        2.00 s          0.25 s      8.0 ×
after a restart     1.00 MB       1.00 MB         12.0 kB    98.8 %        2.00 s          0.50 s      4.0 ×
";
        assert_eq!(table(&report(&["a.rs"])), expected.trim_start_matches('\n'));
    }

    #[test]
    fn few_files_get_rows_of_their_own_and_many_only_sums() {
        let few = table(&report(&["a.rs", "b.rs"]));
        assert_eq!(few.lines().count(), 1 + 4 * 3);
        assert!(few.contains("first time: b.rs") && few.contains("again: all"), "{few}");
        let many = table(&report(&["1", "2", "3", "4", "5", "6"]));
        assert_eq!(many.lines().count(), 5);
        assert!(many.contains("6.00 MB"), "{many}");
    }

    #[test]
    fn bytes_that_cost_more_than_they_save_are_shown_as_that() {
        let mut report = report(&["random"]);
        report.rows[0].wire = 1_010_000;
        assert!(table(&report).contains("-1.0 %"), "{}", table(&report));
    }

    #[test]
    fn what_congestion_control_alone_does_is_a_line_of_its_own() {
        let facts = PathFacts {
            direct: PathTraffic::default(),
            oncewire: PathTraffic::default(),
            lost: 3,
            dropped: 4,
        };
        let mut out = Vec::new();
        print_notes(&mut out, &report(&["a.rs"]), Some(1.25), &facts).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("with bbr, the first time takes 1.25 s instead of 2.00 s"), "{text}");
        assert!(text.contains("lost 3 packets and dropped 4"), "{text}");
    }

    #[test]
    fn numbers_are_shown_without_needless_digits() {
        assert_eq!(trimmed(0.1), "0.1");
        assert_eq!(trimmed(0.0), "0");
        assert_eq!(trimmed(1.25), "1.25");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
    }
}
