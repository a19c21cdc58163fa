//! The port where peers reach us: everybody may knock, few are let in, and each refusal is counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};

use super::count::WireCounter;
use super::lane::tls_tcp::{self, AcceptError, TlsTcp};
use super::lane::{self, HelloFailure, Joined};
use super::peer::{Peer, PeerState};
use super::pending::Pending;
use super::seldom::Seldom;
use super::tasks::Tasks;
use super::tls::PinnedKeys;
use crate::identity::PublicKey;
use crate::sockets::{self, LaneOptions};

/// Connections to the tunnel port that did not become lanes, by cause.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    unknown_key: AtomicU64,
    not_tls: AtomicU64,
    too_slow: AtomicU64,
    evicted: AtomicU64,
    left: AtomicU64,
    hello: AtomicU64,
}

impl Refusals {
    /// Returns each cause's label and count.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("unknown_key", self.unknown_key.load(Relaxed)),
            ("not_tls", self.not_tls.load(Relaxed)),
            ("too_slow", self.too_slow.load(Relaxed)),
            ("evicted", self.evicted.load(Relaxed)),
            ("left", self.left.load(Relaxed)),
            ("hello", self.hello.load(Relaxed)),
        ]
    }
}

/// What the accept loops of all tunnel ports share.
pub(crate) struct TunnelDoor {
    tls: Arc<ServerConfig>,
    pinned: Arc<PinnedKeys>,
    peers: BTreeMap<PublicKey, Arc<Peer>>,
    options: LaneOptions,
    tasks: Arc<Tasks>,
    pending: Mutex<Pending>,
    pub(crate) refusals: Refusals,
    seldom: Seldom,
}

impl TunnelDoor {
    pub(crate) fn new(
        tls: Arc<ServerConfig>,
        pinned: Arc<PinnedKeys>,
        peers: BTreeMap<PublicKey, Arc<Peer>>,
        options: LaneOptions,
        tasks: Arc<Tasks>,
    ) -> Arc<Self> {
        Arc::new(Self {
            tls,
            pinned,
            peers,
            options,
            tasks,
            pending: Mutex::default(),
            refusals: Refusals::default(),
            seldom: Seldom::default(),
        })
    }

    /// Accepts as long as the gateway runs.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((tcp, source)) => self.take_in(tcp, source),
                Err(error) => {
                    // Out of files or memory, most often: one stranger makes room, and we do not spin.
                    if self.pending.lock().evict_one() {
                        self.refusals.evicted.fetch_add(1, Relaxed);
                    }
                    self.log(None, &format!("cannot accept: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take_in(self: &Arc<Self>, tcp: TcpStream, source: SocketAddr) {
        let heard = Arc::new(WireCounter::default());
        let (id, evicted_later, evicted) = self.pending.lock().admit(source.ip(), Arc::clone(&heard));
        if evicted {
            self.refusals.evicted.fetch_add(1, Relaxed);
        }
        let door = Arc::clone(self);
        self.tasks.spawn(async move {
            let shaken = tokio::select! {
                shaken = tokio::time::timeout(HANDSHAKE_LIMIT, door.shake_hands(tcp, source, heard)) => shaken,
                // Whoever evicted it has counted it.
                _ = evicted_later => return,
            };
            door.pending.lock().done(id);
            match shaken {
                Ok(Some((peer, joined))) => lane::run(peer, joined).await,
                Ok(None) => {}
                Err(_) => {
                    door.refusals.too_slow.fetch_add(1, Relaxed);
                }
            }
        });
    }

    /// Authenticates and exchanges hellos; refusals are counted and logged here.
    async fn shake_hands(
        &self,
        tcp: TcpStream,
        source: SocketAddr,
        heard: Arc<WireCounter>,
    ) -> Option<(Arc<Peer>, Joined<TlsTcp>)> {
        sockets::prepare_lane(&tcp, &self.options);
        let (mut stream, key) = match tls_tcp::accept(tcp, heard, &self.tls).await {
            Ok(accepted) => accepted,
            Err(error) => {
                self.refuse(source, error);
                return None;
            }
        };
        let peer = self.peers.get(&key)?;
        tls_tcp::count_for(&mut stream, &peer.wire);
        match lane::accept_hello(peer, key, stream).await {
            Ok(joined) => Some((Arc::clone(peer), joined)),
            Err(error) => {
                self.refusals.hello.fetch_add(1, Relaxed);
                if matches!(error, HelloFailure::Hello(_)) {
                    peer.trouble(PeerState::Refused, format!("{source}: {error}"));
                }
                self.log(Some(source), &format!("peer {}: {error}", peer.name()));
                None
            }
        }
    }

    fn refuse(&self, source: SocketAddr, error: AcceptError) {
        let (counter, line) = match error {
            AcceptError::UnknownKey => {
                let key = self.pinned.last_refused();
                let key = key.map_or_else(|| "of an unknown form".to_owned(), |key| key.to_string());
                let line =
                    format!("refused public key {key}; to let it in, name it in a [[peer]] public_key");
                (&self.refusals.unknown_key, line)
            }
            AcceptError::NotTls(error) => {
                (&self.refusals.not_tls, format!("no gateway speaks there: {error}"))
            }
            AcceptError::Io(error) => (&self.refusals.left, format!("left during the handshake: {error}")),
        };
        counter.fetch_add(1, Relaxed);
        self.log(Some(source), &line);
    }

    fn log(&self, source: Option<SocketAddr>, line: &str) {
        let Some(held_back) = self.seldom.due() else { return };
        let source = source.map(|source| source.to_string()).unwrap_or_default();
        tracing::warn!(source, held_back, "tunnel port: {line}");
    }
}

/// From the accept to the dialler's hello.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
