//! How much one member is listened to: when it tells what is new in its store, and when it asks, answers and brings.

use oncewire_codec::Now;
use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wire::{GroupFrame, MAX_TAGS};

/// Bounds the frames heard of one member: of news, twice an [`Announcer`](super::Announcer)'s rate, and of all else
/// more than a LAN has use for, and no more for long.
///
/// A refusal costs bytes on the line and nothing else: lost news are hints, and questions are answered with no.
#[derive(Clone, Debug)]
pub struct Hearing {
    news: Budget,
    /// Answers: heard for the asker's sake, however much their sender asks itself.
    answers: Budget,
    talk: Budget,
}

/// The most tags a second that one member is listened to for.
pub const HEARD_PER_SECOND: u64 = 20 * MAX_TAGS as u64;
/// A frame of news costs no less than this many tags.
const LEAST_NEWS: u64 = 32;
/// The other cost of one member in a second, in looks into the index of a few hundred nanoseconds each: 16,384
/// requested chunks, 318 full questions of present chunks, 38 MiB to keep, or 81,920 other frames. Its answers may cost
/// as much again, five for each requested chunk.
pub const TALK_PER_SECOND: u64 = 16 * HEARD_PER_SECOND;
/// A read from disk, checked and sent, takes so many times as long as a look, with the disk idle.
const GET: u64 = 16;
/// Any frame takes as long as so many.
const LEAST_TALK: u64 = 4;
/// A chunk to be kept is cut, named and written, and displaces as much: a look for so many bytes.
const BYTES_KEPT: u64 = 128;

impl Hearing {
    /// Begins to listen.
    pub fn new(now: Now) -> Self {
        let talk = Budget::new(TALK_PER_SECOND, now);
        Self { news: Budget::new(HEARD_PER_SECOND, now), answers: talk.clone(), talk }
    }

    /// Says whether a frame is listened to now.
    pub fn admits(&mut self, frame: &GroupFrame, now: Now) -> bool {
        let (budget, cost) = match frame {
            GroupFrame::Stored { tags, .. } => {
                return self.news.spend((tags.len() as u64).max(LEAST_NEWS), now);
            }
            GroupFrame::Have { .. } | GroupFrame::Chunk { .. } | GroupFrame::Wait { .. } => {
                (&mut self.answers, 0)
            }
            GroupFrame::Peek { chunks, .. } => (&mut self.talk, chunks.len() as u64),
            GroupFrame::Get { .. } => (&mut self.talk, GET),
            GroupFrame::Put { bytes, .. } => (&mut self.talk, GET + bytes.len() as u64 / BYTES_KEPT),
            GroupFrame::Load(_) | GroupFrame::Pending { .. } => (&mut self.talk, 0),
        };
        budget.spend(LEAST_TALK + cost, now)
    }
}

/// Returns the answer to a question of a refused member: it need not wait, and takes it for no fault. A plain no to a
/// search would say that chunks were lost, and bring offers of them; small ones are looked for at their places.
pub fn refusal(frame: &GroupFrame) -> Option<GroupFrame> {
    match frame {
        GroupFrame::Get { request, .. } => Some(GroupFrame::Chunk { request: *request, bytes: None }),
        GroupFrame::Peek { request, chunks } => {
            let held = chunks.iter().map(|chunk| chunk.len >= LEAST_SHARED).collect();
            Some(GroupFrame::Have { request: *request, held })
        }
        _ => None,
    }
}

/// The rest of so much a second, and of three seconds at once after as long a silence: frames gather while a line
/// stands still.
#[derive(Clone, Debug)]
struct Budget {
    per_second: u64,
    /// Millionths.
    left: u64,
    at: Now,
}

/// Seconds listened to at once.
const AT_ONCE: u64 = 3;
const MILLION: u64 = 1_000_000;

impl Budget {
    fn new(per_second: u64, now: Now) -> Self {
        Self { per_second, left: AT_ONCE * per_second * MILLION, at: now }
    }

    /// Spends so much if there is as much left; says whether there was.
    fn spend(&mut self, cost: u64, now: Now) -> bool {
        let elapsed_us = u64::try_from(now.saturating_sub(self.at).as_micros()).unwrap_or(u64::MAX);
        let gained = elapsed_us.saturating_mul(self.per_second);
        self.left = self.left.saturating_add(gained).min(AT_ONCE * self.per_second * MILLION);
        self.at = self.at.max(now);
        let cost = cost.saturating_mul(MILLION);
        let is_left = cost <= self.left;
        if is_left {
            self.left -= cost;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Announcer;
    use super::*;
    use oncewire_codec::wanax::{Name, Shape};
    use oncewire_codec::wire::{Load, MAX_BLOCK, MAX_PEEK, Sought};

    fn news(tags: usize) -> GroupFrame {
        GroupFrame::Stored { least_log2: 14, tags: vec![7; tags] }
    }

    #[test]
    fn fastest_honest_teller_is_heard_in_full() {
        let (mut announcer, mut hearing) = (Announcer::default(), Hearing::new(Now::ZERO));
        let mut heard = 0;
        for ms in 0..60_000 {
            let now = Now::from_millis(ms);
            for at in 0..20 {
                let len = if at % 2 == 0 { 65536 } else { 4096 };
                announcer.stored(Sought { tag: ms * 20 + at, len }, now);
            }
            for frame in announcer.poll_frames(now) {
                assert!(hearing.admits(&frame, now), "{now:?}");
                let GroupFrame::Stored { tags, .. } = frame else { panic!() };
                heard += tags.len() as u64;
            }
        }
        assert!(heard > 590 * MAX_TAGS as u64, "{heard}");
    }

    #[test]
    fn babbler_is_heard_at_the_rate() {
        let start = Now::from_secs(7);
        let name = Name([1; 20]);
        let sought = Sought { tag: 1, len: 300 };
        let put = |len| GroupFrame::Put { shape: Shape::default(), bytes: Bytes::from(vec![0; len]) };
        let chunk = GroupFrame::Chunk { request: 1, bytes: Some(Bytes::from(vec![0; MAX_BLOCK])) };
        let cases = [
            (news(0), HEARD_PER_SECOND, LEAST_NEWS),
            (news(100), HEARD_PER_SECOND, 100),
            (news(MAX_TAGS), HEARD_PER_SECOND, MAX_TAGS as u64),
            (GroupFrame::Get { request: 1, name, len: 9 }, TALK_PER_SECOND, LEAST_TALK + GET),
            (GroupFrame::Peek { request: 1, chunks: vec![sought; MAX_PEEK] }, TALK_PER_SECOND, 1028),
            (GroupFrame::Peek { request: 1, chunks: vec![sought] }, TALK_PER_SECOND, 5),
            (put(1), TALK_PER_SECOND, LEAST_TALK + GET),
            (put(MAX_BLOCK), TALK_PER_SECOND, LEAST_TALK + GET + 512),
            (chunk, TALK_PER_SECOND, LEAST_TALK),
            (GroupFrame::Load(Load::default()), TALK_PER_SECOND, LEAST_TALK),
            (GroupFrame::Pending { bytes: 0 }, TALK_PER_SECOND, LEAST_TALK),
        ];
        for (frame, per_second, cost) in cases {
            let mut hearing = Hearing::new(start);
            let heard = (0..200_000).filter(|at| hearing.admits(&frame, start + Now::from_micros(5) * *at));
            let most = (AT_ONCE + 1) * per_second / cost;
            let heard = heard.count() as u64;
            assert!((most - 1..=most).contains(&heard) || heard == 200_000, "{frame:?}: {heard} of {most}");
        }
    }

    #[test]
    fn excessive_asker_is_still_heard_with_news() {
        let (mut hearing, now) = (Hearing::new(Now::ZERO), Now::from_secs(7));
        let get = GroupFrame::Get { request: 1, name: Name([1; 20]), len: 9 };
        while hearing.admits(&get, now) {}
        assert!(hearing.admits(&news(9), now));
    }

    #[test]
    fn excessive_asker_is_still_heard_when_answering() {
        let (mut hearing, now) = (Hearing::new(Now::ZERO), Now::from_secs(7));
        let get = GroupFrame::Get { request: 1, name: Name([1; 20]), len: 9 };
        while hearing.admits(&get, now) {}
        let load = GroupFrame::Load(Load::default());
        while hearing.admits(&load, now) {}
        let answers = [
            GroupFrame::Have { request: 1, held: vec![true] },
            GroupFrame::Chunk { request: 1, bytes: None },
            GroupFrame::Wait { request: 1, time_ms: 9 },
        ];
        for answer in answers {
            assert!(hearing.admits(&answer, now), "{answer:?}");
        }
    }

    #[test]
    fn stopped_or_reversed_clock_gives_nothing() {
        let mut hearing = Hearing::new(Now::from_secs(7));
        let full = news(MAX_TAGS);
        let heard = (0..1000).filter(|at| hearing.admits(&full, Now::from_secs(at % 7))).count() as u64;
        assert_eq!(heard, AT_ONCE * HEARD_PER_SECOND / MAX_TAGS as u64);
    }
}
