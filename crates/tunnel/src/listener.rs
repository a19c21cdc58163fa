//! The tunnel port: open to all, few admitted, each refusal counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use oncewire_host::limits;
use oncewire_host::log_throttle::LogThrottle;
use oncewire_host::tasks::Tasks;
use oncewire_keys::PublicKey;
use oncewire_keys::tls::PinnedKeys;
use oncewire_report::{LinkState, Refusal};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use super::count::WireCounter;
use super::lane::tls_tcp::{self, AcceptError, TlsTcp};
use super::lane::{self, Joined};
use super::peer::Peer;
use super::pending::Pending;
use crate::accounts::TrafficAccounts;
use crate::lane::options::{self, LaneOptions};

/// Admitted peers and the terms of their admission.
pub struct Guests {
    /// The server's side of TLS.
    pub tls: Arc<ServerConfig>,
    /// The accepted keys, as in `tls`.
    pub pinned: Arc<PinnedKeys>,
    /// This gateway's key.
    pub ours: PublicKey,
    /// Peers by their keys.
    pub peers: BTreeMap<PublicKey, Arc<Peer>>,
}

/// One listening tunnel port.
pub struct TunnelPort {
    /// Listening address.
    pub address: SocketAddr,
    closed: Notify,
    listener: Weak<TcpListener>,
}

impl TunnelPort {
    /// Makes a port of a bound listener.
    pub fn new(address: SocketAddr, listener: &Arc<TcpListener>) -> Arc<Self> {
        Arc::new(Self { address, closed: Notify::new(), listener: Arc::downgrade(listener) })
    }

    /// Returns the listening socket while it is open.
    pub fn listener(&self) -> Option<Arc<TcpListener>> {
        self.listener.upgrade()
    }

    /// Stops listening; accepted lanes go on.
    pub fn close(&self) {
        self.closed.notify_one();
    }
}

/// State shared by the accept loops of all tunnel ports.
pub struct TunnelDoor {
    /// Exchanged by a reload; a running handshake ends as it began.
    guests: watch::Sender<Arc<Guests>>,
    tasks: Arc<Tasks>,
    pending: Mutex<Pending>,
    accounts: Arc<TrafficAccounts>,
    seldom: LogThrottle,
}

impl TunnelDoor {
    /// Makes the door of all tunnel ports.
    pub fn new(guests: Guests, accounts: Arc<TrafficAccounts>, tasks: Arc<Tasks>) -> Arc<Self> {
        Arc::new(Self {
            guests: watch::Sender::new(Arc::new(guests)),
            tasks,
            pending: Mutex::default(),
            accounts,
            seldom: LogThrottle::default(),
        })
    }

    /// Returns the number of unfinished handshakes.
    pub fn pending(&self) -> usize {
        self.pending.lock().len()
    }

    /// Replaces the admitted peers. A handshake with an ended peer waits for the next guests.
    pub fn set_guests(&self, guests: Guests) {
        self.guests.send_replace(Arc::new(guests));
    }

    /// Accepts as long as the gateway runs, or until the port is closed.
    pub async fn run(self: Arc<Self>, listener: Arc<TcpListener>, port: Arc<TunnelPort>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = port.closed.notified() => return,
            };
            match accepted {
                Ok((tcp, source)) => self.take_in(tcp, source, port.address),
                Err(error) => {
                    // Out of files or memory, most often: one stranger makes room, and we do not spin.
                    self.evict_one();
                    self.accounts.shortage.tell(port.address, "no lane is accepted", &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Gives up one handshake, if there is any; returns whether there was.
    fn evict_one(&self) -> bool {
        let evicted = self.pending.lock().evict_one();
        if evicted {
            self.accounts.refusals.count(Refusal::HandshakeEvicted);
        }
        evicted
    }

    fn take_in(self: &Arc<Self>, tcp: TcpStream, source: SocketAddr, place: SocketAddr) {
        if !limits::leaves_reserve(&tcp) {
            self.accounts.shortage.tell(place, "lanes are refused", &limits::reserve_reached());
            // One stranger makes room for a possible peer.
            if !self.evict_one() {
                self.accounts.refusals.count(Refusal::TooMany);
                return;
            }
        }
        let heard = Arc::new(WireCounter::default());
        let (id, evicted_later, evicted) = self.pending.lock().admit(source.ip(), Arc::clone(&heard));
        if evicted {
            self.accounts.refusals.count(Refusal::HandshakeEvicted);
        }
        let door = Arc::clone(self);
        self.tasks.spawn(async move {
            let shaken = tokio::select! {
                shaken = tokio::time::timeout(HANDSHAKE_LIMIT, door.shake_hands(tcp, source, heard)) => shaken,
                // The evictor has counted it.
                _ = evicted_later => return,
            };
            door.pending.lock().done(id);
            match shaken {
                Ok(Some((peer, joined))) => lane::run(peer, joined).await,
                Ok(None) => {}
                Err(_) => {
                    door.accounts.refusals.count(Refusal::HandshakeTimeout);
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
        let guests = Arc::clone(&self.guests.borrow());
        // The peer is not known yet, nor are its lane options.
        options::prepare_lane(&tcp, &LaneOptions::unknown());
        let (mut stream, key) = match tls_tcp::accept(tcp, heard, &guests.tls).await {
            Ok(accepted) => accepted,
            Err(error) => {
                self.refuse(&guests, source, error);
                return None;
            }
        };
        let peer = &self.peer_of(key).await?;
        stream.count_for(&peer.wire);
        stream.prepare(&peer.settings.lanes);
        match lane::accept_hello(peer, key, stream).await {
            Ok(joined) => {
                joined.prepare_for_role(&peer.settings.lanes);
                Some((Arc::clone(peer), joined))
            }
            Err(error) if error.is_transient() => {
                tracing::debug!(%source, peer = peer.name(), %error, "lane turned back");
                None
            }
            Err(error) => {
                self.accounts.refusals.count(Refusal::BadHello);
                if error.is_mismatch() {
                    peer.dials.note_trouble(LinkState::Refused, format!("{source}: {error}"));
                }
                self.log(source, &format!("peer {}: {error}", peer.name()));
                None
            }
        }
    }

    /// Returns the peer with this key; after a reload ended its link, its successor.
    async fn peer_of(&self, key: PublicKey) -> Option<Arc<Peer>> {
        let mut guests = self.guests.subscribe();
        let is_clear = |guests: &Arc<Guests>| guests.peers.get(&key).is_none_or(|peer| !peer.has_ended());
        let clear = guests.wait_for(is_clear).await.ok()?;
        clear.peers.get(&key).cloned()
    }

    fn refuse(&self, guests: &Guests, source: SocketAddr, error: AcceptError) {
        let (refusal, line) = match error {
            AcceptError::UnknownKey => {
                let key = guests.pinned.last_refused();
                let key = key.map_or_else(|| "of an unknown form".to_owned(), |key| key.to_string());
                let line =
                    format!("refused public key {key}; to let it in, name it in a [[peer]] public_key");
                (Refusal::UnknownKey, line)
            }
            AcceptError::NotExpected => {
                let line = format!(
                    "whoever dials does not accept our public key; if it is a peer, its public_key for us must be {}",
                    guests.ours
                );
                (Refusal::BadHandshake, line)
            }
            AcceptError::NotTls(error) => {
                (Refusal::BadHandshake, format!("no gateway speaks there: {error}"))
            }
            AcceptError::Io(error) => (Refusal::BadHandshake, format!("left during the handshake: {error}")),
        };
        self.accounts.refusals.count(refusal);
        self.log(source, &line);
    }

    fn log(&self, source: SocketAddr, line: &str) {
        let Some(held_back) = self.seldom.due() else { return };
        tracing::warn!(%source, held_back, "tunnel port: {line}");
    }
}

/// From the accept to the dialler's hello.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
