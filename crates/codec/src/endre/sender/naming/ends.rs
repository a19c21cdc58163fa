//! Where blocks end, so that what the peer has is cut as it was.
//!
//! Under a low limit a block of new bytes is short, for it cannot be overtaken, and so is what the peer has of it. When
//! that crosses again, it is named in one block as long as a root: part by part, each of which would have been a block.
//! That block is put, and named whole from then on.

use super::{Naming, behind};
use crate::Now;
use crate::cache::Ledger;
use crate::contract::Behind;
use crate::wanax::hints::PackedTag;
use crate::wire::MAX_BLOCK;

impl Naming {
    /// Returns how long the block should be that a stream's `bytes` begin with: as long as a root of any size that the
    /// peer has, whole or but for `most` bytes in parts, else at most `most`.
    pub(in crate::endre::sender) fn block_end(
        &mut self,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        sent: &Ledger,
        now: Now,
    ) -> usize {
        self.parts.clear();
        let at_end = behind == Behind::Nothing;
        if bytes.len() <= most && most < MAX_BLOCK {
            return self.short_end(bytes, behind, bytes.len());
        }
        let (mut size, mut last, mut is_divided) = (MAX_BLOCK, usize::MAX, false);
        while size > most {
            let end = self.tree.root_end_within(size, bytes, at_end);
            if let Some(root) = bytes.get(..end).filter(|_| (most + 1..last).contains(&end)) {
                if self.is_likely(root, now) {
                    return end;
                }
                if !is_divided {
                    self.divide(root, most, sent, now);
                    is_divided = true;
                }
                if self.join(end) {
                    return end;
                }
            }
            (size, last) = (size / 2, end);
        }
        self.parts.clear();
        let end = self.tree.root_end_within(size, bytes, at_end).min(most);
        self.short_end(bytes, behind, end)
    }

    /// Returns where a block ends that goes to `end`: sooner if more credit is not to be waited for.
    fn short_end(&mut self, bytes: &[u8], behind: Behind, end: usize) -> usize {
        match behind {
            Behind::Later(least) if end == bytes.len() => self.tree.last_end(bytes, least).unwrap_or(end),
            _ => end,
        }
    }

    /// Whether a chunk would be named.
    fn is_likely(&self, chunk: &[u8], now: Now) -> bool {
        self.trust.is_given() && self.hints.lookup(self.key.tag(chunk), chunk.len() as u32, self.clock(now))
    }

    /// Divides a root into the blocks that would be sent instead of it, until the peer lacks more than `most` bytes.
    fn divide(&mut self, root: &[u8], most: usize, sent: &Ledger, now: Now) {
        let (mut at, mut lacking) = (0, 0);
        while let Some(rest) = root.get(at..).filter(|rest| !rest.is_empty() && self.trust.is_given()) {
            let end = self.tree.root_end_within(most, rest, true).clamp(1, rest.len());
            let part = rest.get(..end).unwrap_or(rest);
            let (tag, len) = (self.key.tag(part), part.len() as u32);
            let is_known = self.hints.lookup(tag, len, self.clock(now))
                || behind(&self.under_way, PackedTag::new(tag, len), sent).is_some();
            lacking += if is_known { 0 } else { part.len() };
            if lacking > most {
                return;
            }
            at += end;
            self.parts.push(at);
        }
    }

    /// Ends the last part at `end`, if the parts reach as far.
    fn join(&mut self, end: usize) -> bool {
        let reaches = self.parts.last().is_some_and(|&last| last >= end);
        if reaches {
            self.parts.retain(|&part| part < end);
            self.parts.push(end);
        }
        reaches
    }
}
