//! Transparent interception, on a network of namespaces.
//!
//! No test has a deadline for an event: each waits for it, on a machine perhaps busy with others.

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

/// An interception of a port for connections from the client, as in the manual for routers and bridges.
fn tproxy(source: &str) -> String {
    format!("{}source = \"{source}\"\n", recipe("A router"))
}

/// The interception of the recipe under a heading.
fn recipe(heading: &str) -> &'static str {
    let (_, section) = RECIPES.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    let (file, _) = block.split_once("```").unwrap();
    &file[file.find("[[intercept]]").unwrap()..]
}

const RECIPES: &str = include_str!("../../../../../docs/using/recipes.md");
