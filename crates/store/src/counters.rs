//! What a store counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a store has done since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn now(&self) -> Counts {
                Counts { $($name: self.$name.now(),)* }
            }
        }
    };
}

counters! {
    /// Blocks that were stored.
    stored,
    /// Their bytes.
    stored_bytes,
    /// Blocks that were there already.
    known,
    /// Blocks that were not taken.
    refused,
    /// Entries of the index that gave way although their chunks are still there.
    displaced,
    /// Bytes that were written to the disk, whatever they are.
    written_bytes,
    /// Segments that went, the oldest first.
    evicted_segments,
    /// Chunks that were found.
    hits,
    /// Their bytes.
    hit_bytes,
    /// Chunks that were asked for and are not there.
    absent,
    /// Requests to the disk to read a chunk or its container.
    disk_reads,
    /// Chunks of which what was read is damaged.
    faults,
    /// Chunks that may be there and could not be read: the disk refused, or their file is set aside.
    unreadable,
    /// Chunks that were forgotten, since their file is given up.
    given_up,
    /// Blocks that were stored again, since the disk refuses to read a chunk of them.
    replaced,
    /// Writes that failed, and stopped the store or held it up.
    write_errors,
}
