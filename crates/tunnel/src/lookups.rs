//! Name resolution on a bounded number of threads.
//!
//! The system's resolver holds a thread until it answers, and answers late for a zone with silent servers,
//! even after everybody gave up. So equal look-ups are shared, and each zone leaves places to others.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use oncewire_codec::wire::OpenFailure;
use oncewire_host::limits::Shortage;
use oncewire_host::names::THREAD;
use oncewire_host::scope::Scoped;
use oncewire_host::threads;

/// One peer's look-ups in progress.
#[derive(Clone, Debug)]
pub struct Lookups {
    places: Arc<Semaphore>,
    table: Arc<Mutex<Table>>,
    shortage: Arc<Shortage>,
}

#[derive(Debug, Default)]
struct Table {
    /// Look-ups with waiters or in the system's hands, by name.
    under_way: HashMap<String, Arc<Answer>>,
    /// Semaphores of zones with look-ups.
    zones: HashMap<String, Weak<Semaphore>>,
}

/// The system's answer for a name, once there.
type Answer = watch::Sender<Option<Found>>;

type Found = Result<Vec<SocketAddr>, OpenFailure>;

/// A look-up's entry in the table; on drop it leaves the table, and its waiters get no answer.
struct Entry {
    table: Arc<Mutex<Table>>,
    name: String,
    zone: Option<Arc<Semaphore>>,
    answer: Arc<Answer>,
}

/// Permits held by a look-up until it ends.
type Places = (OwnedSemaphorePermit, OwnedSemaphorePermit, tokio::sync::SemaphorePermit<'static>);

impl Default for Lookups {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(OF_ONE)), table: Arc::default(), shortage: Arc::default() }
    }
}

impl Lookups {
    /// Returns the first few addresses of a name. Dropping it gives up; a running look-up keeps its place
    /// until it ends.
    ///
    /// # Errors
    /// If the name has none, to the system's knowledge.
    pub(super) async fn addresses(&self, name: &str, port: u16) -> Found {
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if let Some(scoped) = Scoped::read(name) {
            return scoped.address(port).map(|address| vec![address]).map_err(|_| OpenFailure::NameNotFound);
        }
        let (asked, shortage) = (name.to_owned(), Arc::clone(&self.shortage));
        let lookup = async move {
            let lookup = move || {
                let found = (asked.as_str(), 0).to_socket_addrs();
                found.map(|found| found.take(MAX_ADDRESSES).collect())
            };
            let found: io::Result<_> = threads::run(THREAD, lookup).await.map_err(|error| {
                shortage.tell("onward", "names are not looked up", &error);
                OpenFailure::Other
            })?;
            found.map_err(|_| OpenFailure::NameNotFound)
        };
        let mut addresses = self.share(name, lookup).await?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    /// Takes all places: a look-up then waits.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.places).try_acquire_many_owned(OF_ONE as u32).unwrap()
    }

    /// Waits for a running look-up of this name, or starts one.
    async fn share(&self, name: &str, lookup: impl Future<Output = Found> + Send + 'static) -> Found {
        let mut answer = self.join(name, lookup);
        let found = answer.wait_for(Option::is_some).await;
        // Without an answer it panicked, or the process ends.
        found.ok().and_then(|found| found.clone()).unwrap_or(Err(OpenFailure::Other))
    }

    fn join(
        &self,
        name: &str,
        lookup: impl Future<Output = Found> + Send + 'static,
    ) -> watch::Receiver<Option<Found>> {
        let name = name.to_ascii_lowercase();
        let mut table = self.table.lock();
        if let Some(answer) = table.under_way.get(&name) {
            return answer.subscribe();
        }
        let (answer, waits) = watch::channel(None);
        let answer = Arc::new(answer);
        table.under_way.insert(name.clone(), Arc::clone(&answer));
        let zone = table.zone(&name);
        let entry = Entry { table: Arc::clone(&self.table), name, zone: Some(zone), answer };
        tokio::spawn(entry.run(Arc::clone(&self.places), lookup));
        waits
    }
}

impl Table {
    /// Returns the places of a name's zone.
    fn zone(&mut self, name: &str) -> Arc<Semaphore> {
        let zone = zone_of(name);
        if let Some(places) = self.zones.get(zone).and_then(Weak::upgrade) {
            return places;
        }
        let places = Arc::new(Semaphore::new(OF_ZONE));
        self.zones.insert(zone.to_owned(), Arc::downgrade(&places));
        places
    }
}

impl Entry {
    /// Looks up once a place is free, unless nobody is waiting.
    async fn run(self, own: Arc<Semaphore>, lookup: impl Future<Output = Found>) {
        let Some(_places) = self.places(own).await else { return };
        let found = lookup.await;
        let mut table = self.table.lock();
        table.under_way.remove(&self.name);
        self.answer.send_replace(Some(found));
        drop(table);
    }

    /// Waits for a place of the zone, of the peer, and of all.
    async fn places(&self, own: Arc<Semaphore>) -> Option<Places> {
        let zone = self.zone.clone()?;
        let mut places = std::pin::pin!(async {
            // The zone's permit first: a look-up waiting for it takes no place from others.
            Some((
                zone.acquire_owned().await.ok()?,
                own.acquire_owned().await.ok()?,
                OF_ALL.acquire().await.ok()?,
            ))
        });
        loop {
            tokio::select! {
                places = &mut places => return places,
                () = self.answer.closed() => {}
            }
            let mut table = self.table.lock();
            // A waiter may have joined meanwhile; none can under the lock.
            if self.answer.is_closed() {
                table.under_way.remove(&self.name);
                return None;
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        // Another of this name may have begun since this one ended.
        if table.under_way.get(&self.name).is_some_and(|answer| Arc::ptr_eq(answer, &self.answer)) {
            table.under_way.remove(&self.name);
        }
        self.zone = None;
        let zone = zone_of(&self.name);
        if table.zones.get(zone).is_some_and(|places| places.strong_count() == 0) {
            table.zones.remove(zone);
        }
    }
}

/// Returns the part of a name likely shared by names on the same servers: two labels, or three behind a
/// registry like `co.uk` and `com.au`.
fn zone_of(name: &str) -> &str {
    let bare = name.trim_end_matches('.');
    let mut dots = bare.rmatch_indices('.').map(|(at, _)| at);
    let (Some(last), Some(second)) = (dots.next(), dots.next()) else { return name };
    let is_country = bare.len() - last == 3;
    let is_registry = bare.get(second + 1..last).is_some_and(|label| REGISTRIES.contains(&label));
    let start = if is_country && is_registry { dots.next() } else { Some(second) };
    start.and_then(|dot| name.get(dot + 1..)).unwrap_or(name)
}

const OF_ONE: usize = 64;

/// Places of a peer for names of one zone.
const OF_ZONE: usize = 16;

/// Second-level labels of country registries; zones begin one label further left.
const REGISTRIES: [&str; 10] = ["ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org"];

/// Threads for names of all peers.
static OF_ALL: Semaphore = Semaphore::const_new(256);

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(last: u8) -> Found {
        Ok(vec![SocketAddr::from(([127, 0, 0, last], 0))])
    }

    /// Returns a look-up without an answer yet, and the means to give it.
    fn silent() -> (tokio::sync::oneshot::Sender<Found>, impl Future<Output = Found> + Send + 'static) {
        let (answer, answered) = tokio::sync::oneshot::channel();
        (answer, async { answered.await.unwrap_or(Err(OpenFailure::Other)) })
    }

    /// Lets all ready tasks run.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn left(lookups: &Lookups) -> (usize, usize) {
        let table = lookups.table.lock();
        (table.under_way.len(), table.zones.len())
    }

    #[tokio::test]
    async fn lookup_keeps_its_place_after_everyone_gave_up() {
        let lookups = Lookups { places: Arc::new(Semaphore::new(1)), ..Lookups::default() };
        let (answer, answered) = silent();
        let first = lookups.join("dead.example", answered);
        settle().await;
        assert_eq!(lookups.places.available_permits(), 0);
        drop(first);
        let next = tokio::spawn({
            let lookups = lookups.clone();
            async move { lookups.share("other.test", async { found(7) }).await }
        });
        settle().await;
        assert!(!next.is_finished(), "there is no place for it");
        answer.send(found(1)).unwrap();
        assert_eq!(next.await.unwrap(), found(7));
        settle().await;
        assert_eq!((lookups.places.available_permits(), left(&lookups)), (1, (0, 0)));
    }

    #[tokio::test]
    async fn equal_names_share_one_lookup_and_its_answer() {
        let lookups = Lookups::default();
        let (answer, answered) = silent();
        let mut waiting = vec![lookups.join("www.Dead.example", answered)];
        waiting.extend((0..80).map(|_| lookups.join("WWW.dead.example", async { panic!("a second one") })));
        settle().await;
        assert_eq!(lookups.places.available_permits(), OF_ONE - 1);
        answer.send(found(3)).unwrap();
        for mut answer in waiting {
            assert_eq!(answer.wait_for(Option::is_some).await.unwrap().clone(), Some(found(3)));
        }
        settle().await;
        assert_eq!(lookups.share("www.dead.example", async { found(4) }).await, found(4), "it is not kept");
        settle().await;
        assert_eq!(left(&lookups), (0, 0));
    }

    #[tokio::test]
    async fn dead_zone_leaves_places_to_other_zones() {
        let lookups = Lookups::default();
        let dead = |at: usize| lookups.join(&format!("h{at}.dead.example"), std::future::pending());
        let _dead: Vec<_> = (0..2 * OF_ONE).map(dead).collect();
        settle().await;
        assert_eq!(lookups.places.available_permits(), OF_ONE - OF_ZONE);
        assert_eq!(lookups.share("alive.example", async { found(5) }).await, found(5));
    }

    #[tokio::test]
    async fn waiting_lookup_is_dropped_once_nobody_waits_for_it() {
        let lookups = Lookups::default();
        let places = lookups.take_all();
        let waits = lookups.join("a.example", async { panic!("nobody waits") });
        let joins = lookups.join("a.example", async { panic!("it is joined") });
        settle().await;
        drop(waits);
        settle().await;
        assert_eq!(left(&lookups), (1, 1));
        drop(joins);
        settle().await;
        assert_eq!(left(&lookups), (0, 0));
        drop(places);
        assert_eq!(lookups.share("a.example", async { found(6) }).await, found(6));
    }

    #[tokio::test]
    async fn panicked_lookup_fails_and_frees_its_place() {
        let lookups = Lookups::default();
        assert_eq!(lookups.share("a.example", async { panic!("as planned") }).await, Err(OpenFailure::Other));
        settle().await;
        assert_eq!((lookups.places.available_permits(), left(&lookups)), (OF_ONE, (0, 0)));
    }

    #[test]
    fn zones_begin_behind_registries() {
        for (name, zone) in [
            ("www.dead.example", "dead.example"),
            ("a.b.dead.example.", "dead.example."),
            ("www.shop.co.uk", "shop.co.uk"),
            ("shop.co.uk", "shop.co.uk"),
            ("www.ibm.com", "ibm.com"),
            ("www.co.com", "co.com"),
            ("localhost", "localhost"),
            ("dead.example", "dead.example"),
            ("..", ".."),
            ("", ""),
        ] {
            assert_eq!(zone_of(name), zone, "{name}");
        }
    }

    #[tokio::test]
    async fn address_for_a_name_takes_no_place() {
        let lookups = Lookups::default();
        let _places = lookups.take_all();
        for (name, address) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
            assert_eq!(lookups.addresses(name, 80).await.unwrap(), [address.parse().unwrap()]);
        }
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
