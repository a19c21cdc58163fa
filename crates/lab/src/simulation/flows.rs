//! Flows between applications: the turns of both sides, and their progress.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::Now;

use super::{FAR, NEAR};

/// A flow to be opened: turns of both applications, in order. The side of the first turn opens it.
///
/// The side of the last turn ends its stream behind it; the other side ends its own once it has everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// The flow's class in reports.
    pub class: String,
    /// The turns, at least one with content.
    pub turns: Vec<Turn>,
}

/// Some bytes of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The sending side.
    pub from: usize,
    /// The bytes of the other side's stream that come first.
    pub after: usize,
    /// The time to think after that.
    pub delay: Duration,
    /// The content.
    pub content: Bytes,
}

/// A flow, and its progress.
#[derive(Debug)]
pub struct Flow {
    class: String,
    opener: usize,
    /// The side of the last turn.
    last: usize,
    opened: Now,
    ends: [End; 2],
    finished: Option<Now>,
    pub(super) is_given_up: bool,
}

/// One application.
#[derive(Debug, Default)]
struct End {
    turns: Vec<Turn>,
    /// The stream offset of each turn.
    starts: Vec<usize>,
    /// The length of all turns.
    len: usize,
    /// How many turns have begun, and the bytes in them.
    begun: usize,
    available: usize,
    /// When the next turn begins, if it thinks.
    thinks_until: Option<Now>,
    /// Whether the application has a connection.
    is_open: bool,
    sent: usize,
    is_finished: bool,
    /// When bytes came, and how many there were then.
    arrivals: Vec<(Now, usize)>,
    has_end: bool,
}

/// The bytes came changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) offset: usize,
}

impl FlowPlan {
    /// A client's short request, and a server's file behind a header.
    pub fn fetch(header: Bytes, file: Bytes) -> Self {
        let request = Bytes::from_static(&[b' '; REQUEST_BYTES]);
        Self::turns("fetch", [(NEAR, request), (FAR, header), (FAR, file)])
    }

    /// Turns one after the other: each waits for the other side's earlier ones.
    pub fn turns(class: impl Into<String>, turns: impl IntoIterator<Item = (usize, Bytes)>) -> Self {
        let mut sent = [0, 0];
        let turn = |(from, content): (usize, Bytes)| {
            let from = from.min(FAR);
            let after = sent[1 - from];
            sent[from] += content.len();
            Turn { from, after, delay: Duration::ZERO, content }
        };
        Self { class: class.into(), turns: turns.into_iter().map(turn).collect() }
    }

    /// Streams of both sides at once.
    pub fn both_ways(class: impl Into<String>, near: Bytes, far: Bytes) -> Self {
        let turn = |from, content| Turn { from, after: 0, delay: Duration::ZERO, content };
        Self { class: class.into(), turns: vec![turn(NEAR, near), turn(FAR, far)] }
    }
}

impl Flow {
    pub(super) fn new(plan: FlowPlan, opened: Now) -> Self {
        let side = |turn: Option<&Turn>| turn.map_or(NEAR, |turn| turn.from.min(FAR));
        let (opener, last) = (side(plan.turns.first()), side(plan.turns.last()));
        let mut ends = [End::default(), End::default()];
        for turn in plan.turns {
            let end = &mut ends[turn.from.min(FAR)];
            end.starts.push(end.len);
            end.len += turn.content.len();
            end.turns.push(turn);
        }
        Self { class: plan.class, opener, last, opened, ends, finished: None, is_given_up: false }
    }

    /// Returns the flow's class.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Returns when the flow was opened.
    pub fn opened(&self) -> Now {
        self.opened
    }

    /// Returns when both sides had everything; `None` before.
    pub fn finished(&self) -> Option<Now> {
        self.finished
    }

    /// Returns the time from the opening to the last byte; `None` before the last byte.
    pub fn took(&self) -> Option<Duration> {
        Some(self.finished?.saturating_sub(self.opened))
    }

    /// Returns the length of a side's stream.
    pub fn offered(&self, side: usize) -> usize {
        self.ends.get(side).map_or(0, |end| end.len)
    }

    /// Returns the bytes received by a side.
    pub fn received(&self, side: usize) -> usize {
        self.arrivals(side).last().map_or(0, |(_, received)| *received)
    }

    /// Returns when bytes came to a side, and how many there were then.
    pub fn arrivals(&self, side: usize) -> &[(Now, usize)] {
        self.ends.get(side).map_or(&[], |end| &end.arrivals)
    }

    /// Returns the bits a second of the stream with the last turn, from the opening to the last byte; 0 before the
    /// last byte.
    pub fn bits_per_s(&self) -> f64 {
        self.took().map_or(0.0, |took| 8.0 * self.offered(self.last) as f64 / took.as_secs_f64())
    }

    /// Returns the time after the opening from which on the last turn, a film of so many bits a second, plays without
    /// a wait; `None` if it did not come entirely.
    pub fn head_start(&self, bits_per_s: u64) -> Option<Duration> {
        self.finished?;
        let film_start = self.ends[self.last].starts.last().copied().unwrap_or_default();
        let mut before = 0;
        let waits = self.arrivals(1 - self.last).iter().map(|(at, received)| {
            let had = std::mem::replace(&mut before, received.saturating_sub(film_start));
            let shown = Duration::from_secs_f64(had as f64 * 8.0 / bits_per_s as f64);
            at.saturating_sub(self.opened).saturating_sub(shown)
        });
        waits.max()
    }

    pub(super) fn opener(&self) -> usize {
        self.opener
    }

    /// Whether nothing more is to be expected.
    pub(super) fn is_over(&self) -> bool {
        self.finished.is_some() || self.is_given_up
    }

    /// Gives a side its connection.
    pub(super) fn open(&mut self, side: usize) {
        self.ends[side].is_open = true;
    }

    /// Begins a side's possible turns; returns the time of a turn with a pause before it.
    pub(super) fn begin_turns(&mut self, side: usize, now: Now) -> Option<Now> {
        let received = self.received(side);
        let end = &mut self.ends[side];
        while let Some(turn) = end.turns.get(end.begun).filter(|turn| turn.after <= received) {
            if !turn.delay.is_zero() {
                match end.thinks_until {
                    None => {
                        let until = now + turn.delay;
                        end.thinks_until = Some(until);
                        return Some(until);
                    }
                    Some(until) if until > now => return None,
                    Some(_) => end.thinks_until = None,
                }
            }
            end.available += turn.content.len();
            end.begun += 1;
        }
        None
    }

    /// Returns the number of bytes that a side could hand over.
    pub(super) fn ready(&self, side: usize) -> usize {
        let end = &self.ends[side];
        if end.is_open { end.available - end.sent } else { 0 }
    }

    /// Takes the next bytes of a side, at most `most`.
    pub(super) fn serve(&mut self, side: usize, most: usize) -> Bytes {
        let len = self.ready(side).min(most);
        let end = &mut self.ends[side];
        let range = end.sent..end.sent + len;
        end.sent += len;
        end.part(range)
    }

    /// Takes the next bytes of a side, known only by their number.
    pub(super) fn serve_count(&mut self, side: usize, most: usize) -> usize {
        let len = self.ready(side).min(most);
        self.ends[side].sent += len;
        len
    }

    /// Whether a side is to end its stream now; says so once.
    pub(super) fn take_finish(&mut self, side: usize) -> bool {
        let is_last = side == self.last;
        let end = &mut self.ends[side];
        let is_due = end.is_open && end.sent == end.len && (is_last || end.has_end);
        is_due && !std::mem::replace(&mut end.is_finished, true)
    }

    /// Takes bytes at a side.
    pub(super) fn receive(&mut self, side: usize, bytes: &[u8], now: Now) -> Result<(), Changed> {
        let offset = self.received(side);
        self.receive_count(side, bytes.len(), now);
        if self.ends[1 - side].part(offset..offset + bytes.len()) != bytes {
            return Err(Changed { offset });
        }
        Ok(())
    }

    /// Takes bytes at a side, known only by their number.
    pub(super) fn receive_count(&mut self, side: usize, bytes: usize, now: Now) {
        let received = self.received(side) + bytes;
        let arrivals = &mut self.ends[side].arrivals;
        match arrivals.last_mut() {
            Some((at, last)) if *at == now => *last = received,
            _ => arrivals.push((now, received)),
        }
        self.note_progress(now);
    }

    /// Takes the end of the stream to a side; returns false if bytes of it are missing.
    pub(super) fn receive_end(&mut self, side: usize, now: Now) -> bool {
        if self.received(side) != self.offered(1 - side) {
            return false;
        }
        self.ends[side].has_end = true;
        self.note_progress(now);
        true
    }

    fn note_progress(&mut self, now: Now) {
        let has_all = |side: usize| self.received(side) == self.offered(1 - side);
        if self.finished.is_none() && self.ends[1 - self.last].has_end && has_all(NEAR) && has_all(FAR) {
            self.finished = Some(now);
        }
    }
}

impl End {
    /// Returns the available bytes of a part of the stream.
    fn part(&self, range: Range<usize>) -> Bytes {
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        let turns = self.starts.iter().zip(&self.turns).skip(first);
        let mut parts = turns.take_while(|(start, _)| **start < range.end).filter_map(|(start, turn)| {
            let at = |at: usize| at.saturating_sub(*start).min(turn.content.len());
            let part = at(range.start)..at(range.end);
            (!part.is_empty()).then(|| turn.content.slice(part))
        });
        let Some(first) = parts.next() else { return Bytes::new() };
        match parts.next() {
            None => first,
            Some(second) => {
                let rest: Vec<Bytes> = parts.collect();
                [first, second].into_iter().chain(rest).collect::<Vec<Bytes>>().concat().into()
            }
        }
    }
}

/// The length of a client's request for a file, as a short one of HTTP.
const REQUEST_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(header: impl Into<Bytes>, file: impl Into<Bytes>) -> Flow {
        let mut flow = Flow::new(FlowPlan::fetch(header.into(), file.into()), Now::from_secs(1));
        for side in [NEAR, FAR] {
            flow.open(side);
            flow.begin_turns(side, Now::from_secs(1));
        }
        let request = flow.serve(NEAR, usize::MAX);
        flow.receive(FAR, &request, Now::from_secs(1)).unwrap();
        flow.begin_turns(FAR, Now::from_secs(1));
        flow
    }

    #[test]
    fn film_plays_if_its_bytes_come_in_time() {
        let mut flow = fetch(Bytes::new(), vec![7; 1000]);
        for (at, bytes) in [(2, 500), (4, 500)] {
            flow.receive(NEAR, &vec![7; bytes], Now::from_secs(at)).unwrap();
        }
        assert_eq!(flow.head_start(1), None, "its end has not come");
        assert!(flow.receive_end(NEAR, Now::from_secs(4)));
        let begin = Duration::from_secs(1);
        assert_eq!(flow.head_start(2000), Some(begin), "250 bytes a second from the second second on");
        assert!(flow.head_start(2001) > Some(begin));
        assert_eq!(flow.bits_per_s(), 8000.0 / 3.0);
    }

    #[test]
    fn changed_bytes_are_seen() {
        let mut flow = fetch(Bytes::new(), vec![7; 10]);
        flow.receive(NEAR, &[7; 4], Now::ZERO).unwrap();
        assert_eq!(flow.receive(NEAR, &[7, 8], Now::ZERO), Err(Changed { offset: 4 }));
        let mut flow = fetch(Bytes::new(), vec![7; 10]);
        assert_eq!(flow.receive(NEAR, &[7; 11], Now::ZERO), Err(Changed { offset: 0 }), "more than there is");
    }

    #[test]
    fn header_precedes_the_file_and_is_outside_the_film() {
        let mut flow = fetch(&b"header"[..], &b"film"[..]);
        let served: Vec<Bytes> = [2, 6, 9, 9].map(|most| flow.serve(FAR, most)).into();
        assert_eq!(served, [&b"he"[..], b"aderfi", b"lm", b""]);
        assert!(flow.take_finish(FAR));
        flow.receive(NEAR, b"headerf", Now::from_secs(2)).unwrap();
        assert_eq!(flow.receive(NEAR, b"film", Now::from_secs(3)), Err(Changed { offset: 7 }));
        let mut flow = fetch(vec![1; 600], vec![7; 1000]);
        for (at, bytes) in [(1, 600), (3, 1000)] {
            flow.receive_count(NEAR, bytes, Now::from_secs(at));
        }
        assert!(flow.receive_end(NEAR, Now::from_secs(3)));
        assert_eq!(flow.head_start(8000), Some(Duration::from_secs(2)), "there is nothing to show before");
    }

    #[test]
    fn turn_waits_for_the_other_side_and_its_pause() {
        let pause = Duration::from_secs(5);
        let turn = |from, after, delay| Turn { from, after, delay, content: Bytes::from_static(&[0; 3]) };
        let turns = vec![turn(FAR, 0, Duration::ZERO), turn(NEAR, 3, pause), turn(NEAR, 3, Duration::ZERO)];
        let mut flow = Flow::new(FlowPlan { class: "chat".to_owned(), turns }, Now::ZERO);
        assert_eq!(flow.opener(), FAR);
        flow.open(NEAR);
        assert_eq!((flow.begin_turns(NEAR, Now::ZERO), flow.ready(NEAR)), (None, 0));
        flow.receive(NEAR, &[0; 3], Now::from_secs(1)).unwrap();
        let until = Now::from_secs(6);
        assert_eq!(flow.begin_turns(NEAR, Now::from_secs(1)), Some(until));
        assert_eq!((flow.begin_turns(NEAR, Now::from_secs(2)), flow.ready(NEAR)), (None, 0));
        assert_eq!((flow.begin_turns(NEAR, until), flow.ready(NEAR)), (None, 6));
    }
}
