//! The output of `measure`.

use std::fmt::Write as _;
use std::path::Path;

use oncewire_config::CodecSettings;
use oncewire_lab::measure::Report;
use serde::Serialize;

use super::Setup;
use super::content::Content;
use crate::table::{Align, Table, bytes, percent_of, unknown};

/// The object on standard output; its keys are a contract with scripts (docs/reference/json.md).
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
    /// Whether every byte came out unchanged; a run without this proof fails instead.
    verified: bool,
    chunk_store: bool,
    content: Content,
}

#[derive(Serialize)]
struct JsonFile<'a> {
    path: std::borrow::Cow<'a, str>,
    delivered: u64,
    wire: u64,
}

/// Writes the report as one line of JSON.
pub(super) fn json(setup: &Setup, report: &Report, content: Content) -> serde_json::Result<String> {
    let files = report.files.iter().map(|file| JsonFile {
        path: file.path.to_string_lossy(),
        delivered: file.delivered,
        wire: file.wire,
    });
    let json = Json {
        config: &setup.settings,
        files: files.collect(),
        delivered: report.delivered,
        wire: report.wire,
        savings: report.savings(),
        encode_gbps: report.encode_gbps(),
        decode_gbps: report.decode_gbps(),
        sender_memory: report.sender_memory,
        receiver_memory: report.receiver_memory,
        verified: true,
        chunk_store: setup.chunk_store,
        content,
    };
    Ok(serde_json::to_string(&json)? + "\n")
}

/// Writes the report for people.
pub(super) fn table(setup: &Setup, report: &Report, content: Content) -> String {
    let settings = &setup.settings;
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
         Codec {}, entropy stage {}, log of {}, {} chunk store.\n\
         Every byte was compared, and all were equal.",
        gbps(report.encode_gbps()),
        gbps(report.decode_gbps()),
        bytes(report.sender_memory),
        bytes(report.receiver_memory),
        settings.codec,
        settings.entropy,
        bytes(settings.log_memory),
        if setup.chunk_store { "with a" } else { "no" },
    );
    text.extend(met(content, report.delivered));
    text
}

/// Says how much was compressed or encrypted already, if anything was.
fn met(content: Content, delivered: u64) -> Option<String> {
    let Content { compressed, encrypted, either } = content;
    let part = |count: u64, what: &str| {
        let share = count as f64 / delivered.max(1) as f64;
        (count > 0).then(|| format!("{} ({}) {what}", bytes(count), percent_of(share, 0)))
    };
    let parts = [
        part(compressed, "compressed"),
        part(encrypted, "encrypted"),
        part(either, "one of the two, as dense as it is"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "Of {} these were packed already: {}. Such bytes save nothing the first time; again they save, unless they were \
             encrypted anew.\n",
            bytes(delivered),
            parts.join(", ")
        )
    })
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

    const PACKED: Content = Content { compressed: 1_000_000, encrypted: 0, either: 0 };

    fn setup() -> Setup {
        Setup { settings: CodecSettings::for_gateway(), chunk_store: false }
    }

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
            r#"{"config":{"codec":"auto","entropy":"zstd:3","markers":"maxp","matching":"max","period":64,"#,
            r#""window":32,"index_slots":2,"sample_bytes":[0,32,48,101,105,115,116,255],"chunk_sizes":"mrc:8:128","#,
            r#""log_memory":67108864,"max_in_flight":16777216,"hint_memory":67108864},"#,
            r#""files":[{"path":"a","delivered":1000000,"wire":250000},{"path":"b","delivered":1000000,"wire":1500}],"#,
            r#""delivered":2000000,"wire":251500,"savings":0.87425,"encode_gbps":1.0,"decode_gbps":4.0,"#,
            r#""sender_memory":3145728,"receiver_memory":2097152,"verified":true,"#,
            r#""chunk_store":false,"content":{"compressed":1000000,"encrypted":0,"either":0}}"#,
            "\n"
        );
        assert_eq!(json(&setup(), &report(), PACKED).unwrap(), expected);
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
Codec auto, entropy stage zstd:3, log of 64 MiB, no chunk store.
Every byte was compared, and all were equal.
";
        assert_eq!(table(&setup(), &report(), Content::default()), expected);
        let said = table(&setup(), &report(), PACKED);
        let sentence = "Of 1.9 MiB these were packed already: 976.6 KiB (50 %) compressed. Such bytes";
        assert!(said.contains(sentence), "{said}");
    }

    #[test]
    fn nothing_delivered_has_unknown_savings() {
        let report = Report {
            files: vec![FileReport { path: "empty".into(), delivered: 0, wire: 30 }],
            delivered: 0,
            wire: 30,
            ..report()
        };
        assert!(json(&setup(), &report, PACKED).unwrap().contains(r#""savings":null,"encode_gbps":null"#));
        assert!(!table(&setup(), &report, PACKED).contains("NaN"));
    }
}
