//! Looks names of hosts up, no more of them at once than leave threads to others.
//!
//! The system's resolver takes a thread until it answers, and does so late for a zone whose servers are silent, whoever
//! has given up meanwhile.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::sync::Semaphore;

use oncewire_codec::wire::OpenFailure;

use crate::lifecycle::limits::Shortage;
use crate::lifecycle::threads;

/// The lookups that one peer may have under way.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    places: Arc<Semaphore>,
    shortage: Arc<Shortage>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(OF_ONE)), shortage: Arc::default() }
    }
}

/// Looks up a host with its port, on a thread of its own unless it is an address.
///
/// # Errors
/// What the system says of the name, or that there is no thread and what to do about it.
pub(crate) async fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let host = host.to_owned();
    threads::run(THREAD, move || host.to_socket_addrs().map(Iterator::collect)).await?
}

impl Lookups {
    /// Returns the first few addresses of a name. Dropping it gives up, and the lookup keeps its place until it ends.
    ///
    /// # Errors
    /// If the name has none, as far as the system knows.
    pub(super) async fn addresses(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, OpenFailure> {
        let name = name.to_owned();
        let lookup = move || {
            let found = (name.as_str(), port).to_socket_addrs();
            found.map(|found| found.take(MAX_ADDRESSES).collect())
        };
        let found = self.run(threads::run(THREAD, lookup)).await.ok_or(OpenFailure::Other)?;
        let found: io::Result<_> = found.map_err(|error| {
            self.shortage.tell("onward", "names are not looked up", &error);
            OpenFailure::Other
        })?;
        found.map_err(|_| OpenFailure::NameNotFound)
    }

    /// Takes all places, so that a lookup waits.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.places).try_acquire_many_owned(OF_ONE as u32).unwrap()
    }

    /// Runs a lookup to its end once there is a place for it; none if it panicked, or the process ends.
    async fn run<T: Send + 'static>(&self, lookup: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let own = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let of_all = OF_ALL.acquire().await.ok()?;
        let lookup = async move {
            let found = lookup.await;
            drop((own, of_all));
            found
        };
        tokio::spawn(lookup).await.ok()
    }
}

/// The name of threads that look names up.
const THREAD: &str = "oncewire-name";

const OF_ONE: usize = 64;

/// Threads for names of all peers.
static OF_ALL: Semaphore = Semaphore::const_new(256);

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lookup_that_nobody_waits_for_keeps_its_place_until_it_ends() {
        let lookups = Lookups { places: Arc::new(Semaphore::new(1)), ..Lookups::default() };
        let (answer, answered) = tokio::sync::oneshot::channel::<u8>();
        let mut silent = Box::pin(lookups.run(answered));
        while lookups.places.available_permits() > 0 {
            tokio::select! {
                biased;
                _ = &mut silent => panic!("nobody answered"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(silent);
        let mut next = Box::pin(lookups.run(async { 7 }));
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = &mut next => panic!("there is no place for it"),
                () = tokio::task::yield_now() => {}
            }
        }
        answer.send(1).unwrap();
        assert_eq!(next.await, Some(7));
        assert_eq!(lookups.places.available_permits(), 1);
    }

    #[tokio::test]
    async fn names_have_addresses_or_not() {
        let lookups = Lookups::default();
        let local = lookups.addresses("localhost", 80).await.unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{local:?}");
        let none = lookups.addresses("no such name.invalid", 80).await;
        assert_eq!(none.unwrap_err(), OpenFailure::NameNotFound);
    }
}
