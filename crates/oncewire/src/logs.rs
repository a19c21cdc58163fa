//! The log, on standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic::{self, PanicHookInfo};
use std::time::Duration;

use clap::ValueEnum;
use oncewire_gateway::lifecycle::log_lines::LogLines;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// And irregularities.
    Warn,
    /// And changes: links, peers, start and stop.
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

/// The log of this process; a configuration may set its level.
pub(crate) struct Log {
    level: reload::Handle<LevelFilter, Registry>,
    /// The command line's level; it takes precedence.
    asked_for: Option<Level>,
    /// The default level.
    usual: Level,
    /// A queue of lines for the writing thread; none if each is written in place.
    lines: Option<LogLines>,
}

/// The place of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// In the logging thread.
    InPlace,
    /// By a thread of their own, since nothing may hang with the reader of the log.
    Apart,
}

impl Log {
    /// Takes on a configuration's level, unless the command line sets another.
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

    /// Starts the writing thread, if there is to be one, with the caller's present privileges.
    pub(crate) fn start_writing(&self) -> io::Result<()> {
        self.lines.as_ref().map_or(Ok(()), LogLines::start)
    }

    /// Writes text as it is, behind the lines before it.
    pub(crate) fn print(&self, text: &str) {
        match &self.lines {
            Some(lines) => lines.push(format!("{text}\n").as_bytes()),
            None => eprintln!("{text}"),
        }
    }

    /// Waits until all of it is written, unless its reader hangs.
    pub(crate) fn finish(&self) {
        if let Some(lines) = &self.lines {
            lines.finish(LAST_LINES);
        }
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
pub(crate) fn start(asked_for: Option<Level>, usual: Level, format: Format, writing: Writing) -> Log {
    let lines = (writing == Writing::Apart).then(LogLines::of_process);
    let (filter, level) = reload::Layer::new(asked_for.unwrap_or(usual).filter());
    let log = registry().with(filter);
    let writer = match lines.clone() {
        Some(lines) => BoxMakeWriter::new(move || lines.clone()),
        None => BoxMakeWriter::new(io::stderr),
    };
    let layer = fmt::layer().with_writer(writer);
    match format {
        Format::Text => log.with(layer.with_ansi(io::stderr().is_terminal()).with_target(false)).init(),
        Format::Json => log.with(layer.json()).init(),
    }
    if let Some(lines) = lines.clone() {
        panic::set_hook(Box::new(move |panicked| log_panic(panicked, &lines)));
    }
    Log { level, asked_for, usual, lines }
}

/// Logs a panic, and has it written before the process may end of it: another panic on the way aborts.
fn log_panic(panicked: &PanicHookInfo<'_>, lines: &LogLines) {
    let trace = Backtrace::capture();
    let trace = match trace.status() {
        BacktraceStatus::Captured => format!("\n{trace}"),
        _ => String::new(),
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(thread = name, "{panicked}{trace}");
    } else {
        lines.push(format!("thread {name}: {panicked}{trace}\n").as_bytes());
    }
    lines.flush(LAST_WORDS);
}

/// How long the end of the process waits for the reader of the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The time a panicking thread waits for it.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    /// A log that hands its output on.
    struct Sink(mpsc::Sender<Vec<u8>>);

    impl Write for Sink {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn panic_is_a_line_of_the_log() {
        const NAME: &str = "panics-on-purpose";
        let (written, seen) = mpsc::channel();
        let lines = LogLines::new(Sink(written), |_| {});
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| match std::thread::current().name() {
            Some(NAME) => log_panic(panicked, &lines),
            _ => usual(panicked),
        }));
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        let is_well = std::env::args().count() == 0;
        assert!(thread.spawn(move || assert!(is_well, "for a reason")).unwrap().join().is_err());
        let line = String::from_utf8(seen.recv().unwrap()).unwrap();
        assert!(line.contains(NAME) && line.contains("logs.rs") && line.contains("for a reason"), "{line}");
    }
}
