//! Progress of work on a whole chunk store, on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use oncewire_tunnel::chunks::Progress;

use crate::table::bytes;

/// Does `work`, and meanwhile shows the done share and the rate: as a bar on a terminal, as lines with `lines`
/// elsewhere, and not at all otherwise.
pub(super) fn shown<T: Send>(what: &str, lines: bool, work: impl FnOnce(&Progress) -> T + Send) -> T {
    let progress = Progress::default();
    let is_terminal = std::io::stderr().is_terminal();
    let bar = if is_terminal { bar(what) } else { ProgressBar::hidden() };
    let begun = Instant::now();
    let (done, when_done) = channel();
    let outcome = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let outcome = work(&progress);
            // The receiver stays until this thread ends.
            let _ = done.send(());
            outcome
        });
        let mut next_line = LINE_EVERY;
        while let Err(RecvTimeoutError::Timeout) = when_done.recv_timeout(LOOK_EVERY) {
            bar.set_length(progress.total());
            bar.set_position(progress.done());
            if lines && !is_terminal && begun.elapsed() >= next_line {
                next_line += LINE_EVERY;
                line(what, &progress, begun.elapsed());
            }
            if worker.is_finished() {
                break;
            }
        }
        worker.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
    });
    bar.finish_and_clear();
    if lines && !is_terminal {
        line(what, &progress, begun.elapsed());
    }
    outcome
}

fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message(what.to_owned());
    let template = "{msg} {wide_bar} {percent} % {binary_bytes_per_sec}, {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        // It is the one above, better checked by a look than by a test.
        Err(_) => bar,
    }
}

fn line(what: &str, progress: &Progress, time: Duration) {
    let rate = progress.done() as f64 / time.as_secs_f64().max(0.001);
    let (percent, done) = ((100.0 * progress.share()) as u64, bytes(progress.done()));
    // Nobody is to be told if nobody reads it.
    let _ = writeln!(std::io::stderr(), "{what}: {percent} % done, {done}, {}/s", bytes(rate as u64));
}

/// How often the bar moves.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);
