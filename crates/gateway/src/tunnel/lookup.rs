//! Looks names of hosts up, no more of them at once than leave threads to others.
//!
//! The system's resolver takes a thread until it answers, and does so late for a zone whose servers are silent, whoever
//! has given up meanwhile. Those threads also dial peers by name and load rules.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;

use oncewire_codec::wire::OpenFailure;

/// The lookups that one peer may have under way.
#[derive(Clone, Debug)]
pub(crate) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_ONE)))
    }
}

impl Lookups {
    /// Returns the first few addresses of a name. Dropping it gives up, and the lookup keeps its place until it ends.
    ///
    /// # Errors
    /// If the name has none, as far as the system knows.
    pub(super) async fn addresses(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, OpenFailure> {
        let name = name.to_owned();
        let lookup = async move {
            let found = tokio::net::lookup_host((name, port)).await;
            found.map(|found| found.take(MAX_ADDRESSES).collect())
        };
        let found: Option<std::io::Result<_>> = self.run(lookup).await;
        found.ok_or(OpenFailure::Other)?.map_err(|_| OpenFailure::NameNotFound)
    }

    /// Runs a lookup to its end once there is a place for it; none if it panicked, or the process ends.
    async fn run<T: Send + 'static>(&self, lookup: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let own = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let of_all = OF_ALL.acquire().await.ok()?;
        let lookup = async move {
            let found = lookup.await;
            drop((own, of_all));
            found
        };
        tokio::spawn(lookup).await.ok()
    }
}

const OF_ONE: usize = 64;

/// Half of the threads that the runtime has for all that waits.
static OF_ALL: Semaphore = Semaphore::const_new(256);

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lookup_that_nobody_waits_for_keeps_its_place_until_it_ends() {
        let lookups = Lookups(Arc::new(Semaphore::new(1)));
        let (answer, answered) = tokio::sync::oneshot::channel::<u8>();
        let mut silent = Box::pin(lookups.run(answered));
        while lookups.0.available_permits() > 0 {
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
        assert_eq!(lookups.0.available_permits(), 1);
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
