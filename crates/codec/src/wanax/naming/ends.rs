//! Where blocks end, so that what the peer has is cut as it was.
//!
//! Under a low limit a block of new bytes is short, for it cannot be overtaken, and so is what the peer has of it. When
//! that crosses again, several of these blocks cross as one: as names alone, so that it is no longer on the wire than one
//! of them. If it is a root, it is put, and named whole from then on.

use super::{Naming, behind};
use crate::Now;
use crate::contract::Behind;
use crate::transfer::Ledger;
use crate::wanax::Tree;
use crate::wanax::hints::PackedTag;
use crate::wire::MAX_BLOCK;

/// The blocks that the next one consists of.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Where each ends; none if the block is one by itself.
    pub(crate) ends: Vec<usize>,
    /// Whether together they are a root.
    pub(crate) are_root: bool,
}

impl Naming {
    /// Returns how long the block should be that a stream's `bytes` begin with: as long as a root of any size that the
    /// peer has, or as many blocks that it has, else at most `most`.
    pub(crate) fn block_end(
        &mut self,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        sent: &Ledger,
        now: Now,
    ) -> usize {
        self.parts = Parts::default();
        let at_end = behind == Behind::Nothing;
        if most < bytes.len()
            && self.trust.is_given()
            && let Some(end) = self.known_end(bytes, at_end, most, sent, now)
        {
            return end;
        }
        let end = self.short_end(bytes, at_end, most);
        match behind {
            Behind::Later(least) if end == bytes.len() => self.tree.last_end(bytes, least).unwrap_or(end),
            _ => end,
        }
    }

    /// Returns where a block ends of which at most `most` bytes may be new: like a longer one, if that is short enough.
    fn short_end(&mut self, bytes: &[u8], at_end: bool, most: usize) -> usize {
        let mut size = if bytes.len() <= most { MAX_BLOCK } else { MAX_BLOCK.min(LONGER * most) };
        loop {
            let end = self.tree.root_end_within(size, bytes, at_end);
            if end <= most || size <= most {
                return end.min(most);
            }
            size /= 2;
        }
    }

    /// Returns where a block ends of more than `most` bytes that the peer has.
    fn known_end(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        most: usize,
        sent: &Ledger,
        now: Now,
    ) -> Option<usize> {
        let (mut size, mut ends) = (MAX_BLOCK, Vec::new());
        while size > most {
            let end = self.tree.root_end_within(size, bytes, at_end);
            if end > most && ends.last().is_none_or(|&last| end < last) {
                if self.is_known(bytes.get(..end)?, sent, now) {
                    return Some(end);
                }
                ends.push(end);
            }
            size /= 2;
        }
        // What goes on is no root yet.
        let longest = *ends.first()?;
        ends.retain(|&end| at_end || end < bytes.len());
        self.join(bytes.get(..longest)?, &ends, most, sent, now)
    }

    /// Whether a chunk would be named.
    fn is_known(&self, chunk: &[u8], sent: &Ledger, now: Now) -> bool {
        let (tag, len) = (self.key.tag(chunk), chunk.len() as u32);
        self.hints.lookup(tag, len, self.clock(now))
            || behind(&self.under_way, PackedTag::new(tag, len), sent).is_some()
    }

    /// Makes one of the blocks that the peer has, if there are several: up to the first of `roots` that ends where one
    /// of them does, if `bytes` begin where roots do; else to where roots begin, or as far as they go.
    fn join(&mut self, bytes: &[u8], roots: &[usize], most: usize, sent: &Ledger, now: Now) -> Option<usize> {
        if self.tree.shape().is_single() {
            // A block is no chunk.
            return None;
        }
        let is_start = Tree::is_start(bytes);
        let (mut at, mut ends) = (0, Vec::new());
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if !is_start && !ends.is_empty() && Tree::is_start(rest) {
                break;
            }
            let end = self.short_end(rest, true, most);
            if !self.is_known(rest.get(..end)?, sent, now) {
                break;
            }
            at += end;
            ends.push(at);
        }
        let root = roots.iter().copied().find(|end| is_start && ends.binary_search(end).is_ok());
        let end = root.unwrap_or(at);
        ends.retain(|&part| part <= end);
        (ends.len() > 1).then(|| {
            self.parts = Parts { ends, are_root: root.is_some() };
            end
        })
    }
}

/// Rules for blocks of up to so many times the length are looked at: their ends are often nearer.
const LONGER: usize = 4;
