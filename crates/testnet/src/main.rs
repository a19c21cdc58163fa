//! Builds a test network and gives a shell in it.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("oncewire-testnet: {error}");
            ExitCode::FAILURE
        }
    }
}
