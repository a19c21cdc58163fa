//! Watchdog: abort of a hanging process.
//!
//! The kernel then takes back its resources, and traffic flows as without it. A task on the runtime
//! repeatedly checks the gateway's work, and counts; a thread outside of the runtime looks at the count. When
//! it stands still for too long, the thread aborts the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use oncewire_host::threads;
use parking_lot::Mutex;

use super::log_lines;
use super::notify::Notifier;

/// Watches as long as it is kept.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    beats: AtomicU64,
    hung: AtomicBool,
    ended: AtomicBool,
    /// The pulse's step in progress; empty between pulses.
    step: Mutex<String>,
}

impl Shared {
    fn enter(&self, step: &str) {
        step.clone_into(&mut self.step.lock());
    }
}

impl Watchdog {
    /// Has `pulse` called repeatedly on the caller's runtime. A pulse must return only if the gateway works,
    /// and names each of its steps first; each return is reported to the service manager. Without progress
    /// for `limit` the process is aborted; none leaves that to the manager.
    pub fn start(
        pulse: impl Fn(&dyn Fn(&str)) + Send + 'static,
        limit: Option<Duration>,
        notifier: Arc<Notifier>,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let beating = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                pulse(&|step| beating.enter(step));
                beating.enter("");
                beating.beats.fetch_add(1, Relaxed);
                notifier.alive();
                tokio::time::sleep(BEAT).await;
            }
        });
        if let Some(limit) = limit
            && let Err(error) = spawn_watch(&shared, limit)
        {
            tracing::warn!("nothing would end this process if it hung: {error}");
        }
        Self { shared, task }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        self.task.abort();
    }
}

/// Starts the watching thread, and its speaker: a hang may hold the log.
fn spawn_watch(shared: &Arc<Shared>, limit: Duration) -> io::Result<()> {
    let (watched, told) = (Arc::clone(shared), Arc::clone(shared));
    let speaker = threads::start("oncewire-last", move || speak(&told, limit))?;
    threads::start("oncewire-watch", move || watch(&watched, limit, speaker.thread()))?;
    Ok(())
}

/// Logs the last lines on request: without a core dump they are the only trace of the hang.
fn speak(shared: &Shared, limit: Duration) {
    while !shared.hung.load(Relaxed) {
        if shared.ended.load(Relaxed) {
            return;
        }
        thread::park();
    }
    let step = match shared.step.try_lock() {
        Some(step) if !step.is_empty() => format!(" since {step} was looked at"),
        _ => String::new(),
    };
    tracing::error!(
        "nothing has moved for {limit:?}{step}: aborting, so that traffic flows without this process"
    );
    threads::describe().iter().for_each(|thread| tracing::error!("{thread}"));
    log_lines::finish(LAST_LINE);
}

/// Looks until the watchdog is dropped. It allocates nothing: a hang may hold the allocator too.
fn watch(shared: &Shared, limit: Duration, speaker: &Thread) {
    let start = Instant::now();
    let mut silence = Silence::new(limit);
    while !shared.ended.load(Relaxed) {
        thread::park_timeout(LOOK);
        if silence.look(start.elapsed(), shared.beats.load(Relaxed)) {
            shared.hung.store(true, Relaxed);
            speaker.unpark();
            thread::park_timeout(LAST_LINE);
            std::process::abort();
        }
    }
    speaker.unpark();
}

/// Duration of a standstill, in time available to this process.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    beats: u64,
    looked: Duration,
    lasted: Duration,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { limit, beats: 0, looked: Duration::ZERO, lasted: Duration::ZERO }
    }

    /// Takes the count at a time, and returns whether it has stood still for the limit.
    fn look(&mut self, now: Duration, beats: u64) -> bool {
        // A stopped or starved process finds itself late here too, and is not hung for that.
        let passed = now.saturating_sub(self.looked).min(2 * LOOK);
        self.looked = now;
        if beats != self.beats {
            self.beats = beats;
            self.lasted = Duration::ZERO;
            return false;
        }
        self.lasted += passed;
        self.lasted >= self.limit
    }
}

/// Interval of pulses; a service manager's limit is to be a few times as long.
const BEAT: Duration = Duration::from_millis(500);

/// Interval of the watching thread's looks.
const LOOK: Duration = Duration::from_millis(250);

/// How long the last lines may take.
const LAST_LINE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    /// Looks every [`LOOK`] until well beyond the limit, and returns the time of the alarm.
    fn stall(silence: &mut Silence, from: Duration, beats: u64) -> Option<Duration> {
        (1..=20).map(|step| from + step * LOOK).find(|now| silence.look(*now, beats)).map(|now| now - from)
    }

    #[test]
    fn count_standing_still_for_the_limit_is_a_hang() {
        let mut silence = Silence::new(LIMIT);
        assert!(!silence.look(LOOK, 1));
        assert_eq!(stall(&mut silence, LOOK, 1), Some(LIMIT));
    }

    #[test]
    fn missing_first_count_is_a_hang() {
        assert_eq!(stall(&mut Silence::new(LIMIT), Duration::ZERO, 0), Some(LIMIT));
    }

    #[test]
    fn moving_count_is_never_a_hang() {
        let mut silence = Silence::new(LIMIT);
        for step in 1..10_000_u32 {
            assert!(!silence.look(step * LOOK, u64::from(step / 7)), "{step}");
        }
    }

    #[test]
    fn process_stopped_for_an_hour_is_not_hung() {
        let mut silence = Silence::new(LIMIT);
        let hour = Duration::from_secs(3600);
        assert!(!silence.look(LOOK, 1));
        assert!(!silence.look(hour, 1), "the watch slept too");
        assert!(!silence.look(hour + LOOK, 2));
        assert_eq!(stall(&mut silence, hour + LOOK, 2), Some(LIMIT));
    }
}
