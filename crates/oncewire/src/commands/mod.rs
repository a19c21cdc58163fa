//! The commands.

mod advice;
mod ask;
mod cache;
mod check;
mod destinations;
mod flows;
mod keygen;
mod man;
mod progress;
mod roff;
mod rules;
mod run;
mod status;
mod store;

use crate::cli::{Cache, Cli, Command};
use crate::logs::Log;
use crate::output::print;
use crate::{demo, measure, train};

/// Runs a command.
pub(crate) fn run(command: Command, log: &Log) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Keygen(args) => keygen::run(&args),
        Command::Check(args) => check::run(&args.config),
        Command::Run(args) => run::run(&args.config, log),
        Command::Status(args) => status::run(&args),
        Command::Flows(args) => flows::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Cache(Cache::Clear(args)) => cache::clear(&args),
        Command::Store(command) => store::run(&command),
        Command::Measure(args) => measure::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Completions(args) => {
            let mut script = Vec::new();
            let mut command = <Cli as clap::CommandFactory>::command();
            clap_complete::generate(args.shell, &mut command, "oncewire", &mut script);
            print(script)
        }
        Command::Man { page } => print(man::page(page)?),
    }
}
