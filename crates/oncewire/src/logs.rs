//! The log, on standard error.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What fails.
    Error,
    /// And what is not as it should be.
    Warn,
    /// And what changes: links, peers, start and stop.
    Info,
    /// And each flow and lane.
    Debug,
    /// And each step.
    Trace,
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The log of this process, of which a configuration may say how much is in it.
pub(crate) struct Log {
    level: reload::Handle<LevelFilter, Registry>,
    /// What the command line says, which holds.
    asked_for: Option<Level>,
    /// What holds if nobody says anything.
    usual: Level,
}

impl Log {
    /// Takes on what a configuration says, if the command line says nothing else.
    pub(crate) fn configure(&self, configured: Option<LevelFilter>) {
        let filter = match (self.asked_for, configured) {
            (None, Some(configured)) => configured,
            (None, None) => self.usual.filter(),
            (Some(_), None) => return,
            (Some(level), Some(configured)) => {
                if level.filter() != configured {
                    tracing::warn!(
                        "log_level = \"{configured}\" does not hold, since --log-level says otherwise"
                    );
                }
                return;
            }
        };
        // It lives as long as the process.
        let _ = self.level.reload(filter);
    }
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// Starts logging for the rest of the process: as much as is asked for, or else as usual.
pub(crate) fn start(asked_for: Option<Level>, usual: Level, format: Format) -> Log {
    let (filter, level) = reload::Layer::new(asked_for.unwrap_or(usual).filter());
    let log = registry().with(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    match format {
        Format::Text => log.with(lines.with_ansi(io::stderr().is_terminal()).with_target(false)).init(),
        Format::Json => log.with(lines.json()).init(),
    }
    Log { level, asked_for, usual }
}
