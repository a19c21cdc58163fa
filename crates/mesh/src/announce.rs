//! News of the store for the group: gathered, bounded, and sent some at a time.

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wire::{GroupFrame, MAX_TAGS, Sought};

/// Gathers the tags of new chunks in the own store.
#[derive(Debug, Default)]
pub struct Announcer {
    waiting: VecDeque<Sought>,
    /// The end of the gathering.
    due: Option<Now>,
    told: u64,
    forgotten: u64,
}

/// How long tags are gathered; with [`MAX_TAGS`] to a frame, at most 82 kB a second are told.
const GATHER: Now = Now::from_millis(100);
/// Chunks from this length on are of the class of the largest, as in hint tables.
const LARGE: u32 = 16 << 10;
/// The most tags waiting.
const MAX_WAITING: usize = 4096;

impl Announcer {
    /// Takes a new chunk of the store.
    pub fn stored(&mut self, chunk: Sought, now: Now) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.forgotten += 1;
        }
        self.waiting.push_back(chunk);
        self.due.get_or_insert(now + GATHER);
    }

    /// Returns when [`Self::poll_frames`] has something.
    pub fn poll_timeout(&self) -> Option<Now> {
        self.due
    }

    /// Takes the due tags, a frame for each class of lengths, for every member of the group.
    pub fn poll_frames(&mut self, now: Now) -> Vec<GroupFrame> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let count = self.waiting.len().min(MAX_TAGS);
        let mut frames: Vec<(u8, Vec<u64>)> = Vec::new();
        for chunk in self.waiting.drain(..count) {
            let class = if chunk.len < LARGE { LEAST_SHARED } else { LARGE }.ilog2() as u8;
            match frames.iter_mut().find(|(of, _)| *of == class) {
                Some((_, tags)) => tags.push(chunk.tag),
                None => frames.push((class, vec![chunk.tag])),
            }
        }
        self.told += count as u64;
        self.due = (!self.waiting.is_empty()).then_some(now + GATHER);
        frames.into_iter().map(|(least_log2, tags)| GroupFrame::Stored { least_log2, tags }).collect()
    }

    /// Returns how many tags were told, and how many were forgotten because there were too many.
    pub fn stats(&self) -> (u64, u64) {
        (self.told, self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Now {
        Now::from_millis(ms)
    }

    #[test]
    fn tags_are_gathered_and_told_once_by_length() {
        let mut announcer = Announcer::default();
        assert_eq!(announcer.poll_timeout(), None);
        announcer.stored(Sought { tag: 1, len: 65536 }, ms(5));
        announcer.stored(Sought { tag: 2, len: LARGE - 1 }, ms(6));
        announcer.stored(Sought { tag: 3, len: LARGE }, ms(7));
        assert_eq!(announcer.poll_timeout(), Some(ms(105)));
        assert_eq!(announcer.poll_frames(ms(104)), []);
        let told = [
            GroupFrame::Stored { least_log2: 14, tags: vec![1, 3] },
            GroupFrame::Stored { least_log2: 11, tags: vec![2] },
        ];
        assert_eq!(announcer.poll_frames(ms(105)), told);
        assert_eq!((announcer.poll_frames(ms(500)), announcer.poll_timeout()), (vec![], None));
    }

    #[test]
    fn fast_news_push_the_oldest_out() {
        let mut announcer = Announcer::default();
        (0..MAX_WAITING as u64 + 10).for_each(|tag| announcer.stored(Sought { tag, len: LARGE }, ms(0)));
        let mut heard = Vec::new();
        while let Some(due) = announcer.poll_timeout() {
            for frame in announcer.poll_frames(due) {
                let GroupFrame::Stored { tags, .. } = frame else { panic!() };
                assert!(tags.len() <= MAX_TAGS);
                heard.extend(tags);
            }
        }
        assert_eq!(heard, (10..MAX_WAITING as u64 + 10).collect::<Vec<_>>());
        assert_eq!(announcer.stats(), (MAX_WAITING as u64, 10));
    }
}
