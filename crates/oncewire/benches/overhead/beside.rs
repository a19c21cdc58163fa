//! An echo, alone and beside two downloads, over a slow line. Messages of 100 bytes cross 20 Mbit/s with a round trip
//! of 50 ms.

use std::time::{Duration, Instant};

use oncewire_lab::corpus::Corpus;
use oncewire_testnet::{Line, LinkParams, Queue};

use crate::common::wait::eventually;
use crate::deployment::{Deployment, Way};
use crate::traffic::{self, Content, Downloads, Echo};
use crate::{name, percentile};

/// The measurements of a way.
#[derive(Default)]
struct Seen {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
    /// The downloads' rate meanwhile, of each round.
    mbit_per_s: Vec<f64>,
}

/// Measures and prints the table.
pub(crate) fn run(rounds: usize) {
    let line = LinkParams {
        rate_bits_per_s: Some(20_000_000),
        delay: Duration::from_millis(25),
        queue: Queue::Time(Duration::from_millis(100)),
        ..LinkParams::default()
    };
    let Some(deployment) = Deployment::start(Line::emulated(&line), &WAYS) else { return };
    let content = Content::default();
    traffic::serve(deployment.listen(), content.clone());
    let mut corpus = Corpus::new(2);
    let mut ways = WAYS.map(|way| (way, Seen::default()));
    for round in 0..rounds {
        eprintln!("beside, round {} of {rounds}", round + 1);
        for (way, seen) in &mut ways {
            content.replace(corpus.random(CONTENT));
            seen.measure(&deployment, *way, &content);
        }
    }
    println!(
        "\n| ms | alone, median | beside, median | 95 % | longest | downloads, Mbit/s |\n|{}",
        "---|".repeat(6)
    );
    for (way, seen) in &mut ways {
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        let rate = seen.mbit_per_s.iter().sum::<f64>() / seen.mbit_per_s.len() as f64;
        println!(
            "| {} | {} | {} | {} | {} | {rate:.1} |",
            name(*way),
            ms(percentile(&mut seen.alone, 50)),
            ms(percentile(&mut seen.beside, 50)),
            ms(percentile(&mut seen.beside, 95)),
            ms(percentile(&mut seen.beside, 100)),
        );
    }
}

impl Seen {
    fn measure(&mut self, deployment: &Deployment, way: Way, content: &Content) {
        let mut echo = Echo::start(deployment, way, 100);
        eventually("what was under way has drained", LIMIT, || (echo.there_and_back() < QUIET).then_some(()));
        self.alone.extend((0..ALONE).map(|_| paced(&mut echo)));
        let downloads = Downloads::start(deployment, way, 2, content);
        // By then they have found the rate, and count as bulk.
        eventually("downloads run", LIMIT, || (downloads.received() > WARM).then_some(()));
        let (start, before) = (Instant::now(), downloads.received());
        self.beside.extend((0..BESIDE).map(|_| paced(&mut echo)));
        let received = downloads.received() - before;
        self.mbit_per_s.push(received as f64 * 8e-6 / start.elapsed().as_secs_f64());
        downloads.stop();
    }
}

/// One echo, and a pause up to 50 ms after its begin, or up to its return if that is later.
#[allow(clippy::disallowed_methods, reason = "it is the pace that is measured at, and nothing waits for it")]
fn paced(echo: &mut Echo) -> Duration {
    let taken = echo.there_and_back();
    std::thread::sleep(PACE.saturating_sub(taken));
    taken
}

const WAYS: [Way; 3] = [Way::Direct, Way::Coded, Way::Limited];
const ALONE: usize = 20;
const BESIDE: usize = 100;
const PACE: Duration = Duration::from_millis(50);
/// More than the downloads receive in a round.
const CONTENT: usize = 80_000_000;
const WARM: u64 = 4_000_000;
/// Well below a round trip with something in the line's queue.
const QUIET: Duration = Duration::from_millis(70);
const LIMIT: Duration = Duration::from_secs(60);
