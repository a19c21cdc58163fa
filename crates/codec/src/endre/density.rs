//! A finer search of flows in which short repeats dominate.
//!
//! Repeats of a few dozen bytes between others, such as shuffled lines, mostly lie between markers 64 bytes apart. A
//! marker each 16 bytes finds them, for about twice the time. So it is tried on flows with many short copies and much
//! new content, and kept while it finds more.

use super::matcher::Copy;
use crate::{MarkerKind, Matching, Plan};

/// What the last blocks of a flow showed, and whether the next one is searched more finely.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Density {
    /// Plain bytes of late; older ones weigh less.
    seen: usize,
    /// Of them: copied at all, and in short copies.
    copied: usize,
    short: usize,
    fine: Option<Fine>,
    /// Bytes until it may be tried again.
    rest: usize,
    /// How many those were the last time.
    last_rest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Fine {
    /// The part found before.
    before: f64,
    /// Bytes since that was compared.
    since: usize,
}

impl Density {
    /// Returns the plan by which the next block is searched. There is no finer search while CPU is short.
    pub(crate) fn refine(&self, plan: &Plan) -> Plan {
        let is_possible = plan.matching == Matching::Max
            && plan.markers == MarkerKind::Maxp
            && plan.busy_entropy.is_none()
            && plan.period > FINE * 2;
        match self.fine {
            Some(_) if is_possible => Plan { period: FINE, ..*plan },
            _ => *plan,
        }
    }

    /// Takes what was found of a block.
    pub(crate) fn note(&mut self, block_len: usize, copies: &[Copy]) {
        if self.seen >= WINDOW {
            (self.seen, self.copied, self.short) = (self.seen / 2, self.copied / 2, self.short / 2);
        }
        self.seen += block_len;
        for copy in copies {
            let len = copy.len as usize;
            self.copied += len;
            // What only the block's end made short says nothing.
            self.short += if len < SHORT && copy.end() < block_len { len } else { 0 };
        }
        self.rest = self.rest.saturating_sub(block_len);
        if self.seen < WINDOW / 2 {
            return;
        }
        let is_short = self.short >= self.seen / SHORT_SHARE;
        match &mut self.fine {
            None => {
                let new = self.seen.saturating_sub(self.copied);
                if is_short && new >= self.seen / NEW_SHARE && self.rest == 0 {
                    self.fine = Some(Fine { before: self.found(), since: 0 });
                    (self.seen, self.copied, self.short) = (0, 0, 0);
                }
            }
            Some(_) if !is_short => self.fine = None,
            Some(fine) => {
                fine.since += block_len;
                if fine.since >= JUDGED {
                    (fine.since, self.last_rest) = (0, self.last_rest);
                    let before = fine.before;
                    if self.found() < before + WORTH_IT {
                        self.fine = None;
                        self.last_rest = (self.last_rest * 2).clamp(FIRST_REST, LONGEST_REST);
                        self.rest = self.last_rest;
                    }
                }
            }
        }
    }

    /// Returns the part of the last bytes found.
    fn found(&self) -> f64 {
        self.copied as f64 / self.seen.max(1) as f64
    }
}

/// The distance of markers in a finer search.
const FINE: u32 = 16;
/// Bytes of which the last blocks' figures are.
const WINDOW: usize = 64 << 10;
/// Copies that are shorter are short: four markers of the default period.
const SHORT: usize = 256;
/// Short copies dominate if one byte in this many is in them.
const SHORT_SHARE: usize = 8;
/// There is more to be found if one byte in this many is new.
const NEW_SHARE: usize = 8;
/// Bytes after which a finer search is judged, again and again. Its finds grow while the log is indexed anew.
const JUDGED: usize = 2 << 20;
/// It has to find so much more of the bytes.
const WORTH_IT: f64 = 0.05;
/// Bounds on the bytes without it once it did not.
const FIRST_REST: usize = 32 << 20;
const LONGEST_REST: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOffset;

    const BLOCK: usize = 64 << 10;

    /// Copies of `len` bytes, one in each `every` bytes of a block.
    fn copies(len: u32, every: u32) -> Vec<Copy> {
        (0..BLOCK as u32 / every).map(|i| Copy { at: i * every, len, source: LogOffset(0) }).collect()
    }

    fn is_fine(density: &Density) -> bool {
        density.refine(&Plan::default()).period == FINE
    }

    #[test]
    fn short_copies_between_new_bytes_make_the_search_finer() {
        let mut density = Density::default();
        density.note(BLOCK, &copies(61, 122));
        assert!(is_fine(&density));
        let busy = Plan { busy_entropy: Some(crate::entropy::Entropy::None), ..Plan::default() };
        assert_eq!(density.refine(&busy), busy);
        for plan in [
            Plan { markers: MarkerKind::Modp, ..Plan::default() },
            Plan { matching: Matching::Chunk, ..Plan::default() },
            Plan { period: 32, ..Plan::default() },
        ] {
            assert_eq!(density.refine(&plan), plan);
        }
    }

    #[test]
    fn other_content_keeps_the_configured_period() {
        for (name, copies) in [
            ("noise", vec![]),
            ("long copies", copies(8000, 8192)),
            ("few short ones", copies(61, 1024)),
            ("no new bytes", copies(61, 61)),
        ] {
            let mut density = Density::default();
            (0..200).for_each(|_| density.note(BLOCK, &copies));
            assert!(!is_fine(&density), "{name}");
        }
    }

    #[test]
    fn finer_search_without_more_copies_ends_for_long() {
        let mut density = Density::default();
        let fine = |density: &mut Density| -> usize {
            (0..4096)
                .map(|_| {
                    density.note(BLOCK, &copies(61, 122));
                    usize::from(is_fine(density))
                })
                .sum()
        };
        let blocks = fine(&mut density);
        assert!((32..=256).contains(&blocks), "{blocks} of 4096 blocks");
    }

    #[test]
    fn finer_search_with_more_copies_goes_on_until_content_changes() {
        let mut density = Density::default();
        density.note(BLOCK, &copies(61, 122));
        for _ in 0..1000 {
            density.note(BLOCK, &copies(58, 61));
            assert!(is_fine(&density));
        }
        (0..4).for_each(|_| density.note(BLOCK, &[]));
        assert!(!is_fine(&density));
    }
}
