//! The two halves of a direction, as in a warm gateway.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use oncewire_codec::contract::{Decoder as _, Delivery};
use oncewire_codec::endre::matcher::{Copy, MatchParams};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::stream::{Receiver, ReceiverConfig};
use oncewire_codec::wire::{Frame, LaneId, MAX_BLOCK, take_frame};
use oncewire_codec::{Layers, MarkerKind, Matching, Now, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::{DIGEST_SEED, Encoder};

/// Starts a sending half with a log full of noise, so its pages and its table's are there, as in a gateway after a
/// while. Later bytes take the place of the noise. `decoder`, if there is one, gets the same noise.
pub(crate) fn warm(log_memory: u64, params: MatchParams, decoder: Option<&mut Decoder>) -> Encoder {
    let mut encoder = Encoder::new(log_memory, params);
    fill(&mut encoder, &Plan { period: params.period as u32, ..PLAN }, decoder);
    encoder
}

/// Starts a sending half as [`warm`] does, for plans of Chunk-Match alone.
pub(crate) fn warm_chunks(log_memory: u64, params: MatchParams) -> Encoder {
    let mut encoder = Encoder::without_bytes(log_memory, params);
    let plan = Plan { matching: Matching::Chunk, period: params.period as u32, ..PLAN };
    fill(&mut encoder, &plan, None);
    encoder
}

/// Pushes everything out of the log by fresh noise: the following bytes find nothing, and all memory stays in place.
pub(crate) fn fill(encoder: &mut Encoder, plan: &Plan, mut decoder: Option<&mut Decoder>) {
    static FILLED: AtomicU64 = AtomicU64::new(0);
    let mut noise = Corpus::new(FILLED.fetch_add(1, Relaxed));
    let mut frames = Vec::new();
    for _ in 0..encoder.stats().log_capacity.div_ceil(MAX_BLOCK as u64) {
        frames.clear();
        encoder.encode(noise.random(MAX_BLOCK).into(), plan, &mut frames);
        if let Some(decoder) = &mut decoder {
            decoder.decode(&frames, &mut Stopwatch::default(), drop);
        }
    }
    encoder.next_flow();
}

/// Encodes `data` from the encoder's position, hands the frames of each group of blocks and the blocks to `take`, and
/// returns the bytes of all frames. `watch` counts the encoder's time.
pub(crate) fn encode(
    encoder: &mut Encoder,
    data: &[u8],
    plan: &Plan,
    watch: &mut Stopwatch,
    mut take: impl FnMut(&[Bytes], &[u8]),
) -> u64 {
    let (mut frames, mut wire) = (Vec::new(), 0);
    for group in groups(data) {
        frames.clear();
        let blocks = group.clone();
        watch.time(|| blocks.into_iter().for_each(|block| encoder.encode(block, plan, &mut frames)));
        wire += frames.len() as u64;
        take(&group, &frames);
    }
    wire
}

/// A receiving half.
pub(crate) struct Decoder {
    receiver: Receiver,
}

impl Decoder {
    pub(crate) fn new(log_memory: u64) -> Self {
        let receiver = Receiver::new(ReceiverConfig {
            capacity: log_memory,
            max_in_flight: in_flight(log_memory),
            contexts: 1,
            digest_seed: DIGEST_SEED,
            persist: false,
            store: false,
        });
        Self { receiver }
    }

    /// Decodes frames and gives the output to `take` at once; `watch` counts that, too.
    pub(crate) fn decode(&mut self, frames: &[u8], watch: &mut Stopwatch, mut take: impl FnMut(Delivery)) {
        let (receiver, mut feedback) = (&mut self.receiver, Vec::new());
        watch.time(|| {
            for (kind, body) in each_frame(frames) {
                if let Ok(Frame::Block(block)) = Frame::decode(kind, body) {
                    receiver.handle_block(block, LANE, Now::ZERO).expect("our own frames are sound");
                }
                std::iter::from_fn(|| receiver.poll_payload()).for_each(&mut take);
                receiver.poll_frame(false, &mut feedback);
            }
        });
    }
}

/// Cuts `data` into blocks, in groups small enough for a cache: bytes fresh from a socket are warm.
pub(crate) fn groups(data: &[u8]) -> impl Iterator<Item = Vec<Bytes>> + '_ {
    data.chunks(GROUP * MAX_BLOCK).map(|group| group.chunks(MAX_BLOCK).map(Bytes::copy_from_slice).collect())
}

/// Returns the copies of each coded block of `frames` untouched by the entropy stage, and the block's length.
pub(crate) fn copies(frames: &[u8]) -> Vec<(Vec<Copy>, usize)> {
    let blocks = each_frame(frames).filter_map(|(kind, body)| Frame::decode(kind, body).ok());
    let of_block = |frame| {
        let Frame::Block(block) = frame else { return None };
        Some((oncewire_lab::frames::copies(&block)?, block.plain_len))
    };
    blocks.filter_map(of_block).collect()
}

/// Returns the literal ranges of each coded block of `frames` untouched by the entropy stage.
pub(crate) fn literal_ranges(frames: &[u8]) -> Vec<Vec<Range<usize>>> {
    let of_block = |(copies, len): (Vec<Copy>, usize)| {
        let starts = std::iter::once(0).chain(copies.iter().map(|copy| copy.end()));
        let ends = copies.iter().map(|copy| copy.at as usize).chain([len]);
        starts.zip(ends).map(|(start, end)| start..end).collect()
    };
    copies(frames).into_iter().map(of_block).collect()
}

fn each_frame(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, body, used) = take_frame(bytes).ok()??;
        bytes = &bytes[used..];
        Some((kind, body))
    })
}

fn in_flight(log_memory: u64) -> u64 {
    log_memory / 4
}

/// Max-Match with MAXP, and no entropy stage.
pub(crate) const PLAN: Plan = Plan {
    layers: Layers::Log,
    matching: Matching::Max,
    markers: MarkerKind::Maxp,
    period: 64,
    entropy: Entropy::None,
    busy_entropy: None,
    quota: None,
};
const LANE: LaneId = LaneId(0);
const GROUP: usize = 16;
