//! The choices of markers at p = 32 to 512, with a small and a large log [EndRE Fig. 6, Fig. 7, Table 3].

use std::time::Duration;

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::{MarkerKind, Plan};
use oncewire_fingerprint::Selector;
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;

use crate::coder::{PLAN, encode, fill, literal_ranges, warm};
use crate::files::Corpus;
use crate::memcpy::choose;
use crate::table::{self, gigabytes_per_second, median, percent, savings};

pub(crate) fn run(corpora: &[Corpus]) {
    let Some(corpus) = Corpus::pick(corpora, "swp") else { return };
    for log in LOGS {
        let title = format!("Marker choices, log of {}, {}", table::size(log), corpus.name);
        let per_log: Vec<(u32, Vec<Measured>)> =
            PERIODS.iter().map(|&period| (period, measure(corpus, log, period))).collect();
        print_savings(&title, &per_log);
        print_speeds(&title, &per_log);
        print_split(&title, &per_log);
    }
}

/// The result of one marker choice at one p.
struct Measured {
    kind: MarkerKind,
    savings: f64,
    /// The whole encoder, 10⁹ bytes a second.
    speed: f64,
    /// Choice and fingerprints alone, over all bytes.
    choosing_speed: f64,
    /// The share of choice and fingerprints in the encoder's time: for the bytes outside copies.
    choosing_share: f64,
}

/// Measures each choice in turn, over and over, from a log full of other bytes each time.
fn measure(corpus: &Corpus, log: u64, period: u32) -> Vec<Measured> {
    let params = MatchParams { period: period as usize, ..MatchParams::default() };
    let mut encoder = warm(log, params, None);
    let mut rounds: Vec<Vec<Times>> = MarkerKind::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (kind, rounds) in MarkerKind::ALL.into_iter().zip(&mut rounds) {
            let selector = Selector::new(kind, params.period, params.window);
            rounds.push(times(&mut encoder, corpus, &Plan { markers: kind, period, ..PLAN }, &selector));
            fill(&mut encoder, &Plan { period, ..PLAN }, None);
        }
    }
    let len = corpus.data.len() as u64;
    let summary = |(kind, rounds): (MarkerKind, &Vec<Times>)| {
        let speed = |of: fn(&Times) -> Duration| {
            median(rounds.iter().map(|round| gigabytes_per_second(len, of(round))).collect())
        };
        let shares = rounds.iter().map(|round| round.of_literals.as_secs_f64() / round.whole.as_secs_f64());
        Measured {
            kind,
            savings: savings(len, rounds.first().map_or(0, |round| round.wire)),
            speed: speed(|round| round.whole),
            choosing_speed: speed(|round| round.of_all),
            choosing_share: median(shares.collect()),
        }
    };
    MarkerKind::ALL.into_iter().zip(&rounds).map(summary).collect()
}

/// One pass over the corpus.
struct Times {
    wire: u64,
    whole: Duration,
    /// Choice and fingerprints of all bytes, by themselves.
    of_all: Duration,
    /// The encoder's time for literals: the bytes outside copies.
    of_literals: Duration,
}

fn times(encoder: &mut Encoder, corpus: &Corpus, plan: &Plan, selector: &Selector) -> Times {
    let [mut whole, mut of_all, mut of_literals] = [Stopwatch::default(); 3];
    let (mut markers, mut sum) = (Vec::new(), 0);
    let wire = encode(encoder, &corpus.data, plan, &mut whole, |blocks, frames| {
        let literals = literal_ranges(frames);
        of_literals.time(|| {
            for (block, ranges) in blocks.iter().zip(&literals) {
                sum = ranges
                    .iter()
                    .fold(sum, |sum, range| sum ^ choose(selector, block, range.clone(), &mut markers));
            }
        });
        of_all.time(|| {
            sum = blocks
                .iter()
                .fold(sum, |sum, block| sum ^ choose(selector, block, 0..block.len(), &mut markers));
        });
    });
    std::hint::black_box(sum);
    Times { wire, whole: whole.spent(), of_all: of_all.spent(), of_literals: of_literals.spent() }
}

fn print_savings(title: &str, measured: &[(u32, Vec<Measured>)]) {
    table::start(
        &format!("{title}: savings [EndRE Fig. 7]"),
        "Frames against plain bytes, no entropy stage.",
        &["p", "32", "64", "128", "256", "512"],
    );
    for (at, kind) in MarkerKind::ALL.into_iter().enumerate() {
        print_row(
            kind.name(),
            measured.iter().filter_map(|(_, kinds)| kinds.get(at)).map(|kind| percent(kind.savings)),
        );
    }
}

fn print_speeds(title: &str, measured: &[(u32, Vec<Measured>)]) {
    table::start(
        &format!("{title}: speed in Gbit/s [EndRE Fig. 6]"),
        "The whole encoder; in brackets the choice of markers with fingerprints, over all bytes (at p = 32, too, with \
         fingerprints of 32 bytes and one place for each marker, where the encoder's are of 24 and maxp looks two up). The \
         paper's figures, from processors of 2009 at 10 MB, are MODP 0.4; MAXP 0.6 to 1.7; FIXED 2.3 to 7.1; SAMPLEBYTE 2.2 to 5.8 from \
         p = 32 to 512, and about 30 % less with caches of 1 to 2 GB.",
        &["p", "32", "64", "128", "256", "512"],
    );
    for (at, kind) in MarkerKind::ALL.into_iter().enumerate() {
        let cells = measured.iter().filter_map(|(_, kinds)| kinds.get(at));
        print_row(
            kind.name(),
            cells.map(|kind| format!("{:.1} ({:.1})", kind.speed * 8.0, kind.choosing_speed * 8.0)),
        );
    }
}

fn print_split(title: &str, measured: &[(u32, Vec<Measured>)]) {
    table::start(
        &format!("{title}: where the time goes [EndRE Table 3]"),
        "Share of the encoder's time that choosing markers and fingerprints take, and the rest: table, comparing, log, \
         digest, tokens, frame. The paper's shares at p = 32 and 512: MODP 97 %, 99 %; MAXP 95 %, 94 %; FIXED 85 %, \
         73 %; SAMPLEBYTE 86 %, 75 %.",
        &[
            "p",
            "32 markers",
            "rest",
            "512 markers",
            "rest",
            "encoder ÷ modp-rabin at 32",
            "at 64",
            "markers ÷ at 64",
        ],
    );
    let of = |period: u32, kind: MarkerKind| {
        let kinds = measured.iter().find(|(of, _)| *of == period).map(|(_, kinds)| kinds);
        kinds.and_then(|kinds| kinds.iter().find(|measured| measured.kind == kind))
    };
    for kind in MarkerKind::ALL {
        let shares = [32, 512]
            .into_iter()
            .filter_map(|period| of(period, kind))
            .flat_map(|measured| [percent(measured.choosing_share), percent(1.0 - measured.choosing_share)]);
        let ratio = |period, speed: fn(&Measured) -> f64| {
            of(period, kind)
                .zip(of(period, MarkerKind::ModpRabin))
                .map(|(one, other)| table::times(speed(one) / speed(other)))
        };
        let ratios = [ratio(32, |at| at.speed), ratio(64, |at| at.speed), ratio(64, |at| at.choosing_speed)];
        print_row(kind.name(), shares.chain(ratios.into_iter().flatten()));
    }
}

fn print_row(name: &str, cells: impl Iterator<Item = String>) {
    table::row(&std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
}

/// The paper's size, and one only estimated there.
const LOGS: [u64; 2] = [16 << 20, 1 << 30];
const PERIODS: [u32; 5] = [32, 64, 128, 256, 512];
const ROUNDS: usize = 3;
