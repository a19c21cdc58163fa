//! What is new in the store, to be told to the group: gathered, bounded, and sent some at a time.

use std::collections::VecDeque;

use crate::Now;
use crate::wire::{GroupFrame, MAX_TAGS};

/// Gathers the tags of chunks that are new in the own store.
#[derive(Debug, Default)]
pub struct Announcer {
    waiting: VecDeque<(u8, u64)>,
    /// When what waits is told.
    due: Option<Now>,
    told: u64,
    forgotten: u64,
}

/// How long tags are gathered; with [`MAX_TAGS`] to a frame, at most 82 kB a second are told.
const GATHER: Now = Now::from_millis(100);
/// The most tags that wait.
const MAX_WAITING: usize = 4096;

impl Announcer {
    /// Takes the level and the tag of a chunk that is new in the store.
    pub fn stored(&mut self, level: u8, tag: u64, now: Now) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.forgotten += 1;
        }
        self.waiting.push_back((level, tag));
        self.due.get_or_insert(now + GATHER);
    }

    /// Returns when [`Self::poll_frames`] has something.
    pub fn poll_timeout(&self) -> Option<Now> {
        self.due
    }

    /// Takes what is due, a frame for each level, for every member of the group.
    pub fn poll_frames(&mut self, now: Now) -> Vec<GroupFrame> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let count = self.waiting.len().min(MAX_TAGS);
        let mut frames: Vec<(u8, Vec<u64>)> = Vec::new();
        for (level, tag) in self.waiting.drain(..count) {
            match frames.iter_mut().find(|(of, _)| *of == level) {
                Some((_, tags)) => tags.push(tag),
                None => frames.push((level, vec![tag])),
            }
        }
        self.told += count as u64;
        self.due = (!self.waiting.is_empty()).then_some(now + GATHER);
        frames.into_iter().map(|(level, tags)| GroupFrame::Stored { level, tags }).collect()
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
    fn tags_are_gathered_and_told_once_by_level() {
        let mut announcer = Announcer::default();
        assert_eq!(announcer.poll_timeout(), None);
        announcer.stored(0, 1, ms(5));
        announcer.stored(1, 2, ms(6));
        announcer.stored(0, 3, ms(7));
        assert_eq!(announcer.poll_timeout(), Some(ms(105)));
        assert_eq!(announcer.poll_frames(ms(104)), []);
        let told = [
            GroupFrame::Stored { level: 0, tags: vec![1, 3] },
            GroupFrame::Stored { level: 1, tags: vec![2] },
        ];
        assert_eq!(announcer.poll_frames(ms(105)), told);
        assert_eq!((announcer.poll_frames(ms(500)), announcer.poll_timeout()), (vec![], None));
    }

    #[test]
    fn what_comes_faster_than_it_is_told_pushes_the_oldest_out() {
        let mut announcer = Announcer::default();
        (0..MAX_WAITING as u64 + 10).for_each(|tag| announcer.stored(0, tag, ms(0)));
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
