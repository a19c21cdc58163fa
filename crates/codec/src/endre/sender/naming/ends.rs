//! Where blocks end, so that what the peer has is cut as it was.
//!
//! Under a low limit a block of new bytes is short, for it cannot be overtaken, and so is what the peer has of it. When
//! that crosses again, several of these blocks cross as one: as names alone, so that it is no longer on the wire than one
//! of them. If it is a root, it is put, and named whole from then on.

use super::{Naming, behind};
use crate::Now;
use crate::cache::Ledger;
use crate::contract::Behind;
use crate::wanax::hints::PackedTag;
use crate::wire::MAX_BLOCK;

/// The blocks that the next one consists of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Where each ends; none if the block is one by itself.
    pub(super) ends: Vec<usize>,
    /// Whether together they are a root.
    pub(super) is_root: bool,
}

impl Naming {
    /// Returns how long the block should be that a stream's `bytes` begin with: as long as a root of any size that the
    /// peer has, or as many blocks that it has, else at most `most`.
    pub(in crate::endre::sender) fn block_end(
        &mut self,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        sent: &Ledger,
        now: Now,
    ) -> usize {
        self.parts = Parts::default();
        let at_end = behind == Behind::Nothing;

        let (mut size, mut ends) = (MAX_BLOCK, Vec::new());
        while size > most && most < bytes.len() {
            let end = self.tree.root_end_within(size, bytes, at_end);
            if end > most && ends.last().is_none_or(|&last| end < last) {
                if bytes.get(..end).is_some_and(|root| self.is_likely(root, sent, now)) {
                    return end;
                }
                ends.push(end);
            }
            size /= 2;
        }
        if let Some(end) = self.join(bytes, &ends, most, sent, now) {
            return end;
        }
        let end = if bytes.len() > most || most == MAX_BLOCK {
            self.tree.root_end_within(size, bytes, at_end).min(most)
        } else {
            bytes.len()
        };
        match behind {
            Behind::Later(least) if end == bytes.len() => self.tree.last_end(bytes, least).unwrap_or(end),
            _ => end,
        }
    }

    /// Whether a chunk would be named.
    fn is_likely(&self, chunk: &[u8], sent: &Ledger, now: Now) -> bool {
        let (tag, len) = (self.key.tag(chunk), chunk.len() as u32);
        self.trust.is_given()
            && (self.hints.lookup(tag, len, self.clock(now))
                || behind(&self.under_way, PackedTag::new(tag, len), sent).is_some())
    }

    /// Makes one of the blocks that the peer has, if there are several: up to where roots begin, unless these do; else
    /// up to the end of a root, of which `roots` has the longest first; else as far as they go.
    fn join(&mut self, bytes: &[u8], roots: &[usize], most: usize, sent: &Ledger, now: Now) -> Option<usize> {
        // With a single size no block is a chunk.
        let longest = bytes.get(..*roots.first()?).filter(|_| !self.tree.shape().is_single())?;
        let (mut at, mut ends) = (0, Vec::new());
        while let Some(rest) = longest.get(at..).filter(|rest| !rest.is_empty()) {
            let end = self.tree.root_end_within(most, rest, true).min(most);
            if !rest.get(..end).is_some_and(|part| self.is_likely(part, sent, now)) {
                break;
            }
            at += end;
            ends.push(at);
        }
        let is_end = |end: &usize| ends.binary_search(end).is_ok();
        let next = match self.tree.is_start(bytes) {
            true => None,
            false => self.tree.next_start(longest).filter(is_end),
        };
        let root = roots.iter().copied().find(is_end).filter(|_| next.is_none());
        let end = next.or(root).or(ends.last().copied())?;
        ends.retain(|&part| part <= end);
        (ends.len() > 1).then(|| {
            self.parts = Parts { ends, is_root: root.is_some() };
            end
        })
    }
}
