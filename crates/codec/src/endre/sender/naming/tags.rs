//! Which chunks are named by their tags alone.

use crate::Now;
use crate::wanax::{ChunkName, NAME_LEN, NameKey, SHORT_NAME_LEN};
use crate::wire::NameEntry;

/// For chunks of how many bytes tags are relied on.
#[derive(Default)]
pub(super) struct Tags {
    /// What the peer takes: chunks of fewer bytes.
    below: u32,
    /// Until then names are full ones, since a tag may have led to another chunk.
    full_until: Now,
    /// For how long they were the last time.
    pause: Now,
}

impl Tags {
    /// Meets a peer that takes short names for chunks of fewer than so many bytes.
    pub(super) fn meet(&mut self, below: u32) {
        *self = Self { below, ..Self::default() };
    }

    /// A block did not match in which chunks were named by their tags: names are full ones for a while, and for longer each
    /// time. Blocks that were under way then are of the same time.
    pub(super) fn distrust(&mut self, now: Now) {
        if now >= self.full_until {
            self.pause = self.pause.saturating_mul(2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.full_until = now + self.pause;
        }
    }

    /// Chunks of fewer bytes are named by their tags now.
    pub(super) fn below(&self, now: Now) -> u32 {
        if now < self.full_until { 0 } else { self.below }
    }
}

/// Gives chunks of a block full names after all where tags would save hardly a byte: the block's strong digest is computed
/// of all of it, at both ends.
pub(super) fn settle(names: &mut [NameEntry], plain: &[u8], key: &NameKey) {
    let short = names.iter().filter(|entry| entry.name.is_short()).count();
    if short * (NAME_LEN - SHORT_NAME_LEN) >= STRONG + plain.len() / WORTH {
        return;
    }
    for entry in names {
        if let (ChunkName::Short(tag), Some(chunk)) = (entry.name, plain.get(entry.range())) {
            entry.name = ChunkName::Full(key.name_tagged(tag, chunk));
        }
    }
}

/// What a strong digest takes more than another.
const STRONG: usize = 8;
/// A byte is to be saved for so many bytes of a block: a digest of all of it takes about as long as the entropy stage for
/// one byte in so many.
const WORTH: usize = 2048;
/// The first doubt lasts so long. A block that does not match is put again, so the next one is likely to be right.
const FIRST_PAUSE: Now = Now::from_secs(60);
const LONGEST_PAUSE: Now = Now::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_not_relied_on_for_ever_longer_times_until_the_peer_is_met_anew() {
        let mut tags = Tags::default();
        let at = Now::from_secs;
        assert_eq!(tags.below(at(0)), 0);
        tags.meet(300);
        assert_eq!(tags.below(at(0)), 300);
        tags.distrust(at(10));
        // Another one of the same time.
        tags.distrust(at(11));
        assert_eq!([69, 70].map(|secs| tags.below(at(secs))), [0, 300]);
        tags.distrust(at(100));
        assert_eq!([219, 220].map(|secs| tags.below(at(secs))), [0, 300]);
        for _ in 0..20 {
            tags.distrust(tags.full_until);
        }
        assert_eq!(tags.pause, LONGEST_PAUSE);
        tags.meet(500);
        assert_eq!(tags.below(at(0)), 500);
    }

    #[test]
    fn tags_that_save_less_than_the_digest_of_the_block_is_worth_are_names() {
        let key = NameKey::new([1; 32]);
        for (len, enough) in [(1000, 1), (16 << 10, 2), (64 << 10, 4)] {
            let plain = vec![5; len];
            for count in 1..6u32 {
                let entry = |at| NameEntry {
                    at: at * 100,
                    len: 100,
                    level: 3,
                    name: ChunkName::Short(key.tag(&plain[..100])),
                    behind: None,
                };
                let mut names: Vec<NameEntry> = (0..count).map(entry).collect();
                settle(&mut names, &plain, &key);
                for entry in names {
                    assert_eq!(entry.name.is_short(), count >= enough, "{count} in {len}");
                    assert!(entry.name.matches(&plain[..100], &key));
                }
            }
        }
    }
}
