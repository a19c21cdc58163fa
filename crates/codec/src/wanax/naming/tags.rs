//! Which chunks are named by their tags alone.

use crate::Now;
use crate::wanax::price::NAME;
use crate::wanax::{ChunkName, LEAST_SHARED, LEAST_SOUGHT, NameKey, are_tags_worth_it};
use crate::wire::NameEntry;

/// For chunks of how many bytes tags are relied on.
#[derive(Default)]
pub(crate) struct Tags {
    /// What the peer takes: chunks of fewer bytes.
    below: u32,
    /// It asks others for what it lacks, by name: such chunks may be those it did not acknowledge itself.
    asks_neighbours: bool,
    /// Until then names are full ones, since a tag may have led to another chunk.
    full_until: Now,
    /// For how long they were the last time.
    pause: Now,
}

impl Tags {
    /// Of a peer taking short names for chunks of fewer than so many bytes.
    pub(crate) fn new(below: u32, asks_neighbours: bool) -> Self {
        Self { below, asks_neighbours, ..Self::default() }
    }

    /// A block with tags did not match: names are full ones for a while, and for longer each time, unless tags were
    /// right for an hour and more. Blocks under way then are of the same time.
    pub(crate) fn distrust(&mut self, now: Now) {
        if now < self.full_until {
            return;
        }
        let is_long_ago = now.saturating_sub(self.full_until) > LONGEST_PAUSE;
        let longer = if is_long_ago { FIRST_PAUSE } else { self.pause.saturating_mul(2) };
        self.pause = longer.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.full_until = now + self.pause;
    }

    /// Whether a chunk is named by its tag, which is in the peer's own store if `is_own`.
    ///
    /// Neighbours, if any, are asked for large chunks of the own store too, if its disk is busier.
    pub(crate) fn suffice_for(&self, len: u32, is_own: impl FnOnce() -> bool, now: Now) -> bool {
        let needs_name = || len >= LEAST_SOUGHT && (len >= LEAST_SHARED || !is_own());
        len < self.below && now >= self.full_until && !(self.asks_neighbours && needs_name())
    }
}

/// Gives chunks of a block full names after all if tags would save hardly a byte: the block's strong digest is computed
/// of all of it, at both ends. Chunks are sent if a full name would save less than it takes.
pub(crate) fn settle(names: &mut Vec<NameEntry>, plain: &[u8], key: &NameKey) {
    let short = names.iter().filter(|entry| entry.name.is_short()).count();
    if are_tags_worth_it(short, plain.len()) {
        return;
    }
    names.retain(|entry| !entry.name.is_short() || entry.len as usize >= 2 * NAME);
    for entry in names {
        if let (ChunkName::Short(tag), Some(chunk)) = (entry.name, plain.get(entry.range())) {
            entry.name = ChunkName::Full(key.name_tagged(tag, chunk));
        }
    }
}

/// The first doubt lasts so long. A block that does not match is put again, so the next one is likely to be right.
const FIRST_PAUSE: Now = Now::from_secs(60);
const LONGEST_PAUSE: Now = Now::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_not_relied_on_for_ever_longer_times() {
        let at = Now::from_secs;
        let mut tags = Tags::new(300, false);
        let takes = |tags: &Tags, secs| [299, 300].map(|len| tags.suffice_for(len, || false, at(secs)));
        assert_eq!(takes(&tags, 0), [true, false]);
        tags.distrust(at(10));
        // Another one of the same time.
        tags.distrust(at(11));
        assert_eq!([takes(&tags, 69), takes(&tags, 70)], [[false, false], [true, false]]);
        tags.distrust(at(100));
        assert_eq!([takes(&tags, 219), takes(&tags, 220)], [[false, false], [true, false]]);
        for _ in 0..20 {
            tags.distrust(tags.full_until);
        }
        assert_eq!(tags.pause, LONGEST_PAUSE);
        tags.distrust(tags.full_until + LONGEST_PAUSE);
        assert_eq!(tags.pause, LONGEST_PAUSE);
        tags.distrust(tags.full_until + LONGEST_PAUSE + Now::from_secs(1));
        assert_eq!(tags.pause, FIRST_PAUSE, "it was by chance");
    }

    #[test]
    fn chunk_for_neighbours_has_its_full_name() {
        let short = |asks_neighbours, len, is_own| {
            Tags::new(1 << 14, asks_neighbours).suffice_for(len, || is_own, Now::ZERO)
        };
        let lens = [255, 256, 2047, 2048, 1 << 14];
        assert_eq!(lens.map(|len| short(true, len, false)), [true, false, false, false, false]);
        assert_eq!(lens.map(|len| short(true, len, true)), [true, true, true, false, false]);
        assert_eq!(lens.map(|len| short(false, len, false)), [true, true, true, true, false]);
    }

    #[test]
    fn tags_saving_less_than_the_digest_become_names() {
        let key = NameKey::new([1; 32]);
        for (len, enough) in [(1000, 1), (16 << 10, 2), (64 << 10, 3)] {
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

    #[test]
    fn few_short_names_become_full_ones_or_none() {
        let (key, plain) = (NameKey::new([1; 32]), vec![7; 65_536]);
        let entry = |at, len| NameEntry { at, len, level: 0, name: ChunkName::Short(9), behind: None };
        let mut names = vec![entry(100, 2 * NAME as u32 - 1), entry(200, 2 * NAME as u32)];
        settle(&mut names, &plain, &key);
        assert_eq!(
            names.iter().map(|entry| (entry.at, entry.name.is_short())).collect::<Vec<_>>(),
            [(200, false)]
        );
        let mut names: Vec<NameEntry> = (0..3).map(|number| entry(100 * number, 30)).collect();
        settle(&mut names, &plain, &key);
        assert_eq!(names.iter().filter(|entry| entry.name.is_short()).count(), 3);
    }
}
