//! A gateway's chunk store: one for all peers, behind bounded queues.
//!
//! No tunnel waits on the queues. The store itself is [`oncewire_store`]; here it is opened, fed by links,
//! watched and closed. The decisions stand in `docs/internals/store-in-the-daemon.md`.

mod clock;
mod look;
pub mod names;
mod open;
mod put;
mod reads;
mod slot;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wanax::shed::LEAST_SLOW;
use oncewire_codec::wanax::{ChunkName, Name, NameKey, Shape};
use oncewire_codec::wire::{self, Sought};
use oncewire_config::StoreSettings;
use oncewire_host::log_throttle::LogThrottle;
use oncewire_host::slow_disk::{self, DISK_LIMIT};
use oncewire_link::{ChunkPlace, StoreReply, StoreRequest, StoreState};
use oncewire_report::{StoreCondition, StoreReport};
use oncewire_store::pool::{Load, ReadOutcome};
use oncewire_store::{Counts, Stat};

use self::clock::StoreClock;
use self::put::Cutter;
use self::reads::Reads;
use self::slot::{Held, PoolOf, Slot};
use crate::neighbours::{Neighbours, News, PendingShare};

pub use self::open::OpenError;
pub use self::tools::{AtRest, AtRestError, Room, clear_at_rest, refuses_key};
pub use oncewire_store::Progress;

/// The chunk store of this process, or the reason for a missing one.
#[derive(Debug)]
pub struct ChunkStore {
    settings: StoreSettings,
    /// None if it could not be read; a closed store keeps its id, so links need no notice.
    id: Option<u64>,
    slot: Arc<RwLock<Slot>>,
    cutter: Arc<Mutex<Cutter>>,
    clock: Arc<StoreClock>,
    tally: Arc<Tally>,
    /// The writing thread's last look at it.
    seen: Arc<Mutex<Seen>>,
    /// How long the disk may hold a request before the gateway does without it.
    hangs_after: Duration,
    /// Receivers of news about its content.
    neighbours: Option<Neighbours>,
}

/// Counts of requests since the start.
#[derive(Debug, Default)]
struct Tally {
    reads: Reads,
    /// Looks with a sync.
    syncs: AtomicU64,
    puts: AtomicU64,
    put_bytes: AtomicU64,
    /// Puts dropped at the limit of waiting bytes.
    dropped: AtomicU64,
    /// The time of the oldest chunk by the clock of the store, 0 if there is none.
    oldest_s: AtomicU64,
    taking: AtomicBool,
    /// The writing thread is clearing it.
    clearing: AtomicBool,
    log: LogThrottle,
}

/// The store's state at the last look.
#[derive(Clone, Debug, Default)]
struct Seen {
    stat: Option<Stat>,
    /// Counters at the time of `stat`.
    stat_counts: Counts,
    counts: Counts,
    trouble: Option<String>,
    /// The trouble is transient, and the store tries again.
    passes: bool,
    /// The next look must sync, or a running one not yet at its sync.
    sync_is_due: bool,
    /// A look is pending: looks do not pile up on a hanging disk.
    looking: bool,
}

/// Result of a clearing: the number of bytes, or the obstacle.
pub type ChunksCleared = oneshot::Receiver<Result<u64, String>>;

/// A link with requests to the store, for answers later on.
pub(crate) trait Asker: Send + Sync + 'static {
    /// Takes the outcome of a read; from any thread.
    fn handle_chunk(self: &Arc<Self>, reply: StoreReply);
}

impl ChunkStore {
    /// Returns its id for peers; none if there is no store after all.
    pub(crate) fn id(&self) -> Option<u64> {
        self.id
    }

    /// Counts the pending reads of a link to another site, if there may be neighbours to tell.
    pub(crate) fn pending_share(&self) -> Option<PendingShare> {
        self.neighbours.as_ref().map(Neighbours::pending_share)
    }

    /// Takes a request of a link; never waits. A thread of the store answers the rest.
    pub(crate) fn serve<A: Asker>(&self, asker: &Arc<A>, request: StoreRequest) -> Option<StoreReply> {
        match request {
            StoreRequest::Read { ticket, name, len, key, .. } => self.read(asker, ticket, (name, len, key)),
            StoreRequest::Peek { ticket, chunks, key, .. } => {
                let places = self.places(&chunks, self.may_be_elsewhere(&key));
                Some(StoreReply::Places { ticket, places, neighbours: Vec::new() })
            }
            StoreRequest::Put { plain, key, shape } => {
                self.put(plain, key, shape);
                None
            }
        }
    }

    fn read<A: Asker>(
        &self,
        asker: &Arc<A>,
        ticket: u64,
        (name, len, key): (ChunkName, u32, NameKey),
    ) -> Option<StoreReply> {
        self.tally.reads.begin();
        let (asker, tally) = (Arc::downgrade(asker), Arc::clone(&self.tally));
        let check = move |chunk: &[u8]| name.matches(chunk, &key);
        let reply = move |outcome: ReadOutcome| {
            tally.reads.end(&outcome);
            let Some(asker) = asker.upgrade() else { return };
            asker.handle_chunk(match outcome {
                Ok(Some(bytes)) => StoreReply::Found { ticket, bytes: bytes.into() },
                Ok(None) => StoreReply::Absent { ticket },
                Err(fault) => {
                    if let Some(held_back) = tally.log.due() {
                        tracing::warn!(held_back, "chunk store: {fault}; it is asked for at the far side");
                    }
                    match fault.wants_again() {
                        true => StoreReply::Failed { ticket },
                        false => StoreReply::Busy { ticket },
                    }
                }
            });
        };
        if self.try_read((name.tag(), len), |_| true, check, reply) {
            return None;
        }
        self.tally.reads.turn_away();
        Some(StoreReply::Busy { ticket })
    }

    /// Has a chunk read, on demand behind the queued puts; returns false if the store is not open, too many
    /// reads wait, or the disk hangs.
    fn try_read(
        &self,
        (tag, len): (u64, u32),
        waits: impl Fn(&Load) -> bool,
        check: impl Fn(&[u8]) -> bool + Send + 'static,
        reply: impl FnOnce(ReadOutcome) + Send + 'static,
    ) -> bool {
        let slot = self.slot.read();
        let Some(PoolOf(pool)) = slot.pool() else { return false };
        let load = pool.load();
        if self.held(&load).reads {
            return false;
        }
        let taken = match waits(&load) {
            true => pool.read(tag, len, check, reply),
            false => pool.read_now(tag, len, check, reply),
        };
        taken.is_ok()
    }

    /// Whether it can be read: it is open, and its disk does not hang.
    pub(crate) fn can_read(&self) -> bool {
        self.slot.read().pool().is_some_and(|PoolOf(pool)| !self.held(&pool.load()).reads)
    }

    fn held(&self, load: &Load) -> Held {
        Held::of(load, self.hangs_after)
    }

    /// Whether a neighbour may have chunks named under this key.
    fn may_be_elsewhere(&self, key: &NameKey) -> bool {
        self.neighbours.as_ref().is_some_and(|neighbours| neighbours.can_ask(key))
    }

    /// Returns the reads needed for chunks, without I/O; missing chunks may be `elsewhere`.
    pub(crate) fn places(&self, chunks: &[Sought], elsewhere: bool) -> Vec<ChunkPlace> {
        let slot = self.slot.read();
        let place = |&Sought { tag, len }: &Sought| {
            // The content of an unopened store is unknown.
            let Some(PoolOf(pool)) = slot.pool() else { return ChunkPlace::Near };
            match pool.store().locate(tag, len) {
                Some(read) => ChunkPlace::Disk { disk: 0, read: Some(read) },
                None if elsewhere || pool.store().peek(tag, len) => ChunkPlace::Near,
                None => ChunkPlace::Absent,
            }
        };
        chunks.iter().map(place).collect()
    }

    /// Whether a read is too fast for any neighbour to help.
    pub(crate) fn is_soon(&self) -> bool {
        let slot = self.slot.read();
        let load = slot.pool().map(|PoolOf(pool)| pool.load());
        load.is_some_and(|load| {
            let reads = u32::try_from(load.queued).unwrap_or(u32::MAX).saturating_add(1);
            service_time(&load).saturating_mul(reads) <= SOON
        })
    }

    /// Whether it may hold a chunk, without I/O.
    pub(crate) fn holds(&self, tag: u64, len: u32) -> bool {
        self.slot.read().pool().is_some_and(|PoolOf(pool)| pool.store().peek(tag, len))
    }

    /// Whether it may hold a chunk, now or once it is open: the content of an unopened store is unknown. A
    /// chunk too small to be offered needs certainty: it must be held and readable here.
    pub(crate) fn may_hold(&self, tag: u64, len: u32) -> bool {
        let is_opening = matches!(*self.slot.read(), Slot::Opening(_));
        let is_shared = len >= LEAST_SHARED;
        is_opening && is_shared || self.holds(tag, len) && (is_shared || self.can_read())
    }

    /// Reads a chunk for a neighbour, and hands it to `reply` on a thread of the store; returns false if too
    /// many reads wait. Queued puts are included if they are soon done: the neighbour judges this gateway's
    /// health by the time to an answer.
    pub(crate) fn lend(
        &self,
        name: Name,
        len: u32,
        key: NameKey,
        reply: impl FnOnce(Option<Bytes>) + Send + 'static,
    ) -> bool {
        let check = move |chunk: &[u8]| key.matches(&name, chunk);
        let reply = move |outcome: ReadOutcome| reply(outcome.ok().flatten().map(Bytes::from));
        self.try_read((name.tag(), len), puts_are_soon, check, reply)
    }

    /// Puts a chunk from a neighbour; nobody else is told.
    pub(crate) fn keep(&self, plain: Bytes, key: NameKey, shape: Shape) {
        let (cutter, clock) = (Arc::clone(&self.cutter), Arc::clone(&self.clock));
        let cost = plain.len() as u64;
        self.ingest(cost, move |store| cutter.lock().put(store, &plain, (&key, shape), clock.now_s()));
    }

    fn put(&self, plain: Bytes, key: NameKey, shape: Shape) {
        let (cutter, clock, bytes) = (Arc::clone(&self.cutter), Arc::clone(&self.clock), plain.len() as u64);
        let neighbours = self.neighbours.clone().filter(|neighbours| neighbours.can_tell(&key));
        self.ingest(bytes, move |store| {
            let (named, now_s) = ((&key, shape), clock.now_s());
            let Some(neighbours) = neighbours else { return cutter.lock().put(store, &plain, named, now_s) };
            let chunks = cutter.lock().put_and_tell(store, &plain, named, now_s);
            if !chunks.is_empty() {
                neighbours.handle_news(News { key, shape, plain, chunks });
            }
        });
    }

    /// Has a block of so many bytes put.
    fn ingest(&self, bytes: u64, job: impl FnOnce(&oncewire_store::Store) + Send + 'static) {
        // A small block takes more than its bytes: the job, and the buffer behind its slice.
        let cost = bytes + 1024;
        let slot = self.slot.read();
        let tally = &self.tally;
        if slot.pool().is_some_and(|PoolOf(pool)| pool.ingest(cost, job).is_ok()) {
            tally.puts.fetch_add(1, Relaxed);
            tally.put_bytes.fetch_add(bytes, Relaxed);
        } else {
            tally.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Returns its state for links, without waiting. An unopened store and one on a hanging disk count as
    /// empty and full: peers then name nothing, and forget nothing.
    pub(crate) fn state(&self) -> StoreState {
        let load = self.slot.read().pool().map(|PoolOf(pool)| pool.load());
        let Some(load) = load.filter(|load| !self.held(load).reads) else { return StoreState::default() };
        let age_secs = match self.tally.oldest_s.load(Relaxed) {
            0 => 0,
            oldest_s => self.clock.now_s().saturating_sub(oldest_s),
        };
        StoreState {
            queued: u32::try_from(load.queued).unwrap_or(u32::MAX),
            service_time: told(&load),
            age_secs,
            taking: self.tally.taking.load(Relaxed) && !self.held(&load).writes,
            neighbours_pending: 0,
        }
    }

    /// Returns its disk's load for neighbours: the true one, also while it hangs, to keep their requests
    /// away.
    pub(crate) fn busy(&self) -> wire::Load {
        let load = self.slot.read().pool().map(|PoolOf(pool)| pool.load()).unwrap_or_default();
        wire::Load {
            queued: u32::try_from(load.queued).unwrap_or(u32::MAX),
            service_us: u32::try_from(service_time(&load).as_micros()).unwrap_or(u32::MAX),
        }
    }

    /// Forgets every chunk; the result comes on completion. Never waits.
    pub fn clear(&self) -> ChunksCleared {
        let (done, cleared) = oneshot::channel();
        let slot = self.slot.read();
        let Some(PoolOf(pool)) = slot.pool() else {
            let why = match *slot {
                Slot::Opening(_) => {
                    "is being opened: clear it once `oncewire status` says that it is open".to_owned()
                }
                _ => {
                    let trouble =
                        self.seen.lock().trouble.clone().unwrap_or_else(|| "it was closed".to_owned());
                    format!("is not open ({trouble}), and its files stay: stop the gateway and clear it then")
                }
            };
            // The caller may have gone.
            let _ = done.send(Err(why));
            return cleared;
        };
        let (tally, seen) = (Arc::clone(&self.tally), Arc::clone(&self.seen));
        let job = move |store: &oncewire_store::Store| {
            tally.clearing.store(true, Relaxed);
            let cleared = store.clear();
            tally.clearing.store(false, Relaxed);
            tally.oldest_s.store(store.horizon().oldest_s.unwrap_or(0), Relaxed);
            look::note_stat(store, &seen);
            let _ = done.send(cleared.map_err(|error| error.to_string()));
        };
        // Without room, the sender is dropped: an answer too.
        let _ = pool.ingest(0, job);
        cleared
    }

    /// Works off the queue and closes the store, within limits.
    pub async fn close(&self) {
        let slot = std::mem::take(&mut *self.slot.write());
        let slot = match slot {
            Slot::Open(PoolOf(pool)) if self.held(&pool.load()).any() => {
                tracing::warn!("chunk store: the disk hangs; the next start looks through it anew");
                return pool.abandon();
            }
            slot => slot,
        };
        let closed = slow_disk::run("store-close", move || slot.close());
        match tokio::time::timeout(DISK_LIMIT, closed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!("chunk store: {error}; the next start looks through it anew");
            }
            Ok(Err(_)) => tracing::warn!("chunk store: it was not closed in order"),
            Err(_) => tracing::warn!("chunk store: the disk takes too long to write the last of it"),
        }
    }

    /// Returns its report for `status`.
    pub fn report(&self) -> StoreReport {
        let seen = self.seen.lock().clone();
        let slot = self.slot.read();
        let now = slot.pool().map(|PoolOf(pool)| (pool.load(), pool.store().counts()));
        let (load, counts) = now.unwrap_or((Load::default(), seen.counts));
        let tally = &self.tally;
        let (condition, reason) = match (&*slot, seen.trouble) {
            (Slot::Opening(_), _) => {
                (StoreCondition::Opening, Some("its files are looked through".to_owned()))
            }
            (Slot::Open(_), _) if tally.clearing.load(Relaxed) && !self.held(&load).reads => {
                (StoreCondition::Clearing, Some("its files are removed".to_owned()))
            }
            (Slot::Open(_), _) if self.held(&load).any() => {
                (StoreCondition::Hanging, Some("disk I/O stalled; fetching chunks from the peer".to_owned()))
            }
            (Slot::Open(_), Some(why)) => (StoreCondition::ReadOnly, Some(why)),
            (Slot::None, Some(why)) => (StoreCondition::Failed, Some(why)),
            (Slot::Open(_) | Slot::None, None) => (StoreCondition::Open, None),
        };
        let opened_percent = match &*slot {
            Slot::Opening(opening) => Some((100.0 * opening.progress.share()) as u64),
            Slot::Open(_) | Slot::None => None,
        };
        let report = |stat| tools::report(&self.settings.path, stat, self.clock.now_s());
        let base = seen.stat.as_ref().map(report).unwrap_or_default();
        let reads = tally.reads.report();
        StoreReport {
            id: self.id.map(|id| format!("{id:016x}")),
            path: self.settings.path.display().to_string(),
            state: condition,
            reason,
            opened_percent,
            size: self.settings.disk,
            queue: load.queued as u64,
            service_time_us: u64::try_from(load.service_time.as_micros()).unwrap_or(u64::MAX),
            oldest_read_ms: u64::try_from(load.oldest_read.as_millis()).unwrap_or(u64::MAX),
            waiting_bytes: load.ingest_bytes,
            reads: reads.reads,
            found: reads.found,
            found_bytes: reads.found_bytes,
            absent: reads.absent,
            turned_away: reads.turned_away,
            damaged: reads.damaged,
            unreadable: reads.unreadable,
            puts: tally.puts.load(Relaxed),
            put_bytes: tally.put_bytes.load(Relaxed),
            known: counts.known,
            replaced: counts.replaced,
            dropped: tally.dropped.load(Relaxed) + counts.refused,
            written: counts.written_bytes,
            write_errors: counts.write_errors,
            ..base
        }
    }
}

impl Drop for ChunkStore {
    fn drop(&mut self) {
        let slot = std::mem::take(&mut *self.slot.write());
        match slot {
            Slot::Opening(opening) => opening.progress.cancel(),
            // The drop waits for its threads, and one of them may be dropping this.
            Slot::Open(pool) => {
                _ = std::thread::Builder::new().name("store-drop".to_owned()).spawn(move || drop(pool));
            }
            Slot::None => {}
        }
    }
}

/// Returns the service time for a planner: no shorter than the time since the last completed read.
fn service_time(load: &Load) -> Duration {
    // Readers of a fast disk, all at a read, may be waiting for a CPU.
    let is_fast = load.service_time < LEAST_SLOW && load.stalled < STALLED;
    let time = if is_fast { load.service_time } else { load.service_time.max(load.stalled) };
    // Links are notified of every change, so no finer than their needs.
    Duration::from_micros(time.as_micros() as u64 / 100 * 100)
}

/// Returns the same for a link; for a link, zero means unknown.
fn told(load: &Load) -> Duration {
    let least = if load.service_time.is_zero() { Duration::ZERO } else { LEAST_TOLD };
    service_time(load).max(least)
}

/// Whether queued puts are done within any neighbour's time limit for an answer.
fn puts_are_soon(load: &Load) -> bool {
    load.ingest_bytes <= PUT_SOON && load.oldest_job <= DONE_SOON
}

/// Bytes cut, named and written within some 50 ms, also with a disk taking them at once.
const PUT_SOON: u64 = 2 << 20;
/// A longer job waits for the disk, for an unknown time.
const DONE_SOON: Duration = Duration::from_millis(50);
/// The least service time reported to links for a disk with reads.
const LEAST_TOLD: Duration = Duration::from_micros(100);
/// A fast disk with no reader back for so long has stalled.
const STALLED: Duration = Duration::from_millis(50);
/// About a neighbour's time for an answer without a disk.
const SOON: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
