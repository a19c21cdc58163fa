//! The content-addressed chunk store: bytes of the link, on disk, in chunks.
//!
//! A store takes blocks of at most 64 KiB and the list of their chunks of all levels, and gives back chunks by the
//! *tag* of their name: 64 bits of a keyed hash, so they need no further hashing. Bits 16 to 31 of a chunk below 4
//! KiB may depend on the others: its table goes by the upper half and the lowest bits. It computes no names itself:
//! the reader brings the check of the content, and content without a match is not handed out.
//!
//! # Where things are
//! Blocks are gathered into containers, containers into groups of about 1 MiB, written at once, groups into segments,
//! files of fixed size. Segments form a ring: when the capacity is reached, the oldest goes. A place in the ring is
//! never used again, so the index in memory needs no deletions: an entry counts as long as its place lies in the
//! ring. Files are made of pages, which may be encrypted.
//!
//! # What may go wrong
//! A store may forget, and may not lie. After a crash, a full or failing disk or damage of any kind, opening succeeds
//! if the directory can be read at all, and each read gives the right content, nothing, or an error. The reasons for
//! all this, and the rejected ways, stand in `docs/internals/store.md`.

mod ahead;
mod backend;
mod bits;
mod bytes;
mod clear;
mod compact;
mod container;
mod counters;
mod directory;
mod error_context;
mod faults;
mod files;
mod flaw;
mod footer;
mod hold;
mod identity;
mod index;
mod locate;
mod memory;
mod obstacle;
mod open_files;
mod paged;
pub mod pool;
mod private_file;
mod progress;
mod read;
mod recover;
mod refused;
mod ring;
mod scan;
mod seal;
mod segment;
mod service_time;
mod slow;
mod small;
mod snapshot;
mod store;
mod stray;
mod summary;
mod table;
mod tools;
mod turns;
mod writer;

use std::io;
use std::ops::Range;

pub use self::backend::Backend;
pub use self::clear::StoreFiles;
pub use self::compact::Compacted;
pub use self::container::MAX_PARTS;
pub use self::counters::Counts;
pub use self::directory::{Directory, DirectoryError};
pub use self::faults::Faults;
pub use self::index::IndexMemory;
pub use self::memory::Memory;
pub use self::obstacle::Obstacle;
pub use self::private_file::{Opening, close_to_others, open_private};
pub use self::progress::Progress;
pub use self::recover::{OpenError, Opened, Prepared};
pub use self::ring::ROUNDS_TO_GIVE_UP;
pub use self::seal::Sealer;
pub use self::segment::Level;
pub use self::slow::Slow;
pub use self::store::{Horizon, MIN_SEGMENT_BYTES, Options, Store};
pub use self::tools::{Stat, Verified};

/// A chunk of a block, element of a [tree](Store::insert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first 8 bytes of its name: a keyed hash of its content.
    pub tag: u64,
    /// Its size level, as the owner counts them; told apart up to 15, for statistics alone.
    pub level: u8,
    /// Its start in the block.
    pub start: u32,
    /// Its length, at least 1.
    pub len: u32,
}

impl Part {
    /// Returns its range in the block.
    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start.saturating_add(self.len as usize)
    }

    fn end(self) -> Option<u32> {
        self.start.checked_add(self.len)
    }
}

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored.
    Stored {
        /// Chunks new to the index.
        new: u32,
        /// Chunks known at an older place.
        moved: u32,
    },
    /// It was there as a whole, and is not stored again.
    Known,
    /// It is longer than 65,536 bytes, empty, has more than [`MAX_PARTS`] chunks or some outside of it; or the store takes
    /// nothing more since the disk failed.
    Refused,
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The disk refused; the content may be intact.
    #[error("{file}: offset {at}: {source}")]
    Io {
        /// The file's name in the directory.
        file: String,
        /// The byte of the file.
        at: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content read differs from the content written.
    #[error("{file}: offset {at}: {what}")]
    Damaged {
        /// The file's name in the directory.
        file: String,
        /// The byte of the file.
        at: u64,
        /// The finding.
        what: &'static str,
    },
    /// A file in no state of a store or a crash: its content is gone, or a part of it.
    #[error("{file}: {what}{}", with_it(*.gone))]
    Broken {
        /// The file's name in the directory.
        file: String,
        /// The proof.
        what: &'static str,
        /// Missing containers, as far as known.
        gone: u32,
    },
    /// The disk was not asked: its file is set aside.
    #[error("{file}: not read, since {why}")]
    NotTried {
        /// The file's name in the directory; of no file in particular, the directory's.
        file: String,
        /// The reason.
        why: &'static str,
    },
    /// The disk was not asked, since its I/O has stalled.
    #[error("chunk store: not read, since the disk hangs")]
    Hangs,
    /// The disk refused its file again and again, and read others meanwhile: it is [given up](Store::given_up).
    #[error("{file}: given up, since the disk refuses it and no other")]
    GivenUp {
        /// The file's name in the directory.
        file: String,
    },
}

impl Fault {
    /// Says whether the loss of the content is proven; else another read may find it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Broken { .. })
    }

    /// Says whether the content is to be stored again as soon as it comes: it is damaged or given up, or the disk
    /// refused this very place. Other reasons pass: the process may open no more files, or the disk was not asked.
    pub fn wants_again(&self) -> bool {
        match self {
            Self::Io { source, .. } => !is_of_the_process(source),
            Self::Damaged { .. } | Self::Broken { .. } | Self::GivenUp { .. } => true,
            Self::NotTried { .. } | Self::Hangs => false,
        }
    }

    /// Says whether the index is to forget it.
    fn is_lost(&self) -> bool {
        self.is_damage() || matches!(self, Self::GivenUp { .. })
    }
}

fn with_it(gone: u32) -> String {
    match gone {
        0 => String::new(),
        1 => ", and a container with it".to_owned(),
        gone => format!(", and {gone} containers with it"),
    }
}

/// Says whether an error is about this process or a moment, and not about the content.
fn is_of_the_process(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error_context::errno(error).is_some_and(|errno| {
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::INTR].contains(&errno)
    })
}
