//! All faults at once, for any duration.

use std::time::Duration;

use crate::common::soak::{Soak, run as soak};

/// The duration, and the seed.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds up to the last round of faults.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seed of all contents, plans and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Transfers at once.
    #[arg(long, default_value_t = 30)]
    workers: usize,
    /// The longest outage of the path in seconds.
    #[arg(long, default_value_t = 60)]
    longest: u64,
    /// Give both gateways chunk stores, with rotting files.
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
