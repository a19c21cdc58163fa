//! Interception that clients know nothing of, on a network of namespaces.
//!
//! No test says when something must have happened: they wait until it does, on a machine that may be busy with others.

mod bridge;
mod bypass;
mod connection;
mod deployment;
mod host;
mod hubs;
mod machine;
mod reload;
mod router;

use deployment::{Deployment, LIMIT, PORTS, Plan};

/// An interception of one port of what comes in from the client.
fn tproxy(source: &str) -> String {
    format!(
        "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\nports = [8080]\n\
         source = \"{source}\"\n"
    )
}
