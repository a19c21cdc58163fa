//! The ends of blocks: known content is cut as before.
//!
//! Under a low limit a block of new bytes is short, for it cannot be overtaken, and so are the peer's chunks of it.
//! When they cross again, several of these blocks cross as one: as names alone, so it is no longer on the wire than one
//! of them. If it is a root, it is put, and named whole from then on.

use super::{Naming, behind};
use crate::Now;
use crate::contract::{Cut, Parts, Tail};
use crate::transfer::RetransmitBuffer;
use crate::wanax::Tree;
use crate::wanax::hints::PackedTag;
use crate::wire::MAX_BLOCK;

impl Naming {
    /// Cuts a block from the front of a stream's `bytes`: as long as a root of any size known to the peer, or as several
    /// known blocks, else at most `most`.
    pub(crate) fn block_end(
        &mut self,
        bytes: &[u8],
        tail: Tail,
        most: usize,
        sent: &RetransmitBuffer,
        now: Now,
    ) -> Cut {
        let at_end = tail == Tail::EndOfStream;
        if most < bytes.len()
            && self.trust.is_given()
            && let Some(cut) = self.known_end(bytes, at_end, most, sent, now)
        {
            return cut;
        }
        let end = self.short_end(bytes, at_end, most);
        Cut::at(match tail {
            Tail::Blocked(least) if end == bytes.len() => self.tree.last_end(bytes, least).unwrap_or(end),
            _ => end,
        })
    }

    /// Returns the end of a block with at most `most` new bytes: like a longer one, if that is short enough.
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

    /// Returns where a block ends of more than `most` bytes the peer has.
    fn known_end(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        most: usize,
        sent: &RetransmitBuffer,
        now: Now,
    ) -> Option<Cut> {
        let (mut size, mut ends) = (MAX_BLOCK, Vec::new());
        while size > most {
            let end = self.tree.root_end_within(size, bytes, at_end);
            if end > most && ends.last().is_none_or(|&last| end < last) {
                if self.is_known(bytes.get(..end)?, sent, now) {
                    return Some(Cut::at(end));
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
    fn is_known(&self, chunk: &[u8], sent: &RetransmitBuffer, now: Now) -> bool {
        let (tag, len) = (self.key.tag(chunk), chunk.len() as u32);
        self.hints.lookup(tag, len, self.clock(now))
            || behind(&self.under_way, PackedTag::new(tag, len), sent).is_some()
    }

    /// Joins several blocks known to the peer: up to the first of `roots` at the end of one of them, if `bytes` begin
    /// like roots; else to the next beginning of a root, or as far as they go.
    fn join(
        &mut self,
        bytes: &[u8],
        roots: &[usize],
        most: usize,
        sent: &RetransmitBuffer,
        now: Now,
    ) -> Option<Cut> {
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
        (ends.len() > 1).then(|| Cut { len: end, parts: Parts { ends, are_root: root.is_some() } })
    }
}

/// Rules for blocks of up to so many times the length are looked at: their ends are often nearer.
const LONGER: usize = 4;
