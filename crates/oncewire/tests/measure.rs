//! `oncewire measure` as scripts see it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests that write files")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[test]
fn a_repeat_is_reported_as_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let output = measure(&["--json", &path, &path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "no progress bar where nobody looks");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expected = [
        "chunk_store",
        "config",
        "content",
        "files",
        "delivered",
        "wire",
        "savings",
        "encode_gbps",
        "decode_gbps",
        "sender_memory",
        "receiver_memory",
        "verified",
    ];
    expected.sort_unstable();
    let mut found = keys(&report);
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(report["verified"], true);
    assert_eq!(report["files"][0]["path"], path.as_str());
    let (first, again) = (&report["files"][0], &report["files"][1]);
    assert_eq!(first["delivered"], again["delivered"]);
    let share = again["wire"].as_f64().unwrap() / again["delivered"].as_f64().unwrap();
    assert!(share <= 0.005, "{report}");
}

#[test]
fn settings_take_effect_and_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let output = measure(&["--json", "--set", "codec=none", "--set", "log_memory=1MiB", &path]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["config"]["codec"], &report["config"]["log_memory"]),
        (&"none".into(), &(1 << 20).into())
    );
    assert_eq!(report["config"].as_object().unwrap().len(), 12);
    assert!(report["wire"].as_u64() > report["delivered"].as_u64());
}

#[test]
fn people_get_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let output = measure(&[&path]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("SAVINGS") && table.contains(" %") && table.contains("all were equal"), "{table}");
}

#[test]
fn wrong_usage_is_explained_with_exit_code_two() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    for (arguments, said) in [
        (&["--set", "log_memroy=1MiB", &path][..], "did you mean `log_memory`?"),
        (&["--set", "log_memory", &path], "KEY=VALUE"),
        (&["--set", "entropy=zstd:99", &path], "1 to 19"),
        (&["--set", "log_memory=1MiB", "--set", "max_in_flight=1MiB", &path], "512 KiB"),
        (&["--set", "max_lanes=4", &path], "no effect here"),
        (&[], "Usage"),
    ] {
        let output = measure(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_missing_file_fails_before_others_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let output = measure(&["--json", &path, "/no/such/file"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("/no/such/file") && said.contains("No such file"), "{said}");
    assert!(output.stdout.is_empty());
}

fn sample(dir: &Path) -> String {
    let path = dir.join("sample");
    let lines: String =
        (0u64..40_000).map(|line| format!("line {line}: {:x}\n", line * line * 2_654_435_761)).collect();
    std::fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

fn measure(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncewire"));
    command.arg("measure").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
