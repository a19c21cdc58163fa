//! Sequential read-ahead of a file.

use crate::paged::Paged;

/// Reads a file in pieces of 1 MiB, for passes through its containers: one request for each would take a disk with an
/// arm many times as long.
///
/// It has the readable parts, and is silent about the rest: the caller then reads it directly, and learns the reason.
pub(crate) struct Ahead<'a> {
    file: &'a Paged,
    /// Bytes addressed by the file.
    room: u64,
    /// The start of the piece.
    begin: u64,
    piece: Vec<u8>,
    /// The least start of the next piece: a bad place is not to be read again with each container before it.
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

/// Bytes of one request, in whole pages.
const PIECE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Backend, Memory};

    const NAME: &str = "file";
    const LEN: u64 = 3 << 20;

    fn file(memory: &Memory) -> Paged {
        let backend: Arc<dyn Backend> = Arc::new(memory.clone());
        backend.create(NAME, LEN).unwrap();
        memory.damage(NAME, |bytes| {
            bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 1000) as u8)
        });
        Paged::assume(&backend, NAME.to_owned())
    }

    #[test]
    fn whole_file_comes_in_pieces_and_nothing_behind_it() {
        let memory = Memory::default();
        let file = file(&memory);
        let mut ahead = Ahead::new(&file, LEN);
        let room = LEN - 4096;
        for at in (0..room - 5000).step_by(5000) {
            assert_eq!(ahead.get(at, 5000).unwrap(), file.read(at, 5000).unwrap());
        }
        let mut ahead = Ahead::new(&file, LEN);
        let reads = memory.reads();
        (0..room - 5000).step_by(5000).for_each(|at| _ = ahead.get(at, 5000));
        // A piece begins with a container too long for the one before.
        assert_eq!(memory.reads() - reads, 4);
        assert!(ahead.get(room - 10, 11).is_none() && ahead.get(room, 1).is_none());
    }

    #[test]
    fn unreadable_place_is_requested_once() {
        let memory = Memory::default();
        let file = file(&memory);
        memory.fail_reads_of(NAME, Some(5));
        let (mut ahead, reads) = (Ahead::new(&file, LEN), memory.reads());
        assert!((0..1 << 20).step_by(5000).all(|at| ahead.get(at, 5000).is_none()));
        assert_eq!(memory.reads() - reads, 1);
        memory.fail_reads_of(NAME, None);
        assert!(ahead.get(1 << 20, 5000).is_some());
    }
}
