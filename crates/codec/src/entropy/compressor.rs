//! The sending half.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, compress_bound};

use super::{Entropy, LEVELS, MAGIC, MAX_PLAIN, Mode, WINDOW_LOG, estimate};

/// Compresses the blocks of one direction of a link.
///
/// Contexts are made when they are first used.
pub struct Compressor {
    entropy: Entropy,
    alone: Option<Context>,
    /// For trials; level 1, whatever the level in use.
    trial: Option<Context>,
    slots: Vec<Slot>,
    lz4: CompressTable,
    compressed: Vec<u8>,
}

#[derive(Default)]
struct Slot {
    context: Option<Context>,
    begun: bool,
}

/// A context, and the level it is set to.
struct Context {
    context: CCtx<'static>,
    level: i32,
}

impl Compressor {
    /// Creates a compressor with `slots` streams.
    pub fn new(entropy: Entropy, slots: usize) -> Self {
        Self {
            entropy: clamped(entropy),
            alone: None,
            trial: None,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            lz4: CompressTable::large(),
            compressed: Vec::new(),
        }
    }

    /// Returns the compression in use.
    pub fn entropy(&self) -> Entropy {
        self.entropy
    }

    /// Changes the compression from the next block on. A stream takes a new level when it next begins.
    pub fn set_entropy(&mut self, entropy: Entropy) {
        self.entropy = clamped(entropy);
    }

    /// Appends the compressed form of `plain` to `out` and returns true, or returns false when it is to be sent as
    /// it is; `out` is then unchanged.
    ///
    /// Both ends stay in step either way, if the receiving end is given the appended bytes, and nothing otherwise.
    /// [`Mode::First`] ends the stream in the slot; when it returns false, the slot holds no stream and [`Mode::Next`]
    /// returns false until a first block was compressed ([`Self::has_begun`]). In a stream, the result may be longer
    /// than `plain`, by a thousandth and 8 bytes at most. LZ4 is alone in any mode. More than [`MAX_PLAIN`] bytes, and
    /// unknown slots, are never compressed.
    pub fn compress(&mut self, mode: Mode, plain: &[u8], out: &mut Vec<u8>) -> bool {
        if let Mode::First(slot) = mode
            && let Some(slot) = self.slots.get_mut(slot)
        {
            slot.begun = false;
        }
        (1..=MAX_PLAIN).contains(&plain.len()) && self.compress_one(mode, plain, out)
    }

    /// Returns whether a slot holds a stream that [`Mode::Next`] can go on with.
    pub fn has_begun(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.begun)
    }

    /// Ends the stream in a slot and frees its memory.
    pub fn release(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Slot::default();
        }
    }

    /// Returns the bytes of memory that contexts and buffers take.
    pub fn memory(&self) -> usize {
        let streams = self.slots.iter().filter_map(|slot| slot.context.as_ref());
        let contexts = streams.chain(&self.alone).chain(&self.trial);
        contexts.map(|context| context.context.sizeof()).sum::<usize>()
            + self.slots.len() * size_of::<Slot>()
            + self.compressed.capacity()
            + LZ4_TABLE
    }

    fn compress_one(&mut self, mode: Mode, plain: &[u8], out: &mut Vec<u8>) -> bool {
        match (self.entropy, mode) {
            (Entropy::None, _) => false,
            (Entropy::Lz4, _) => self.lz4(plain, out),
            (Entropy::Zstd(level), Mode::Alone) => self.zstd_alone(level, plain, out),
            (Entropy::Zstd(level), Mode::First(slot)) => self.zstd_stream(level, slot, true, plain, out),
            (Entropy::Zstd(level), Mode::Next(slot)) => self.zstd_stream(level, slot, false, plain, out),
        }
    }

    fn lz4(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        if plain.len() < MIN_ALONE || estimate::looks_random(plain) && !self.trial_succeeds(plain) {
            return false;
        }
        self.compressed.resize(get_maximum_output_size(plain.len()), 0);
        let written = compress_into_with_table(plain, &mut self.compressed, &mut self.lz4).ok();
        append_if_smaller(written.and_then(|len| self.compressed.get(..len)), plain.len(), out)
    }

    fn zstd_alone(&mut self, level: i32, plain: &[u8], out: &mut Vec<u8>) -> bool {
        if plain.len() < MIN_ALONE || estimate::looks_random(plain) && !self.trial_succeeds(plain) {
            return false;
        }
        let written = frame(&mut self.alone, level, plain, &mut self.compressed);
        append_if_smaller(written, plain.len(), out)
    }

    fn zstd_stream(&mut self, level: i32, slot: usize, first: bool, plain: &[u8], out: &mut Vec<u8>) -> bool {
        if plain.len() < MIN_STREAMED
            || !first && !self.has_begun(slot)
            || estimate::looks_random(plain) && !self.trial_succeeds(plain)
        {
            return false;
        }
        let Some(slot) = self.slots.get_mut(slot) else { return false };
        if first
            && let Some(Context { context, .. }) = &mut slot.context
            && context.reset(ResetDirective::SessionOnly).is_err()
        {
            return false;
        }
        let level = if first { level } else { slot.context.as_ref().map_or(level, |context| context.level) };
        let Some(context) = ready(&mut slot.context, level) else { return false };
        // Whatever fails from here on leaves the context ahead of the decoder's: the slot must begin anew.
        slot.begun = false;
        let Some(written) = flushed(context, plain, &mut self.compressed) else { return false };
        let body = if first { written.strip_prefix(&MAGIC) } else { Some(written) };
        let Some(body) = body else { return false };
        out.extend_from_slice(body);
        slot.begun = true;
        true
    }

    /// Compresses a sample alone, at the fastest level, and returns whether that helped.
    fn trial_succeeds(&mut self, plain: &[u8]) -> bool {
        let mut sample = Vec::new();
        estimate::sample(plain, &mut sample);
        frame(&mut self.trial, *LEVELS.start(), &sample, &mut self.compressed)
            .is_some_and(|written| written.len() + sample.len() / 50 < sample.len())
    }
}

fn append_if_smaller(compressed: Option<&[u8]>, plain_len: usize, out: &mut Vec<u8>) -> bool {
    match compressed {
        Some(compressed) if compressed.len() + plain_len / MIN_GAIN < plain_len => {
            out.extend_from_slice(compressed);
            true
        }
        _ => false,
    }
}

/// Returns the context, made if it is not yet and set to `level`; `None` without memory. A context of another
/// level must not be in the middle of a stream.
fn ready(context: &mut Option<Context>, level: i32) -> Option<&mut CCtx<'static>> {
    if context.is_none() {
        let mut made = CCtx::try_create()?;
        for parameter in [
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            made.set_parameter(parameter).ok()?;
        }
        *context = Some(Context { context: made, level: 0 });
    }
    let made = context.as_mut()?;
    if made.level != level {
        // Level 1 is made for half a megabyte; a larger window would only miss the processor's caches.
        let window_log = if level == 1 { WINDOW_LOG - 1 } else { WINDOW_LOG };
        made.context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
        made.context.set_parameter(CParameter::WindowLog(window_log)).ok()?;
        made.level = level;
    }
    Some(&mut made.context)
}

fn clamped(entropy: Entropy) -> Entropy {
    match entropy {
        Entropy::Zstd(level) => Entropy::Zstd(level.clamp(*LEVELS.start(), *LEVELS.end())),
        other => other,
    }
}

/// Compresses `plain` alone and returns the frame without its magic number.
fn frame<'b>(
    context: &mut Option<Context>,
    level: i32,
    plain: &[u8],
    buffer: &'b mut Vec<u8>,
) -> Option<&'b [u8]> {
    buffer.resize(compress_bound(plain.len()), 0);
    let len = ready(context, level)?.compress2(&mut buffer[..], plain).ok()?;
    buffer.get(..len)?.strip_prefix(&MAGIC)
}

/// Feeds `plain` to a stream and returns all that comes out.
fn flushed<'b>(context: &mut CCtx<'static>, plain: &[u8], buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    buffer.resize(compress_bound(plain.len()) + FLUSH_ROOM, 0);
    let mut input = InBuffer::around(plain);
    let mut output = OutBuffer::around(&mut buffer[..]);
    while context.compress_stream2(&mut output, &mut input, ZSTD_e_flush).ok()? > 0 {
        if output.pos() == output.capacity() {
            return None;
        }
    }
    let len = output.pos();
    buffer.get(..len).filter(|_| input.pos() == plain.len())
}

/// Below this, a block alone is not worth a try.
const MIN_ALONE: usize = 32;

/// Below this, what a stream can save does not pay for the three bytes of its own header.
const MIN_STREAMED: usize = 16;

/// A block alone must shrink by one part in this many, or decompressing it is not worth the while.
const MIN_GAIN: usize = 128;

/// Room for the headers of a frame and of the blocks a flush ends.
const FLUSH_ROOM: usize = 64;

/// What the table of LZ4 takes: 4096 entries of four bytes.
const LZ4_TABLE: usize = 4096 * 4;
