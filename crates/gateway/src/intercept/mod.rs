//! Interception: where applications' connections come in, one file per mode.

mod direct;
mod forward;
mod http;
mod router;
mod socks5;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::config::{Intercept, Mode};
use crate::sockets;
use crate::tunnel::seldom::Seldom;
use crate::tunnel::tasks::Tasks;

pub(crate) use router::Router;

/// One interception and what its connections share.
pub(crate) struct Door {
    intercept: Intercept,
    router: Arc<Router>,
    tasks: Arc<Tasks>,
    places: Arc<Semaphore>,
    pub(crate) counts: DoorCounts,
    seldom: Seldom,
}

/// What became of an interception's connections.
#[derive(Debug, Default)]
pub(crate) struct DoorCounts {
    accepted: AtomicU64,
    not_allowed_from: AtomicU64,
    too_many: AtomicU64,
    garbage: AtomicU64,
    unauthorized: AtomicU64,
    failed: AtomicU64,
}

impl DoorCounts {
    /// Returns how many connections were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Returns each cause of refusal with its count.
    pub(crate) fn refused(&self) -> [(&'static str, u64); 5] {
        [
            ("allow_from", self.not_allowed_from.load(Relaxed)),
            ("too_many", self.too_many.load(Relaxed)),
            ("garbage", self.garbage.load(Relaxed)),
            ("unauthorized", self.unauthorized.load(Relaxed)),
            ("not_connected", self.failed.load(Relaxed)),
        ]
    }
}

/// Why a connection was turned away; each has its counter.
#[derive(Clone, Copy, Debug)]
enum TurnedAway {
    Garbage,
    Unauthorized,
    NotConnected,
}

impl Door {
    pub(crate) fn new(intercept: Intercept, router: Arc<Router>, tasks: Arc<Tasks>) -> Arc<Self> {
        Arc::new(Self {
            intercept,
            router,
            tasks,
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            counts: DoorCounts::default(),
            seldom: Seldom::default(),
        })
    }

    pub(crate) fn mode(&self) -> &'static str {
        self.intercept.mode.name()
    }

    /// Accepts until told to stop; connections taken in by then go on.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, source)) => self.take_in(stream, source),
                Err(error) => {
                    // Out of files or memory, most often; not in a tight loop.
                    self.log(None, &format!("cannot accept: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Checks who is there and serves them; a socket that is dropped here was prepared to reset.
    fn take_in(self: &Arc<Self>, stream: TcpStream, source: SocketAddr) {
        sockets::prepare_application(&stream);
        let allowed = self.intercept.allow_from.as_ref();
        if allowed.is_some_and(|networks| !networks.iter().any(|network| network.contains(source.ip()))) {
            self.counts.not_allowed_from.fetch_add(1, Relaxed);
            self.log(Some(source), "refused, since `allow_from` does not name its network");
            return;
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.counts.too_many.fetch_add(1, Relaxed);
            self.log(Some(source), "refused, since too many connections are open");
            return;
        };
        self.counts.accepted.fetch_add(1, Relaxed);
        let door = Arc::clone(self);
        self.tasks.spawn(async move {
            match door.intercept.mode.clone() {
                Mode::Forward { target } => forward::serve(&door, stream, source, target).await,
                Mode::Socks5 => socks5::serve(&door, stream, source).await,
                Mode::Http => http::serve(&door, stream, source).await,
            }
            drop(place);
        });
    }

    fn turn_away(&self, source: SocketAddr, why: TurnedAway, line: &str) {
        let counter = match why {
            TurnedAway::Garbage => &self.counts.garbage,
            TurnedAway::Unauthorized => &self.counts.unauthorized,
            TurnedAway::NotConnected => &self.counts.failed,
        };
        counter.fetch_add(1, Relaxed);
        self.log(Some(source), line);
    }

    fn log(&self, source: Option<SocketAddr>, line: &str) {
        let Some(held_back) = self.seldom.due() else { return };
        let source = source.map(|source| source.to_string()).unwrap_or_default();
        tracing::warn!(mode = self.mode(), listen = %self.intercept.listen, source, held_back, "{line}");
    }
}

/// Connections at once per interception, those of keep-alive clients included.
const MAX_CONNECTIONS: usize = 16 << 10;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client may take to say what it wants.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
