//! The command as a person uses it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use oncewire_testnet::{Network, isolated};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process};

/// More than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether networks can be built here; says so if not.
fn possible() -> bool {
    Network::builder().build_or_skip().is_some()
}

fn testnet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncewire-testnet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A command with a ready program; dropping this kills it.
struct Running {
    command: Child,
    /// Open in both for their whole lives.
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Runs a script that says when it is ready; `dir` is for the directory with helpers.
    fn start(script: &str, dir: &Path) -> Self {
        let mut command = testnet(&["--", "sh", "-c", script]);
        let mut command = command.env("TMPDIR", dir).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(command.stdout.take().unwrap());
        let mut running = Self { command, output };
        running.hear("the script is ready");
        let mut line = String::new();
        running.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        running
    }

    /// Waits for output, or for the last holder of it to close.
    fn hear(&self, what: &str) {
        let limit = Timespec::try_from(LIMIT).unwrap();
        let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        let heard = retry_on_intr(|| poll(&mut output, Some(&limit)));
        assert_eq!(heard, Ok(1), "{what}: not within {LIMIT:?}");
    }

    /// Waits for the end of the command and of everything in the network; returns the command's code.
    fn end(&mut self, after: &str) -> Option<i32> {
        self.hear(&format!("after {after} the command and what it ran have ended"));
        assert_eq!(self.output.read_to_end(&mut Vec::new()).unwrap(), 0);
        self.command.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, and been waited for, already.
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
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
fn programs_in_the_network_end_with_a_killed_command() {
    isolated(|| {
        if !possible() {
            return;
        }
        // Only a directory with helpers stays.
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::start("echo ready; setsid sleep 1000 & exec sleep 1000", dir.path());
        running.command.kill().unwrap();
        running.end("SIGKILL");
    });
}

#[test]
fn command_ended_by_a_signal_leaves_nothing_behind() {
    isolated(|| {
        if !possible() {
            return;
        }
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let dir = tempfile::tempdir().unwrap();
            let mut running = Running::start("echo ready; exec sleep 1000", dir.path());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            kill_process(Pid::from_child(&running.command), signal).unwrap();
            assert_eq!(running.end(&format!("{signal:?}")), Some(code));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{signal:?}");
        }
    });
}

#[test]
fn program_not_found_is_named() {
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
