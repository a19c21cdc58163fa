//! What the sending half does when something went wrong: blocks sent again, mismatches, new epochs, resumed logs.

use super::Sender;
use crate::Now;
use crate::cache::Content;
use crate::contract::SendEvent;
use crate::digest::block_digest;
use crate::entropy::Mode;
use crate::wire::{Block, BlockBody, Body, Digest, FlowId, Frame, Range64, Refetch, RefetchReason};

/// Mismatches within [`MISMATCH_WINDOW`] that start a new epoch.
const MISMATCHES_TO_NEW_EPOCH: usize = 4;
const MISMATCH_WINDOW: Now = Now::from_secs(60);
/// Ranges that a wrong block may have referred to for them to be forgotten one by one.
const SOURCES_TO_FORGET: usize = 16;

impl Sender {
    pub(super) fn start_epoch(&mut self, epoch: u64, reason: &'static str) {
        self.log.start_epoch(epoch);
        self.quotas.clear();
        self.diagonals.clear();
        self.recent_mismatches.clear();
        self.events.push_back(SendEvent::NewEpoch { epoch, reason });
    }

    pub(super) fn handle_refetch(&mut self, refetch: &Refetch, now: Now) {
        let mut start_over = false;
        for &seq in &refetch.seqs {
            let Some(item) = self.ledger.request_repair(seq) else { continue };
            if let Some(slot) = item.slot {
                self.slots.restart(slot);
            }
            if refetch.reason == RefetchReason::Missing {
                continue;
            }
            self.stats.mismatches += 1;
            self.events.push_back(SendEvent::Mismatch(item.flow));
            self.diagonals.remove(&item.flow);
            // Each range costs a walk through the whole table: beyond a few, a new epoch is cheaper.
            start_over |= item.sources.len() > SOURCES_TO_FORGET;
            if !start_over {
                self.log.forget(&item.sources);
            }
            self.recent_mismatches.push_back(now);
            while self.recent_mismatches.front().is_some_and(|&at| at + MISMATCH_WINDOW < now) {
                self.recent_mismatches.pop_front();
            }
            start_over |= self.recent_mismatches.len() >= MISMATCHES_TO_NEW_EPOCH;
        }
        if start_over {
            self.start_epoch(self.log.epoch() + 1, "repeated mismatches");
        }
    }

    /// Appends an item in its self-contained form.
    pub(super) fn resend(
        &mut self,
        seq: u64,
        flow: FlowId,
        content: Content,
        epoch: u64,
        range: Option<Range64>,
        out: &mut Vec<u8>,
    ) {
        self.stats.resent += 1;
        let (offset, plain, fin, coded) = match content {
            Content::Message(message) => return Frame::Message { seq, flow, message }.encode(out),
            Content::Block { offset, plain, fin, coded } => (offset, plain, fin, coded),
        };
        let compressed = &mut self.scratch.compressed;
        compressed.clear();
        self.compressor.set_entropy(self.config.entropy);
        let mut entropy = None;
        if coded
            && !plain.is_empty()
            && let Some(kind) = self.config.entropy.kind()
            && self.compressor.compress(Mode::Alone, &plain, compressed)
        {
            entropy = Some((kind, Mode::Alone));
        }
        let body = if coded {
            BlockBody::Coded(Body {
                epoch,
                start: range.as_ref().map_or(self.log.head(), |range| range.start),
                remembered: range.is_some() && epoch == self.log.epoch(),
                keep: false,
                names: Vec::new(),
                digest: Digest::Fast(block_digest(self.config.digest_seed, epoch, &plain)),
                tokens: None,
                literals: plain.len(),
                entropy,
                bytes: if entropy.is_some() { compressed } else { &plain },
            })
        } else {
            BlockBody::Uncoded(&plain)
        };
        Frame::Block(Block { seq, flow, offset, plain_len: plain.len(), fin, resent: true, body })
            .encode(out);
    }
}
