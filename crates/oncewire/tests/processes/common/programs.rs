//! Real programs: found, run and ended.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::wait::{LIMIT, eventually, pause};

/// Prints those of `names` missing on this machine, and returns whether the test is to be skipped.
pub(crate) fn missing(names: &[&str]) -> bool {
    let lacking: Vec<_> = names.iter().filter(|name| find(name).is_none()).collect();
    if lacking.is_empty() {
        return false;
    }
    leave_out(&format!("missing: {lacking:?}; scripts/test installs them"));
    true
}

/// Prints the reason for skipping a test; with `CI=true` this is a failure.
pub(crate) fn leave_out(reason: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!ci, "{reason}");
    println!("skipped: {reason}");
}

/// Finds a program in PATH, and in Debian's directories of servers.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        dirs.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    dirs.into_iter().map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Begins a command line of a program found by [`missing`].
pub(crate) fn command(name: &str) -> Command {
    let mut command = Command::new(find(name).unwrap());
    // Neither the user's settings nor a proxy of this machine may lead a test elsewhere.
    for variable in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end and returns its output; panics unless it succeeds.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let start = Instant::now();
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} after {:?}: {status}\n{stdout}\n{stderr}", start.elapsed());
    stdout.into_owned()
}

/// A server program for the life of the test.
pub(crate) struct Service {
    child: Child,
    ending: Signal,
}

impl Service {
    /// Starts a program and waits until it takes connections at `address`.
    #[track_caller]
    pub(crate) fn start(command: &mut Command, address: SocketAddr, log: &Path, ending: Signal) -> Self {
        let out = std::fs::File::create(log).unwrap();
        let child = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        let mut service = Self { child, ending };
        eventually("the server program takes connections", LIMIT, || {
            let ended = service.child.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?}: {}", std::fs::read_to_string(log).unwrap_or_default());
            TcpStream::connect(address).ok()
        });
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, self.ending));
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(5) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            pause();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
