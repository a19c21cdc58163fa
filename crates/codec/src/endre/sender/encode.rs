//! What becomes of a block: copies and literals, and their compression.

use super::super::matcher::{Copy, next_hint};
use super::super::tokens;
use super::Sender;
use crate::Plan;
use crate::cache::LogOffset;
use crate::entropy::{Kind, Mode};
use crate::wire::{FlowId, LaneId, Range64};

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) copies: Vec<Copy>,
    pub(super) tokens: Vec<u8>,
    pub(super) literals: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) settled: Vec<FlowId>,
}

/// What [`Sender::encode`] made of a block; the body lies in the scratch or is the plain bytes.
pub(super) struct Encoded {
    pub(super) remembered: bool,
    pub(super) tokens: Option<usize>,
    pub(super) literals: usize,
    pub(super) entropy: Option<(Kind, Mode)>,
    pub(super) sources: Vec<Range64>,
}

/// A block is not remembered again if at most one byte in this many is new: what is new and not remembered is
/// paid for again with every repeat.
const NEW_SHARE: usize = 500;

impl Sender {
    pub(super) fn encode(&mut self, flow: FlowId, lane: LaneId, plain: &[u8], plan: &Plan) -> Encoded {
        let remembered = self.eliminate(flow, plain, plan);
        let Scratch { copies, tokens, literals, body, .. } = &mut self.scratch;
        tokens.clear();
        literals.clear();
        body.clear();
        let parts: [&[u8]; 2] = if copies.is_empty() {
            [&[], plain]
        } else {
            tokens::encode(copies, plain, LogOffset(self.log.head()), tokens, literals);
            [tokens, literals]
        };
        let mut entropy = None;
        if let Some(kind) = plan.entropy.kind()
            && !plain.is_empty()
        {
            let mode = match kind {
                Kind::Zstd => self.slots.mode(flow, lane, plan.entropy, &self.ledger),
                Kind::Lz4 => Mode::Alone,
            };
            self.compressor.set_entropy(plan.entropy);
            if self.compressor.compress(mode, &parts, body) {
                entropy = Some((kind, mode));
            }
        }
        if entropy.is_none() && !copies.is_empty() {
            body.extend_from_slice(parts[0]);
            body.extend_from_slice(parts[1]);
        }
        let literals = parts[1].len();
        let tokens = (!copies.is_empty()).then_some(parts[0].len());
        Encoded { remembered, tokens, literals, entropy, sources: merge_sources(copies) }
    }

    /// Finds copies, and remembers the block if it is worth it; returns whether it was.
    fn eliminate(&mut self, flow: FlowId, plain: &[u8], plan: &Plan) -> bool {
        let (floor, hint) = (self.floor(), self.diagonals.get(&flow).copied());
        let copies = &mut self.scratch.copies;
        self.log.find(plan, plain, floor, hint, copies);
        match next_hint(copies, plain.len()) {
            Some(hint) => drop(self.diagonals.insert(flow, hint)),
            None => drop(self.diagonals.remove(&flow)),
        }
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        self.stats.copied += copied as u64;
        let held = plain.len() - copied <= plain.len() / NEW_SHARE
            && copies.iter().all(|copy| !self.log.fades(copy));
        !held && self.may_remember(plain.len())
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
