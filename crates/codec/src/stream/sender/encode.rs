//! A block on its way out: its end, copies and names, compression, frame.

use bytes::Bytes as Shared;

use super::Sender;
use crate::contract::{Cut, Parts, Payload, Tail};
use crate::endre::log_encoder::Eliminated;
use crate::endre::matcher::Copy;
use crate::endre::tokens;
use crate::entropy::{Kind, Mode, Route};
use crate::log::LogOffset;
use crate::transfer::{Coded, Content, Item};
use crate::wanax::naming::{Named, Naming, Source, trim};
use crate::wire::{
    Block, BlockBody, Body, Digest, FlowId, Frame, LaneId, LaneTail, MAX_BLOCK, NameEntry, Range64,
    encode_block_in_pieces,
};
use crate::{Matching, Now, Plan};

/// Memory used again from block to block.
#[derive(Default)]
pub(super) struct Scratch {
    /// The block's copies from the log.
    copies: Vec<Copy>,
    /// Their parts left by the names, placed as in the residue.
    trimmed: Vec<Copy>,
    named: Named,
    /// Tokens; behind them literals, if they had to be put together.
    pub(super) raw: Vec<u8>,
    pub(super) compressed: Vec<u8>,
    pub(super) settled: Vec<FlowId>,
}

/// The coded form of a block; its bytes stand in [`Scratch`].
struct Encoded {
    eliminated: Eliminated,
    /// Length of the tokens, if there are copies.
    tokens: Option<usize>,
    literals: usize,
    entropy: Option<(Kind, Mode)>,
    sources: Vec<Range64>,
    bytes: Bytes,
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
/// The longest block without coding. The header of a coded one, its place in the log and its digest for two, is longer
/// than the savings from a few bytes, and a later reference to so few is no shorter than they are.
const SHORT: usize = 40;

impl Sender {
    /// Cuts a block from the front of a stream; see [`Encoder::cut`](crate::contract::Encoder::cut).
    ///
    /// Under a limit a block is short, since one that has begun cannot be overtaken. A repeat crosses as one copy however
    /// long it is, so the blocks of a flow within a repeat are long all the same.
    pub(super) fn choose_cut(
        &mut self,
        flow: FlowId,
        plan: &Plan,
        bytes: &[u8],
        tail: Tail,
        most: usize,
        now: Now,
    ) -> Cut {
        let bytes = bytes.get(..MAX_BLOCK).unwrap_or(bytes);
        let sent = &self.transfer.buffer;
        if bytes.len() > most && plan.layers.use_log() {
            let repeated = self.log.repeated(flow, bytes, sent);
            if repeated > most {
                return Cut::at(repeated);
            }
        }
        match &mut self.naming {
            Some(naming) if plan.layers.use_names() && naming.is_met() => {
                naming.block_end(bytes, tail, most, sent, now)
            }
            _ => Cut::at(bytes.len().min(most)),
        }
    }

    /// Appends the frame of a block, and keeps the block until it is acknowledged.
    pub(super) fn encode(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        let Payload { flow, offset, plain, fin, plan, parts } = payload;
        self.stats.blocks += 1;
        self.stats.plain += plain.len() as u64;
        if plan.is_none() {
            self.stats.uncoded += plain.len() as u64;
        }
        let is_short = plain.len() <= SHORT;
        if is_short && plan.is_some() {
            self.log.pass_short(flow, plain.len());
        }
        let plan = plan.filter(|_| !is_short);
        let seq = self.transfer.buffer.next_seq();
        let block = |body| Block { seq, flow, offset, plain_len: plain.len(), fin, resent: false, body };
        let content = Content::Block { offset, plain: plain.clone(), fin, coded: plan.is_some() };
        let (epoch, head) = (self.log.remote.epoch(), self.log.remote.head());
        let mut item = Item::new(flow, Some(lane), content, epoch, head);
        let mut eliminated = Eliminated::default();
        if let Some(plan) = &plan {
            let mut encoded = self.code(Route { flow, lane }, &plain, &parts, plan, now);
            eliminated = encoded.eliminated;
            let digest = self.fill_item(&mut item, &mut encoded, (seq, lane), &plain, plan);
            // Ahead of the block with the chunks in question.
            let probe = self.naming.as_mut().and_then(Naming::poll_probe_ahead);
            probe.into_iter().for_each(|probe| Frame::Probe(probe).encode(out));
            let body = Body {
                epoch,
                start: head,
                remembered: item.remembered,
                keep: item.keep,
                names: item.names.clone(),
                digest,
                tokens: encoded.tokens,
                literals: encoded.literals,
                entropy: encoded.entropy,
                bytes: &[],
            };
            self.put_block(block(BlockBody::Coded(body)), &encoded, &plain, out);
        } else {
            self.transfer.put_uncoded(block(BlockBody::Uncoded(&plain)), lane, out);
        }
        let end = offset.saturating_add(plain.len() as u64);
        self.transfer.note_tail(lane, LaneTail { flow, seq, end });
        if let Some(plan) = &plan {
            self.remember(flow, &plain, plan, eliminated);
        }
        self.log.note_sent(seq, &item.sources, &self.transfer.buffer);
        self.transfer.buffer.push(item);
    }

    /// Finds copies and names of a block, and compresses the rest.
    fn code(&mut self, route: Route, plain: &[u8], parts: &Parts, plan: &Plan, now: Now) -> Encoded {
        let Self { log, naming, transfer, entropy, stats, scratch, .. } = self;
        let Scratch { copies, trimmed, named, raw, compressed, .. } = scratch;
        let (flow, sent) = (route.flow, &transfer.buffer);
        let eliminated = match plan.layers.use_log() {
            true => log.eliminate(flow, plain, plan, sent, copies),
            false => {
                copies.clear();
                log.pass(flow);
                Eliminated::default()
            }
        };
        named.clear();
        if let Some(naming) = naming.as_mut().filter(|_| plan.layers.use_names()) {
            let source = Source { plain, copies, parts, price: naming.price(flow, plan.entropy) };
            naming.name(&source, sent, now, named);
            named.names.iter().for_each(|entry| stats.names.count(entry));
        }
        if !named.names.is_empty() {
            trim(copies, &named.names, trimmed);
        }
        let (copies, residue) = residue(copies, trimmed, named, plain);
        raw.clear();
        tokens::encode(copies, LogOffset(log.remote.head()), raw);
        let tokens = (!copies.is_empty()).then_some(raw.len());
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        stats.copied += copied as u64;
        let mut encoded = Encoded {
            eliminated,
            tokens,
            literals: residue.len() - copied,
            entropy: None,
            sources: merge_sources(copies),
            bytes: if tokens.is_some() { Bytes::Tokens } else { Bytes::Plain },
        };
        let stage = plan.entropy_of(encoded.literals, plain.len());
        if stage.kind().is_none() || residue.is_empty() {
            return encoded;
        }
        if tokens.is_some() {
            tokens::literals(copies, residue).for_each(|piece| raw.extend_from_slice(piece));
            encoded.bytes = Bytes::Raw;
        }
        let body = if tokens.is_some() { raw } else { residue };
        encoded.entropy = entropy.compress(route, stage, body, sent, compressed);
        if encoded.entropy.is_some() {
            encoded.bytes = Bytes::Compressed;
        }
        if let Some(naming) = naming {
            let out = if encoded.entropy.is_some() { compressed.len() } else { body.len() };
            naming.count_spent(flow, body.len(), out);
        }
        encoded
    }

    /// Completes a block's item with its coded form; returns the block's digest.
    fn fill_item(
        &mut self,
        item: &mut Item,
        encoded: &mut Encoded,
        (seq, lane): (u64, LaneId),
        plain: &[u8],
        plan: &Plan,
    ) -> Digest {
        let named = &mut self.scratch.named;
        item.remembered = encoded.eliminated.remembered;
        item.sources = std::mem::take(&mut encoded.sources);
        item.keep = named.keep;
        item.news = named.take_news();
        item.names = named.names.clone();
        if let Some(naming) = &mut self.naming {
            naming.sent(&item.news, seq);
        }
        if let Some((_, Mode::First(slot) | Mode::Next(slot))) = encoded.entropy {
            item.slot = Some(slot);
            self.entropy.used(slot, lane, seq);
        }
        let digest = self.digest(plain, plan, encoded.tokens.is_some(), &item.names);
        item.coded = self.keep_coded(encoded, plain.len(), digest);
        digest
    }

    /// The digest of a block: one that cannot be forged, if nobody compared its copies or if it has names of tags alone.
    fn digest(&mut self, plain: &[u8], plan: &Plan, copied: bool, names: &[NameEntry]) -> Digest {
        let epoch = self.log.remote.epoch();
        let unseen = copied && self.log.remote.matching(plan) == Matching::Chunk;
        match unseen || names.iter().any(|entry| entry.name.is_short()) {
            true => self.digests.strong(epoch, plain),
            false => self.digests.fast(epoch, plain),
        }
    }

    /// The coded form kept with a block, so it need not be sent whole if its lane is lost.
    fn keep_coded(&self, encoded: &Encoded, plain_len: usize, digest: Digest) -> Option<Coded> {
        let Scratch { copies, trimmed, named, .. } = &self.scratch;
        let is_named = !named.names.is_empty();
        let copies = if is_named { trimmed } else { copies };
        (encoded.literals <= plain_len / WHOLE_SHARE && (is_named || !copies.is_empty()))
            .then(|| Coded { copies: copies.clone(), digest })
    }

    /// Appends the frame of a block with its coded form; `block` lacks nothing but the bytes of its body.
    fn put_block<'a>(&'a self, mut block: Block<'a>, encoded: &Encoded, plain: &'a [u8], out: &mut Vec<u8>) {
        let Scratch { copies, trimmed, named, raw, compressed, .. } = &self.scratch;
        let BlockBody::Coded(body) = &mut block.body else { return };
        let (copies, residue) = residue(copies, trimmed, named, plain);
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

    /// Writes a block into the log, or counts the reason against it.
    fn remember(&mut self, flow: FlowId, plain: &Shared, plan: &Plan, eliminated: Eliminated) {
        let len = plain.len() as u64;
        if eliminated.remembered {
            self.log.remember(flow, plain, plan, &self.scratch.copies, eliminated);
            self.stats.remembered += len;
        } else if eliminated.left_out {
            self.stats.noise_left_out += len;
        } else if !self.log.may_remember(plain.len(), plan, &self.transfer.buffer) {
            self.stats.not_remembered += len;
        }
    }
}

/// The copies of a block's residue, and the residue: all of it without names.
fn residue<'a>(
    copies: &'a [Copy],
    trimmed: &'a [Copy],
    named: &'a Named,
    plain: &'a [u8],
) -> (&'a [Copy], &'a [u8]) {
    if named.names.is_empty() { (copies, plain) } else { (trimmed, &named.residue) }
}

/// The log ranges read by a block's copies, touching ones merged; neighbours on a diagonal are one.
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
