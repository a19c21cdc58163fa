//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number with several threads adding to it.
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
        /// The counts of a store since its opening.
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
    /// Stored blocks.
    stored,
    /// Their bytes.
    stored_bytes,
    /// Known blocks, not stored again.
    known,
    /// Refused blocks.
    refused,
    /// Evicted index entries of chunks still on disk.
    displaced,
    /// All bytes written to the disk.
    written_bytes,
    /// Evicted segments, the oldest first.
    evicted_segments,
    /// Found chunks.
    hits,
    /// Their bytes.
    hit_bytes,
    /// Requested but absent chunks.
    absent,
    /// Requests to the disk to read a chunk or its container.
    disk_reads,
    /// Damaged chunks, noticed on reading.
    faults,
    /// Unreadable chunks, perhaps there: the disk refused, or their file is set aside.
    unreadable,
    /// Chunks forgotten with a given-up file.
    given_up,
    /// Blocks stored again because of an unreadable chunk.
    replaced,
    /// Failed writes, each of which stopped the store or held it up.
    write_errors,
}
