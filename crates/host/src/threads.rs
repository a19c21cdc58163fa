//! The threads of this process: start, failure, inspection.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};

use parking_lot::RwLock;
use rustix::io::Errno;
use tokio::sync::oneshot;

/// Starts a thread.
///
/// # Errors
/// If the system gives none, with a remedy.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| with_advice(name, &error))
}

/// Runs blocking work on a thread of its own. Dropped, it leaves the work to itself.
///
/// The runtime's own blocking pool panics if the system gives no thread.
///
/// # Errors
/// If the system gives no thread, with a remedy, or if the work panicked.
pub async fn run<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    // Without a waiter the result is dropped.
    start(name, move || drop(done.send(work())))?;
    result.await.map_err(|_| io::Error::other(format!("the thread {name} could not do its work")))
}

/// Whether this machine gives a gateway all its threads.
///
/// # Errors
/// If the system gives fewer, with their number and a remedy.
pub fn probe() -> io::Result<()> {
    let needed = thread::available_parallelism().map_or(1, usize::from) + BESIDE_WORKERS;
    probe_for(needed)
}

fn probe_for(needed: usize) -> io::Result<()> {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        // Held to have all of them alive at once.
        let _closed = gate.write();
        for started in 0..needed {
            let probe = thread::Builder::new().spawn_scoped(scope, || drop(gate.read()));
            probe.map_err(|error| {
                let error = with_advice("probe", &error);
                let lacking = format!("a gateway needs {needed} threads and gets {started}: {error}");
                io::Error::new(error.kind(), lacking)
            })?;
        }
        Ok(())
    })
}

/// Adds the remedy for a missing thread.
fn with_advice(name: &str, error: &io::Error) -> io::Error {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => format!("; {RAISE}"),
        Some(Errno::NOMEM) => "; it takes more memory, or a higher `ulimit -v`".to_owned(),
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("no thread can be started ({name}): {error}{advice}"))
}

/// Describes each thread in a line: name, state, CPU time so far, and its place in the kernel.
pub fn describe() -> Vec<String> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads.flatten().take(MOST_THREADS).filter_map(|thread| line(&thread.path())).collect()
}

fn line(thread: &Path) -> Option<String> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    let place = fs::read_to_string(thread.join("wchan")).unwrap_or_default();
    describe_one(&stat, place.trim())
}

/// Reads proc_pid_stat(5): `number (name) state ...`, with any characters in the name.
fn describe_one(stat: &str, place: &str) -> Option<String> {
    let (number, rest) = stat.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = match fields.next()? {
        "R" => "runs",
        "S" => "sleeps",
        "D" => "waits for a disk or another device",
        "T" | "t" => "is stopped",
        _ => "ends",
    };
    let mut ticks = fields.skip(USER_TICKS).map_while(|field| field.parse::<u64>().ok());
    let ticks = ticks.next()?.saturating_add(ticks.next()?);
    let place = match place {
        "" | "0" => String::new(),
        place => format!(" in {place}"),
    };
    Some(format!("thread {number} {name:?} {state}{place}, after {} ms of CPU time", ticks * TICK_MS))
}

/// Threads beside one worker per CPU: log, watchdog, logs on disk, names, rules.
const BESIDE_WORKERS: usize = 8;

/// Limits of threads, from the nearest to the farthest.
const RAISE: &str = "raise TasksMax= of the service, `ulimit -u`, or the limit of processes of the container";

/// Fields between the state and the user's time.
const USER_TICKS: usize = 10;

/// Unit of /proc on every Linux.
const TICK_MS: u64 = 10;

/// More threads than any gateway's, but on a machine with very many CPUs.
const MOST_THREADS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_threads_is_reported_with_a_remedy() {
        let told = with_advice("lookup", &Errno::AGAIN.into()).to_string();
        assert!(
            told.contains("(lookup)") && told.contains("os error 11") && told.contains("TasksMax"),
            "{told}"
        );
        assert!(!with_advice("lookup", &Errno::INVAL.into()).to_string().contains("TasksMax"));
        probe_for(4).unwrap();
    }

    #[tokio::test]
    async fn work_runs_apart_and_its_panic_is_an_error() {
        assert_eq!(run("works", || 7).await.unwrap(), 7);
        let failed = run("fails", || assert!(std::env::args().count() == 0, "on purpose")).await;
        assert!(failed.unwrap_err().to_string().contains("fails could not do its work"));
    }

    #[test]
    fn thread_names_may_hold_anything() {
        let stat = "17 (a) b (c) D 1 17 17 0 -1 4194560 90 0 0 0 250 3 0 0 20 0 9 0 1\n";
        let expected = "thread 17 \"a) b (c\" waits for a disk or another device in folio_wait, after 2530 ms of \
                        CPU time";
        assert_eq!(describe_one(stat, "folio_wait").as_deref(), Some(expected));
        assert_eq!(describe_one("17 (a) S", ""), None);
        assert_eq!(describe_one("", ""), None);
    }

    #[test]
    fn own_threads_are_described() {
        let (asked, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("sleeper".to_owned());
        let sleeper = thread.spawn(move || wait.recv()).unwrap();
        let all = loop {
            let all = describe();
            // It is asleep soon.
            if all.iter().any(|line| line.contains("\"sleeper\" sleeps")) {
                break all;
            }
            std::thread::yield_now();
        };
        drop(asked);
        assert!(sleeper.join().unwrap().is_err());
        assert!(all.len() > 1, "{all:?}");
    }
}
