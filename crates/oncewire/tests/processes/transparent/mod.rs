//! Interception that clients know nothing of, on a network of namespaces.
//!
//! No test says when something must have happened: they wait until it does, on a machine that may be busy with others.

mod arrivals;
mod bridge;
mod bypass;
mod connection;
mod deployment;
mod errors;
mod half_closed;
mod hold;
mod host;
mod hubs;
mod machine;
mod ports;
mod reload;
mod router;
mod services;
mod signals;

use deployment::{Deployment, LIMIT, PORTS, Plan};

/// An interception of a port of what comes in from the client, as the manual has it for routers and bridges.
fn tproxy(source: &str) -> String {
    format!("{}source = \"{source}\"\n", recipe("A router"))
}

/// The configuration that the manual gives under a heading.
fn recipe(heading: &str) -> &'static str {
    let (_, section) = MANUAL.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    block.split_once("```").unwrap().0
}

const MANUAL: &str = include_str!("../../../../../docs/using/install.md");
