//! One gateway as a process.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::wait::eventually;

/// A configured gateway, running or not.
pub(crate) struct Gateway {
    binary: PathBuf,
    config: PathBuf,
    admin: SocketAddr,
    log: PathBuf,
    child: Option<Child>,
}

impl Gateway {
    /// Writes `config` to `dir/NAME.toml`; nothing runs yet.
    pub(crate) fn new(binary: &Path, dir: &Path, name: &str, admin: SocketAddr, config: &str) -> Self {
        let path = dir.join(format!("{name}.toml"));
        std::fs::write(&path, config).unwrap();
        Self { binary: binary.into(), config: path, admin, log: dir.join(format!("{name}.log")), child: None }
    }

    /// Starts the process; its log goes on in the same file.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = Command::new(&self.binary)
            .args(["--log-level", "info", "run", "-c"])
            .arg(&self.config)
            // Tests of other users than root look into /proc.
            .envs((!geteuid().is_root()).then_some(("ONCEWIRE_DUMPABLE", "1")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    /// Takes the process away without a word (SIGKILL).
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks the process to end (SIGTERM).
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks the process to read its configuration again (SIGHUP).
    pub(crate) fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// Holds the process still (`true`: SIGSTOP) or lets it go on (SIGCONT).
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.signal(if stopped { Signal::STOP } else { Signal::CONT });
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        eventually("the gateway ends", limit, || child.try_wait().unwrap())
    }

    /// How the process ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    /// Runs `oncewire COMMAND --json` against it.
    pub(crate) fn ask(&self, command: &str) -> Option<serde_json::Value> {
        let output = self.run(&[command, "--json", "--admin", &self.admin.to_string()]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Its own figures about its only peer; panics when it does not answer.
    pub(crate) fn peer(&self) -> serde_json::Value {
        let status = self.ask("status").unwrap_or_else(|| panic!("no status: {}", self.log()));
        status["peers"][0].clone()
    }

    /// A counter about its only peer.
    pub(crate) fn counter(&self, key: &str) -> u64 {
        self.peer()[key].as_u64().unwrap_or_else(|| panic!("{key} is not a number in {}", self.peer()))
    }

    /// Waits until the link to its only peer is up.
    pub(crate) fn wait_until_up(&self, limit: Duration) {
        eventually("the link comes up", limit, || {
            let status = self.ask("status")?;
            (status["peers"][0]["state"] == "up").then_some(())
        });
    }

    /// Its memory in use, from /proc.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Its open files and sockets, from /proc.
    pub(crate) fn open_files(&self) -> usize {
        self.files_by_kind().values().sum()
    }

    /// The same by kind: `socket`, `pipe`, `anon_inode`, `file`, and `segment` for files in the directory of a chunk store.
    pub(crate) fn files_by_kind(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().flatten() {
            // It may have been closed since it was listed.
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            let other = if target.contains("/store/") { "segment" } else { "file" };
            let kind = target.split_once(':').map_or(other, |(kind, _)| kind);
            *kinds.entry(kind.to_owned()).or_insert(0) += 1;
        }
        kinds
    }

    /// Its CPU time.
    pub(crate) fn cpu_time(&self) -> Duration {
        cpu_time(self.pid())
    }

    /// Process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Its admin interface's address.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its configuration file.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// Writes another configuration to its file; nothing reads it yet.
    pub(crate) fn write_config(&self, config: &str) {
        std::fs::write(&self.config, config).unwrap();
    }

    /// Its whole log.
    pub(crate) fn whole_log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its log, the end of it if it is long.
    pub(crate) fn log(&self) -> String {
        let log = self.whole_log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Runs `oncewire cache clear --json` with its configuration; the error is the command's output.
    pub(crate) fn clear_cache(&self, more: &[&str]) -> Result<serde_json::Value, String> {
        let config = self.config.to_str().unwrap();
        let output = self.run(&[&["cache", "clear", "--json", "-c", config][..], more].concat());
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// The same with nothing but time as a possible failure: none if the disk is too busy to be waited for.
    pub(crate) fn clear_cache_in_time(&self, more: &[&str]) -> Option<serde_json::Value> {
        const LATE: [&str; 3] =
            ["took longer than", "clearing may still go on", "too much waits for its disk"];
        match self.clear_cache(more) {
            Ok(report) => Some(report),
            Err(said) if LATE.iter().any(|late| said.contains(late)) => None,
            Err(said) => panic!("{said}"),
        }
    }

    /// Runs the binary with any arguments.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(&self.binary).args(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// A process's CPU time, from /proc.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the program's name, with any content; the twelfth and thirteenth are user's and system's.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    // The unit of /proc is a hundredth of a second on every Linux.
    Duration::from_millis(ticks * 10)
}

/// Makes a key pair in `file`, unless there is one, and returns its public half.
pub(crate) fn keygen(binary: &Path, file: &Path) -> String {
    let mut command = Command::new(binary);
    command.args(["keygen", "--out"]).arg(file).args(file.exists().then_some("--show"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "keygen: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const LOG_LINES: usize = 60;
