//! What becomes of a block: copies and literals, and their compression.

use super::Sender;
use crate::endre::matcher::{Copy, next_hint};
use crate::endre::tokens;
use crate::entropy::{Kind, Mode};
use crate::log::LogOffset;
use crate::transfer::Coded;
use crate::wanax::naming::{Named, trim};
use crate::wanax::price::Price;
use crate::wire::{Block, BlockBody, Digest, FlowId, LaneId, Range64, encode_block_in_pieces};
use crate::{Now, Plan};

#[derive(Default)]
pub(crate) struct Scratch {
    /// What the log has of the block.
    pub(crate) copies: Vec<Copy>,
    /// What the names leave of it, placed as in the residue.
    trimmed: Vec<Copy>,
    /// Tokens; behind them literals, if they had to be put together.
    pub(crate) raw: Vec<u8>,
    pub(crate) compressed: Vec<u8>,
    pub(crate) settled: Vec<FlowId>,
    /// Whether the block is noise for which the log has no room.
    pub(crate) left_out: bool,
}

/// What [`Sender::encode`] made of a block.
pub(crate) struct Encoded {
    pub(crate) remembered: bool,
    pub(crate) named: Named,
    /// Length of the tokens, if there are copies.
    pub(crate) tokens: Option<usize>,
    pub(crate) literals: usize,
    pub(crate) entropy: Option<(Kind, Mode)>,
    pub(crate) sources: Vec<Range64>,
    bytes: Bytes,
}

/// A block to be encoded.
#[derive(Clone, Copy)]
pub(crate) struct Source<'p> {
    pub(crate) flow: FlowId,
    pub(crate) lane: LaneId,
    pub(crate) plain: &'p [u8],
}

/// Where the bytes of a body lie.
enum Bytes {
    /// The block, or its residue, is not changed.
    Plain,
    Compressed,
    /// Tokens and literals stand together.
    Raw,
    /// Tokens stand alone; literals are still where they were.
    Tokens,
}

/// A block of which more than one byte in this many crossed is sent whole when its lane is lost.
const WHOLE_SHARE: usize = 4;

impl Sender {
    pub(crate) fn encode(&mut self, block: Source<'_>, plan: &Plan, now: Now) -> Encoded {
        let Source { flow, lane, plain } = block;
        let remembered = match plan.layers.use_log() {
            true => self.eliminate(flow, plain, plan),
            false => self.pass_log(flow),
        };
        let named = self.name(block, plan, now);
        let Scratch { copies, trimmed, raw, compressed, .. } = &mut self.scratch;
        let (copies, residue) = match self.naming.as_ref().filter(|naming| !naming.names.is_empty()) {
            None => (&*copies, plain),
            Some(naming) => {
                trim(copies, &naming.names, trimmed);
                (&*trimmed, &naming.residue[..])
            }
        };
        raw.clear();
        tokens::encode(copies, LogOffset(self.log.head()), raw);
        let tokens = (!copies.is_empty()).then_some(raw.len());
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        self.stats.copied += copied as u64;
        let mut encoded = Encoded {
            remembered,
            named,
            tokens,
            literals: residue.len() - copied,
            entropy: None,
            sources: merge_sources(copies),
            bytes: if tokens.is_some() { Bytes::Tokens } else { Bytes::Plain },
        };
        let entropy = plan.entropy_of(encoded.literals, plain.len());
        let Some(kind) = entropy.kind().filter(|_| !residue.is_empty()) else { return encoded };
        let mode = match kind {
            Kind::Zstd => self.slots.mode(flow, lane, entropy, &self.ledger),
            Kind::Lz4 => Mode::Alone,
        };
        if tokens.is_some() {
            tokens::literals(copies, residue).for_each(|piece| raw.extend_from_slice(piece));
            encoded.bytes = Bytes::Raw;
        }
        compressed.clear();
        self.compressor.set_entropy(entropy);
        let body = if tokens.is_some() { raw } else { residue };
        if self.compressor.compress(mode, body, compressed) {
            encoded.entropy = Some((kind, mode));
            encoded.bytes = Bytes::Compressed;
        } else if let Mode::Next(slot) = mode
            && !self.compressor.has_begun(slot)
        {
            // Compression failed in the middle of the stream, and goes on with no block until one begins it afresh.
            self.slots.restart(slot);
        }
        if self.naming.is_some() {
            let out = if encoded.entropy.is_some() { compressed.len() } else { body.len() };
            self.spent.entry(flow).or_default().count(body.len(), out);
        }
        encoded
    }

    /// Returns what is kept of a block that was just encoded, so that it need not be sent whole if its lane is lost.
    pub(crate) fn keep_coded(&self, encoded: &Encoded, plain_len: usize, digest: Digest) -> Option<Coded> {
        let named = self.naming.as_ref().is_some_and(|naming| !naming.names.is_empty());
        let copies = if named { &self.scratch.trimmed } else { &self.scratch.copies };
        (encoded.literals <= plain_len / WHOLE_SHARE && (named || !copies.is_empty()))
            .then(|| Coded { copies: copies.clone(), digest })
    }

    /// Appends the frame of a block that was just encoded; `block` lacks nothing but the bytes of its body.
    pub(crate) fn put_block<'a>(
        &'a self,
        mut block: Block<'a>,
        encoded: &Encoded,
        plain: &'a [u8],
        out: &mut Vec<u8>,
    ) {
        let Scratch { copies, trimmed, raw, compressed, .. } = &self.scratch;
        let BlockBody::Coded(body) = &mut block.body else { return };
        let (copies, residue) = match self.naming.as_ref().filter(|_| !body.names.is_empty()) {
            None => (copies, plain),
            Some(naming) => (trimmed, &naming.residue[..]),
        };
        let mut apart = 0;
        body.bytes = match encoded.bytes {
            Bytes::Plain => residue,
            Bytes::Compressed => compressed,
            Bytes::Raw => raw,
            Bytes::Tokens => {
                apart = encoded.literals;
                raw
            }
        };
        let pieces = tokens::literals(copies, residue).filter(|_| apart > 0);
        encode_block_in_pieces(&block, apart, pieces, out);
    }

    /// Names what the log does not have, if the plan says so.
    fn name(&mut self, block: Source<'_>, plan: &Plan, now: Now) -> Named {
        let Source { flow, plain, .. } = block;
        let Some(naming) = &mut self.naming else { return Named::default() };
        if !plan.layers.use_names() {
            naming.pass();
            return Named::default();
        }
        let price = Price::new(plan.entropy, self.spent.get(&flow).copied().unwrap_or_default());
        let named = naming.name(plain, &self.scratch.copies, price, &self.ledger, now);
        for entry in &naming.names {
            self.stats.names.count(entry);
        }
        named
    }

    /// Leaves the log out; returns that the block is not remembered.
    fn pass_log(&mut self, flow: FlowId) -> bool {
        self.scratch.copies.clear();
        self.scratch.left_out = false;
        self.diagonals.remove(&flow);
        false
    }

    /// Finds copies; returns whether the block is worth remembering, and may be.
    fn eliminate(&mut self, flow: FlowId, plain: &[u8], plan: &Plan) -> bool {
        self.log.note_next(self.in_flight() + plain.len() as u64);
        let (floor, hint) = (self.floor(), self.diagonals.get(&flow).copied());
        let copies = &mut self.scratch.copies;
        let density = self.densities.entry(flow).or_default();
        self.log.find(&density.refine(plan), plain, floor, hint, copies);
        density.note(plain.len(), copies);
        match next_hint(copies, plain.len()) {
            Some(hint) => drop(self.diagonals.insert(flow, hint)),
            None => drop(self.diagonals.remove(&flow)),
        }
        let held = self.log.holds(plain.len(), copies);
        self.scratch.left_out = false;
        if held || !self.may_remember(plain.len(), plan) {
            return false;
        }
        self.scratch.left_out = !self.log.takes(plain, &self.scratch.copies);
        !self.scratch.left_out
    }
}

/// The log ranges that a block's copies read, touching ones merged; neighbours on a diagonal are one.
fn merge_sources(copies: &[Copy]) -> Vec<Range64> {
    let mut sources: Vec<Range64> = Vec::new();
    for copy in copies {
        let (start, end) = (copy.source.0, copy.source.0 + u64::from(copy.len));
        match sources.last_mut() {
            Some(last) if start >= last.start && start <= last.end + 256 => last.end = last.end.max(end),
            _ => sources.push(start..end),
        }
    }
    sources
}
