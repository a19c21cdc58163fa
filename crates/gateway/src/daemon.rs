//! A gateway from its configuration to its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use self::report::Report;
use self::start::Start;
use crate::admin::Source as _;
use crate::config::Config;
use crate::logs::Logs;
use crate::sockets;
use crate::telemetry::{FlowsReport, StatusReport};
use crate::tunnel::peer::Peer;
use crate::tunnel::tasks::Tasks;

mod log_sizes;
mod report;
mod settings;
mod start;

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
    report: Arc<Report>,
    tasks: Arc<Tasks>,
    /// Dropped after the tasks ended, when nothing is remembered any more.
    logs: Option<Logs>,
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
    /// Another process keeps its logs in the state folder.
    #[error("another oncewire uses {path} (`[gateway] state`); give each gateway a folder of its own",
            path = .0.display())]
    StateInUse(PathBuf),
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
    /// If an address cannot be listened on or the state folder is in use, with the key that names it; nothing is
    /// left running then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        sockets::raise_open_files();
        let listeners = Listeners::bind(&config)?;
        let tasks = Arc::new(Tasks::new());
        let (stop, stopped) = watch::channel(false);
        let start = Start {
            config: Arc::new(config),
            addresses: listeners.addresses(),
            ledger: Arc::default(),
            tasks: Arc::clone(&tasks),
            stopped,
        };
        let (logs, peer_logs) = start.open_logs().await?;
        let report = start.all(listeners, peer_logs).inspect_err(|_| tasks.end())?;
        let gateway = &report.config.gateway;
        tracing::info!(name = gateway.name, public_key = %gateway.identity.public_key(), "gateway started");
        Ok(Self { report, tasks, stop, logs })
    }

    /// Returns where the gateway listens.
    pub fn local_addrs(&self) -> &LocalAddresses {
        &self.report.addresses
    }

    /// Returns what `oncewire status` prints.
    pub fn status(&self) -> StatusReport {
        self.report.status()
    }

    /// Returns what `oncewire flows` prints.
    pub fn flows(&self) -> FlowsReport {
        self.report.flows()
    }

    /// Waits until the link to a peer is up, for at most `limit`; false if it is not by then, or no such peer is
    /// configured.
    pub async fn wait_up(&self, peer: &str, limit: Duration) -> bool {
        match self.report.peers.iter().find(|known| known.name() == peer) {
            Some(peer) => peer.wait_up(limit).await,
            None => false,
        }
    }

    /// Stops in order: takes no new connections, lets flows finish within `deadline`, resets the rest, and tells
    /// the peers.
    pub async fn shutdown(mut self, deadline: Duration) {
        let end = Instant::now() + deadline;
        self.stop.send_replace(true);
        self.report.peers.iter().for_each(|peer| peer.drain_flows());
        let on_links: u64 = self.report.peers.iter().map(|peer| peer.status().link.flows_open).sum();
        let open = on_links + self.report.ledger.direct_open();
        tracing::info!(open_flows = open, "shutting down; flows may finish within {deadline:?}");
        self.until(end, || self.all(Peer::is_idle) && self.report.ledger.direct_open() == 0).await;
        // Resets are frames too, and frames need a moment to leave.
        self.report.peers.iter().for_each(|peer| peer.reset_flows());
        self.until(Instant::now() + LAST_WORDS, || self.all(Peer::is_idle)).await;
        self.report.peers.iter().for_each(|peer| peer.close_lanes());
        self.until(Instant::now() + LAST_WORDS, || self.all(|peer| peer.lane_count() == 0)).await;
        if let Some(logs) = self.logs.take() {
            // A panic there was reported by the thread that had it; there is nothing left to stop.
            let _ = tokio::task::spawn_blocking(move || logs.finish()).await;
        }
    }

    /// Says whether a condition holds for every peer.
    fn all(&self, holds: impl Fn(&Peer) -> bool) -> bool {
        self.report.peers.iter().all(|peer| holds(peer))
    }

    /// Waits until a condition holds, or a deadline has passed.
    async fn until(&self, end: Instant, holds: impl Fn() -> bool) {
        while Instant::now() < end && !holds() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.end();
    }
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
