//! The command as a person uses it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use oncewire_testnet::{Network, isolated};
use rustix::process::{Pid, Signal, kill_process};

/// Whether networks can be built here; says so if not.
fn possible() -> bool {
    Network::builder().build_or_skip().is_some()
}

fn testnet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncewire-testnet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn helpers_lead_to_the_other_hosts_and_to_the_line() {
    isolated(|| {
        if !possible() {
            return;
        }
        let script = "echo in $ONCEWIRE_TESTNET_HOST; @server sh -c 'echo in $ONCEWIRE_TESTNET_HOST; ip -br addr'; \
                      @wan loss=2% delay=80ms; @wan cut up; @wan branch: restore; @wan hub: cut; @wan warp=9; exit 7";
        let output =
            testnet(&["--rate", "20mbit", "--delay", "50ms", "--", "sh", "-c", script]).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(7), "{text}");
        for expected in [
            "in client\nin server\n",
            "198.18.2.2",
            "branch up: 20000 kbit/s, delay 80ms, loss 2 %\n",
            "branch up: 20000 kbit/s, delay 80ms, loss 2 %, CUT\n",
            " lost, 0 reordered, 0 duplicated, ",
            "hub has no emulated line",
            "warp is no setting",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    });
}

#[test]
fn what_ran_in_the_network_ends_when_the_command_is_killed() {
    isolated(|| {
        if !possible() {
            return;
        }
        let script = "echo ready; setsid sleep 1000 & exec sleep 1000";
        // A directory with helpers is all that stays.
        let dir = tempfile::tempdir().unwrap();
        let mut command = testnet(&["--", "sh", "-c", script]);
        let mut command = command.env("TMPDIR", dir.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(command.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        command.kill().unwrap();
        command.wait().unwrap();
        // Both sleepers have it open for as long as they live.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
}

#[test]
fn a_signal_that_ends_the_command_leaves_nothing_behind() {
    isolated(|| {
        if !possible() {
            return;
        }
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let dir = tempfile::tempdir().unwrap();
            let mut command = testnet(&["--", "sh", "-c", "echo ready; exec sleep 1000"]);
            let mut command = command.env("TMPDIR", dir.path()).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(command.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            kill_process(Pid::from_child(&command), signal).unwrap();
            assert_eq!(command.wait().unwrap().code(), Some(code));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{signal:?}");
            assert_eq!(
                output.read_to_end(&mut Vec::new()).unwrap(),
                0,
                "the sleeper has it open while it lives"
            );
        }
    });
}

#[test]
fn what_cannot_be_run_is_named() {
    isolated(|| {
        if !possible() {
            return;
        }
        let output = testnet(&["--", "no-such-program"]).output().unwrap();
        assert!(
            said(&output).contains("cannot run no-such-program in client: No such file"),
            "{}",
            said(&output)
        );
    });
}

#[test]
fn wrong_arguments_are_explained() {
    let output = testnet(&["--branches", "101"]).output().unwrap();
    assert!(!output.status.success());
    assert!(said(&output).ends_with("there can be 1 to 100, with 1 to 200 each\n"), "{}", said(&output));
    let output = testnet(&["--rate", "20MB"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no unit of rate"), "{}", said(&output));
    let output = testnet(&["--medium", "plain", "--loss", "1%"]).output().unwrap();
    assert!(!output.status.success());
    assert!(said(&output).contains("a plain line has no settings"), "{}", said(&output));
}
