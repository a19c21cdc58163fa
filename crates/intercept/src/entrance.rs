//! An interception's listeners.

use std::iter;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Door;

/// A listening socket, with the door of its connections; a reload may exchange the door.
pub struct Entrance {
    address: SocketAddr,
    /// The other family's address, if it listens there too.
    twin: Option<SocketAddr>,
    door: RwLock<Arc<Door>>,
    closed: watch::Sender<bool>,
    /// Both families', as long as they listen.
    listeners: Vec<Weak<TcpListener>>,
}

impl Entrance {
    /// Makes the entrance of a door at its listening address.
    pub fn new(address: SocketAddr, door: Arc<Door>, listeners: &[Arc<TcpListener>]) -> Arc<Self> {
        let mut others = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let twin = others.find(|other| *other != address);
        let listeners = listeners.iter().map(Arc::downgrade).collect();
        let (door, closed) = (RwLock::new(door), watch::Sender::new(false));
        Arc::new(Self { address, twin, door, closed, listeners })
    }

    /// Returns the listeners.
    pub fn listeners(&self) -> impl Iterator<Item = Arc<TcpListener>> {
        self.listeners.iter().filter_map(Weak::upgrade)
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listening addresses, of both families.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        iter::once(self.address).chain(self.twin)
    }

    /// Returns the present door.
    pub fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door.read())
    }

    /// Sets the door of later connections.
    pub fn set_door(&self, door: Arc<Door>) {
        *self.door.write() = door;
    }

    /// Stops listening; accepted connections go on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Accepts until the gateway stops or the entrance is closed; connections taken in by then go on.
    pub async fn run(self: Arc<Self>, listener: Arc<TcpListener>, mut stop: watch::Receiver<bool>) {
        let mut closed = self.closed.subscribe();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = closed.wait_for(|closed| *closed) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, source)) => self.door().take_in(stream, source),
                Err(error) => {
                    // Out of files or memory, most often; not in a tight loop.
                    self.door().accounts.shortage.tell(self.address, "no connection is accepted", &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
