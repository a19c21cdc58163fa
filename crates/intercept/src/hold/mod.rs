//! Held SYNs: true connect results for clients of interception.
//!
//! A connection's first packet is held until the server has answered. Rules mark and queue the SYN
//! ([`super::rules`]); this reads it, connects onward, and releases it with another mark, for rules to take
//! it in or answer it. `docs/internals/interception.md` has the reasons.

mod places;
mod queue;
mod syn;
mod table;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use oncewire_codec::wire::OpenFailure;

use super::router::{NoWay, Way};
use super::rules::{HoldNumbers, LIFE_MS};
use super::{Door, Entrance};
use places::{Place, Places};
use queue::{Queue, Queued, Verdict};
use syn::{Ends, Syn};
use table::{Answer, MAX_HELD, Packet, Table, Todo};

/// One gateway's connections waiting for their servers, and connected ones waiting for their clients.
#[derive(Default)]
pub struct Held {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Table<Way>,
    reading: Option<Reading>,
    entrances: Places<Entrance>,
}

/// State while packets are held.
struct Reading {
    queue: Arc<Queue>,
    numbers: HoldNumbers,
    /// When the last sign of life was given, or a little earlier.
    alive: Instant,
    /// Dropped to end the reading.
    _until: watch::Sender<()>,
}

impl Held {
    /// Sets the entrances of connections held from now on: one for each `[[intercept]]`, in order.
    pub fn set_entrances(&self, entrances: Vec<Weak<Entrance>>) {
        self.state.lock().entrances.set(entrances);
    }

    /// Notes the start of a change of rules. Until its end, a mark does not identify a SYN's interception.
    pub(crate) fn rules_change(&self) {
        self.state.lock().entrances.begin_change();
    }

    /// Notes the end of a change of rules, with the entrances of the new ones; or, with none, that the old
    /// ones still hold. Packets queued earlier are dropped, and come again.
    pub(crate) fn rules_changed(&self, entrances: Option<Vec<Weak<Entrance>>>) {
        let mut state = self.state.lock();
        if let Some(reading) = &state.reading {
            reading.drop_queued();
        }
        state.entrances.end_change(entrances);
    }

    /// Takes the queue used by rules of these numbers; the returned future reads it until [`Held::stop`].
    ///
    /// # Errors
    /// If the kernel has no queues, this process lacks CAP_NET_ADMIN, or another reads the queue.
    pub fn start(
        self: &Arc<Self>,
        numbers: HoldNumbers,
    ) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        // Twice, since packets come again while the first is held.
        let queue = Arc::new(Queue::open(numbers.queue(), 2 * MAX_HELD as u32)?);
        let (until, ended) = watch::channel(());
        let reading = Reading { queue: Arc::clone(&queue), numbers, alive: Instant::now(), _until: until };
        self.state.lock().reading = Some(reading);
        Ok(Arc::clone(self).read(queue, ended))
    }

    /// Whether packets are held.
    pub fn is_reading(&self) -> bool {
        self.state.lock().reading.is_some()
    }

    /// Stops holding. Held packets are lost and come again.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        let ended = (state.reading.take(), state.table.clear());
        drop(state);
        drop(ended);
    }

    /// Hands over the way of an accepted connection, if its SYN was held.
    pub(crate) fn claim(&self, client: SocketAddr, server: SocketAddr) -> Option<Way> {
        self.state.lock().table.claim(&Ends::new(client, server), Instant::now())
    }

    async fn read(self: Arc<Self>, queue: Arc<Queue>, mut ended: watch::Receiver<()>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let woken = tokio::select! {
                biased;
                _ = ended.changed() => return,
                woken = queue.readable() => woken.map(|()| true),
                _ = ticks.tick() => Ok(false),
            };
            if let Err(error) = woken.and_then(|woken| self.turn(woken, Instant::now())) {
                tracing::error!(%error, "SYNs are no longer held");
                return self.stop();
            }
        }
    }

    /// Takes in queued packets.
    fn turn(self: &Arc<Self>, woken: bool, now: Instant) -> io::Result<()> {
        // Ending ways notify their peers; not to be done under the lock.
        let removed;
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(reading) = &state.reading else { return Ok(()) };
        let mut asked = Vec::new();
        let mut take = |Queued { packet, mark, bytes }: Queued<'_>| {
            let index = reading.numbers.asked_by(mark);
            let place = state.entrances.find(index);
            let todo = match (Syn::read(bytes), place) {
                _ if reading.may_be_stale(now) => Todo::Answer(Answer::Drop),
                (_, Place::NotYet) => Todo::Answer(Answer::Drop),
                (Some(syn), Place::Open(entrance)) => {
                    let todo = state.table.take(syn, packet, now);
                    if let Todo::Connect(number) = todo
                        && let Some(waiting) = state.table.waiting(&syn.ends)
                    {
                        asked.push((entrance.door(), syn.ends, number, waiting));
                    }
                    todo
                }
                (_, Place::Nobodys) | (None, _) => Todo::Answer(Answer::AsItIs),
            };
            match todo {
                Todo::Connect(_) => {}
                Todo::Release(older) => reading.answer(older, Answer::Drop),
                Todo::Answer(answer) => reading.answer(packet, answer),
            }
        };
        let mut reads = 0;
        while reads < READS && reading.queue.read(woken, &mut take)? {
            reads += 1;
        }
        removed = state.table.expire(now);
        reading.drop_all(&removed.packets);
        for (door, ends, number, mut waiting) in asked {
            let connect = connect(Arc::clone(self), Arc::clone(&door), ends, number);
            door.tasks.spawn(async move {
                tokio::select! {
                    () = connect => {}
                    // Dropping the way also gives up the far connect.
                    _ = waiting.changed() => {}
                }
            });
        }
        Ok(())
    }

    /// Notes that rules will lead connections here for a while. If they may have passed some SYNs to the
    /// server on a repeat, their held entries are stale: taken in now, they would break established
    /// connections.
    pub(crate) fn before_sign_of_life(&self, now: Instant) {
        let removed;
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(reading) = &mut state.reading else { return };
        if reading.may_be_stale(now) {
            removed = state.table.forget_asked();
            reading.drop_all(&removed.packets);
            reading.drop_queued();
        }
        reading.alive = now;
    }

    /// Releases the packet of a connection after the end of its connect.
    fn decide(&self, ends: &Ends, number: u64, outcome: Result<Way, Answer>) {
        let now = Instant::now();
        let _unwanted;
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(reading) = &state.reading else { return };
        if reading.may_be_stale(now) {
            return;
        }
        match state.table.decide(ends, number, outcome, now) {
            Ok((packet, answer)) => reading.answer(packet, answer),
            Err(way) => _unwanted = way,
        }
    }
}

impl Reading {
    /// Whether rules may have let packets pass, or do so now, since the last sign of life is too old.
    fn may_be_stale(&self, now: Instant) -> bool {
        now.duration_since(self.alive) > ALIVE
    }

    fn drop_all(&self, packets: &[Packet]) {
        packets.iter().for_each(|packet| self.answer(*packet, Answer::Drop));
    }

    /// Drops queued packets.
    fn drop_queued(&self) {
        // The next reader meets the same error.
        while let Ok(true) = self.queue.read(false, |queued| self.answer(queued.packet, Answer::Drop)) {}
    }

    fn answer(&self, packet: Packet, answer: Answer) {
        let verdict = match answer {
            Answer::Drop => Verdict::Drop,
            Answer::AsItIs => Verdict::Accept(None),
            Answer::TakeIn => Verdict::Accept(Some(self.numbers.taken_in())),
            Answer::Refuse => Verdict::Accept(Some(self.numbers.refused())),
            Answer::Unreachable => Verdict::Accept(Some(self.numbers.unreachable())),
            Answer::Prohibited => Verdict::Accept(Some(self.numbers.prohibited())),
        };
        if let Err(error) = self.queue.answer(packet, verdict) {
            tracing::debug!(%error, "a held packet was not answered");
        }
    }
}

/// Connects for a client with a held SYN.
async fn connect(held: Arc<Held>, door: Arc<Door>, ends: Ends, number: u64) {
    let destination = ends.server.into();
    let outcome = match door.router.connect(&door.intercept, &destination, ends.client).await {
        Ok((way, _)) => Ok(way),
        Err(why) => {
            door.no_way(ends.client, &destination, why);
            Err(Answer::from(why))
        }
    };
    held.decide(&ends, number, outcome);
}

impl From<NoWay> for Answer {
    fn from(why: NoWay) -> Self {
        match why {
            NoWay::Failed(OpenFailure::Unreachable | OpenFailure::NameNotFound) => Self::Unreachable,
            NoWay::Failed(OpenFailure::NotAllowed) => Self::Prohibited,
            // A repeated SYN finds the link repaired, or no gateway in its way.
            NoWay::Failed(OpenFailure::TimedOut) | NoWay::Stopping => Self::Drop,
            NoWay::Failed(OpenFailure::Refused | OpenFailure::Other | OpenFailure::Draining)
            | NoWay::NoPeer
            | NoWay::PeerGone
            | NoWay::Full => Self::Refuse,
        }
    }
}

/// Packets read in one turn.
const READS: u32 = 512;

/// Interval of expiry.
const TICK: Duration = Duration::from_millis(500);

/// Lifetime of a sign of life, less the clocks' possible difference.
const ALIVE: Duration = Duration::from_millis(LIFE_MS - 50);
