//! A disk with regenerated content in place of stored content.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use oncewire_store::Backend;
use parking_lot::Mutex;

use crate::content::{BLOCK, fill};

/// Recognises the blocks of [`fill`] in written bytes: in sequence, except for single ones refused by the store.
/// Keeps everything else.
#[derive(Default)]
pub(crate) struct Regenerating {
    files: Mutex<BTreeMap<String, Kept>>,
    /// The expected next block.
    next: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

#[derive(Default)]
struct Kept {
    len: u64,
    /// The places and numbers of blocks, in order.
    blocks: Vec<(u32, u64)>,
    /// Everything else: its places in the file and in `rest`, in order.
    pieces: Vec<(u32, u32)>,
    rest: Vec<u8>,
}

impl Regenerating {
    /// Returns how many bytes it keeps.
    pub(crate) fn memory(&self) -> u64 {
        let files = self.files.lock();
        let kept = files
            .values()
            .map(|file| file.blocks.capacity() * 16 + file.pieces.capacity() * 8 + file.rest.capacity());
        kept.sum::<usize>() as u64
    }
}

impl Kept {
    fn add(&mut self, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.pieces.push((at as u32, self.rest.len() as u32));
            self.rest.extend_from_slice(bytes);
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8], next: &AtomicU64) {
        let (mut done, mut block) = (0, vec![0; BLOCK]);
        let mut number = next.load(Ordering::Relaxed);
        while let Some((begin, found)) = (number..number + 3).find_map(|number| {
            fill(number, &mut block);
            let begin = done + find(bytes.get(done..)?, &block[..16])?;
            (bytes.get(begin..begin + BLOCK) == Some(&block)).then_some((begin, number))
        }) {
            self.add(at + done, &bytes[done..begin]);
            self.blocks.push(((at + begin) as u32, found));
            done = begin + BLOCK;
            number = found + 1;
        }
        next.store(number, Ordering::Relaxed);
        self.add(at + done, &bytes[done..]);
        self.len = self.len.max((at + bytes.len()) as u64);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let end = at + into.len();
        into.fill(0);
        let mut copy = |begin: usize, bytes: &[u8]| {
            let (from, to) = (at.max(begin), end.min(begin + bytes.len()));
            if from < to {
                into[from - at..to - at].copy_from_slice(&bytes[from - begin..to - begin]);
            }
        };
        let mut block = vec![0; BLOCK];
        let first = self.blocks.partition_point(|(begin, _)| *begin as usize + BLOCK <= at);
        for (begin, number) in self.blocks[first..].iter().take_while(|(begin, _)| (*begin as usize) < end) {
            fill(*number, &mut block);
            copy(*begin as usize, &block);
        }
        let first = self.pieces.partition_point(|(begin, _)| *begin as usize <= at).saturating_sub(1);
        for (i, (begin, from)) in self.pieces.iter().enumerate().skip(first) {
            if *begin as usize >= end {
                break;
            }
            let to = self.pieces.get(i + 1).map_or(self.rest.len(), |(_, to)| *to as usize);
            copy(*begin as usize, &self.rest[*from as usize..to]);
        }
    }
}

/// Finds the beginning of a block near the beginning, perhaps behind a header.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let bytes = bytes.get(..bytes.len().checked_sub(BLOCK - needle.len())?)?;
    bytes.windows(needle.len()).take(16_384).position(|window| window == needle)
}

impl Backend for Regenerating {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.files.lock().insert(name.to_owned(), Kept { len, ..Kept::default() });
        Ok(())
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        let files = self.files.lock();
        let file = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        if at + into.len() as u64 > file.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.read(at as usize, into);
        Ok(())
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut files = self.files.lock();
        files.get_mut(name).ok_or(io::ErrorKind::NotFound)?.write(at as usize, bytes, &self.next);
        Ok(())
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.len = len;
        // It is nearly full then, and its memory is to be measured.
        file.blocks.shrink_to_fit();
        file.pieces.shrink_to_fit();
        file.rest.shrink_to_fit();
        Ok(())
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.files.lock().iter().map(|(name, file)| (name.clone(), file.len)).collect())
    }
}
