//! The receiving half. Everything here is fed by the peer.

use thiserror::Error;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, find_frame_compressed_size};

use super::{Kind, MAGIC, MAX_PLAIN, Mode, WINDOW_LOG};

/// Why a compressed block cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EntropyError {
    /// The block claims to be longer than any can be.
    #[error("a compressed block claims {plain_len} bytes, more than the {MAX_PLAIN} allowed")]
    PlainTooLong {
        /// The length it claims.
        plain_len: usize,
    },
    /// The block names a slot that was not granted.
    #[error("a compressed block names slot {slot} of {slots}")]
    NoSuchSlot {
        /// The slot it names.
        slot: usize,
        /// How many there are.
        slots: usize,
    },
    /// The block goes on with a stream never begun here, or that an error ended.
    #[error("a compressed block goes on with slot {slot}, which holds no stream")]
    OutOfStep {
        /// The slot it names.
        slot: usize,
    },
    /// The body is unlike its kind, needs a window beyond the limit, or does not end with the block.
    #[error("a compressed block is malformed")]
    Malformed,
    /// The body holds fewer or more bytes than the block claims.
    #[error("a compressed block does not hold the {plain_len} bytes that it claims")]
    WrongLength {
        /// The length it claims.
        plain_len: usize,
    },
    /// There is no memory for a context: our own trouble, not the peer's fault.
    #[error("no memory for a decompression context")]
    NoMemory,
}

/// Decompresses the blocks of one direction of a link.
///
/// Contexts are made when they are first used.
pub struct Decompressor {
    alone: Option<DCtx<'static>>,
    slots: Vec<Slot>,
    framed: Vec<u8>,
}

#[derive(Default)]
struct Slot {
    context: Option<DCtx<'static>>,
    in_step: bool,
}

impl Decompressor {
    /// Creates a decompressor with `slots` streams.
    pub fn new(slots: usize) -> Self {
        Self {
            alone: None,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            framed: Vec::new(),
        }
    }

    /// Appends the `plain_len` bytes of which `body` is the compressed form to `out`.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the block; `out` is then unchanged, and the slot the block names, if it is there,
    /// holds no stream until the next [`Mode::First`].
    pub fn decompress(
        &mut self,
        kind: Kind,
        mode: Mode,
        body: &[u8],
        plain_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EntropyError> {
        let start = out.len();
        let result = self.append(kind, mode, body, plain_len, out);
        if result.is_err() {
            out.truncate(start);
            if let Mode::First(slot) | Mode::Next(slot) = mode
                && let Some(slot) = self.slots.get_mut(slot)
            {
                slot.in_step = false;
            }
        }
        result
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
        streams.chain(&self.alone).map(DCtx::sizeof).sum::<usize>()
            + self.slots.len() * size_of::<Slot>()
            + self.framed.capacity()
    }

    fn append(
        &mut self,
        kind: Kind,
        mode: Mode,
        body: &[u8],
        plain_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EntropyError> {
        if plain_len > MAX_PLAIN {
            return Err(EntropyError::PlainTooLong { plain_len });
        }
        match (kind, mode) {
            (Kind::Lz4, _) => lz4(body, plain_len, out),
            (Kind::Zstd, Mode::Alone) => self.zstd_alone(body, plain_len, out),
            (Kind::Zstd, Mode::First(slot)) => self.zstd_stream(slot, true, body, plain_len, out),
            (Kind::Zstd, Mode::Next(slot)) => self.zstd_stream(slot, false, body, plain_len, out),
        }
    }

    fn zstd_alone(&mut self, body: &[u8], plain_len: usize, out: &mut Vec<u8>) -> Result<(), EntropyError> {
        self.framed.clear();
        self.framed.extend_from_slice(&MAGIC);
        self.framed.extend_from_slice(body);
        // A second frame would be decompressed as well, and skippable ones passed over in silence.
        if find_frame_compressed_size(&self.framed) != Ok(self.framed.len()) {
            return Err(EntropyError::Malformed);
        }
        let context = ready(&mut self.alone)?;
        let room = room(out, plain_len);
        let len = context.decompress(room, &self.framed).map_err(|_| EntropyError::Malformed)?;
        if len == plain_len { Ok(()) } else { Err(EntropyError::WrongLength { plain_len }) }
    }

    fn zstd_stream(
        &mut self,
        slot: usize,
        first: bool,
        body: &[u8],
        plain_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EntropyError> {
        let slots = self.slots.len();
        let state = self.slots.get_mut(slot).ok_or(EntropyError::NoSuchSlot { slot, slots })?;
        if !first && !state.in_step {
            return Err(EntropyError::OutOfStep { slot });
        }
        let context = ready(&mut state.context)?;
        // One byte of room more than there should be, to see there are no more.
        let start = out.len();
        let mut output = OutBuffer::around(room(out, plain_len + 1));
        if first {
            context.reset(ResetDirective::SessionOnly).map_err(|_| EntropyError::Malformed)?;
            feed(context, &MAGIC, &mut output)?;
        }
        let wanted = feed(context, body, &mut output)?;
        let len = output.pos();
        if len != plain_len {
            return Err(EntropyError::WrongLength { plain_len });
        }
        // A context standing between two blocks waits for a block's header, no more and no less.
        if wanted != BLOCK_HEADER {
            return Err(EntropyError::Malformed);
        }
        out.truncate(start + plain_len);
        state.in_step = true;
        Ok(())
    }
}

/// Feeds `body` to a stream until all of it is taken or `output` is full, and returns how many bytes the context
/// wants next.
fn feed(
    context: &mut DCtx<'static>,
    body: &[u8],
    output: &mut OutBuffer<'_, [u8]>,
) -> Result<usize, EntropyError> {
    let mut input = InBuffer::around(body);
    loop {
        let wanted = context.decompress_stream(output, &mut input).map_err(|_| EntropyError::Malformed)?;
        // Streams do not end; what came behind the end would start another frame.
        if wanted == 0 {
            return Err(EntropyError::Malformed);
        }
        if input.pos() == body.len() || output.pos() == output.capacity() {
            return Ok(wanted);
        }
    }
}

fn lz4(body: &[u8], plain_len: usize, out: &mut Vec<u8>) -> Result<(), EntropyError> {
    match lz4_flex::block::decompress_into(body, room(out, plain_len)) {
        Ok(len) if len == plain_len => Ok(()),
        Ok(_) => Err(EntropyError::WrongLength { plain_len }),
        Err(_) => Err(EntropyError::Malformed),
    }
}

/// Returns the context, made and set up if it is not yet.
fn ready<'c>(context: &'c mut Option<DCtx<'static>>) -> Result<&'c mut DCtx<'static>, EntropyError> {
    if context.is_none() {
        let mut made = DCtx::try_create().ok_or(EntropyError::NoMemory)?;
        made.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).map_err(|_| EntropyError::NoMemory)?;
        *context = Some(made);
    }
    context.as_mut().ok_or(EntropyError::NoMemory)
}

/// Appends `len` zeros to `out` and returns them, to be written over.
fn room(out: &mut Vec<u8>, len: usize) -> &mut [u8] {
    let start = out.len();
    out.resize(start + len, 0);
    out.get_mut(start..).unwrap_or_default()
}

/// The length of a Zstandard block's header.
const BLOCK_HEADER: usize = 3;
