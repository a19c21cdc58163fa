//! The `oncewire` command: only commands and flags; the libraries do the work.

mod cli;
mod commands;
mod demo;
mod failure;
mod logs;
mod measure;
mod output;
mod table;
mod train;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use oncewire_gateway::lifecycle::limits;

use crate::cli::Cli;

fn main() -> ExitCode {
    limits::outlive_file_size_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) if wrong.use_stderr() => wrong.exit(),
        Err(help) => return tell(&help),
    };
    // The demo's table is not to be broken up by log lines of its two gateways, one of them restarted.
    let quiet = matches!(cli.command, cli::Command::Demo(_));
    let usual = if quiet { logs::Level::Error } else { logs::Level::Info };
    let writing = match &cli.command {
        cli::Command::Run(_) => logs::Writing::Apart,
        _ => logs::Writing::InPlace,
    };
    let log = logs::start(cli.log_level, usual, cli.log_format, writing);
    let ended = commands::run(cli.command, &log);
    let code =
        ended.map_or_else(|error| failure::report(&error, |text| log.print(text)), |()| ExitCode::SUCCESS);
    log.finish();
    code
}

/// Prints help, or the version.
fn tell(help: &clap::Error) -> ExitCode {
    match help.print().and_then(|()| io::stdout().flush()) {
        // The reader has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        written => output::said(written)
            .map_or_else(|error| failure::report(&error, |text| eprintln!("{text}")), |()| ExitCode::SUCCESS),
    }
}
