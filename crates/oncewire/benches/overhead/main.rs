//! Whether a pair makes anything slower.
//!
//! `cargo bench -p oncewire --bench overhead` builds a network of namespaces. It takes root, `ip` and `tc`, and names
//! missing ones. Behind `--`: `bulk` or `beside` for one of the two parts, `rounds=N`, and `mb=N` for the bulk.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

mod beside;
mod bulk;
#[allow(dead_code, reason = "the tests use all of the bench, this uses a part")]
#[path = "../../tests/processes/common/mod.rs"]
mod common;
mod deployment;
#[path = "../../examples/pair/hop.rs"]
mod hop;
mod traffic;

use std::io::Read;
use std::time::Duration;

use deployment::Way;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, listen, target] = &arguments[..]
        && role == "hop"
    {
        let _hop = hop::hop(listen.parse().unwrap(), target.parse().unwrap());
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let number = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key)?.parse().ok());
    let is_asked = |part: &str, other: &str| {
        arguments.iter().any(|argument| argument == part)
            || !arguments.iter().any(|argument| argument == other)
    };
    if is_asked("bulk", "beside") {
        bulk::run(number("rounds=").unwrap_or(5), number("mb=").unwrap_or(256));
    }
    if is_asked("beside", "bulk") {
        beside::run(number("rounds=").unwrap_or(3));
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Direct => "direct",
        Way::Relay => "plain relay, two hops",
        Way::Spliced => "one gateway, spliced",
        Way::Uncoded => "pair, `codec = \"none\"`",
        Way::Coded => "pair, defaults",
        Way::Limited => "pair, `rate_limit` 19 Mbit/s",
    }
}

/// The time not exceeded by so many of a hundred.
fn percentile(times: &mut [Duration], part: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * part / 100).min(times.len() - 1)]
}
