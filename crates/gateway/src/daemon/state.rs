//! A gateway's state at one time: its configuration, and the running parts.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use oncewire_config::Config;
use oncewire_intercept::Entrance;
use oncewire_tunnel::listener::TunnelPort;
use oncewire_tunnel::peer::Peer;
use oncewire_tunnel::peering::Peering;

use super::LocalAddresses;

/// The running parts; a reload replaces it, and shares the unchanged ones.
pub(super) struct State {
    pub(super) config: Arc<Config>,
    /// One for each of `config.peers`, in order.
    pub(super) peers: Vec<Arc<Peer>>,
    /// Chooses among them.
    pub(super) peering: Arc<Peering>,
    /// One for each of `config.intercepts`, in order.
    pub(super) entrances: Vec<Arc<Entrance>>,
    /// One for each of `config.gateway.listen`, in order.
    pub(super) ports: Vec<Arc<TunnelPort>>,
    pub(super) admin: Option<SocketAddr>,
}

impl State {
    /// Returns the entrances without keeping them open.
    pub(super) fn weak_entrances(&self) -> Vec<Weak<Entrance>> {
        self.entrances.iter().map(Arc::downgrade).collect()
    }

    /// Returns the gateway's addresses.
    pub(super) fn addresses(&self) -> LocalAddresses {
        LocalAddresses {
            tunnel: self.ports.iter().map(|port| port.address).collect(),
            intercepts: self.entrances.iter().map(|entrance| entrance.address()).collect(),
            admin: self.admin,
            discovery: None,
        }
    }
}
