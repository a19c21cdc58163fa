//! Interception: entry of applications' connections, one file per mode.

mod direct;
mod entrance;
mod forward;
mod hold;
mod http;
mod pipes;
mod proxy_protocol;
mod router;
pub mod rules;
mod socks4;
mod socks5;
mod transparent;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use oncewire_codec::wire::Destination;
use oncewire_config::{Intercept, Mode, both_families};
use oncewire_host::limits;
use oncewire_host::log_throttle::LogThrottle;
use oncewire_host::sockets::{self, Sharing};
use oncewire_host::tasks::Tasks;
use oncewire_report::Refusal;
use oncewire_tunnel::accounts::TrafficAccounts;

pub use entrance::Entrance;
pub use hold::Held;
pub use http::heads::Heads;
use router::NoWay;
pub use router::{Current, Router};

/// One interception with its connections' shared state. It never changes: a reload replaces it, and a
/// connection keeps to the rules of its entry.
pub struct Door {
    intercept: Intercept,
    router: Arc<Router>,
    tasks: Arc<Tasks>,
    places: Arc<Semaphore>,
    accounts: Arc<TrafficAccounts>,
    heads: Heads,
    held: Arc<Held>,
    connections: Arc<AtomicU64>,
    seldom: LogThrottle,
    /// Whether the gateway stops.
    stopped: watch::Receiver<bool>,
}

impl Door {
    /// Makes the door of an interception.
    pub fn new(
        intercept: Intercept,
        router: Arc<Router>,
        accounts: Arc<TrafficAccounts>,
        heads: Heads,
        held: Arc<Held>,
        tasks: Arc<Tasks>,
        stopped: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            intercept,
            router,
            tasks,
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            accounts,
            heads,
            held,
            connections: Arc::default(),
            seldom: LogThrottle::default(),
            stopped,
        })
    }

    /// Makes this door's successor; connections of both count together.
    pub fn changed(&self, intercept: Intercept, router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self {
            intercept,
            router,
            tasks: Arc::clone(&self.tasks),
            places: Arc::clone(&self.places),
            accounts: Arc::clone(&self.accounts),
            heads: self.heads.clone(),
            held: Arc::clone(&self.held),
            connections: Arc::clone(&self.connections),
            seldom: LogThrottle::default(),
            stopped: self.stopped.clone(),
        })
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Returns the mode's name.
    pub fn mode(&self) -> &'static str {
        self.intercept.mode.name()
    }

    /// Checks and serves a client; a socket dropped here was prepared to reset.
    fn take_in(self: &Arc<Self>, stream: TcpStream, source: SocketAddr) {
        sockets::prepare_application(&stream, self.router.keepalive());
        let allowed = self.intercept.allow_from.as_ref();
        if allowed.is_some_and(|networks| !networks.iter().any(|network| network.contains(source.ip()))) {
            self.accounts.refusals.count(Refusal::NotAllowedFrom);
            self.log(source, "refused, since `allow_from` does not name its network");
            return;
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.accounts.refusals.count(Refusal::TooMany);
            self.log(source, "refused, since too many connections are open");
            return;
        };
        if !limits::leaves_reserve(&stream) {
            self.accounts.refusals.count(Refusal::TooMany);
            let listen = self.intercept.listen;
            self.accounts.shortage.tell(listen, "connections are refused", &limits::reserve_reached());
            return;
        }
        self.connections.fetch_add(1, Relaxed);
        let door = Arc::clone(self);
        self.tasks.spawn(async move {
            match door.intercept.mode.clone() {
                Mode::Forward { target, proxy_protocol } => {
                    forward::serve(&door, stream, source, target, proxy_protocol).await;
                    drop(place);
                }
                Mode::Socks5 => {
                    socks5::serve(&door, stream, source).await;
                    drop(place);
                }
                Mode::Tproxy(_) | Mode::Redirect(_) => {
                    transparent::serve(&door, stream, source).await;
                    drop(place);
                }
                // Its tunnels outlive the serving of requests.
                Mode::Http => http::serve(&door, stream, source, place).await,
            }
        });
    }

    /// Counts and logs a client with invalid input.
    fn turn_away(&self, source: SocketAddr, why: Refusal, line: &str) {
        self.accounts.refusals.count(why);
        self.log(source, line);
    }

    /// Counts and logs a flow without a way. A failed far connect is the application's affair alone.
    fn no_way(&self, source: SocketAddr, destination: &Destination, why: NoWay) {
        match why {
            NoWay::NoPeer | NoWay::PeerGone => self.accounts.refusals.count(Refusal::PeerLost),
            NoWay::Full => self.accounts.refusals.count(Refusal::TooMany),
            NoWay::Failed(_) | NoWay::Stopping => {
                tracing::debug!(mode = self.mode(), %source, %destination, %why, "not connected");
                return;
            }
        }
        self.log(source, &format!("{destination}: {why}"));
    }

    fn log(&self, source: SocketAddr, line: &str) {
        let Some(held_back) = self.seldom.due() else { return };
        tracing::warn!(mode = self.mode(), listen = %self.intercept.listen, %source, held_back, "{line}");
    }
}

/// Listens for connections led by rules, on both families.
///
/// # Errors
/// The kernel's. A missing IPv6 is no error.
pub fn listen(intercept: &Intercept, sharing: Sharing) -> io::Result<(TcpListener, Option<TcpListener>)> {
    let bind = match intercept.mode {
        Mode::Tproxy(_) => sockets::listen_transparent,
        _ => sockets::listen,
    };
    let [v4, v6] = both_families(intercept.listen).map(|address| bind(address, sharing));
    let v4 = v4?;
    match v6 {
        Ok(v6) => Ok((v4, Some(v6))),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(error) => {
            tracing::info!(%error, mode = intercept.mode.name(), "IPv6 connections are not taken in");
            Ok((v4, None))
        }
    }
}

/// Connections at once per interception, including idle keep-alive ones.
const MAX_CONNECTIONS: usize = 16 << 10;

/// Time limit of a client's request.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
