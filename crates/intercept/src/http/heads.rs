//! Limits of unfinished request heads: size, time and number.
//!
//! A head is kept completely until it ends, from a still unknown client. So its bytes are counted as they are
//! read, the heads of all clients together have a share of `memory`, and beyond it the oldest gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The heads of all clients of a gateway.
#[derive(Clone, Debug, Default)]
pub struct Heads(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    limit: usize,
    used: usize,
    next: u64,
    /// Heads of unknown clients come first, then by age.
    heads: BTreeMap<Place, Entry>,
}

/// Whether a request of the client was authorised before, and the age of the head.
type Place = (bool, u64);

#[derive(Debug)]
struct Entry {
    bytes: usize,
    stage: watch::Sender<Stage>,
}

impl Default for Table {
    fn default() -> Self {
        Self { limit: LEAST_ROOM, used: 0, next: 0, heads: BTreeMap::new() }
    }
}

/// Why the reading of a client's head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// It is larger than so many bytes.
    Large(usize),
    /// It takes too long.
    Late,
    /// Too many others are being read.
    Many,
    /// Too many empty lines lead it.
    Empty,
}

/// State of one client's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None has begun.
    Quiet,
    /// It began then.
    Reading(Instant),
    /// It is not read on.
    Over(Excess),
}

/// One client's head.
#[derive(Debug)]
pub(super) struct Head {
    heads: Heads,
    stage: watch::Sender<Stage>,
    /// The most bytes of a head before any request is authorised.
    first_limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The bytes read are not of a head.
    is_over: bool,
    bytes: usize,
    place: Option<Place>,
    is_known: bool,
}

/// A request from the end of its head to the ends of its content and of its answer; dropped, the next head may come.
#[derive(Debug)]
pub(super) struct Exchange(Arc<Head>);

impl Heads {
    /// Sets the heads' share by the gateway's memory.
    pub fn set_memory(&self, memory: u64) {
        let room = usize::try_from(memory / SHARE).unwrap_or(usize::MAX);
        let mut table = self.0.lock();
        table.limit = room.max(LEAST_ROOM);
        table.make_room();
    }

    /// Expects the first head of a client; `first_limit` bytes at most until a request of it is authorised.
    pub(super) fn expect(&self, first_limit: usize) -> Arc<Head> {
        let stage = watch::Sender::new(Stage::Quiet);
        Arc::new(Head { heads: self.clone(), stage, first_limit, state: Mutex::default() })
    }
}

impl Table {
    /// Counts more bytes of a head; a new one is entered.
    fn add(&mut self, head: &Head, state: &mut State, bytes: usize) {
        let place = *state.place.get_or_insert_with(|| {
            self.next += 1;
            (state.is_known, self.next)
        });
        let entry = self.heads.entry(place).or_insert_with(|| {
            self.used += CONNECTION_COST;
            Entry { bytes: CONNECTION_COST, stage: head.stage.clone() }
        });
        // A growing buffer takes its earlier size once more.
        entry.bytes += 2 * bytes;
        self.used += 2 * bytes;
        self.make_room();
    }

    /// Gives up heads, the oldest first, until the rest has room.
    fn make_room(&mut self) {
        while self.used > self.limit
            && let Some((_, oldest)) = self.heads.pop_first()
        {
            self.used = self.used.saturating_sub(oldest.bytes);
            oldest.stage.send_replace(Stage::Over(Excess::Many));
        }
    }

    fn remove(&mut self, place: Option<Place>) {
        if let Some(entry) = place.and_then(|place| self.heads.remove(&place)) {
            self.used = self.used.saturating_sub(entry.bytes);
        }
    }
}

impl Head {
    /// Returns the number of bytes to read now; none if they are of no head, and 0 if reading ends.
    pub(super) fn room(&self) -> Option<usize> {
        let state = self.state.lock();
        if state.is_over {
            return None;
        }
        let limit = if state.is_known { MAX_HEAD } else { self.first_limit };
        let room = limit.saturating_sub(state.bytes);
        if room == 0 {
            self.give_up(Excess::Large(limit));
        }
        Some(room)
    }

    /// Ends the reading of the head.
    pub(super) fn give_up(&self, why: Excess) {
        self.stage.send_replace(Stage::Over(why));
    }

    /// Notes bytes read, with so many of them kept once more.
    pub(super) fn read(&self, bytes: usize, kept: usize) {
        let mut state = self.state.lock();
        if state.is_over || bytes == 0 {
            return;
        }
        if state.bytes == 0 {
            self.stage.send_replace(Stage::Reading(Instant::now()));
        }
        state.bytes += bytes;
        self.heads.0.lock().add(self, &mut state, bytes + kept);
    }

    /// The head has ended.
    pub(super) fn end(self: &Arc<Self>) -> Exchange {
        let mut state = self.state.lock();
        state.is_over = true;
        self.forget(&mut state);
        Exchange(Arc::clone(self))
    }

    /// The client is authorised.
    pub(super) fn authorise(&self) {
        self.state.lock().is_known = true;
    }

    /// Waits until the reading of the head ends.
    pub(super) async fn excess(&self) -> Excess {
        let mut stage = self.stage.subscribe();
        loop {
            let now = *stage.borrow_and_update();
            let changed = async {
                // An error cannot be: the sender is ours.
                let _ = stage.changed().await;
            };
            match now {
                Stage::Over(why) => return why,
                Stage::Quiet => changed.await,
                Stage::Reading(since) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(since + HEAD_LIMIT) => return Excess::Late,
                },
            }
        }
    }

    fn forget(&self, state: &mut State) {
        self.heads.0.lock().remove(state.place.take());
        state.bytes = 0;
        self.stage.send_replace(Stage::Quiet);
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.heads.0.lock().remove(self.state.get_mut().place.take());
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.state.lock().is_over = false;
    }
}

/// The most bytes of a head.
pub(super) const MAX_HEAD: usize = 128 << 10;

/// The most bytes of a head before a request of the client is authorised, if that takes a name and a
/// password.
pub(super) const MAX_FIRST_HEAD: usize = 16 << 10;

/// How long a head may take from its first byte.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Heads may take this part of the gateway's memory.
const SHARE: u64 = 16;

/// Room for some heads of any size, however little memory there is.
const LEAST_ROOM: usize = 2 << 20;

/// Memory of a connection from the first byte of a head: its read buffer of 8 KiB.
const CONNECTION_COST: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn over(head: &Head) -> Option<Excess> {
        match *head.stage.borrow() {
            Stage::Over(why) => Some(why),
            _ => None,
        }
    }

    fn used(heads: &Heads) -> (usize, usize) {
        let table = heads.0.lock();
        (table.heads.len(), table.used)
    }

    #[test]
    fn oldest_unknown_head_gives_way_to_the_next() {
        let heads = Heads::default();
        let known = heads.expect(MAX_HEAD);
        known.authorise();
        known.read(1 << 10, 0);
        let count = LEAST_ROOM / (CONNECTION_COST + 2 * MAX_FIRST_HEAD) + 10;
        let clients: Vec<_> = (0..count).map(|_| heads.expect(MAX_FIRST_HEAD)).collect();
        for client in &clients {
            client.read(MAX_FIRST_HEAD - 1, 0);
            assert!(used(&heads).1 <= LEAST_ROOM);
        }
        let given_up = clients.iter().take_while(|client| over(client) == Some(Excess::Many)).count();
        assert!((1..count).contains(&given_up), "{given_up}");
        assert!(clients[given_up..].iter().all(|client| over(client).is_none()));
        assert_eq!(over(&known), None, "a known client is older and stays");
        drop((known, clients));
        assert_eq!(used(&heads), (0, 0));
    }

    #[test]
    fn less_memory_gives_heads_up_at_once() {
        let heads = Heads::default();
        heads.set_memory(64 << 30);
        let clients: Vec<_> = (0..50).map(|_| heads.expect(MAX_HEAD)).collect();
        clients.iter().for_each(|client| client.read(100 << 10, 0));
        assert!(clients.iter().all(|client| over(client).is_none()));
        heads.set_memory(0);
        assert!(used(&heads).1 <= LEAST_ROOM);
        assert_eq!(over(&clients[0]), Some(Excess::Many));
    }

    #[test]
    fn head_limit_holds_until_its_end_and_after_the_exchange() {
        let heads = Heads::default();
        let head = heads.expect(MAX_FIRST_HEAD);
        head.read(MAX_FIRST_HEAD - 1, 0);
        assert_eq!((head.room(), over(&head)), (Some(1), None));
        let exchange = head.end();
        head.read(10 * MAX_HEAD, 0);
        assert_eq!((head.room(), used(&heads)), (None, (0, 0)), "content has no limit");
        head.authorise();
        drop(exchange);
        assert_eq!(head.room(), Some(MAX_HEAD));
        head.read(MAX_HEAD, 0);
        assert_eq!((head.room(), over(&head)), (Some(0), Some(Excess::Large(MAX_HEAD))));
    }

    #[tokio::test(start_paused = true)]
    async fn trickling_head_has_a_limit_and_quiet_client_has_none() {
        let head = Heads::default().expect(MAX_HEAD);
        let quiet = tokio::time::timeout(10 * HEAD_LIMIT, head.excess()).await;
        assert!(quiet.is_err());
        let start = Instant::now();
        let trickle = async {
            loop {
                head.read(1, 0);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let why = tokio::select! {
            why = head.excess() => why,
            () = trickle => return,
        };
        assert_eq!((why, start.elapsed().as_secs()), (Excess::Late, HEAD_LIMIT.as_secs()));
    }
}
