//! `oncewire run`: a gateway until it is told to stop.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use oncewire_gateway::config::Config;
use oncewire_gateway::daemon::{Gateway, Reloaded};
use oncewire_gateway::lifecycle::notify::Notifier;
use oncewire_gateway::lifecycle::watchdog::Watchdog;
use oncewire_gateway::lifecycle::{limits, privileges};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::logs::Log;

/// Runs the gateway that a configuration describes.
pub(super) fn run(path: &Path, log: &Log) -> anyhow::Result<()> {
    let mut config = Config::load(path)?;
    log.configure(config.gateway.log_level);
    limits::raise_and_report().iter().for_each(|line| info!("{line}"));
    let user = config.gateway.user.clone();
    if privileges::give_up(user.as_deref(), privileges::needed(&config))? {
        warn!(
            "runs as root, with all that root may do; set `user` in [gateway], or start it as another user"
        );
    }
    if user.is_some() {
        // As whom a reload will read it: what that user cannot read is found out now.
        config = Config::load(path)?;
    }
    warn_of(&config);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let served = runtime.block_on(serve(path, config, log));
    // A disk that hangs has been waited for.
    runtime.shutdown_background();
    served
}

async fn serve(path: &Path, config: Config, log: &Log) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let notifier = Arc::new(Notifier::from_environment());
    let (name, watchdog) = (config.gateway.name.clone(), config.gateway.watchdog);
    let mut drain = config.gateway.drain;
    info!(name, version = env!("CARGO_PKG_VERSION"), "starts");
    let mut gateway = Gateway::start(config).await?;
    let _watchdog = Watchdog::start(gateway.pulse(), watchdog, Arc::clone(&notifier));
    notifier.ready();
    while signals.next().await == Request::Reload {
        notifier.reloading();
        match Config::load(path) {
            Ok(config) => {
                warn_of(&config);
                let (wanted_drain, level) = (config.gateway.drain, config.gateway.log_level);
                match gateway.reload(config).await {
                    Ok(done) => {
                        drain = wanted_drain;
                        log.configure(level);
                        tell(&done);
                    }
                    Err(error) => stays(&error),
                }
            }
            Err(error) => stays(&error),
        }
        notifier.ready();
    }
    notifier.stopping(drain);
    signals.end_at_once_when_asked_again();
    gateway.shutdown(drain).await;
    info!(name, "stopped");
    Ok(())
}

/// Says what a reload did.
fn tell(done: &Reloaded) {
    done.changes.iter().for_each(|change| info!("reload: {change}"));
    for key in &done.at_next_start {
        warn!("reload: `{key}` in [gateway] changes with the next start only");
    }
    if *done == Reloaded::default() {
        info!("reload: nothing changed");
    }
}

/// Says why there was no reload.
fn stays(error: &dyn std::fmt::Display) {
    error!("the configuration was not reloaded and stays as it was: {error}");
}

fn warn_of(config: &Config) {
    for warning in &config.warnings {
        warn!("{warning}");
    }
}

/// What signals ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that are answered.
struct Signals {
    term: Signal,
    int: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    async fn next(&mut self) -> Request {
        let (name, request) = tokio::select! {
            _ = self.term.recv() => ("SIGTERM", Request::Stop),
            _ = self.int.recv() => ("SIGINT", Request::Stop),
            _ = self.hangup.recv() => ("SIGHUP", Request::Reload),
        };
        match request {
            Request::Stop => {
                info!(signal = name, "stops: flows may finish; a second signal does not wait for them");
            }
            Request::Reload => info!(signal = name, "reads its configuration again"),
        }
        request
    }

    /// From now on another SIGTERM or SIGINT ends the process at once.
    fn end_at_once_when_asked_again(mut self) {
        tokio::spawn(async move {
            while self.next().await == Request::Reload {}
            warn!("stops at once");
            // Applications see resets, as they do when the process is killed: never an end that looks whole.
            std::process::exit(1);
        });
    }
}
