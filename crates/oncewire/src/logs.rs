//! The log, on standard error.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

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

/// Starts logging for the rest of the process.
pub(crate) fn start(level: Level, format: Format) {
    let filter = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(filter).with_writer(io::stderr);
    match format {
        Format::Text => builder.with_ansi(io::stderr().is_terminal()).with_target(false).init(),
        Format::Json => builder.json().init(),
    }
}
