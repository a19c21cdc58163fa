//! The promises of a measurement, for any treatment by the codec.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that writes files")]

use std::io::{self, Read};
use std::path::Path;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::wire::{FlowId, MAX_BLOCK};
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::measure::{MeasureError, Measurement, Report, size};
use oncewire_lab::pair::{Pair, PairConfig};

fn measured(config: PairConfig, files: &[&[u8]]) -> Report {
    let mut measurement = Measurement::new(config);
    for (number, data) in files.iter().enumerate() {
        let mut progress = 0;
        measurement.send(Path::new(&number.to_string()), *data, |bytes| progress += bytes).unwrap();
        assert_eq!(progress, data.len() as u64);
    }
    measurement.finish()
}

#[test]
fn text_sent_twice_saves_nearly_all_of_itself() {
    let text = Corpus::new(1).text(2_000_000);
    let report = measured(PairConfig::default(), &[&text, &text]);
    assert_eq!(report.delivered, 4_000_000);
    let saved = report.files[1].savings().unwrap();
    assert!(saved >= 0.995, "{saved}");
    assert!(report.files[0].savings().unwrap() > 0.5, "{report:?}");
    assert_eq!(report.wire, report.files.iter().map(|file| file.wire).sum::<u64>());
    assert!(report.encode_gbps().unwrap() > 0.0 && report.decode_gbps().unwrap() > 0.0);
}

/// With names, content decides the ends of blocks, and looking for them is a part of encoding.
#[test]
fn choice_of_block_ends_is_timed() {
    let plan = Plan { layers: Layers::Both, ..Plan::default() };
    let mut pair =
        Pair::new(PairConfig { plan: Some(plan), store: Some(Shape::default()), ..PairConfig::default() });
    let before = pair.totals().encoding;
    assert!(pair.cut(FlowId(0), &Corpus::new(9).text(MAX_BLOCK + 1), false).len > 0);
    assert!(pair.totals().encoding > before);
}

#[test]
fn random_bytes_cost_little_and_save_when_they_come_again() {
    let random = Corpus::new(2).random(3_000_000);
    let report = measured(PairConfig::default(), &[&random, &random]);
    let (first, again) = (report.files[0].savings().unwrap(), report.files[1].savings().unwrap());
    assert!((-0.001..=0.0).contains(&first), "{first}");
    assert!(again >= 0.995, "{again}");
}

#[test]
fn an_edited_copy_costs_little_more_than_its_edits() {
    let mut corpus = Corpus::new(8);
    let records = corpus.records(2_000_000);
    let edited = corpus.edited(&records, 100);
    let report = measured(PairConfig::default(), &[&records, &edited]);
    // An edit takes 16 new bytes on average, and a token.
    assert!(report.files[1].wire < 100 * 40, "{report:?}");
}

#[test]
fn lengths_around_a_block_arrive_whole() {
    let text = Corpus::new(3).text(3 * MAX_BLOCK);
    for len in [0, 1, MAX_BLOCK - 1, MAX_BLOCK, MAX_BLOCK + 1, 2 * MAX_BLOCK, 3 * MAX_BLOCK] {
        let report = measured(PairConfig::default(), &[&text[..len]]);
        assert_eq!((report.delivered, report.files[0].delivered), (len as u64, len as u64));
        assert!(report.wire > 0, "even the end of nothing is a frame");
        assert_eq!(report.savings().is_none(), len == 0);
    }
}

#[test]
fn without_a_codec_bytes_cross_as_they_are() {
    let text = Corpus::new(4).text(1_000_000);
    let report = measured(PairConfig { plan: None, ..PairConfig::default() }, &[&text, &text]);
    assert!(report.files.iter().all(|file| (1_000_000..1_001_000).contains(&file.wire)), "{report:?}");
}

/// The model has no delay, so waiting for acknowledgements must not keep blocks from being remembered.
#[test]
fn the_bound_on_bytes_in_flight_forgets_nothing() {
    let random = Corpus::new(5).random(500_000);
    let config = PairConfig {
        plan: Some(Plan { entropy: Entropy::None, ..Plan::default() }),
        log_memory: 2 << 20,
        max_in_flight: MAX_BLOCK as u64,
        ..PairConfig::default()
    };
    let report = measured(config, &[&random, &random]);
    assert!(report.files[1].savings().unwrap() > 0.995, "{report:?}");
}

#[test]
fn memory_counts_the_log_and_its_tables() {
    let random = Corpus::new(6).random(3_000_000);
    let config = PairConfig { log_memory: 1 << 20, max_in_flight: 1 << 18, ..PairConfig::default() };
    let report = measured(config, &[&random]);
    let (sender, receiver) = (report.sender_memory, report.receiver_memory);
    assert!((1 << 20..8 << 20).contains(&sender), "{sender}");
    assert!((1 << 20..5 << 20).contains(&receiver), "{receiver}");
}

#[test]
fn unreadable_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let mut measurement = Measurement::new(PairConfig::default());
    let error = measurement.send_file(&missing, |_| ()).unwrap_err();
    assert!(matches!(&error, MeasureError::Read { path, .. } if *path == missing), "{error:?}");
    assert!(error.to_string().contains("missing"));
    let error = measurement.send_file(dir.path(), |_| ()).unwrap_err();
    assert!(matches!(error, MeasureError::Directory { .. }), "{error:?}");
    assert!(error.to_string().contains("tar -cf"));
}

#[test]
fn file_failing_half_way_is_an_error() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = out.len().min(self.0);
            self.0 -= len;
            if len == 0 { Err(io::Error::other("the disk is gone")) } else { Ok(len) }
        }
    }
    let mut measurement = Measurement::new(PairConfig::default());
    let error = measurement.send(Path::new("broken"), Broken(200_000), |_| ()).unwrap_err();
    assert!(matches!(error, MeasureError::Read { .. }), "{error:?}");
}

#[test]
fn files_are_read_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, Corpus::new(7).text(100_000)).unwrap();
    assert_eq!(size(&path).unwrap(), 100_000);
    let mut measurement = Measurement::new(PairConfig::default());
    measurement.send_file(&path, |_| ()).unwrap();
    assert_eq!(measurement.finish().delivered, 100_000);
}
