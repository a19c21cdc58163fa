//! The work caused by little input of a hostile peer, and the delay for others.
//!
//! ```sh
//! cargo bench -p oncewire-lab --bench hostile
//! ```
//!
//! Each attack is run as it is and at ten times its size, in turns as a gateway takes them: behind each turn another
//! peer's two halves exchange a block of a kilobyte and its acknowledgement, on the same thread. The table lists the
//! bytes on the link, the looked-at entries and the time for each of these bytes, the longest turn, and the worst
//! duration of the exchange since it was due: behind the turn before.

#[allow(dead_code, clippy::unwrap_used, reason = "a part of the bodies of fuzzers is used here")]
#[path = "../../../../fuzz/bodies/codec.rs"]
mod bodies;

use std::time::{Duration, Instant};

use bodies::steps::{Attack, Hostile};
use oncewire_codec::contract::Decoder as _;
use oncewire_codec::wire::FlowId;
use oncewire_lab::pair::{Pair, PairConfig};

/// A gateway's turn ends after so much work of the receiving half.
const WORK_OF_A_TURN: u64 = 128 << 10;
/// The largest read of a lane, the limit of a turn.
const READ: u64 = 64 << 10;

fn attacks(times: u64) -> [(&'static str, Vec<Attack>); 5] {
    let wait = Attack::Wait { count: 20 };
    let fill = |count, down| Attack::Fill { count: count * times, from: 0, stride: 2, down };
    // Missing blocks may be 32,768 numbers ahead.
    let copies = Attack::Copies { count: (4090 * times).min(MOST_COPIES), from: 0, len: 64_000 };
    let resets = Attack::Resets { count: 16_000 * times };
    [
        ("holes, and copies across them", vec![fill(16_000, false), copies, wait]),
        ("copies that wait, and bytes behind", vec![copies, fill(24_000, false), wait]),
        ("copies that wait, and bytes from the end", vec![copies, fill(24_000, true), wait]),
        ("wrong blocks, and resets that wait", vec![Attack::Wrong { count: 32_700 }, resets]),
        (
            "a wrong block of 21,000 copies, again and again",
            vec![fill(1, false), Attack::Again { count: 1000 * times, copies: 21_000 }],
        ),
    ]
}

/// Pending blocks, with numbers left for those behind them.
const MOST_COPIES: u64 = 30_000;

/// Another peer's link, and how its exchanges went.
struct Other {
    pair: Pair,
    offset: u64,
    since: Instant,
    worst: Duration,
}

impl Other {
    fn new() -> Self {
        let config = PairConfig { log_memory: 1 << 20, max_in_flight: 1 << 18, ..PairConfig::default() };
        Self { pair: Pair::new(config), offset: 0, since: Instant::now(), worst: Duration::ZERO }
    }

    /// Its turn: behind it, the next exchange is due.
    fn exchange(&mut self) {
        let plain: Vec<u8> = (0..1024u64).map(|at| ((at * self.offset) >> 3) as u8).collect();
        if let Err(error) = self.pair.send(FlowId(1), self.offset, plain.into(), false) {
            panic!("the other peer's exchange: {error}");
        }
        self.offset += 1024;
        self.worst = self.worst.max(self.since.elapsed());
        self.since = Instant::now();
    }
}

fn main() {
    println!("| attack | size | bytes | looks a byte | ns a byte | longest turn | other's exchange, worst |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for times in [1, 10] {
        for (name, attack) in attacks(times) {
            run(name, times, &attack);
        }
    }
}

fn run(name: &str, times: u64, attack: &[Attack]) {
    let (mut peer, mut other) = (Hostile::new(), Other::new());
    let (mut turn, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut work, mut handled, began) = (0, 0, Instant::now());
    for attack in attack {
        peer.run(attack, &mut |receiver| {
            handled += FRAME;
            if receiver.work() - work >= WORK_OF_A_TURN || handled >= READ {
                longest = longest.max(turn.elapsed());
                other.exchange();
                (work, handled, turn) = (receiver.work(), 0, Instant::now());
            }
        });
    }
    let took = began.elapsed();
    longest = longest.max(turn.elapsed());
    let bytes = peer.bytes.max(1);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    println!(
        "| {name} | {times} | {bytes} | {:.1} | {:.0} | {} | {} |",
        peer.steps() as f64 / bytes as f64,
        took.as_nanos() as f64 / bytes as f64,
        ms(longest),
        ms(other.worst),
    );
}

/// About the length of the frames of these attacks.
const FRAME: u64 = 30;
