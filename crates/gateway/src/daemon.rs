//! A gateway from its configuration to its end.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Config;
use crate::identity::PublicKey;
use crate::intercept::{Door, Router};
use crate::sockets::{self, LaneOptions};
use crate::tunnel::clock::Clock;
use crate::tunnel::dialer;
use crate::tunnel::lane::tls_tcp::Dialling;
use crate::tunnel::listener::TunnelDoor;
use crate::tunnel::onward::{Onward, OwnSockets};
use crate::tunnel::peer::{Peer, PeerSettings};
use crate::tunnel::tasks::Tasks;
use crate::tunnel::tls::{self, PinnedKeys};

mod settings;

/// Runs a gateway until `shutdown` resolves, then lets its flows finish within `[gateway] drain`.
///
/// # Errors
/// If it cannot start; see [`Gateway::start`].
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    let drain = config.gateway.drain;
    let gateway = Gateway::start(config).await?;
    shutdown.await;
    gateway.shutdown(drain).await;
    Ok(())
}

/// A running gateway. Dropping it stops it at once, as a crash would: applications see resets.
pub struct Gateway {
    addresses: LocalAddresses,
    peers: Vec<Arc<Peer>>,
    tasks: Arc<Tasks>,
    stop: watch::Sender<bool>,
}

/// Where a gateway listens, with the ports that the system chose where the configuration says 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    /// `[gateway] listen`, in order.
    pub tunnel: Vec<SocketAddr>,
    /// `[[intercept]] listen`, in order.
    pub intercepts: Vec<SocketAddr>,
    /// `[gateway] admin`.
    pub admin: Option<SocketAddr>,
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} (`{key}`): {source}{}", hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The key in the configuration.
        key: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The key pair cannot be used for TLS.
    #[error("the key pair cannot be used: {0}")]
    Tls(rustls::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program, or another oncewire, listens there",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

impl Gateway {
    /// Binds every address and starts to work; returns once all of them are listened on.
    ///
    /// # Errors
    /// If an address cannot be listened on, with the key that names it; nothing is left running then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        sockets::raise_open_files();
        let listeners = Listeners::bind(&config)?;
        let config = Arc::new(config);
        let tasks = Arc::new(Tasks::new());
        let (stop, stopped) = watch::channel(false);
        let mut gateway =
            Self { addresses: listeners.addresses(), peers: Vec::new(), tasks: Arc::clone(&tasks), stop };
        let own = OwnSockets::default();
        gateway.addresses.all().for_each(|address| own.add(address));
        let lanes = settings::lane_options(&config);
        gateway.start_peers(&config, &own, &lanes)?;
        gateway.start_tunnel(&config, listeners.tunnel, &lanes)?;
        gateway.start_intercepts(&config, listeners.intercepts, &stopped);
        tracing::info!(name = config.gateway.name, public_key = %config.gateway.identity.public_key(), "gateway started");
        Ok(gateway)
    }

    fn start_peers(
        &mut self,
        config: &Config,
        own: &OwnSockets,
        lanes: &[LaneOptions],
    ) -> Result<(), StartError> {
        let clock = Clock::start();
        let instance = dialer::random();
        for (peer, lanes) in config.peers.iter().zip(lanes) {
            let settings = PeerSettings {
                name: peer.name.clone(),
                keys: peer.public_keys.clone(),
                address: peer.address.as_ref().map(ToString::to_string),
                lanes: lanes.clone(),
                link: settings::link_config(config, peer, instance),
                onward: Onward { access: peer.access.clone(), own: own.clone() },
            };
            let peer =
                Peer::new(settings, config.gateway.identity.public_key(), clock, Arc::clone(&self.tasks));
            self.tasks.spawn(Arc::clone(&peer).run_timer());
            if let Some(address) = peer.settings.address.clone() {
                let dialling = dialling(config, &peer, address).map_err(StartError::Tls)?;
                self.tasks.spawn(dialer::run(Arc::clone(&peer), dialling, Arc::clone(&self.tasks)));
            }
            self.peers.push(peer);
        }
        Ok(())
    }

    fn start_tunnel(
        &mut self,
        config: &Config,
        listeners: Vec<TcpListener>,
        lanes: &[LaneOptions],
    ) -> Result<(), StartError> {
        let mut by_key: BTreeMap<PublicKey, Arc<Peer>> = BTreeMap::new();
        for peer in &self.peers {
            by_key.extend(peer.settings.keys.iter().map(|key| (*key, Arc::clone(peer))));
        }
        let pinned = PinnedKeys::new(by_key.keys().copied());
        let tls =
            tls::server_config(&config.gateway.identity, Arc::clone(&pinned)).map_err(StartError::Tls)?;
        // Who knocks is not known when the socket is prepared, so the first peer's options hold for all.
        let options = lanes.first().cloned().unwrap_or_default();
        let door = TunnelDoor::new(tls, pinned, by_key, options, Arc::clone(&self.tasks));
        for listener in listeners {
            self.tasks.spawn(Arc::clone(&door).run(listener));
        }
        Ok(())
    }

    fn start_intercepts(
        &mut self,
        config: &Arc<Config>,
        listeners: Vec<TcpListener>,
        stopped: &watch::Receiver<bool>,
    ) {
        let by_name = self.peers.iter().map(|peer| (peer.settings.name.clone(), Arc::clone(peer))).collect();
        let router = Router::new(Arc::clone(config), by_name);
        for (intercept, listener) in config.intercepts.iter().zip(listeners) {
            let door = Door::new(intercept.clone(), Arc::clone(&router), Arc::clone(&self.tasks));
            self.tasks.spawn(door.run(listener, stopped.clone()));
        }
    }

    /// Returns where the gateway listens.
    pub fn local_addrs(&self) -> &LocalAddresses {
        &self.addresses
    }

    /// Waits until the link to a peer is up, for at most `limit`; false if it is not by then, or no such peer is
    /// configured.
    pub async fn wait_up(&self, peer: &str, limit: Duration) -> bool {
        match self.peers.iter().find(|known| known.name() == peer) {
            Some(peer) => peer.wait_up(limit).await,
            None => false,
        }
    }

    /// Stops in order: takes no new connections, lets flows finish within `deadline`, resets the rest, and tells
    /// the peers.
    pub async fn shutdown(self, deadline: Duration) {
        let end = Instant::now() + deadline;
        self.stop.send_replace(true);
        self.peers.iter().for_each(|peer| peer.drain_flows());
        let open: u64 = self.peers.iter().map(|peer| peer.status().flows_open).sum();
        tracing::info!(open_flows = open, "shutting down; flows may finish within {deadline:?}");
        self.until(end, Peer::is_idle).await;
        // Resets are frames too, and frames need a moment to leave.
        self.peers.iter().for_each(|peer| peer.reset_flows());
        self.until(Instant::now() + LAST_WORDS, Peer::is_idle).await;
        self.peers.iter().for_each(|peer| peer.close_lanes());
        self.until(Instant::now() + LAST_WORDS, |peer| peer.lane_count() == 0).await;
    }

    /// Waits until a condition holds for every peer, or a deadline has passed.
    async fn until(&self, end: Instant, holds: impl Fn(&Peer) -> bool) {
        while Instant::now() < end && !self.peers.iter().all(|peer| holds(peer)) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.end();
    }
}

fn dialling(config: &Config, peer: &Peer, address: String) -> Result<Dialling, rustls::Error> {
    let pinned = PinnedKeys::new(peer.settings.keys.iter().copied());
    Ok(Dialling {
        address,
        options: peer.settings.lanes.clone(),
        tls: tls::client_config(&config.gateway.identity, Arc::clone(&pinned))?,
        pinned,
        ours: config.gateway.identity.public_key(),
    })
}

/// Every listening socket, bound before anything runs.
struct Listeners {
    tunnel: Vec<TcpListener>,
    intercepts: Vec<TcpListener>,
    admin: Option<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Self, StartError> {
        let bind = |address: SocketAddr, key| {
            sockets::listen(address).map_err(|source| StartError::Listen { address, key, source })
        };
        let admin = config.gateway.admin.as_ref();
        Ok(Self {
            tunnel: config
                .gateway
                .listen
                .iter()
                .map(|address| bind(*address, "[gateway] listen"))
                .collect::<Result<_, _>>()?,
            intercepts: config
                .intercepts
                .iter()
                .map(|intercept| bind(intercept.listen, "[[intercept]] listen"))
                .collect::<Result<_, _>>()?,
            admin: admin.map(|admin| bind(admin.listen, "[gateway] admin")).transpose()?,
        })
    }

    fn addresses(&self) -> LocalAddresses {
        let of = |listeners: &[TcpListener]| listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
        LocalAddresses {
            tunnel: of(&self.tunnel),
            intercepts: of(&self.intercepts),
            admin: self.admin.as_ref().and_then(|listener| listener.local_addr().ok()),
        }
    }
}

impl LocalAddresses {
    fn all(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.tunnel.iter().chain(&self.intercepts).chain(&self.admin).copied()
    }
}

/// How long resets and the ends of lanes may take on their way out.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often the end of flows is looked for while the gateway stops.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
