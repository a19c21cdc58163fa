//! An outage of a minute, in five ways at once, each in a network of its own.

use std::thread::scope;
use std::time::Duration;

use crate::common::outage::{Ordeal, Outage, survive};

/// How long the path is gone.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds without a path.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(arguments: &Arguments) {
    let outages = [
        ("lanes reset, dialling refused", Outage::Refused),
        ("silent from branch to hub", Outage::Silent([true, false])),
        ("silent from hub to branch", Outage::Silent([false, true])),
        ("silent both ways", Outage::Silent([true, true])),
        ("refused every other second", Outage::Flapping),
    ];
    let away = Duration::from_secs(arguments.seconds);
    println!("| path for {away:?} | download | upload | ssh session | lines logged by branch, hub |");
    println!("|---|---|---|---|---|");
    scope(|scope| {
        for (name, outage) in outages {
            scope.spawn(move || {
                let ordeal = Ordeal { outage, away, len: LEN, both: String::new() };
                let Some(seen) = survive(&crate::binary(), &ordeal) else { return };
                println!("| {name} | {seen} |");
            });
        }
    });
    println!(
        "\nTimes count from when the path is back, to the last byte or the answer. Every byte was right."
    );
}

const LEN: usize = 24 << 20;
