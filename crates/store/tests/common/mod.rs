//! Numbered blocks, and checks of reads.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod refused;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use oncewire_store::{Backend, Fault, IndexMemory, MIN_SEGMENT_BYTES, Memory, Options, Part, Sealer, Store};

/// Mixes a number well enough for a tag or content.
pub(crate) fn mixed(i: u64) -> u64 {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The bytes of a block.
pub(crate) fn block(number: u64, len: usize) -> Vec<u8> {
    let words = (0..).map(|i| mixed(number << 20 | i));
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

/// A block's tree: degree 8 from the whole of it to 128 bytes; tags are digests of the content.
pub(crate) fn parts(block: &[u8]) -> Vec<Part> {
    let mut parts = vec![part(block, 0, 0, block.len())];
    for (level, size) in [(1, 8192), (2, 1024), (3, 128)] {
        for start in (0..block.len()).step_by(size) {
            let len = size.min(block.len() - start);
            if len < block.len() {
                parts.push(part(block, level, start, len));
            }
        }
    }
    parts
}

fn part(block: &[u8], level: u8, start: usize, len: usize) -> Part {
    Part { tag: tag(&block[start..start + len]), level, start: start as u32, len: len as u32 }
}

/// A digest good enough for tests.
pub(crate) fn tag(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mixed(hash ^ u64::from_le_bytes(word))
    })
}

/// Reads the chunk with this content; the store must have nothing else for its tag.
pub(crate) fn read(store: &Store, content: &[u8]) -> Result<bool, Fault> {
    let own = tag(content);
    let found = store.read(own, content.len() as u32, &|bytes| tag(bytes) == own)?;
    if let Some(bytes) = &found {
        assert!(bytes == content, "wrong bytes came out of the store");
    }
    Ok(found.is_some())
}

/// A small store: segments of the smallest size.
pub(crate) fn options(segments: u64) -> Options {
    Options {
        capacity: segments * MIN_SEGMENT_BYTES,
        segment_bytes: MIN_SEGMENT_BYTES,
        index: IndexMemory { coarse: 1 << 15, medium: 1 << 16, fine: 1 << 18 },
        id: 0x1234,
        sealer: None,
        at_rest: false,
    }
}

/// The same, encrypted.
pub(crate) fn sealed(secret: u8, segments: u64) -> Options {
    let salts = AtomicU64::new(0);
    let salt = move || {
        let n = salts.fetch_add(1, Ordering::Relaxed);
        Ok(((u128::from(secret) << 64) | u128::from(n)).to_le_bytes())
    };
    Options { sealer: Some(Arc::new(Sealer::new(&[secret; 32], salt))), ..options(segments) }
}

pub(crate) fn open(backend: &(impl Backend + Clone), options: &Options) -> Store {
    Store::open(Arc::new(backend.clone()), options).expect("the directory can be read").0
}

/// Returns the blocks of `lens` there as a whole, and checks them.
pub(crate) fn whole(store: &Store, lens: &[usize]) -> Vec<u64> {
    let numbers = lens.iter().enumerate().map(|(i, len)| (i as u64, *len));
    numbers.filter(|(i, len)| read(store, &block(*i, *len)).unwrap_or(false)).map(|(i, _)| i).collect()
}

/// A disk's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Read,
    Write,
    Cut,
    Sync,
    Rename,
    Remove,
}

/// A test's action before an operation of a disk: on this file, at this offset, with so many bytes.
pub(crate) type Meddle = Box<dyn Fn(Op, &str, u64, usize) -> io::Result<()> + Send + Sync>;

/// A disk in memory with a test's meddling.
pub(crate) struct Meddled(pub(crate) Memory, pub(crate) Meddle);

/// The system's errors for a failing disk, and for too many open files of the process.
pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;

/// Refuses to read a part of one file.
pub(crate) fn hiding(memory: &Memory, file: String, hidden: Range<u64>) -> Meddled {
    let meddle = move |op: Op, name: &str, at: u64, len: usize| {
        let is_hidden = op == Op::Read && name == file && at < hidden.end && at + len as u64 > hidden.start;
        if is_hidden { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    };
    Meddled(memory.clone(), Box::new(meddle))
}

/// A barrier for reads while it is shut.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn shut(&self, shut: bool) {
        *self.0.0.lock().unwrap() = shut;
        self.0.1.notify_all();
    }

    /// Puts it in front of the reads of files accepted by `of`.
    pub(crate) fn before(
        &self,
        memory: &Memory,
        of: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Meddled {
        let gate = self.clone();
        let meddle = move |op: Op, name: &str, _: u64, _: usize| {
            let (shut, changed) = &*gate.0;
            let held = shut.lock().unwrap();
            drop(changed.wait_while(held, |shut| *shut && op == Op::Read && of(name)).unwrap());
            Ok(())
        };
        Meddled(memory.clone(), Box::new(meddle))
    }
}

impl Backend for Meddled {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        (self.1)(Op::Create, name, 0, len as usize)?;
        self.0.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        (self.1)(Op::Read, name, at, into.len())?;
        self.0.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        (self.1)(Op::Write, name, at, bytes.len())?;
        self.0.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        (self.1)(Op::Cut, name, len, 0)?;
        self.0.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        (self.1)(Op::Sync, name, 0, 0)?;
        self.0.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.1)(Op::Rename, from, 0, 0)?;
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (self.1)(Op::Remove, name, 0, 0)?;
        self.0.remove(name)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.list()
    }
}
