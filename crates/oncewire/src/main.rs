//! The `oncewire` command: commands and flags only. What they do is in the libraries.

mod cli;
mod commands;
mod demo;
mod failure;
mod logs;
mod measure;
mod table;
mod train;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The demo's table is not to be broken up by what its two gateways have to say, one of which it restarts.
    let quiet = matches!(cli.command, cli::Command::Demo(_));
    let usual = if quiet { logs::Level::Error } else { logs::Level::Info };
    let log = logs::start(cli.log_level, usual, cli.log_format);
    match commands::run(cli.command, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
