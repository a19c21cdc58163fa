//! What a gateway does at one time: its configuration, and what runs by it.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::LocalAddresses;
use crate::config::Config;
use crate::intercept::Entrance;
use crate::peering::Peering;
use crate::tunnel::listener::TunnelPort;
use crate::tunnel::peer::Peer;

/// What runs; a reload puts another in its place, which shares with it what did not change.
pub(super) struct State {
    pub(super) config: Arc<Config>,
    /// One for each of `config.peers`, in order.
    pub(super) peers: Vec<Arc<Peer>>,
    /// What chooses among them.
    pub(super) peering: Arc<Peering>,
    /// One for each of `config.intercepts`, in order.
    pub(super) entrances: Vec<Arc<Entrance>>,
    /// One for each of `config.gateway.listen`, in order.
    pub(super) ports: Vec<Arc<TunnelPort>>,
    pub(super) admin: Option<SocketAddr>,
}

impl State {
    /// Returns where connections are taken in, for those who do not keep it open.
    pub(super) fn weak_entrances(&self) -> Vec<Weak<Entrance>> {
        self.entrances.iter().map(Arc::downgrade).collect()
    }

    /// Returns where the gateway listens.
    pub(super) fn addresses(&self) -> LocalAddresses {
        LocalAddresses {
            tunnel: self.ports.iter().map(|port| port.address).collect(),
            intercepts: self.entrances.iter().map(|entrance| entrance.address()).collect(),
            admin: self.admin,
            discovery: None,
        }
    }
}
