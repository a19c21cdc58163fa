//! The store: what it consists of, and what it tells of itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};

use crate::container::{Container, MAX_CONTAINER, MAX_PARTS};
use crate::counters::Counters;
use crate::flaw::Flaw;
use crate::identity::Identity;
use crate::index::{Class, Index, Layout};
use crate::refused::Refused;
use crate::segment::Segment;
use crate::writer::{Tail, Writer};
use crate::{Backend, Counts, IndexMemory, Sealer};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of disk that its segments may take; at least two segments. Less than last time lets the oldest go.
    pub capacity: u64,
    /// Bytes of a segment, from [`MIN_SEGMENT_BYTES`] to 4 GiB, a multiple of 4096. A store that is there keeps the size
    /// that it was made with.
    pub segment_bytes: u64,
    /// Memory for the index.
    pub index: IndexMemory,
    /// The id that a new store gets: random, since ends tell stores apart by it.
    pub id: u64,
    /// Encrypts what is written; files of another key, or of none, are not taken up.
    pub sealer: Option<Arc<Sealer>>,
    /// Opened to be looked at or rewritten as it is, and not to be gone on with: nothing goes although `capacity` is
    /// exceeded, and the index is laid out as it was saved, if it was; `capacity` and `index` say how it is where it was
    /// not. As long as nothing is written, what was saved of the index stays, and nothing is saved anew.
    pub at_rest: bool,
}

/// How far a store reaches back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The earliest time of a block that is still there, on the owner's clock; none if there is no block. What came
    /// earlier is gone.
    pub oldest_s: Option<u64>,
    /// The latest time of one. An owner whose clock goes on from here never gives a block an earlier time than those
    /// before it.
    pub newest_s: Option<u64>,
    /// Segments that went since the store was opened; while it stays the same, nothing has gone.
    pub evicted_segments: u64,
}

/// A store that is open; shared by any number of threads.
///
/// Dropping it is what a killed process does. [`Store::close`] writes what is in memory and the index, so that the
/// next start is quick.
pub struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sealer: Option<Arc<Sealer>>,
    pub(crate) id: u64,
    pub(crate) capacity: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) group_bytes: usize,
    /// Bits of an address that are the offset in its segment.
    pub(crate) span_bits: u32,
    pub(crate) index: Index,
    pub(crate) ring: RwLock<VecDeque<Arc<Segment>>>,
    pub(crate) tail: RwLock<Tail>,
    pub(crate) writer: Mutex<Writer>,
    /// Containers that were read last, since who asks for a chunk asks for its neighbours, too.
    pub(crate) recent: Mutex<VecDeque<(u64, Arc<Container>)>>,
    /// Where the disk refused to read.
    pub(crate) refused: Refused,
    /// Whether the disk read anything since segments were tried again last.
    pub(crate) delivered: AtomicBool,
    /// Whether any segment was ever given up.
    pub(crate) gave_up: AtomicBool,
    /// The names of what was called as a segment is when the store was opened and can be none, each with the reason.
    pub(crate) others: BTreeMap<String, &'static str>,
    /// Files whose numbers are [far beyond](crate::stray) the ring.
    pub(crate) strays: Vec<Arc<Segment>>,
    /// Segments that the saved index speaks of, and that were gone when the store was opened, by who only looks.
    pub(crate) missing: Vec<(String, Flaw)>,
    /// Whether what was saved of the index is still to be removed before anything changes: it was left by who opened the
    /// store at rest.
    pub(crate) is_as_found: AtomicBool,
    pub(crate) counters: Counters,
}

impl Store {
    /// Makes one without anything in it; the index is laid out as `saved`, if that makes sense.
    pub(crate) fn empty(
        backend: Arc<dyn Backend>,
        options: &Options,
        Identity { id, segment_bytes, .. }: Identity,
        saved: Option<Layout>,
    ) -> Self {
        let span_bits = segment_bytes.next_power_of_two().trailing_zeros();
        let segments = options.capacity.div_ceil(segment_bytes);
        let index = saved.and_then(|saved| Index::laid_out(saved, span_bits));
        Self {
            backend,
            sealer: options.sealer.clone(),
            id,
            capacity: if options.at_rest { ALL } else { options.capacity },
            segment_bytes,
            group_bytes: (segment_bytes / 4).min(GROUP_BYTES) as usize,
            span_bits,
            index: index.unwrap_or_else(|| Index::new(options.index, segments, span_bits)),
            ring: RwLock::default(),
            tail: RwLock::default(),
            writer: Mutex::new(Writer { next_segment: 1, next_container: 1, ..Writer::default() }),
            recent: Mutex::default(),
            refused: Refused::default(),
            delivered: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            others: BTreeMap::new(),
            strays: Vec::new(),
            missing: Vec::new(),
            is_as_found: AtomicBool::new(options.at_rest),
            counters: Counters::default(),
        }
    }

    /// Returns what tells this store from any other.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the address of an offset in a segment.
    pub(crate) fn address(&self, segment: u64, at: u32) -> u64 {
        (segment << self.span_bits) | u64::from(at)
    }

    /// Says whether a chunk may be there, without I/O, locks or allocation.
    ///
    /// It says yes to nearly everything that a read would find, and to less than 1 in 200 chunks that are not there.
    pub fn peek(&self, tag: u64, len: u32) -> bool {
        self.index.has(tag, Class::of(len))
    }

    /// Returns how far back it reaches.
    pub fn horizon(&self) -> Horizon {
        // Of all, since the order of the segments says little if the owner's clock was set back.
        let (mut oldest_s, mut newest_s) = (None, None);
        for segment in self.ring.read().iter() {
            let extent = segment.extent.read();
            if extent.containers > 0 {
                let (early, late) =
                    (extent.oldest_s.min(extent.newest_s), extent.oldest_s.max(extent.newest_s));
                oldest_s = Some(oldest_s.map_or(early, |oldest: u64| oldest.min(early)));
                newest_s = newest_s.max(Some(late));
            }
        }
        Horizon { oldest_s, newest_s, evicted_segments: self.counters.now().evicted_segments }
    }

    /// Returns what it has done since it was opened.
    pub fn counts(&self) -> Counts {
        self.counters.now()
    }

    /// Returns why it takes nothing, if the disk failed or [it is held up](Store::is_held_up).
    pub fn trouble(&self) -> Option<String> {
        self.writing().trouble().cloned()
    }
}

/// The smallest segments: room for one container of the greatest length, its footer and its summary.
pub const MIN_SEGMENT_BYTES: u64 = (2 * MAX_CONTAINER + (12 + 8) * MAX_PARTS).next_multiple_of(65_536) as u64;

/// More than any disk has.
const ALL: u64 = 1 << 60;

/// Bytes that are written at once.
const GROUP_BYTES: u64 = 1 << 20;
