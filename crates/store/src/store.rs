//! The store: its parts, and its state.

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
    /// The most bytes of disk for its segments; at least two segments. Less than last time evicts the oldest.
    pub capacity: u64,
    /// Bytes of a segment, from [`MIN_SEGMENT_BYTES`] to 4 GiB, a multiple of 4096. An existing store keeps its
    /// original size.
    pub segment_bytes: u64,
    /// Memory for the index.
    pub index: IndexMemory,
    /// The id of a new store: random, since ends tell stores apart by it.
    pub id: u64,
    /// Encrypts the files; files of another key, or of none, are not taken up.
    pub sealer: Option<Arc<Sealer>>,
    /// Opened for a look or for rewriting as it is, without going on: nothing goes although `capacity` is exceeded,
    /// and the index is laid out as it was saved, if it was; else `capacity` and `index` give the layout. As long as
    /// nothing is written, the saved index stays, and nothing is saved anew.
    pub at_rest: bool,
}

/// How far a store reaches back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The earliest time of a present block, on the owner's clock; none if there is no block. Earlier content is
    /// gone.
    pub oldest_s: Option<u64>,
    /// The latest time of one. With a clock continued from here, no block gets an earlier time than those before it.
    pub newest_s: Option<u64>,
    /// Segments evicted since the opening; while it stays the same, nothing has gone.
    pub evicted_segments: u64,
}

/// An open store; shared by any number of threads.
///
/// Dropping it has the effect of a kill. [`Store::close`] writes the content of memory and the index, so the next
/// start is quick.
pub struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sealer: Option<Arc<Sealer>>,
    pub(crate) id: u64,
    pub(crate) capacity: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) group_bytes: usize,
    /// Bits of an address for the offset in its segment.
    pub(crate) span_bits: u32,
    pub(crate) index: Index,
    pub(crate) ring: RwLock<VecDeque<Arc<Segment>>>,
    pub(crate) tail: RwLock<Tail>,
    pub(crate) writer: Mutex<Writer>,
    /// Recently read containers, since requests for a chunk are followed by those for its neighbours.
    pub(crate) recent: Mutex<VecDeque<(u64, Arc<Container>)>>,
    /// Places refused by the disk.
    pub(crate) refused: Refused,
    /// Whether the disk read anything since segments were tried again last.
    pub(crate) delivered: AtomicBool,
    /// Whether any segment was ever given up.
    pub(crate) gave_up: AtomicBool,
    /// Other things with the name of a segment at the opening, each with the reason.
    pub(crate) others: BTreeMap<String, &'static str>,
    /// Files with numbers [far beyond](crate::stray) the ring.
    pub(crate) strays: Vec<Arc<Segment>>,
    /// Segments of the saved index missing at the opening, in a store at rest.
    pub(crate) missing: Vec<(String, Flaw)>,
    /// Whether the saved index is still to be removed before any change: an opening at rest left it.
    pub(crate) is_as_found: AtomicBool,
    pub(crate) counters: Counters,
}

impl Store {
    /// Makes one without anything in it; the index is laid out as `saved`, if possible.
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

    /// Returns the store's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the address of an offset in a segment.
    pub(crate) fn address(&self, segment: u64, at: u32) -> u64 {
        (segment << self.span_bits) | u64::from(at)
    }

    /// Says whether a chunk may be there, without I/O, locks or allocation.
    ///
    /// It says yes to nearly all readable chunks, and to less than 1 in 200 absent ones.
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

    /// Returns the counts since the opening.
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

/// Bytes of one write.
const GROUP_BYTES: u64 = 1 << 20;
