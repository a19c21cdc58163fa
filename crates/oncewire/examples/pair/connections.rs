//! Many connections, most of them idle.

use std::time::Duration;

use crate::common::connections::{Crowd, run as crowd};
use crate::roles::Role;

/// How many.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections in all.
    #[arg(long, default_value_t = 10_000)]
    all: usize,
    /// Active ones among them, with the others idle.
    #[arg(long, default_value_t = 1000)]
    active: usize,
    /// Seconds of CPU accounting with all idle.
    #[arg(long, default_value_t = 20)]
    idle: u64,
}

pub(crate) fn run(arguments: &Arguments) {
    let Arguments { all, active, idle } = *arguments;
    // In a process of its own, so neither needs more open files than a gateway.
    let origin = Role::start("echo", &[]);
    let each = Crowd { all, active, len: LEN, idle: Duration::from_secs(idle) };
    let cost = crowd(&crate::binary(), origin.address, &each);
    println!("{all} connections, {active} of them with {} KiB each way\n\n{cost}", LEN >> 10);
    println!("Every byte was right, and nothing was left behind.");
}

const LEN: usize = 256 << 10;
