//! Rules leading foreign connections to this gateway.
//!
//! One table of nftables, and one routing table, for other hosts' and programs' connections.
//! `docs/internals/interception.md` explains their form. New connections are taken in only while the gateway
//! gives signs of life. Once it is killed or hangs, traffic flows as if it were not there.

mod arrivals;
mod begun;
mod bridge;
mod bypass;
mod cgroups;
mod commands;
mod conditions;
mod exclusions;
mod heartbeat;
mod hold;
mod icmp;
mod load;
mod machine;
mod programs;
mod queue;
mod routes;
mod services;
mod set;
mod stops;
mod text;
mod words;

pub use commands::{LoadError, Programs};
pub use hold::FILTERS;
pub use load::{Loaded, STOP_LIMIT, load};
pub use queue::{HoldNumbers, QueueBy};
pub use set::RuleSet;
pub(crate) use words::LIFE_MS;

/// The rules, written and compared with this machine.
impl RuleSet {
    /// Fits the rules to this machine: its bridges, its control groups, and its way of queueing packets.
    #[must_use]
    pub fn on_this_machine(self) -> Self {
        programs::on_this_machine(self)
    }

    /// Writes the table for `nft -f`; it atomically replaces an older one of the same name.
    pub fn nft(&self) -> String {
        text::nft(self)
    }

    /// Returns the arguments of `ip` for the routes of marked packets to sockets of this machine, for each
    /// family.
    pub fn routes(&self) -> Vec<String> {
        routes::routes(self)
    }

    /// Returns this machine's obstacles to the rules, as far as they show: a sentence each, with a remedy.
    pub fn obstacles(&self) -> Vec<String> {
        machine::obstacles(self)
    }

    /// Returns the numbers, from 1, and the conditions of the policies with bypasses, in order.
    pub fn bypasses(&self) -> Vec<(usize, &str)> {
        bypass::bypasses(self)
    }

    /// Returns the numbers of held packets; none if none are held.
    pub fn hold_numbers(&self) -> Option<HoldNumbers> {
        hold::hold_numbers(self)
    }

    /// Returns the rule of iptables for held packets, if they are queued by it.
    pub fn queue_rule(&self) -> Option<String> {
        hold::queue_rule(self)
    }
}
