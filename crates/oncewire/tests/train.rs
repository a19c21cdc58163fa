//! `oncewire train` as scripts see it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests that write files")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[test]
fn printed_line_fits_into_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = capitals(dir.path());
    let output = train(&[&path, &path]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let printed = String::from_utf8(output.stdout).unwrap();
    let json = train(&["--json", &path, &path]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let numbers: Vec<String> =
        report["sample_bytes"].as_array().unwrap().iter().map(|byte| byte.to_string()).collect();
    assert!(numbers.iter().all(|byte| (65..=80).contains(&byte.parse::<u8>().unwrap())), "{numbers:?}");
    assert_eq!(printed.lines().last(), Some(format!("sample_bytes = [{}]", numbers.join(", ")).as_str()));
    assert!(printed.lines().rev().skip(1).all(|line| line.starts_with('#')), "{printed}");
    assert!(report["savings"].as_f64() > report["savings_paper"].as_f64(), "{report}");
}

#[test]
fn wrong_usage_exits_with_two_and_nothing_to_learn_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = capitals(dir.path());
    let directory = dir.path().to_str().unwrap();
    for (arguments, code, said) in [
        (&["--period", "3", &path][..], 2, "16 to 4096"),
        (&["--log-memory", "much", &path], 2, "log_memory"),
        (&["--sample", "many", &path], 2, "--sample"),
        (&["--sample", "0", &path, &path], 2, "the least is 64 KiB"),
        (&["--sample", "65535", &path, &path], 2, "the least is 64 KiB"),
        (&[directory], 2, "is a directory"),
        (&[], 2, "Usage"),
        (&["/no/such/file"], 1, "/no/such/file"),
        (&[&path], 1, "nothing repeats"),
    ] {
        let output = train(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Writes hexadecimal digits as the letters A to P, all outside the paper's table.
fn capitals(dir: &Path) -> String {
    let path = dir.join("capitals");
    let digits = (0u64..30_000).flat_map(|number| {
        let noise =
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        noise.to_le_bytes().map(|byte| b'A' + byte % 16)
    });
    std::fs::write(&path, digits.collect::<Vec<u8>>()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn train(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncewire"));
    command.arg("train").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
