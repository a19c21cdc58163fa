//! Everything that goes wrong at once, for as long as asked.

use std::time::Duration;

use crate::common::soak::{Soak, run as soak};

/// How long, and which run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds after which no round of faults begins.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seed of all contents, plans and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Transfers at once.
    #[arg(long, default_value_t = 30)]
    workers: usize,
    /// Seconds for which the path is gone at most.
    #[arg(long, default_value_t = 60)]
    longest: u64,
    /// Give both gateways chunk stores, whose files rot as well.
    #[arg(long)]
    store: bool,
}

pub(crate) fn run(arguments: &Arguments) {
    let plan = Soak {
        seed: arguments.seed,
        lasts: Duration::from_secs(arguments.seconds),
        longest: Duration::from_secs(arguments.longest),
        workers: arguments.workers,
        store: arguments.store,
    };
    soak(&crate::binary(), &plan);
}
