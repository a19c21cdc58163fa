//! Max-Match and zstd -1, against zstd -1 with long-distance matching.

use oncewire_codec::Plan;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::entropy::Entropy;
use oncewire_lab::cpu::Stopwatch;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, zstd_sys::ZSTD_EndDirective};

use crate::coder::{PLAN, encode, fill, warm};
use crate::files::Corpus;
use crate::table::{self, gigabytes_per_second, median, percent, savings, times};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "Max-Match and zstd -1 against `zstd -1 --long=30`",
        "MAXP, p = 64, a log of 1 GiB, the corpus as one flow; zstd over the whole corpus as one frame. One thread each, in \
         turns, all memory touched before; medians of the rounds.",
        &["corpus", "oncewire savings", "zstd savings", "points", "oncewire GB/s", "zstd GB/s", "ratio"],
    );
    let mut encoder = warm(LOG, MatchParams::default(), None);
    let plan = Plan { entropy: Entropy::Zstd(1), ..PLAN };
    let mut rival = Zstd::long();
    for corpus in corpora {
        // The first round of zstd touches its window for the first time.
        rival.compress(&corpus.data, &mut Stopwatch::default());
        let (mut ours, mut theirs, mut wires) = (Vec::new(), Vec::new(), (0, 0));
        let len = corpus.data.len() as u64;
        for _ in 0..ROUNDS {
            let (mut own_watch, mut other_watch) = (Stopwatch::default(), Stopwatch::default());
            wires.0 = encode(&mut encoder, &corpus.data, &plan, &mut own_watch, |_, _| ());
            fill(&mut encoder, &PLAN, None);
            wires.1 = rival.compress(&corpus.data, &mut other_watch);
            ours.push(gigabytes_per_second(len, own_watch.spent()));
            theirs.push(gigabytes_per_second(len, other_watch.spent()));
        }
        let (own, other) = (savings(len, wires.0), savings(len, wires.1));
        let ratios = ours.iter().zip(&theirs).map(|(own, other)| own / other).collect();
        table::row(&[
            corpus.name.clone(),
            percent(own),
            percent(other),
            format!("{:+.2}", (own - other) * 100.0),
            format!("{:.2}", median(ours)),
            format!("{:.2}", median(theirs)),
            times(median(ratios)),
        ]);
    }
}

/// zstd by itself.
pub(crate) struct Zstd {
    context: CCtx<'static>,
    out: Vec<u8>,
}

impl Zstd {
    /// As `zstd -1` sets it up.
    pub(crate) fn plain() -> Self {
        Self::with(&[CParameter::CompressionLevel(1)])
    }

    /// As `zstd -1 --long=30` sets it up.
    pub(crate) fn long() -> Self {
        Self::with(&[
            CParameter::CompressionLevel(1),
            CParameter::EnableLongDistanceMatching(true),
            CParameter::WindowLog(30),
        ])
    }

    fn with(parameters: &[CParameter]) -> Self {
        let mut context = CCtx::create();
        for parameter in parameters {
            context.set_parameter(*parameter).expect("these are parameters of zstd");
        }
        Self { context, out: Vec::with_capacity(CCtx::out_size()) }
    }

    /// Compresses `data` as one frame and returns its length.
    pub(crate) fn compress(&mut self, data: &[u8], watch: &mut Stopwatch) -> u64 {
        let (context, out) = (&mut self.context, &mut self.out);
        context.reset(ResetDirective::SessionOnly).expect("a session may be given up");
        context.set_pledged_src_size(Some(data.len() as u64)).expect("a session has not begun");
        let mut wire = 0;
        let pieces = data.len().div_ceil(PIECE).max(1);
        for (number, piece) in data.chunks(PIECE).enumerate() {
            let end = match number + 1 == pieces {
                true => ZSTD_EndDirective::ZSTD_e_end,
                false => ZSTD_EndDirective::ZSTD_e_continue,
            };
            let mut input = InBuffer::around(piece);
            loop {
                out.clear();
                let mut output = OutBuffer::around(out);
                let left = watch.time(|| context.compress_stream2(&mut output, &mut input, end));
                wire += output.pos() as u64;
                let left = left.expect("there is memory, and the output is not full");
                if input.pos() == piece.len() && (left == 0 || number + 1 < pieces) {
                    break;
                }
            }
        }
        wire
    }
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 3;
/// The command's read size.
const PIECE: usize = 128 << 10;
