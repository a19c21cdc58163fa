//! The demonstration's report.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::args::{Args, QUEUE};
use super::corpus::{Corpus, Editions};
use super::stage::{LANE_CONGESTION, PathFacts};
use super::steps::Step;
use crate::table::percent_of;

/// The whole report; its JSON is documented and stable.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) link: LinkFacts,
    pub(crate) rows: Vec<Row>,
    /// Whether every byte arrived unchanged; a run without this proof fails instead.
    pub(crate) verified: bool,
    /// Compressed or encrypted content.
    pub(crate) opaque: Vec<Row>,
    /// Failed optional steps.
    pub(crate) failed: Vec<Failed>,
}

/// A failed optional step.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) step: Step,
    pub(crate) error: String,
}

impl Serialize for Failed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut failed = serializer.serialize_struct("Failed", 2)?;
        failed.serialize_field("step", self.step.key())?;
        failed.serialize_field("error", &self.error)?;
        failed.end()
    }
}

/// The emulated link.
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
    /// TCP payload on the link without oncewire, both ways.
    pub(crate) wire_direct: u64,
    /// TCP payload on the link between the gateways, both ways, TLS included.
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

/// Prints the setting.
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
    writeln!(out, "{count} {files}, {}: {}.", bytes(corpus.total()), corpus.origin)?;
    let releases = corpus.releases();
    if !releases.is_empty() {
        writeln!(
            out,
            "{} are releases of one package: what they share is a repeat the first time already.",
            releases.join(" and ")
        )?;
    }
    writeln!(out)
}

/// The table for people, with lines known one after the other: its columns are as wide as its headings.
pub(crate) struct Table {
    name_width: usize,
    /// Whether each file has a line of its own.
    per_file: bool,
}

impl Table {
    /// Makes the table for these files; a few files named by the user get lines of their own.
    pub(crate) fn new(files: &Editions, named: bool) -> Self {
        let per_file = named && (2..=FILES_SHOWN_EACH).contains(&files.original.len());
        let steps = Step::MAIN.into_iter().chain(Step::OPAQUE);
        let mut widths: Vec<usize> = steps.map(|step| step.to_string().chars().count()).collect();
        if per_file {
            let names = files.original.iter().map(|file| name_of(Step::Restart, &file.path));
            widths.extend(names.map(|name| name.chars().count()));
        }
        Self { name_width: widths.into_iter().max().unwrap_or(0), per_file }
    }

    /// Returns the line of headings.
    pub(crate) fn headings(&self) -> String {
        self.line(&HEADINGS.map(str::to_owned))
    }

    /// Returns the lines of one step.
    pub(crate) fn lines(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        let per_file = self.per_file && rows.len() > 1;
        if per_file {
            text.extend(rows.iter().map(|row| self.line(&cells(row, &name_of(row.step, &row.path)))));
        }
        if let Some(sum) = sum(rows) {
            let name = if per_file { name_of(sum.step, "all") } else { sum.step.to_string() };
            text.push_str(&self.line(&cells(&sum, &name)));
        }
        text
    }

    /// Returns the line of a failed step.
    pub(crate) fn failed(&self, step: Step, error: &str) -> String {
        format!("{:<width$}   not shown: {error}\n", step.to_string(), width = self.name_width)
    }

    fn line(&self, cells: &[String; HEADINGS.len()]) -> String {
        let [name, figures @ ..] = cells;
        let [_, headings @ ..] = HEADINGS;
        let mut line = format!("{name:<width$}", width = self.name_width);
        for (cell, heading) in figures.iter().zip(headings) {
            line.push_str(&format!("   {cell:>width$}", width = heading.chars().count()));
        }
        line.push('\n');
        line
    }
}

fn name_of(step: Step, path: &str) -> String {
    format!("{step}: {path}")
}

/// Prints the notes on the table.
pub(crate) fn print_notes(
    out: &mut impl Write,
    report: &Report,
    baseline: Option<&Result<f64, String>>,
    path: &PathFacts,
) -> io::Result<()> {
    if report.verified {
        writeln!(out, "\nEvery byte was compared, and all were equal.")?;
    }
    writeln!(
        out,
        "A restart costs the near gateway its logs, which are in memory here; its chunk store is on disk."
    )?;
    let shown = |step| report.opaque.iter().any(|row| row.step == step);
    if shown(Step::Packed) {
        writeln!(
            out,
            "A packed file (zip, gz, video) saves nothing the first time. When it comes again, it saves like any other."
        )?;
    }
    if shown(Step::Https) {
        writeln!(
            out,
            "HTTPS saves nothing at any time: the same file is other bytes on each connection. It is passed as it is."
        )?;
    }
    let first: Vec<Row> = report.rows.iter().filter(|row| row.step == Step::First).cloned().collect();
    match (baseline, sum(&first)) {
        (Some(Ok(seconds)), Some(first)) => writeln!(
            out,
            "The gateways use another congestion control on the link, {LANE_CONGESTION}. That alone, without oncewire, \
             makes the first time take {} instead of {}.",
            time(*seconds),
            time(first.seconds_direct)
        )?,
        (Some(Err(error)), _) => writeln!(
            out,
            "The time without oncewire but with {LANE_CONGESTION}, its congestion control, could not be measured: {error}"
        )?,
        _ => {}
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

/// Adds up the files of one step.
fn sum(rows: &[Row]) -> Option<Row> {
    let (first, others) = rows.split_first()?;
    let mut sum = Row { path: String::new(), ..first.clone() };
    others.iter().for_each(|row| sum.add(row));
    Some(sum)
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

/// Writes a number of bytes in decimal units.
pub(crate) fn bytes(count: u64) -> String {
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
    use std::sync::Arc;

    use clap::Parser;

    use super::super::corpus::File;
    use super::super::path::PathTraffic;
    use super::*;

    #[derive(Parser)]
    struct Demo {
        #[command(flatten)]
        args: Args,
    }

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
        Report { link, rows, verified: true, opaque: Vec::new(), failed: Vec::new() }
    }

    fn table(report: &Report, named: bool) -> String {
        let of_first = report.rows.iter().filter(|row| row.step == Step::First);
        let file = |row: &Row| File { path: row.path.clone(), bytes: Arc::from(&b""[..]) };
        let files = Editions { original: of_first.map(file).collect(), ..Editions::default() };
        let table = Table::new(&files, named);
        let mut text = table.headings();
        for rows in report.rows.chunk_by(|one, other| one.step == other.step) {
            text.push_str(&table.lines(rows));
        }
        text.push_str(&table.failed(Step::Https, "the connection broke"));
        text
    }

    fn notes(report: &Report, baseline: Option<Result<f64, String>>) -> String {
        let (direct, oncewire) = (PathTraffic::default(), PathTraffic::default());
        let facts = PathFacts { direct, oncewire, lost: 3, dropped: 4 };
        let mut out = Vec::new();
        print_notes(&mut out, report, baseline.as_ref(), &facts).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_the_documented_form() {
        let mut report = report(&["a.rs"]);
        report.rows.truncate(1);
        report.opaque.push(row(Step::Packed, "packed.zst", 1_000_000, 2.0));
        report.failed.push(Failed { step: Step::Https, error: String::from("broke") });
        let expected = r#"{"link":{"rate_bits_per_s":20000000,"rtt_ms":80,"loss":0.001},"rows":[{"step":"first","path":"a.rs","delivered":1000000,"wire_direct":1000100,"wire":250000,"savings":0.75,"seconds_direct":2.0,"seconds":0.8}],"verified":true,"opaque":[{"step":"packed","path":"packed.zst","delivered":1000000,"wire_direct":1000100,"wire":1000000,"savings":0.0,"seconds_direct":2.0,"seconds":2.0}],"failed":[{"step":"https","error":"broke"}]}"#;
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
over HTTPS        not shown: the connection broke
";
        assert_eq!(table(&report(&["a.rs"]), true), expected.trim_start_matches('\n'));
    }

    #[test]
    fn few_named_files_get_rows_of_their_own() {
        let two = report(&["a.rs", "b.rs"]);
        let few = table(&two, true);
        assert_eq!(few.lines().count(), 1 + 4 * 3 + 1);
        assert!(few.contains("first time: b.rs") && few.contains("again: all"), "{few}");
        assert_eq!(table(&two, false).lines().count(), 6);
        let many = table(&report(&["1", "2", "3", "4", "5", "6"]), true);
        assert_eq!(many.lines().count(), 6);
        assert!(many.contains("6.00 MB"), "{many}");
    }

    #[test]
    fn negative_savings_are_shown() {
        let mut report = report(&["random"]);
        report.rows[0].wire = 1_010_000;
        let shown = table(&report, true);
        assert!(shown.contains("-1.0 %"), "{shown}");
    }

    #[test]
    fn notes_explain_congestion_control_and_opaque_content() {
        let mut report = report(&["a.rs"]);
        let text = notes(&report, Some(Ok(1.25)));
        assert!(text.contains("bbr. That alone"), "{text}");
        assert!(text.contains("makes the first time take 1.25 s instead of 2.00 s"), "{text}");
        assert!(text.contains("lost 3 packets and dropped 4"), "{text}");
        assert!(!text.contains("HTTPS") && !text.contains("packed"), "{text}");
        report.opaque.extend([row(Step::Packed, "p", 9, 1.0), row(Step::Https, "h", 9, 1.0)]);
        let text = notes(&report, Some(Err(String::from("the connection broke"))));
        assert!(text.contains("could not be measured: the connection broke"), "{text}");
        assert!(text.contains("HTTPS saves nothing") && text.contains("packed file"), "{text}");
        assert!(text.contains("all were equal"), "{text}");
    }

    #[test]
    fn setting_names_releases_of_one_package() {
        let file = |path: &str| File { path: String::from(path), bytes: Arc::from(&b"x"[..]) };
        let files = vec![file("serde-1.0.1"), file("toml-1.0.0"), file("serde-1.0.2")];
        let corpus = Corpus { files, origin: String::from("sources"), named: false };
        let args = Demo::try_parse_from(["demo"]).unwrap().args;
        let mut out = Vec::new();
        print_setting(&mut out, &args, &corpus).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("serde-1.0.1 and serde-1.0.2 are releases of one package"), "{text}");
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
