//! One direction of an emulated line.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use oncewire_netem::{Link, LinkCounters, LinkParams, Now, ParamsError};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::ends::Ends;
use crate::Error;

/// One direction of an emulated line.
#[derive(Debug)]
pub struct Direction {
    state: Arc<Mutex<State>>,
    /// Readable once the thread is to end.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    link: Link<Vec<u8>>,
    /// The settings but for a cut.
    params: LinkParams,
    cut: bool,
    refused: u64,
}

impl Direction {
    /// Starts to carry packets.
    ///
    /// # Errors
    ///
    /// Settings out of range; no thread.
    pub(crate) fn start(name: &str, params: LinkParams, ends: Ends) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("the line {name}: {error}"));
        let link = Link::new(params.clone()).map_err(|error| failed(&error))?;
        let state = Arc::new(Mutex::new(State { link, params, cut: false, refused: 0 }));
        let end =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(&error))?;
        let end = Arc::new(end);
        let driver = Driver { state: state.clone(), ends, end: end.clone(), buffer: vec![0; LARGEST] };
        let thread = thread::Builder::new()
            .name(format!("line {name}"))
            .spawn(move || driver.run())
            .map_err(|error| failed(&error))?;
        Ok(Self { state, end, thread: Some(thread) })
    }

    /// Sets the properties for later packets; the seed stays, so decisions go on.
    ///
    /// A direction remains cut, and has the new settings once it is restored.
    ///
    /// # Errors
    ///
    /// Settings out of range; the old ones stay.
    pub fn set(&self, params: &LinkParams) -> Result<(), ParamsError> {
        params.validate()?;
        let mut state = self.state.lock();
        state.params = LinkParams { seed: state.params.seed, ..params.clone() };
        state.apply()
    }

    /// Loses every later packet, counted as lost. Packets on their way still arrive.
    pub fn cut(&self) {
        self.turn(true);
    }

    /// Ends a cut.
    pub fn restore(&self) {
        self.turn(false);
    }

    /// Returns the settings; a cut does not show.
    pub fn params(&self) -> LinkParams {
        self.state.lock().params.clone()
    }

    /// Whether it is cut.
    pub fn is_cut(&self) -> bool {
        self.state.lock().cut
    }

    /// Returns the emulator's counters since the line's creation; bytes are those of IP packets.
    pub fn counters(&self) -> LinkCounters {
        self.state.lock().link.counters()
    }

    /// Returns how many packets the far interface refused after the emulator had delivered them.
    ///
    /// Any but 0 means packets lost by the machine itself, for instance because the interface was down.
    pub fn refused(&self) -> u64 {
        self.state.lock().refused
    }

    fn turn(&self, cut: bool) {
        let mut state = self.state.lock();
        state.cut = cut;
        // The settings were valid, and are so with all packets lost.
        let _ = state.apply();
    }
}

impl Drop for Direction {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn apply(&mut self) -> Result<(), ParamsError> {
        let mut params = self.params.clone();
        if self.cut {
            params.loss = 1.0;
        }
        self.link.set_params(params)
    }
}

struct Driver {
    state: Arc<Mutex<State>>,
    ends: Ends,
    end: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Driver {
    fn run(mut self) {
        hurry();
        let origin = Instant::now();
        let mut next_due = None;
        while self.wait(next_due.map(|due: Now| due.saturating_sub(origin.elapsed()))) {
            let state = self.state.clone();
            let mut state = state.lock();
            self.read(&mut state, origin.elapsed());
            self.emit(&mut state, origin.elapsed());
            next_due = state.link.next_due();
        }
    }

    /// Waits for a packet, or for `timeout`; returns false once the thread is to end.
    fn wait(&self, timeout: Option<Now>) -> bool {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut descriptors =
            [PollFd::new(&*self.ends.from, PollFlags::IN), PollFd::new(&*self.end, PollFlags::IN)];
        // A signal is as good as a timeout.
        let _ = poll(&mut descriptors, timeout.as_ref());
        descriptors[1].revents().is_empty()
    }

    fn read(&mut self, state: &mut State, now: Now) {
        let Ends { from, into, layout } = &self.ends;
        for _ in 0..BURST {
            let len = match rustix::io::read(from, &mut self.buffer) {
                Ok(len) => len,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            let bytes = self.buffer.get(..len).unwrap_or_default();
            if layout.is_housekeeping(bytes) {
                let _ = rustix::io::write(into, bytes);
            } else {
                state.link.send(now, layout.ip_len(bytes), bytes.to_vec());
            }
        }
    }

    fn emit(&self, state: &mut State, now: Now) {
        while let Some(packet) = state.link.poll(now) {
            if rustix::io::write(&self.ends.into, &packet).is_err() {
                state.refused += 1;
            }
        }
    }
}

/// Asks for punctuality, as far as this process may have it.
fn hurry() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // No library wraps sched_setscheduler safely, and this is asked once for a line.
    let _: io::Result<_> = Command::new("chrt")
        .args(["--fifo", "--pid", "10"])
        .arg(rustix::thread::gettid().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Most packets read before due ones are emitted.
const BURST: usize = 64;

/// The largest packet or frame, with its prefix.
const LARGEST: usize = 65_536 + 64;
