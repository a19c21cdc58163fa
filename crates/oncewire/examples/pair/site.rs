//! One site's gateways on a slow line and slow disks, each a process [Wanax §6].

mod film;
mod lost;
mod peers;
mod savings;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::scope;
use std::time::{Duration, Instant};

use oncewire_testnet::LinkParams;

use crate::common::origin::Origin;
use crate::common::site::Site;
use crate::common::wait::LIMIT;

/// The measurement, and the number of runs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// One part alone.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How often `peers`, `disks` and `savings` are measured; medians count.
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// Networks at the same time.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    #[command(flatten)]
    film: film::Arguments,
}

/// The parts.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Three files with one, two and three gateways at the site [Wanax Fig. 12, 13].
    Peers,
    /// The same with disks slower than the line [Wanax Fig. 13].
    Disks,
    /// Bytes on the line for a file fetched by a neighbour, or sent by another hub.
    Savings,
    /// The cost of a transfer after a store, or those of all gateways of the site, lost its content.
    Lost,
    /// Many clients of the same film [Wanax §6].
    Film,
}

pub(crate) fn run(arguments: &Arguments) {
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    if wanted(Part::Peers) {
        peers::run(arguments);
    }
    if wanted(Part::Disks) {
        peers::run_disks(arguments);
    }
    if wanted(Part::Savings) {
        savings::run(arguments);
    }
    if wanted(Part::Lost) {
        lost::run(arguments);
    }
    if wanted(Part::Film) {
        film::run(&arguments.film, arguments.at_once);
    }
    println!("Every byte was right.");
}

/// Does each job, so many at a time, and returns the results, in order.
pub(crate) fn all<J: Sync, R: Send>(jobs: &[J], at_once: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some((at, job)) = take(&next, jobs) {
                    let result = work(job);
                    done.lock().unwrap().insert(at, result);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

fn take<'j, J>(next: &AtomicUsize, jobs: &'j [J]) -> Option<(usize, &'j J)> {
    let at = next.fetch_add(1, Relaxed);
    jobs.get(at).map(|job| (at, job))
}

/// Has the server behind a hub give the file of a client's number.
fn serve(site: &Site, hub: usize, files: Vec<Vec<u8>>) -> Origin {
    Origin::on(site.listen(hub), move |mut stream| {
        let mut number = [0];
        if stream.read_exact(&mut number).is_ok() {
            // Whether it arrived is for the client to say.
            let _ = stream.write_all(&files[usize::from(number[0])]);
        }
    })
}

/// Fetches a file and returns it and the time from the request to the last byte.
fn fetch(mut stream: TcpStream, number: u8) -> (Vec<u8>, Duration) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let start = Instant::now();
    stream.write_all(&[number]).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    (got, start.elapsed())
}

/// A line of this rate and round trip.
pub(crate) fn line(rate_bits_per_s: u64, rtt_ms: u64) -> LinkParams {
    LinkParams {
        rate_bits_per_s: Some(rate_bits_per_s),
        delay: Duration::from_millis(rtt_ms / 2),
        ..LinkParams::default()
    }
}

/// The middle one of several runs' figures.
pub(crate) fn median<T: PartialOrd + Copy>(mut figures: Vec<T>) -> T {
    figures.sort_by(|a, b| a.partial_cmp(b).unwrap());
    figures[figures.len() / 2]
}
