//! What `measure` prints.

use std::fmt::Write as _;
use std::path::Path;

use oncewire_gateway::config::CodecSettings;
use oncewire_lab::measure::Report;
use serde::Serialize;

use crate::table::{Align, Table, bytes, percent_of, unknown};

/// The object on standard output; its keys are a contract with scripts (docs/json.md).
#[derive(Serialize)]
struct Json<'a> {
    config: &'a CodecSettings,
    files: Vec<JsonFile<'a>>,
    delivered: u64,
    wire: u64,
    savings: Option<f64>,
    encode_gbps: Option<f64>,
    decode_gbps: Option<f64>,
    sender_memory: u64,
    receiver_memory: u64,
    /// Whether every byte came out as it went in; a run that cannot say so fails instead.
    verified: bool,
}

#[derive(Serialize)]
struct JsonFile<'a> {
    path: std::borrow::Cow<'a, str>,
    delivered: u64,
    wire: u64,
}

/// Writes the report as one line of JSON.
pub(super) fn json(settings: &CodecSettings, report: &Report) -> serde_json::Result<String> {
    let files = report.files.iter().map(|file| JsonFile {
        path: file.path.to_string_lossy(),
        delivered: file.delivered,
        wire: file.wire,
    });
    let json = Json {
        config: settings,
        files: files.collect(),
        delivered: report.delivered,
        wire: report.wire,
        savings: report.savings(),
        encode_gbps: report.encode_gbps(),
        decode_gbps: report.decode_gbps(),
        sender_memory: report.sender_memory,
        receiver_memory: report.receiver_memory,
        verified: true,
    };
    Ok(serde_json::to_string(&json)? + "\n")
}

/// Writes the report for people.
pub(super) fn table(settings: &CodecSettings, report: &Report) -> String {
    let mut table = Table::new(&[
        ("FILE", Align::Left),
        ("DELIVERED", Align::Right),
        ("WIRE", Align::Right),
        ("SAVINGS", Align::Right),
    ]);
    let mut row = |path: &Path, delivered, wire, savings| {
        table.row([path.display().to_string(), bytes(delivered), bytes(wire), percent(savings)]);
    };
    for file in &report.files {
        row(&file.path, file.delivered, file.wire, file.savings());
    }
    if report.files.len() > 1 {
        row(Path::new("all"), report.delivered, report.wire, report.savings());
    }
    let mut text = table.render();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\nSpeed of one core: encoding {}, decoding {} of delivered bytes.\n\
         Memory: sending half {}, receiving half {}.\n\
         Codec {}, entropy stage {}, log of {}.\n\
         Every byte was compared, and all were equal.",
        gbps(report.encode_gbps()),
        gbps(report.decode_gbps()),
        bytes(report.sender_memory),
        bytes(report.receiver_memory),
        settings.codec,
        settings.entropy,
        bytes(settings.log_memory),
    );
    text
}

/// Writes a share with two digits: repeats differ in the second.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| percent_of(share, 2))
}

fn gbps(speed: Option<f64>) -> String {
    speed.map_or_else(unknown, |speed| format!("{speed:.2} Gbit/s"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncewire_lab::measure::FileReport;

    use super::*;

    fn report() -> Report {
        let file = |path: &str, wire| FileReport { path: path.into(), delivered: 1_000_000, wire };
        Report {
            files: vec![file("a", 250_000), file("b", 1_500)],
            delivered: 2_000_000,
            wire: 251_500,
            encoding: Duration::from_millis(16),
            decoding: Duration::from_millis(4),
            sender_memory: 3 << 20,
            receiver_memory: 2 << 20,
        }
    }

    #[test]
    fn json_has_the_documented_form() {
        let expected = concat!(
            r#"{"config":{"codec":"endre","entropy":"zstd:1","markers":"maxp","matching":"max","period":64,"#,
            r#""window":32,"index_slots":2,"sample_bytes":[0,32,48,101,105,115,116,255],"chunk_sizes":"mrc:8:128","#,
            r#""log_memory":268435456,"max_in_flight":67108864,"hint_memory":67108864},"#,
            r#""files":[{"path":"a","delivered":1000000,"wire":250000},{"path":"b","delivered":1000000,"wire":1500}],"#,
            r#""delivered":2000000,"wire":251500,"savings":0.87425,"encode_gbps":1.0,"decode_gbps":4.0,"#,
            r#""sender_memory":3145728,"receiver_memory":2097152,"verified":true}"#,
            "\n"
        );
        assert_eq!(json(&CodecSettings::for_measure(), &report()).unwrap(), expected);
    }

    #[test]
    fn people_get_a_row_a_file_and_a_sum() {
        let expected = "\
FILE  DELIVERED       WIRE  SAVINGS
a     976.6 KiB  244.1 KiB  75.00 %
b     976.6 KiB    1.5 KiB  99.85 %
all     1.9 MiB  245.6 KiB  87.42 %

Speed of one core: encoding 1.00 Gbit/s, decoding 4.00 Gbit/s of delivered bytes.
Memory: sending half 3 MiB, receiving half 2 MiB.
Codec endre, entropy stage zstd:1, log of 256 MiB.
Every byte was compared, and all were equal.
";
        assert_eq!(table(&CodecSettings::for_measure(), &report()), expected);
    }

    #[test]
    fn nothing_delivered_saves_nothing_that_is_known() {
        let report = Report {
            files: vec![FileReport { path: "empty".into(), delivered: 0, wire: 30 }],
            delivered: 0,
            wire: 30,
            ..report()
        };
        let settings = CodecSettings::for_measure();
        assert!(json(&settings, &report).unwrap().contains(r#""savings":null,"encode_gbps":null"#));
        assert!(!table(&settings, &report).contains("NaN"));
    }
}
