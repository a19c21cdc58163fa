//! `oncewire run`: a gateway until it is told to stop.

use std::io;
use std::path::Path;

use anyhow::Context as _;
use oncewire_gateway::config::Config;
use oncewire_gateway::daemon;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// Runs the gateway that a configuration describes.
pub(super) fn run(path: &Path) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let name = config.gateway.name.clone();
        info!(name, version = env!("CARGO_PKG_VERSION"), "starts");
        daemon::run(config, signals.stop()).await?;
        info!(name, "stopped");
        anyhow::Ok(())
    })
}

/// SIGTERM and SIGINT.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal; from then on a second one ends the process at once.
    async fn stop(&mut self) {
        let first = self.next().await;
        info!(signal = first, "stops: flows may finish; a second signal does not wait for them");
        if let Ok(mut signals) = Self::new() {
            tokio::spawn(async move {
                let second = signals.next().await;
                warn!(signal = second, "stops at once");
                // Applications see resets, as they do when the process is killed: never an end that looks whole.
                std::process::exit(1);
            });
        }
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// Raises the number of files that may be open to what the system allows: each flow takes one, each lane another.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the number of open files");
    }
}
