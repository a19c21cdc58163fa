//! Log lines to standard error, written by a thread of their own.
//!
//! The reader of a log may hang: a stuck journald, a container's log driver, a paused terminal. A logging
//! thread must not hang with it, so it only queues a line. A full queue drops and counts lines; the log says
//! so in their place once it moves again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use oncewire_host::threads;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// The queue of lines before one log; clones share it.
#[derive(Clone)]
pub struct LogLines(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// There is something to write.
    more: Condvar,
    /// Everything is written.
    written: Condvar,
    dropped: AtomicU64,
    /// The thread's initial state; taken by it.
    writer: Mutex<Option<Writer>>,
}

/// Queued items.
#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    /// Lines are dropped until half of the room is free: a slow reader then sees few gaps.
    is_full: bool,
    is_writing: bool,
    /// A flush timed out, and nothing has been written since.
    is_stuck: bool,
}

enum Item {
    Line(Vec<u8>),
    /// So many lines were dropped here.
    Gap(u64),
}

/// The end of the queue at the log.
struct Writer {
    log: Box<dyn Write + Send>,
    /// Logs the number of lost lines.
    tell: Box<dyn Fn(u64) + Send>,
    /// Lost lines, not yet reported.
    lost: u64,
}

/// Returns the number of lines missing in this process's log; 0 if it does not go through a queue.
pub fn dropped() -> u64 {
    OF_PROCESS.get().map_or(0, LogLines::dropped)
}

/// Waits until the log of this process is written, at most for `limit`.
pub fn flush(limit: Duration) {
    if let Some(lines) = OF_PROCESS.get() {
        lines.flush(limit);
    }
}

/// Waits until the log of this process is written before it ends, at most for `limit`.
pub fn finish(limit: Duration) {
    if let Some(lines) = OF_PROCESS.get() {
        lines.finish(limit);
    }
}

impl LogLines {
    /// Returns the queue before standard error, the only one of the process.
    pub fn of_process() -> Self {
        let tell = |lines| {
            tracing::warn!(
                lines,
                "log lines are lacking here: what reads the log did not take them, or they could not be written"
            );
        };
        OF_PROCESS.get_or_init(|| Self::new(StandardError, tell)).clone()
    }

    /// Returns a queue before `log`; `tell` logs the number of lost lines.
    pub fn new(log: impl Write + Send + 'static, tell: impl Fn(u64) + Send + 'static) -> Self {
        let writer = Writer { log: Box::new(log), tell: Box::new(tell), lost: 0 };
        Self(Arc::new(Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
            dropped: AtomicU64::new(0),
            writer: Mutex::new(Some(writer)),
        }))
    }

    /// Starts the writing thread; lines are queued until then. It has its caller's present privileges.
    ///
    /// # Errors
    /// If the system gives no thread; [`Self::flush`] tries again.
    pub fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        if self.0.writer.lock().is_none() {
            return Ok(());
        }
        threads::start("oncewire-log", move || {
            // Another may have started meanwhile.
            let writer = shared.writer.lock().take();
            if let Some(mut writer) = writer {
                loop {
                    shared.write_next(&mut writer);
                }
            }
        })?;
        Ok(())
    }

    /// Queues a line, ended by a line feed. It never waits for the log.
    pub fn push(&self, line: &[u8]) {
        self.0.push(line);
    }

    /// Returns the number of lines dropped or not written.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    /// Waits until everything is written, at most for `limit`, and not at all if the last flush timed out and
    /// nothing has moved since. Returns whether everything is written.
    pub fn flush(&self, limit: Duration) -> bool {
        if self.start().is_err() {
            return self.write_here();
        }
        let end = Instant::now() + limit;
        let mut queue = self.0.queue.lock();
        while !queue.is_done() {
            if queue.is_stuck {
                return false;
            }
            queue.is_stuck = self.0.written.wait_until(&mut queue, end).timed_out() && !queue.is_done();
        }
        true
    }

    /// Waits as [`Self::flush`] does, even after a timeout: nothing is written later.
    pub fn finish(&self, limit: Duration) {
        self.0.queue.lock().is_stuck = false;
        self.flush(limit);
    }

    /// Writes everything on the calling thread if no other can be had, and waits for the log: the process is
    /// about to end.
    fn write_here(&self) -> bool {
        let Some(mut writer) = self.0.writer.lock().take() else { return false };
        while !self.0.queue.lock().items.is_empty() {
            self.0.write_next(&mut writer);
        }
        *self.0.writer.lock() = Some(writer);
        true
    }
}

/// One event's line, as written by `tracing_subscriber`: all of it at once.
impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_own = OWN.with_borrow_mut(|own| own.as_mut().map(|own| own.extend_from_slice(line)));
        if is_own.is_none() {
            self.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn push(&self, line: &[u8]) {
        let mut queue = self.queue.lock();
        let bytes = queue.bytes.saturating_add(line.len()).saturating_add(LINE_COST);
        if queue.is_full || bytes > MOST_BYTES {
            queue.is_full = queue.is_full || queue.bytes > MOST_BYTES / 2;
            self.dropped.fetch_add(1, Relaxed);
            match queue.items.back_mut() {
                Some(Item::Gap(lines)) => *lines += 1,
                _ => queue.items.push_back(Item::Gap(1)),
            }
        } else {
            queue.bytes = bytes;
            queue.items.push_back(Item::Line(line.to_vec()));
        }
        self.more.notify_one();
    }

    /// Waits for the next item and writes it.
    fn write_next(&self, writer: &mut Writer) {
        let mut queue = self.queue.lock();
        let item = loop {
            match queue.items.pop_front() {
                Some(item) => break item,
                None => self.more.wait(&mut queue),
            }
        };
        queue.is_writing = true;
        drop(queue);
        let failed = writer.write(&item);
        self.dropped.fetch_add(u64::from(failed), Relaxed);
        let mut queue = self.queue.lock();
        if let Item::Line(line) = &item {
            queue.bytes = queue.bytes.saturating_sub(line.len() + LINE_COST);
        }
        queue.is_full = queue.is_full && queue.bytes > MOST_BYTES / 2;
        (queue.is_writing, queue.is_stuck) = (false, false);
        if queue.items.is_empty() {
            self.written.notify_all();
        }
    }
}

impl Queue {
    fn is_done(&self) -> bool {
        self.items.is_empty() && !self.is_writing
    }
}

impl Writer {
    /// Writes one item, behind a notice of lost lines. Returns whether another line is lost.
    fn write(&mut self, item: &Item) -> bool {
        if let Item::Gap(lines) = item {
            self.lost += lines;
        }
        let mut is_written = self.lost == 0 || self.tell_lost();
        if let (Item::Line(line), true) = (item, is_written) {
            is_written = self.log.write_all(line).is_ok();
        }
        let is_lost = matches!(item, Item::Line(_)) && !is_written;
        self.lost += u64::from(is_lost);
        is_lost
    }

    /// Logs the number of lost lines, past the queue; returns whether that was written.
    fn tell_lost(&mut self) -> bool {
        OWN.set(Some(Vec::new()));
        (self.tell)(self.lost);
        // Empty if warnings are not logged.
        let line = OWN.take().unwrap_or_default();
        let is_written = self.log.write_all(&line).is_ok();
        if is_written {
            self.lost = 0;
        }
        is_written
    }
}

/// Standard error without the standard library's lock: a thread hanging in a write may hold it.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        loop {
            match rustix::io::write(&stderr, bytes) {
                // The descriptor is shared, and another process may have made it non-blocking.
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    /// Log lines of the writing thread itself.
    static OWN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

static OF_PROCESS: OnceLock<LogLines> = OnceLock::new();

/// Capacity in bytes: some ten thousand lines.
const MOST_BYTES: usize = 1 << 20;

/// Overhead of a line.
const LINE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A log with a reader taking each line only on permission.
    struct Reader {
        lets: Receiver<io::Result<()>>,
        lines: Sender<String>,
    }

    impl Write for Reader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // An ended test lets everything pass.
            self.lets.recv().unwrap_or(Ok(()))?;
            let _ = self.lines.send(String::from_utf8(line.to_vec()).unwrap());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        lines: LogLines,
        lets: Sender<io::Result<()>>,
        written: Receiver<String>,
    }

    fn bench() -> Bench {
        let ((lets, let_through), (written, seen)) = (mpsc::channel(), mpsc::channel());
        let own: Arc<OnceLock<LogLines>> = Arc::default();
        let telling = Arc::clone(&own);
        let tell = move |lost: u64| {
            let mut line = telling.get().unwrap().clone();
            line.write_all(format!("lost {lost}\n").as_bytes()).unwrap();
        };
        let lines = LogLines::new(Reader { lets: let_through, lines: written }, tell);
        assert!(own.set(lines.clone()).is_ok());
        Bench { lines, lets, written: seen }
    }

    fn line(number: usize) -> Vec<u8> {
        let mut line = format!("{number:06} ").into_bytes();
        line.resize(1023, b'.');
        line.push(b'\n');
        line
    }

    /// Flushes once it moves again: earlier flushes return at once.
    fn flush_after_all(lines: &LogLines) {
        let end = Instant::now() + LIMIT;
        while !lines.flush(LIMIT) {
            assert!(Instant::now() < end, "it does not move again");
            thread::yield_now();
        }
    }

    fn number(line: &str) -> Option<usize> {
        line.get(..6)?.parse().ok()
    }

    #[test]
    fn full_queue_drops_and_tells_in_place_of_lines() {
        let Bench { lines, lets, written } = bench();
        lines.start().unwrap();
        let total = 3 * MOST_BYTES / 1024;
        (0..total).for_each(|number| lines.push(&line(number)));
        let dropped = lines.dropped();
        assert!(dropped > 0 && !lines.flush(Duration::from_millis(1)));
        assert!(lines.0.queue.lock().bytes <= MOST_BYTES);
        drop(lets);
        flush_after_all(&lines);
        lines.push(&line(total));
        assert!(lines.flush(LIMIT));
        let seen: Vec<String> = written.try_iter().collect();
        let gap = seen.iter().position(|line| *line == format!("lost {dropped}\n")).unwrap();
        assert_eq!(gap + usize::try_from(dropped).unwrap(), total);
        assert!(seen[..gap].iter().map(|line| number(line)).eq((0..gap).map(Some)));
        assert_eq!((number(&seen[gap + 1]), seen.len()), (Some(total), gap + 2));
    }

    #[test]
    fn slow_reader_finds_few_gaps() {
        let Bench { lines, lets, written } = bench();
        lines.start().unwrap();
        let mut pushed = 0;
        let mut push = || {
            lines.push(&line(pushed));
            pushed += 1;
        };
        (0..MOST_BYTES / 1024).for_each(|_| push());
        // Four lines come for each line read.
        let mut seen = Vec::new();
        for _ in 0..4_000 {
            (0..4).for_each(|_| push());
            lets.send(Ok(())).unwrap();
            seen.push(written.recv_timeout(LIMIT).unwrap());
        }
        let gaps = seen.iter().filter(|line| line.starts_with("lost")).count();
        assert!((1..20).contains(&gaps), "{gaps}");
    }

    #[test]
    fn failed_write_is_counted_and_told_later() {
        let Bench { lines, lets, written } = bench();
        lines.start().unwrap();
        // The second failure is that of the notice in place of the lost line.
        for _ in 0..2 {
            lets.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        }
        (0..2).for_each(|number| lines.push(&line(number)));
        assert!(lines.flush(LIMIT));
        assert_eq!(lines.dropped(), 2);
        drop(lets);
        lines.push(&line(2));
        assert!(lines.flush(LIMIT));
        let seen: Vec<String> = written.try_iter().collect();
        assert_eq!(seen[0], "lost 2\n");
        assert_eq!(number(&seen[1]), Some(2));
    }

    #[test]
    fn flush_in_vain_is_not_waited_for_again() {
        let Bench { lines, lets, written } = bench();
        lines.push(&line(0));
        // It starts the thread itself.
        assert!(!lines.flush(Duration::from_millis(1)));
        let start = Instant::now();
        assert!(!lines.flush(10 * LIMIT));
        assert!(start.elapsed() < LIMIT);
        drop(lets);
        assert!(written.recv_timeout(LIMIT).is_ok());
        flush_after_all(&lines);
    }
}
