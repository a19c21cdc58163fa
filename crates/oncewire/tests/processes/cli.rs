//! The command line for scripts: exit codes, streams, and protected files.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::binary;
use crate::common::pair::Options;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn help_and_version_go_to_standard_output() {
    let help = text(&oncewire(&["--help"]), 0);
    for command in ["demo", "keygen", "check", "run", "status", "flows", "cache", "store", "measure", "train"]
    {
        assert!(help.contains(command), "{command} is missing in\n{help}");
        let own = oncewire(&[command, "--help"]);
        assert!(text(&own, 0).contains("Usage"), "{command}");
    }
    assert!(text(&oncewire(&["--version"]), 0).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_exit_code_two() {
    for arguments in [&["nonsense"][..], &["run"], &["keygen"], &["status", "--nonsense"], &["measure"]] {
        let output = oncewire(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn failed_write_to_standard_output_is_a_named_failure() {
    let arguments = [
        &["--help"][..],
        &["--version"],
        &["help"],
        &["keygen", "--help"],
        &["completions", "bash"],
        &["man"],
    ];
    for arguments in arguments {
        let said = without_room(arguments);
        assert!(said.starts_with("oncewire: cannot write to standard output: "), "{arguments:?}: {said}");
    }
}

#[test]
fn key_of_a_store_comes_from_configuration_or_flag() {
    for command in ["stat", "verify", "compact"] {
        let both = oncewire(&["store", command, "-c", "oncewire.toml", "--encrypt-key-file", "storage.key"]);
        assert_eq!(both.status.code(), Some(2), "{command}");
        let said = String::from_utf8_lossy(&both.stderr);
        assert!(said.contains("cannot be used with") && said.contains("--encrypt-key-file"), "{said}");
        let alone = oncewire(&["store", command, "--encrypt-key-file", "storage.key"]);
        assert_eq!(alone.status.code(), Some(2), "{command}");
    }
}

#[test]
fn missing_input_is_a_failure() {
    for arguments in [&["measure"][..], &["train"], &["demo"], &["store", "stat", "--path"]] {
        let output = oncewire(&[arguments, &["/no/such/file"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("/no/such/file"), "{arguments:?}: {said}");
    }
    // These say how it is worked on.
    for option in ["--token-file", "--config"] {
        let output = oncewire(&["status", option, "/no/such/file"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

#[test]
fn dash_is_standard_input_for_content_and_refused_elsewhere() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("file");
    std::fs::write(&file, crate::common::data::text(131, 300_000)).unwrap();
    for command in ["measure", "train"] {
        let input = std::fs::File::open(&file).unwrap();
        let arguments = [command, "--json", "-", file.to_str().unwrap()];
        let output = Command::new(binary()).args(arguments).stdin(input).output().unwrap();
        let report: serde_json::Value = serde_json::from_str(&text(&output, 0)).unwrap();
        assert!(command == "train" || report["delivered"] == 600_000, "{report}");
    }
    for arguments in [&["check", "-c"][..], &["run", "-c"], &["status", "-c"], &["keygen", "--out"]] {
        let output = oncewire(&[arguments, &["-"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("(./- if that is"), "{arguments:?}: {said}");
    }
}

#[test]
fn keygen_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.key");
    let path = file.to_str().unwrap();
    let public = text(&oncewire(&["keygen", "--out", path]), 0);
    assert_eq!(public.lines().count(), 1);
    let secret = std::fs::read(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let again = oncewire(&["keygen", "--out", path]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains(path));
    assert_eq!(std::fs::read(&file).unwrap(), secret);
    assert_eq!(text(&oncewire(&["keygen", "--show", "--out", path]), 0), public);
}

#[test]
fn keygen_mentions_the_new_key_after_failed_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.key");
    let path = file.to_str().unwrap();
    let said = without_room(&["keygen", "--out", path]);
    let way = format!("oncewire keygen --show --out {path}");
    assert!(said.contains(&way) && said.contains("standard output"), "{said}");
    assert_eq!(text(&oncewire(&["keygen", "--show", "--out", path]), 0).lines().count(), 1);
}

#[test]
fn keygen_names_obstacles_to_a_key_file() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [&[][..], &["--encrypt-key"], &["--group"]] {
        for (path, what) in [(dir.path().to_str().unwrap(), "a directory"), ("/dev/null", "a device")] {
            let output = oncewire(&[&["keygen", "--out", path][..], kind].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("{path}: {what}")) && !said.contains("--show"), "{said}");
        }
    }
}

#[test]
fn encryption_key_is_made_silently_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("storage.key");
    let path = file.to_str().unwrap();
    assert_eq!(text(&oncewire(&["keygen", "--encrypt-key", "--out", path]), 0), "");
    let secret = std::fs::read(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(oncewire(&["keygen", "--encrypt-key", "--out", path]).status.code(), Some(1));
    assert_eq!(std::fs::read(&file).unwrap(), secret);
    assert_eq!(oncewire(&["keygen", "--encrypt-key", "--show", "--out", path]).status.code(), Some(2));
}

#[test]
fn completions_and_the_man_page_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&oncewire(&["completions", shell]), 0).contains("keygen"), "{shell}");
    }
    assert!(text(&oncewire(&["man"]), 0).contains(".TH oncewire"));
}

#[test]
fn query_to_a_stopped_gateway_fails_with_its_address() {
    let nobody = free_address().to_string();
    for command in ["status", "flows"] {
        let output = oncewire(&[command, "--json", "--admin", &nobody]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8_lossy(&output.stderr).contains(&nobody), "{command}");
    }
}

#[test]
fn status_speaks_to_people_and_to_scripts() {
    let pair = pair(&Options::default());
    let config = pair.branch.config().to_str().unwrap();
    let table = text(&oncewire(&["status", "-c", config]), 0);
    assert!(table.contains("hub") && table.contains("up"), "{table}");
    let json = text(&oncewire(&["status", "-c", config, "--json"]), 0);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    for key in ["version", "gateway", "peers", "flows_not_coded"] {
        assert!(!status[key].is_null(), "{key} is missing in {json}");
    }
    let peer = status["peers"][0].as_object().unwrap();
    for key in [
        "name",
        "state",
        "lanes",
        "flows_open",
        "flows_total",
        "delivered",
        "wire",
        "savings",
        "rtt_ms",
        "out",
        "in",
        "mismatches",
        "resumes",
    ] {
        assert!(peer.contains_key(key), "{key} is missing in {json}");
    }
    text(&oncewire(&["check", "-c", config]), 0);
    text(&oncewire(&["flows", "-c", config]), 0);
    let json: serde_json::Value =
        serde_json::from_str(&text(&oncewire(&["status", "--json", "-c", config]), 0)).unwrap();
    assert!(json["destinations"]["rows"].is_array() && json["destinations"]["other"].is_object(), "{json}");
    let table = text(&oncewire(&["status", "--destinations", "-c", config]), 0);
    assert_eq!(table, "no flow has gone to a peer\n");
}

#[test]
fn status_help_explains_its_columns() {
    let help = text(&oncewire(&["status", "--help"]), 0);
    for column in
        ["ROUND TRIP", "LANES", "FLOWS", "DELIVERED", "WIRE", "SAVINGS", "LOG OUT, LOG IN", "TURNED AWAY"]
    {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {column} "))), "{column}: {help}");
    }
    assert!(help.contains("2+3: two TLS connections"), "{help}");
    for column in ["DESTINATION", "NOT CODED"] {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {column} "))), "{column}: {help}");
    }
}

#[test]
fn measure_walks_directories_and_reports_packed_content() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("b.gz"),
        [&b"\x1f\x8b"[..], &crate::common::data::random(7, 99_998)].concat(),
    )
    .unwrap();
    std::fs::write(dir.path().join("a.txt"), crate::common::data::text(8, 100_000)).unwrap();
    let path = dir.path().to_str().unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&text(&oncewire(&["measure", "--json", path]), 0)).unwrap();
    let names: Vec<&str> =
        report["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[0].ends_with("a.txt") && names[1].ends_with("b.gz"), "{names:?}");
    assert_eq!(
        (&report["config"]["codec"], &report["config"]["entropy"]),
        (&"auto".into(), &"zstd:3".into())
    );
    assert_eq!((&report["content"]["compressed"], &report["chunk_store"]), (&100_000.into(), &false.into()));
    let said = text(&oncewire(&["measure", path]), 0);
    assert!(said.contains("97.7 KiB (50 %) compressed"), "{said}");
}

#[test]
fn measure_reports_checked_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, crate::common::data::text(130, 2_000_000)).unwrap();
    let path = file.to_str().unwrap();
    let json = text(&oncewire(&["measure", "--json", "--set", "entropy=zstd:3", path, path]), 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["verified"], true);
    assert_eq!(report["delivered"], 4_000_000);
    let wires: Vec<u64> =
        report["files"].as_array().unwrap().iter().map(|file| file["wire"].as_u64().unwrap()).collect();
    assert!(wires[0] < 1_000_000, "{wires:?}");
    assert!(wires[1] < 10_000, "{wires:?}");
    assert_eq!(oncewire(&["measure", "/no/such/file"]).status.code(), Some(1));
    assert_eq!(oncewire(&["measure", "--set", "entropie=zstd:3", path]).status.code(), Some(2));
}

fn oncewire(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs it with a full standard output, and returns the error's text.
#[track_caller]
fn without_room(arguments: &[&str]) -> String {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(binary()).args(arguments).stdin(Stdio::null()).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    said
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}
