//! `oncewire run`: a gateway until it is told to stop.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use oncewire_config::{Config, RulesBy};
use oncewire_gateway::daemon::{Gateway, Reloaded};
use oncewire_gateway::lifecycle::notify::Notifier;
use oncewire_gateway::lifecycle::watchdog::Watchdog;
use oncewire_gateway::lifecycle::{limits, log_lines, privileges};
use oncewire_host::threads;
use oncewire_intercept::rules::{Programs, RuleSet};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::logs::Log;

/// Runs the gateway of a configuration.
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
    if privileges::keep_secrets()? {
        warn!("ONCEWIRE_DUMPABLE=1: core dumps may hold keys and the content of flows");
    }
    limits::room_for(config.memory).map_err(anyhow::Error::msg)?;
    // Not before: a thread keeps the privileges from its start.
    log.start_writing().context("cannot start the thread that writes the log")?;
    if user.is_some() {
        // With the rights of a reload: a file unreadable for that user is found out now.
        config = Config::load(path)?;
    }
    warn_of(&config);
    threads::probe()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let served = runtime.block_on(serve(path, config, log));
    // A hanging disk had its time already.
    runtime.shutdown_background();
    served
}

async fn serve(path: &Path, config: Config, log: &Log) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let notifier = Arc::new(Notifier::from_environment());
    let (name, watchdog) = (config.gateway.name.clone(), config.gateway.watchdog);
    let mut running = Running { drain: config.gateway.drain, rules: installed(&config) };
    info!(name, version = env!("CARGO_PKG_VERSION"), "starts");
    let mut start = Box::pin(Gateway::start(config));
    let mut gateway = tokio::select! {
        started = &mut start => started?,
        () = signals.stop() => {
            notifier.stopping(Duration::ZERO);
            signals.end_at_once_when_asked_again(running.rules);
            // Unfinished work ends with it.
            drop(start);
            info!(name, "stopped before it had started");
            return Ok(());
        }
    };
    let _watchdog = Watchdog::start(gateway.pulse(), watchdog, Arc::clone(&notifier));
    ready(&notifier);
    while signals.next().await == Request::Reload {
        notifier.reloading();
        tokio::select! {
            () = running.reload(&mut gateway, path, log) => ready(&notifier),
            () = signals.stop() => {
                warn!("the reload that was under way is given up");
                break;
            }
        }
    }
    notifier.stopping(running.drain);
    signals.end_at_once_when_asked_again(running.rules);
    gateway.shutdown(running.drain).await;
    info!(name, "stopped");
    Ok(())
}

/// Tells the manager, behind all earlier log lines.
fn ready(notifier: &Notifier) {
    log_lines::flush(LAST_LINES);
    notifier.ready();
}

/// The parts of the configuration for the gateway's end.
struct Running {
    drain: Duration,
    /// The rules loaded by this process, or tried.
    rules: Option<RuleSet>,
}

impl Running {
    /// Reads the configuration again, and has the gateway take it on.
    async fn reload(&mut self, gateway: &mut Gateway, path: &Path, log: &Log) {
        let path = path.to_owned();
        // Apart, since disks may hang and signals are to be heard meanwhile.
        let config = match threads::run("oncewire-config", move || Config::load(&path)).await {
            Ok(Ok(config)) => config,
            Ok(Err(error)) => return stays(&error),
            Err(error) => return stays(&error),
        };
        if let Err(why) = limits::room_for(config.memory) {
            return stays(&why);
        }
        warn_of(&config);
        let (drain, level) = (config.gateway.drain, config.gateway.log_level);
        // Rules loaded once stay as far as open connections need them.
        self.rules = installed(&config).or(self.rules.take());
        match gateway.reload(config).await {
            Ok(done) => {
                self.drain = drain;
                log.configure(level);
                tell(&done);
            }
            Err(error) => stays(&error),
        }
    }
}

/// Returns the rules loaded by the gateway itself.
fn installed(config: &Config) -> Option<RuleSet> {
    RuleSet::of(config).filter(|rules| rules.by() == RulesBy::Install)
}

/// Logs the effect of a reload.
fn tell(done: &Reloaded) {
    done.changes.iter().for_each(|change| info!("reload: {change}"));
    for key in &done.at_next_start {
        warn!("reload: {key} changes with the next start only");
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

/// The requests of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The handled signals.
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
        let Self { term, int, hangup } = self;
        tokio::select! {
            () = stop(term, int) => Request::Stop,
            _ = hangup.recv() => {
                info!(signal = "SIGHUP", "reads its configuration again");
                Request::Reload
            }
        }
    }

    /// Waits for SIGTERM or SIGINT; SIGHUP is kept for [`Self::next`].
    async fn stop(&mut self) {
        stop(&mut self.term, &mut self.int).await;
    }

    /// From now on another SIGTERM or SIGINT ends the process, as soon as rules are removed.
    fn end_at_once_when_asked_again(mut self, rules: Option<RuleSet>) {
        tokio::spawn(async move {
            tokio::select! {
                _ = self.term.recv() => {}
                _ = self.int.recv() => {}
            }
            warn!("stops at once");
            if let Some(rules) = rules
                && !matches!(Programs(&rules).remove_within(REMOVAL_LIMIT), Some(Ok(_)))
            {
                let table = rules.table();
                warn!(
                    table,
                    "rules may stay, without effect, until the next start or `oncewire rules --remove`"
                );
            }
            log_lines::finish(LAST_LINES);
            // Applications see resets, as after a kill: never an end in order.
            std::process::exit(1);
        });
    }
}

/// Waits for one of the signals for an end.
async fn stop(term: &mut Signal, int: &mut Signal) {
    let signal = tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    };
    info!(signal, "stops: flows may finish; a second signal does not wait for them");
}

/// How long the removal of rules may hold up an end at once.
const REMOVAL_LIMIT: Duration = Duration::from_secs(2);

/// How long an end at once, and the manager, wait for the reader of the log.
const LAST_LINES: Duration = Duration::from_millis(500);
