//! The clients, the origin's side, and the judgement of both.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncewire_testnet::Family;

use super::super::clients;
use super::super::wait::pause;
use super::door::Door;
use super::excuses::Excuses;
use super::plan::{Plan, Side, Way};
use super::stream::{self, End};
use super::transfer::{HANG, Path, Transfer};

/// The state shared by all workers.
pub(super) struct Run {
    seed: u64,
    door: Door,
    next: AtomicU64,
    stopping: AtomicBool,
    pub(super) excuses: Excuses,
    failures: Mutex<Vec<String>>,
    transfers: Mutex<HashMap<u64, Arc<Transfer>>>,
    serving: AtomicUsize,
    counts: [AtomicU64; OUTCOMES.len()],
    by_link: AtomicU64,
    bytes: AtomicU64,
}

impl Run {
    pub(super) fn new(seed: u64, door: Door) -> Self {
        Self {
            seed,
            door,
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            excuses: Excuses::default(),
            failures: Mutex::default(),
            transfers: Mutex::default(),
            serving: AtomicUsize::new(0),
            counts: Default::default(),
            by_link: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Lets workers finish their present transfers.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failures.lock().unwrap().is_empty()
    }

    pub(super) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    /// Whether the origin has no connection left.
    pub(super) fn is_idle(&self) -> bool {
        self.serving.load(Ordering::SeqCst) == 0
    }

    /// How many transfers came to this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn summary(&self) -> String {
        let counts = self.counts.iter().zip(OUTCOMES);
        let counts: Vec<_> =
            counts.map(|(count, what)| format!("{} {what}", count.load(Ordering::Relaxed))).collect();
        format!(
            "transfers: {}; {} by the link; {} MiB, every byte right",
            counts.join(", "),
            self.by_link.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed) >> 20
        )
    }

    /// Runs transfers, one after the other.
    pub(super) fn work(&self) {
        while !self.stopping.load(Ordering::Relaxed) && !self.has_failed() {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let plan = Plan::of(self.seed, id);
            let transfer = self.transfer(id);
            let outcome = match self.open(id, plan.way, plan.family) {
                Ok(stream) => {
                    let end = stream::play(&plan, Side::Client, stream, &transfer, &self.excuses);
                    transfer.end(Side::Client, end.clone());
                    self.judge(&plan, &transfer, end)
                }
                Err(_) => Ok(self.refused(&transfer)),
            };
            match outcome {
                Ok(outcome) => drop(self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed)),
                Err(what) => self.fail(id, &plan, &transfer, &what),
            }
        }
    }

    /// Whether a few bytes make it there and back by the link.
    pub(super) fn probe(&self) -> bool {
        let mut back = [0; 8];
        let mut ask = || {
            let mut stream = self.open(PROBE, Way::Forward, Family::V4)?;
            stream.read_exact(&mut back)
        };
        ask().is_ok() && back == PROBE.to_be_bytes()
    }

    /// The origin's side of one transfer.
    pub(super) fn serve(&self, mut stream: TcpStream) {
        self.serving.fetch_add(1, Ordering::SeqCst);
        let mut id = [0; 8];
        let _ = stream.set_read_timeout(Some(HANG));
        match stream.read_exact(&mut id).map(|()| u64::from_be_bytes(id)) {
            Ok(PROBE) => drop(stream.write_all(&id)),
            Ok(id) => self.take_part(id, stream),
            // The opener was told of a failure, or will be.
            Err(_) => clients::reset(stream),
        }
        self.serving.fetch_sub(1, Ordering::SeqCst);
    }

    fn take_part(&self, id: u64, stream: TcpStream) {
        let (plan, transfer) = (Plan::of(self.seed, id), self.transfer(id));
        let by_link = stream.peer_addr().is_ok_and(|peer| self.door.is_the_hub(peer.ip()));
        self.by_link.fetch_add(by_link.into(), Ordering::Relaxed);
        transfer.arrive(if by_link { Path::Link } else { Path::Direct });
        let end = stream::play(&plan, Side::Origin, stream, &transfer, &self.excuses);
        if let End::Wrong(_) | End::Short(_) = &end {
            self.fail(id, &plan, &transfer, &format!("at the origin: {end:?}"));
        }
        transfer.end(Side::Origin, end);
    }

    fn open(&self, id: u64, way: Way, family: Family) -> std::io::Result<TcpStream> {
        let mut stream = self.door.open(way, family)?;
        stream.write_all(&id.to_be_bytes())?;
        Ok(stream)
    }

    fn transfer(&self, id: u64) -> Arc<Transfer> {
        let mut transfers = self.transfers.lock().unwrap();
        Arc::clone(transfers.entry(id).or_insert_with(|| Arc::new(Transfer::new())))
    }

    /// The outcome of a transfer, given the client's view of its end.
    fn judge(&self, plan: &Plan, transfer: &Transfer, client: End) -> Result<Outcome, String> {
        let direct = transfer.arrived() == Some(Path::Direct);
        let ended = || self.excuses.ended(transfer.start, direct);
        match &client {
            End::Wrong(_) | End::Short(_) => return Err(format!("at the client: {client:?}")),
            _ if plan.reset.is_some() => return Ok(Outcome::Reset),
            End::Broken(..) if ended() => return Ok(Outcome::Ended),
            // The open was refused; how much the gateway's socket had taken says nothing.
            End::Broken(..) if transfer.arrived().is_none() => return Ok(self.refused(transfer)),
            End::Broken(..) | End::ResetHere => {
                let origin = transfer.ended(Side::Origin);
                return Err(format!("reset for no reason: client {client:?}, origin {origin:?}"));
            }
            End::Complete => {}
        }
        match self.wait_for_origin(transfer) {
            Some(End::Complete) => {
                self.bytes.fetch_add(plan.len(), Ordering::Relaxed);
                Ok(Outcome::Complete)
            }
            Some(End::Broken(..)) if ended() => Ok(Outcome::Ended),
            origin => Err(format!("complete at the client, at the origin {origin:?}")),
        }
    }

    fn refused(&self, transfer: &Transfer) -> Outcome {
        // Not at once again.
        pause();
        match self.excuses.away(transfer.start) {
            true => Outcome::Refused,
            false => Outcome::RefusedAlone,
        }
    }

    fn wait_for_origin(&self, transfer: &Transfer) -> Option<End> {
        let start = Instant::now();
        while start.elapsed() < HANG + self.excuses.hampered(start) * 2 + MARGIN {
            if let Some(end) = transfer.ended(Side::Origin) {
                return Some(end);
            }
            pause();
        }
        None
    }

    fn fail(&self, id: u64, plan: &Plan, transfer: &Transfer, what: &str) {
        let (since, path) = (transfer.start.elapsed(), transfer.arrived());
        let failure = format!("transfer {id}, {since:?} old, {path:?}: {what}; {plan:?}");
        self.failures.lock().unwrap().push(failure);
    }
}

/// The outcome of a transfer.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Complete,
    Reset,
    Ended,
    Refused,
    /// Refused though nothing was wrong with the line or the gateways by the plan.
    RefusedAlone,
}

const OUTCOMES: [&str; 5] = [
    "complete",
    "reset as planned",
    "ended by a fault",
    "refused during a fault",
    "refused though no fault was on",
];
/// A mere probe: the origin sends the number back.
const PROBE: u64 = u64::MAX;
/// The origin's end of a transfer is noticed within a look or two.
const MARGIN: Duration = Duration::from_secs(10);
