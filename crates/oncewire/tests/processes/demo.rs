//! The demonstration when it is ended from outside: it holds private keys, and none of them may stay behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::binary;
use super::common::wait::{LIMIT, eventually};

/// A demonstration that runs, at most as long as its test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a demonstration with a folder of its own for temporary files, in which nothing else is.
fn demo(temporary: &Path, arguments: &[&str]) -> Demo {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let child = Command::new(binary())
        .args(["demo", "--json"])
        .args(arguments)
        .arg(file)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    Demo(child.unwrap())
}

fn entries(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect()
}

/// Waits until the gateways have written files, sends `signal` and returns the exit code and what was said.
fn ended_by(signal: Signal, temporary: &Path, mut demo: Demo, until_said: &str) -> (Option<i32>, String) {
    eventually("the gateways have a key", LIMIT, || {
        let folder = entries(temporary).pop()?;
        Path::new(&folder).join("branch.key").exists().then_some(())
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
fn a_demonstration_that_a_signal_ends_leaves_nothing_behind() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        let temporary = tempfile::tempdir().unwrap();
        // It would take an hour.
        let demo = demo(temporary.path(), &["--rate", "1 bit/s"]);
        let (code, said) = ended_by(signal, temporary.path(), demo, "");
        assert_eq!((code, entries(temporary.path())), (Some(1), vec![]), "{said}");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn a_demonstration_that_is_kept_ends_with_a_signal_as_it_should() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temporary = tempfile::tempdir().unwrap();
        let demo = demo(temporary.path(), &["--keep", "--rtt", "1 ms", "--loss", "0"]);
        let (code, said) = ended_by(signal, temporary.path(), demo, "Ctrl-C ends them");
        assert_eq!((code, entries(temporary.path())), (Some(0), vec![]), "{said}");
    }
}
