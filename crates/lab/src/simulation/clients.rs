//! Applications: clients at the near side, servers at the far side.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::Now;

/// A requested file.
#[derive(Debug)]
pub struct Fetch {
    /// The server's words before the file.
    header: Bytes,
    file: Bytes,
    /// Bytes handed over by the server.
    pub(super) served: usize,
    /// Whether the server has ended its stream.
    pub(super) is_finished_serving: bool,
    /// Bytes of the request received by the server.
    pub(super) asked: usize,
    /// When the client asked.
    pub at: Now,
    /// When bytes came, and how many there were then.
    pub arrivals: Vec<(Now, usize)>,
    /// When the client had everything, and the end of the stream.
    pub finished: Option<Now>,
    /// Whether the client's own connection was not answered or broke.
    pub is_given_up: bool,
}

/// The bytes came changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) offset: usize,
}

impl Fetch {
    pub(super) fn new(header: Bytes, file: Bytes, at: Now) -> Self {
        Self {
            header,
            file,
            served: 0,
            is_finished_serving: false,
            asked: 0,
            at,
            arrivals: Vec::new(),
            finished: None,
            is_given_up: false,
        }
    }

    /// Returns the bytes of the answer.
    pub(super) fn len(&self) -> usize {
        self.header.len() + self.file.len()
    }

    /// Returns the received bytes.
    pub fn received(&self) -> usize {
        self.arrivals.last().map_or(0, |(_, received)| *received)
    }

    /// Returns the time from the request to the last byte; `None` before the last byte.
    pub fn took(&self) -> Option<Duration> {
        Some(self.finished?.saturating_sub(self.at))
    }

    /// Returns the bits a second from the request to the last byte; 0 before the last byte.
    pub fn bits_per_s(&self) -> f64 {
        self.took().map_or(0.0, |took| 8.0 * self.len() as f64 / took.as_secs_f64())
    }

    /// Returns the time after the request from which on a film of so many bits a second plays without a wait; `None`
    /// if it did not come entirely.
    pub fn head_start(&self, bits_per_s: u64) -> Option<Duration> {
        self.finished?;
        let mut before = 0;
        let waits = self.arrivals.iter().map(|(at, received)| {
            let had = std::mem::replace(&mut before, received.saturating_sub(self.header.len()));
            let shown = Duration::from_secs_f64(had as f64 * 8.0 / bits_per_s as f64);
            at.saturating_sub(self.at).saturating_sub(shown)
        });
        waits.max()
    }

    /// Takes bytes at the client.
    pub(super) fn receive(&mut self, bytes: &[u8], now: Now) -> Result<(), Changed> {
        let offset = self.received();
        self.receive_count(bytes.len(), now);
        if self.part(offset..offset + bytes.len()) != bytes {
            return Err(Changed { offset });
        }
        Ok(())
    }

    /// Takes bytes at the client, known only by their number.
    pub(super) fn receive_count(&mut self, bytes: usize, now: Now) {
        let received = self.received() + bytes;
        match self.arrivals.last_mut() {
            Some((at, last)) if *at == now => *last = received,
            _ => self.arrivals.push((now, received)),
        }
    }

    /// Takes the next bytes of the server, at most `most`.
    pub(super) fn serve(&mut self, most: usize) -> Bytes {
        let bytes = self.part(self.served..self.served.saturating_add(most));
        self.served += bytes.len();
        bytes
    }

    /// Returns the available bytes of a part of the answer.
    fn part(&self, range: Range<usize>) -> Bytes {
        let of = |bytes: &Bytes, before: usize| {
            let at = |at: usize| at.saturating_sub(before).min(bytes.len());
            bytes.slice(at(range.start)..at(range.end))
        };
        let (header, file) = (of(&self.header, 0), of(&self.file, self.header.len()));
        if header.is_empty() { file } else { [header, file].concat().into() }
    }

    /// Whether nothing more is to be expected.
    pub(super) fn is_over(&self) -> bool {
        self.finished.is_some() || self.is_given_up
    }

    /// Whether the server has handed over everything.
    pub(super) fn is_served(&self) -> bool {
        self.served == self.len()
    }
}

/// A client's request for a file, as long as a short one of HTTP.
pub(super) const REQUEST_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn film_plays_if_its_bytes_come_in_time() {
        let mut fetch = Fetch::new(Bytes::new(), vec![7; 1000].into(), Now::from_secs(1));
        for (at, bytes) in [(2, 500), (4, 500)] {
            fetch.receive(&vec![7; bytes], Now::from_secs(at)).unwrap();
        }
        assert_eq!(fetch.head_start(1), None, "it has not come entirely");
        fetch.finished = Some(Now::from_secs(4));
        let begin = Duration::from_secs(1);
        assert_eq!(fetch.head_start(2000), Some(begin), "250 bytes a second from the second second on");
        assert!(fetch.head_start(2001) > Some(begin));
        assert_eq!(fetch.bits_per_s(), 8000.0 / 3.0);
    }

    #[test]
    fn changed_bytes_are_seen() {
        let mut fetch = Fetch::new(Bytes::new(), vec![7; 10].into(), Now::ZERO);
        fetch.receive(&[7; 4], Now::ZERO).unwrap();
        assert_eq!(fetch.receive(&[7, 8], Now::ZERO), Err(Changed { offset: 4 }));
        let mut fetch = Fetch::new(Bytes::new(), vec![7; 10].into(), Now::ZERO);
        assert_eq!(fetch.receive(&[7; 11], Now::ZERO), Err(Changed { offset: 0 }), "more than there is");
    }

    #[test]
    fn header_precedes_the_file_and_is_outside_the_film() {
        let mut fetch =
            Fetch::new(Bytes::from_static(b"header"), Bytes::from_static(b"film"), Now::from_secs(1));
        let served: Vec<Bytes> = [2, 6, 9, 9].map(|most| fetch.serve(most)).into();
        assert_eq!(served, [&b"he"[..], b"aderfi", b"lm", b""]);
        assert!(fetch.is_served());
        fetch.receive(b"headerf", Now::from_secs(2)).unwrap();
        assert_eq!(fetch.receive(b"film", Now::from_secs(3)), Err(Changed { offset: 7 }));
        let mut fetch = Fetch::new(vec![1; 600].into(), vec![7; 1000].into(), Now::from_secs(1));
        for (at, bytes) in [(1, 600), (3, 1000)] {
            fetch.receive_count(bytes, Now::from_secs(at));
        }
        fetch.finished = Some(Now::from_secs(3));
        assert_eq!(fetch.head_start(8000), Some(Duration::from_secs(2)), "there is nothing to show before");
    }
}
