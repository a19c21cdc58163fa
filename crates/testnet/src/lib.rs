//! Networks of namespaces with an emulated line between sites.
//!
//! ```text
//! client ── branch ══ line ══ core ── hub ── server
//! ```
//!
//! [`Network::builder`] makes client, branch gateway, the core of a wide-area network, hub gateway and server (or
//! several of each), each host in a network namespace of its own, for IPv4 and IPv6, in well under a second. The
//! line is an emulator ([`Line::emulated`]), a plain pair of interfaces, or one with a token bucket.
//! [`Host::run`], [`Host::spawn`] and [`Host::enter`] run programs and closures in a host.
//!
//! Nothing has a name outside the test's own process: namespaces are held by descriptors, and the programs in hosts
//! are in a process namespace. Its first process waits for the end of its standard input. So all of it is gone with
//! the [`Network`], and with the process that built it, even after a panic or a kill.
//!
//! It takes Linux, `ip`, and root or a user namespace; [`isolated`] makes the latter for a test.

mod addresses;
mod assembly;
mod builder;
mod driver;
mod host;
mod isolated;
mod line;
mod missing;
mod namespace;
mod network;
mod programs;

pub use addresses::Family;
pub use builder::Builder;
pub use driver::{Direction, Wan};
pub use host::{Host, Process};
pub use isolated::isolated;
pub use line::{Line, Shell};
pub use missing::{Error, skip};
pub use network::Network;
pub use oncewire_netem::{Gilbert, LinkCounters, LinkParams, ParamsError, Queue};
