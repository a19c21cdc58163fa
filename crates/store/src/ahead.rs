//! Reading a file from front to back, some way ahead of who asks.

use crate::paged::Paged;

/// Reads a file in pieces of 1 MiB, for who goes through its containers: one request for each takes a disk with an arm
/// many times as long.
///
/// It has what can be read and is silent about the rest, which whoever asks then reads for itself, and learns why not.
pub(crate) struct Ahead<'a> {
    file: &'a Paged,
    /// Bytes that the file addresses.
    room: u64,
    /// Where the piece begins.
    begin: u64,
    piece: Vec<u8>,
    /// Where the next piece may begin: a bad place is not to be asked for with each container before it.
    next: u64,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(file: &'a Paged, file_len: u64) -> Self {
        Self { file, room: file.room(file_len), begin: 0, piece: Vec::new(), next: 0 }
    }

    /// Returns bytes; none if they could not be read together with those around them.
    pub(crate) fn get(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        if !self.holds(at, len) && at >= self.next && at < self.room {
            self.fetch(at);
        }
        let from = usize::try_from(at.checked_sub(self.begin)?).ok()?;
        self.piece.get(from..from.checked_add(len)?)
    }

    fn holds(&self, at: u64, len: usize) -> bool {
        at >= self.begin && at + len as u64 <= self.begin + self.piece.len() as u64
    }

    fn fetch(&mut self, at: u64) {
        let payload = self.file.payload() as u64;
        self.begin = at / payload * payload;
        let len = (self.room - self.begin).min(PIECE / payload * payload);
        self.piece = self.file.read_front(self.begin, len as usize).unwrap_or_default();
        self.next = if self.piece.len() as u64 == len { 0 } else { self.begin + len };
    }
}

/// Bytes that are read at once, of which whole pages are taken.
const PIECE: u64 = 1 << 20;
