//! The rules that lead other hosts' and programs' connections to this gateway: one table of nftables, and one routing
//! table. `docs/design/interception.md` says why they look as they do.
//!
//! What takes new connections in holds only while the gateway says that it is alive. Once it is killed or hangs,
//! traffic flows as if it were not there.

mod bypass;
mod heartbeat;
mod load;
mod text;

pub use load::{LoadError, Programs};
pub(crate) use load::{Loaded, load};

use self::bypass::Exclusions;
use crate::config::{Capture, Config, Mode, Network, RulesBy, Scope};

/// The rules of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    gateway: String,
    takers: Vec<Taker>,
    /// Whether answers to connections that are made in clients' names must be led here.
    in_clients_names: bool,
    by: RulesBy,
}

/// One interception.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taker {
    how: How,
    capture: Capture,
    /// The networks of the clients; none means any.
    from: Option<Vec<Network>>,
    /// Where this gateway listens.
    port: u16,
    /// What it leaves alone.
    excluded: Exclusions,
}

/// How packets reach this gateway's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// As they are.
    Tproxy,
    /// With another destination, on their way through.
    Redirect,
    /// With another destination, as they leave this machine.
    RedirectOwn,
}

impl RuleSet {
    /// Returns the rules that a configuration needs; none if it needs none, or the operator has others.
    pub fn of(config: &Config) -> Option<Self> {
        let mut takers = Vec::new();
        let mut by = RulesBy::Install;
        let mut in_clients_names = config.peers.iter().any(|peer| !peer.allow_sources.is_empty());
        for intercept in &config.intercepts {
            let Some(capture) = intercept.mode.capture() else { continue };
            if capture.rules == RulesBy::None {
                continue;
            }
            by = capture.rules;
            in_clients_names |= capture.as_client;
            takers.push(Taker {
                how: match (&intercept.mode, capture.scope) {
                    (Mode::Redirect(_), Scope::Host) => How::RedirectOwn,
                    (Mode::Redirect(_), Scope::Gateway) => How::Redirect,
                    _ => How::Tproxy,
                },
                capture: capture.clone(),
                from: intercept.allow_from.clone(),
                port: intercept.listen.port(),
                excluded: Exclusions::of(&config.policies, &intercept.peer),
            });
        }
        let needed = in_clients_names || !takers.is_empty();
        needed.then(|| Self { gateway: config.gateway.name.clone(), takers, in_clients_names, by })
    }

    /// Returns who loads them.
    pub fn by(&self) -> RulesBy {
        self.by
    }

    /// Returns the name of the table, in the family `inet`.
    pub fn table(&self) -> String {
        format!("oncewire-{}", self.gateway)
    }

    /// Says whether packets must be routed to sockets here though their destination is elsewhere.
    fn needs_routes(&self) -> bool {
        self.in_clients_names || self.takers.iter().any(|taker| taker.how == How::Tproxy)
    }

    /// Returns the mark of such packets, which is the number of the routing table too; a hash of the gateway's name
    /// (FNV-1a), so that gateways on one machine stay apart.
    fn mark(&self) -> u32 {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = self.gateway.bytes().fold(0x811c_9dc5, step);
        0x6f77_0000 | (hash >> 16) ^ (hash & 0xffff)
    }
}
