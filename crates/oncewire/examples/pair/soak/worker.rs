//! The clients, the origin's side, and the judgement of what both saw.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::faults::Excuses;
use super::plan::{Plan, Side, Way};
use super::stream::{self, End, HANG};
use crate::common::clients::{http_ask, socks_ask};
use crate::common::pair::Pair;
use crate::common::wait::pause;

/// Where clients go in, and where they want to.
pub(super) struct Door {
    forward: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
    origin: SocketAddr,
}

impl Door {
    pub(super) fn new(pair: &Pair, origin: SocketAddr) -> Self {
        Self { forward: pair.forward(), socks: pair.socks, http: pair.http, origin }
    }

    /// Connects; an error may be a refusal.
    fn open(&self, way: Way) -> io::Result<TcpStream> {
        let through = |proxy| {
            let stream = TcpStream::connect(proxy)?;
            stream.set_read_timeout(Some(HANG))?;
            stream.set_write_timeout(Some(HANG))?;
            Ok::<_, io::Error>(stream)
        };
        match way {
            Way::Forward => through(self.forward),
            Way::Socks => {
                let asked = socks_ask(through(self.socks)?, None, "127.0.0.1", self.origin.port())?;
                asked.map_err(|code| io::Error::other(format!("SOCKS reply {code}")))
            }
            Way::Http => match http_ask(through(self.http)?, &self.origin.to_string())? {
                (200, stream) => Ok(stream),
                (status, _) => Err(io::Error::other(format!("HTTP status {status}"))),
            },
        }
    }
}

/// What all workers share.
pub(super) struct Run {
    seed: u64,
    next: AtomicU64,
    stopping: AtomicBool,
    pub(super) excuses: Excuses,
    failures: Mutex<Vec<String>>,
    /// What the origin saw of transfers that clients have not judged yet; none while it is at it.
    seen: Mutex<HashMap<u64, Option<End>>>,
    serving: AtomicUsize,
    counts: [AtomicU64; OUTCOMES.len()],
    bytes: AtomicU64,
}

impl Run {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            excuses: Excuses::default(),
            failures: Mutex::default(),
            seen: Mutex::default(),
            serving: AtomicUsize::new(0),
            counts: Default::default(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Lets workers finish what they are at.
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

    pub(super) fn summary(&self) -> String {
        let counts = self.counts.iter().zip(OUTCOMES);
        let counts: Vec<_> =
            counts.map(|(count, what)| format!("{} {what}", count.load(Ordering::Relaxed))).collect();
        let bytes = self.bytes.load(Ordering::Relaxed) >> 20;
        format!("seed {}: transfers: {}; {bytes} MiB, every byte right", self.seed, counts.join(", "))
    }

    /// Runs transfers, one after the other.
    pub(super) fn work(&self, door: &Door) {
        while !self.stopping.load(Ordering::Relaxed) && !self.has_failed() {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let plan = Plan::of(self.seed, id);
            let start = Instant::now();
            let opened = door.open(plan.way).and_then(|mut stream| {
                stream.write_all(&id.to_be_bytes())?;
                Ok(stream)
            });
            let outcome = match opened {
                Ok(stream) => {
                    let end = stream::play(&plan, Side::Client, stream);
                    self.judge(id, &plan, start, end)
                }
                Err(_) if self.excuses.away(start) => {
                    pause();
                    Ok(Outcome::Refused)
                }
                Err(error) => Err(format!("not opened: {error}")),
            };
            match outcome {
                Ok(outcome) => drop(self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed)),
                Err(what) => self.fail(id, &plan, start, &what),
            }
            self.seen.lock().unwrap().retain(|&other, end| other != id || end.is_none());
        }
    }

    /// The origin's side of one transfer.
    pub(super) fn serve(&self, mut stream: TcpStream) {
        self.serving.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        let mut id = [0; 8];
        let _ = stream.set_read_timeout(Some(HANG));
        if stream.read_exact(&mut id).is_ok() {
            let id = u64::from_be_bytes(id);
            let plan = Plan::of(self.seed, id);
            self.seen.lock().unwrap().insert(id, None);
            let end = stream::play(&plan, Side::Origin, stream);
            if let End::Wrong(_) | End::Short(_) = &end {
                self.fail(id, &plan, start, &format!("at the origin: {end:?}"));
            }
            self.seen.lock().unwrap().insert(id, Some(end));
        }
        self.serving.fetch_sub(1, Ordering::SeqCst);
    }

    /// What came of a transfer, given how the client saw it end.
    fn judge(&self, id: u64, plan: &Plan, start: Instant, client: End) -> Result<Outcome, String> {
        match &client {
            End::Wrong(_) | End::Short(_) => return Err(format!("at the client: {client:?}")),
            _ if plan.reset.is_some() => return Ok(Outcome::Reset),
            End::Broken(..) if self.excuses.killed(start) => return Ok(Outcome::Killed),
            // The open was refused; how much the gateway's socket had taken says nothing.
            End::Broken(..) if self.excuses.away(start) && !self.seen.lock().unwrap().contains_key(&id) => {
                return Ok(Outcome::Refused);
            }
            End::Broken(..) | End::ResetHere => {
                let origin = self.seen.lock().unwrap().get(&id).cloned();
                return Err(format!("reset for no reason: client {client:?}, origin {origin:?}"));
            }
            End::Complete => {}
        }
        match self.wait_for_origin(id) {
            Some(End::Complete) => {
                self.bytes.fetch_add(plan.len(), Ordering::Relaxed);
                Ok(Outcome::Complete)
            }
            Some(End::Broken(..)) if self.excuses.killed(start) => Ok(Outcome::Killed),
            origin => Err(format!("complete at the client, at the origin {origin:?}")),
        }
    }

    fn wait_for_origin(&self, id: u64) -> Option<End> {
        let start = Instant::now();
        while start.elapsed() < HANG {
            if let Some(end) = self.seen.lock().unwrap().get(&id).cloned().flatten() {
                return Some(end);
            }
            pause();
        }
        None
    }

    fn fail(&self, id: u64, plan: &Plan, start: Instant, what: &str) {
        let since = start.elapsed();
        self.failures.lock().unwrap().push(format!("transfer {id}, {since:?} old: {what}; {plan:?}"));
    }
}

/// What became of a transfer.
#[derive(Clone, Copy)]
enum Outcome {
    Complete,
    Reset,
    Killed,
    Refused,
}

const OUTCOMES: [&str; 4] =
    ["complete", "reset as planned", "reset by a kill", "refused while the link was away"];
