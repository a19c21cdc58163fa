//! The demonstration as a process: immediate rows, and no private keys left behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::binary;
use super::common::wait::{LIMIT, eventually};

/// A running demonstration, at most as long as its test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a demonstration with an empty directory of its own for temporary files.
fn demo(temporary: &Path, arguments: &[&str]) -> Demo {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let child = Command::new(binary())
        .arg("demo")
        .args(arguments)
        .arg(file)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Demo(child.unwrap())
}

fn entries(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect()
}

/// Waits until the gateways have written files, sends `signal` and returns the exit code and the output.
fn ended_by(signal: Signal, temporary: &Path, mut demo: Demo, until_said: &str) -> (Option<i32>, String) {
    eventually("the gateways have a key", LIMIT, || {
        let directory = entries(temporary).pop()?;
        Path::new(&directory).join("branch.key").exists().then_some(())
    });
    let mut said = BufReader::new(demo.0.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains(until_said) {
        assert!(said.read_line(&mut text).unwrap() > 0, "{text}");
    }
    kill_process(Pid::from_child(&demo.0), signal).unwrap();
    let ended = eventually("it ends", LIMIT, || demo.0.try_wait().unwrap());
    said.read_to_string(&mut text).unwrap();
    (ended.code(), text)
}

#[test]
fn demonstration_ended_by_a_signal_leaves_nothing_behind() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        let temporary = tempfile::tempdir().unwrap();
        // It would take an hour.
        let demo = demo(temporary.path(), &["--json", "--rate", "1 bit/s"]);
        let (code, said) = ended_by(signal, temporary.path(), demo, "");
        assert_eq!((code, entries(temporary.path())), (Some(1), vec![]), "{said}");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn kept_demonstration_ends_cleanly_with_a_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temporary = tempfile::tempdir().unwrap();
        let demo = demo(temporary.path(), &["--json", "--keep", "--rtt", "1 ms", "--loss", "0"]);
        let (code, said) = ended_by(signal, temporary.path(), demo, "Ctrl-C ends them");
        assert_eq!((code, entries(temporary.path())), (Some(0), vec![]), "{said}");
        assert!(said.contains("oncewire status --admin 127.0.0.1:"), "{said}");
        assert!(said.contains("Nothing crossed while the gateways were kept"), "{said}");
    }
}

#[test]
fn interrupted_demonstration_leaves_the_rows_it_has() {
    let temporary = tempfile::tempdir().unwrap();
    // The other steps would take many seconds more.
    let mut demo = demo(temporary.path(), &["--rate", "20 kbit/s", "--rtt", "1 ms", "--loss", "0"]);
    let mut said = BufReader::new(demo.0.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("\nfirst time ") {
        assert!(said.read_line(&mut text).unwrap() > 0, "{text}");
    }
    kill_process(Pid::from_child(&demo.0), Signal::TERM).unwrap();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(demo.0.wait().unwrap().code(), Some(1), "{text}");
    assert!(!text.contains("over HTTPS"), "{text}");
}

#[test]
fn packed_and_encrypted_content_saves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let arguments = ["--json", "--rate", "100 Mbit/s", "--rtt", "1 ms", "--loss", "0"];
    let mut demo = demo(temporary.path(), &arguments);
    let mut text = String::new();
    demo.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(demo.0.wait().unwrap().success(), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let steps = |list: &str| -> Vec<String> {
        report[list].as_array().unwrap().iter().map(|row| row["step"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(steps("rows"), ["first", "again", "edit", "restart"], "{text}");
    assert_eq!(
        (steps("opaque"), steps("failed").len()),
        (vec!["packed".into(), "https".into()], 0),
        "{text}"
    );
    for row in report["opaque"].as_array().unwrap() {
        assert!(row["savings"].as_f64().unwrap() < 0.01, "{row}");
    }
}
