//! The index in memory: probable places of chunks, by size of the chunk.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::table::{Put, Table, Window};

/// Bytes of memory for the index of each size of chunks.
///
/// An entry of a large chunk takes 8 bytes and is found as long as the table is at most nine tenths full; one of a
/// smaller chunk takes 4. A full table forgets its oldest entries first: small chunks are remembered while they are
/// recent, large ones for their lifetime in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexMemory {
    /// Chunks of 4 KiB and more.
    pub coarse: u64,
    /// Chunks from 512 bytes to 4 KiB.
    pub medium: u64,
    /// Chunks of less than 512 bytes.
    pub fine: u64,
}

impl IndexMemory {
    /// Divides an amount of memory among the sizes for a store of `capacity` bytes: large chunks get at most half, and
    /// no more than a dozen of them in 64 KiB need; smaller ones share the rest.
    pub fn divide(memory: u64, capacity: u64) -> Self {
        let coarse = Self::of_large(capacity).min(memory / 2);
        let medium = (memory - coarse) / 2;
        Self { coarse, medium, fine: memory - coarse - medium }
    }

    /// Returns the least memory from which [`divide`](Self::divide) makes an index with all large chunks of the
    /// store.
    pub fn needed(capacity: u64) -> u64 {
        Self::of_large(capacity) * 2
    }

    /// Returns the bytes of the youngest content with indexed large chunks, at a dozen of them in 64 KiB; twice that
    /// and more with chunks of 64 KiB alone.
    pub fn reach(self) -> u64 {
        self.coarse / LARGE_OF_A_ROOT * 65_536
    }

    fn of_large(capacity: u64) -> u64 {
        (capacity / 65_536 + 1).saturating_mul(LARGE_OF_A_ROOT)
    }

    /// Returns the sum.
    pub fn total(self) -> u64 {
        self.coarse + self.medium + self.fine
    }
}

/// Bytes of index for the large chunks of 64 KiB: a dozen of 8 bytes, and a fifth of empty slots.
const LARGE_OF_A_ROOT: u64 = 12 * 10;

/// Size classes of chunks in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 4 KiB and more: the place is the exact address.
    Coarse,
    /// Less: the place is the container.
    Medium,
    /// Less than 512 bytes.
    Fine,
}

impl Class {
    pub(crate) fn of(len: u32) -> Self {
        match len {
            4096.. => Self::Coarse,
            512.. => Self::Medium,
            _ => Self::Fine,
        }
    }
}

/// Bytes of the three tables, and how many bits of a slot are the place in each, a byte each.
pub(crate) type Layout = [u64; 4];

/// The tables, and the window of valid places.
pub(crate) struct Index {
    pub(crate) coarse: Table<AtomicU64>,
    pub(crate) medium: Table<AtomicU32>,
    pub(crate) fine: Table<AtomicU32>,
    /// Addresses in the ring.
    pub(crate) addresses: Bounds,
    /// Numbers of containers.
    pub(crate) containers: Bounds,
    /// Whether everything is being written again: entries out of reach meanwhile are still to move.
    is_rewritten: AtomicBool,
}

/// The valid places at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    addresses: Window,
    medium: Window,
    fine: Window,
}

/// A window, moved forward by one thread under concurrent readers.
#[derive(Debug)]
pub(crate) struct Bounds {
    oldest: AtomicU64,
    head: AtomicU64,
}

impl Bounds {
    fn at(place: u64) -> Self {
        Self { oldest: AtomicU64::new(place), head: AtomicU64::new(place) }
    }

    pub(crate) fn window(&self) -> Window {
        // In this order: both only grow, so the head is never behind the oldest.
        let oldest = self.oldest.load(Ordering::Acquire);
        Window { oldest, head: self.head.load(Ordering::Acquire) }
    }

    pub(crate) fn set_head(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    pub(crate) fn set_oldest(&self, oldest: u64) {
        self.head.fetch_max(oldest, Ordering::Release);
        self.oldest.store(oldest, Ordering::Release);
    }
}

impl Index {
    /// Makes an empty index for a ring of so many segments, with addresses of so many bits. Addresses are told apart
    /// over four turns of the ring, and [more](numbers_bits) for short segments; containers within a table's reach at
    /// 64 small or 16 medium chunks each, a quarter of a tree of 64 KiB. Bits of a slot beyond the place sharpen its
    /// print.
    pub(crate) fn new(memory: IndexMemory, segments: u64, span_bits: u32) -> Self {
        let addresses = segments << span_bits;
        let containers = |bytes: u64, each: u64| (bytes / 4 / each).min(addresses / CONTAINER_BYTES) * 2;
        Self {
            coarse: Table::new(
                memory.coarse,
                addresses.saturating_mul(4).max((1 << numbers_bits(span_bits)) - 1),
            ),
            medium: Table::new(memory.medium, containers(memory.medium, 16)),
            fine: Table::new(memory.fine, containers(memory.fine, 64)),
            addresses: Bounds::at(0),
            containers: Bounds::at(0),
            is_rewritten: AtomicBool::new(false),
        }
    }

    /// Makes empty tables with a saved layout; none if it is impossible. Addresses take no fewer bits than in a new
    /// index; an earlier build's may: they are then indexed anew.
    pub(crate) fn laid_out([coarse, medium, fine, bits]: Layout, span_bits: u32) -> Option<Self> {
        let bits = |class: u32| (bits >> (16 - 8 * class)) as u32 & 0xff;
        let index = Self {
            coarse: Table::laid_out(coarse, bits(0).max(numbers_bits(span_bits)))?,
            medium: Table::laid_out(medium, bits(1))?,
            fine: Table::laid_out(fine, bits(2))?,
            addresses: Bounds::at(0),
            containers: Bounds::at(0),
            is_rewritten: AtomicBool::new(false),
        };
        Some(index)
    }

    pub(crate) fn memory(&self) -> IndexMemory {
        IndexMemory { coarse: self.coarse.memory(), medium: self.medium.memory(), fine: self.fine.memory() }
    }

    /// Returns how many of the last containers entries of small chunks can point to.
    pub(crate) fn reach(&self) -> u64 {
        1 << self.medium.place_bits().max(self.fine.place_bits())
    }

    /// Describes the tables' layout; saved tables fit no other.
    pub(crate) fn layout(&self) -> Layout {
        let memory = self.memory();
        let bits = [self.coarse.place_bits(), self.medium.place_bits(), self.fine.place_bits()];
        let bits = bits.into_iter().fold(0, |all, bits| (all << 8) | u64::from(bits));
        [memory.coarse, memory.medium, memory.fine, bits]
    }

    /// Describes how the tables of small chunks are laid out: keys of one layout mean nothing in another.
    pub(crate) fn small_layout(&self) -> [u64; 3] {
        let [_, medium, fine, bits] = self.layout();
        [medium, fine, bits & 0xffff]
    }

    /// Returns the table of small chunks of a class; the fine one for all but one.
    pub(crate) fn small(&self, class: Class) -> &Table<AtomicU32> {
        match class {
            Class::Medium => &self.medium,
            Class::Coarse | Class::Fine => &self.fine,
        }
    }

    /// Points small chunks of a class, by their keys, to their container.
    pub(crate) fn put_keys(&self, class: Class, keys: &[u64], container: u64) {
        let (table, window) = (self.small(class), self.numbers(self.small(class)));
        // As in `touch`.
        black_box(keys.iter().fold(0, |all, key| all ^ table.touch_key(*key)));
        keys.iter().for_each(|key| table.put_key(*key, container, window));
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.coarse.clear();
        self.medium.clear();
        self.fine.clear();
    }

    pub(crate) fn has(&self, tag: u64, class: Class) -> bool {
        match class {
            Class::Coarse => self.coarse.has(tag, self.addresses.window()),
            Class::Medium => self.medium.has(tag, self.numbers(&self.medium)),
            Class::Fine => self.fine.has(tag, self.numbers(&self.fine)),
        }
    }

    /// Returns the valid places at this moment.
    pub(crate) fn windows(&self) -> Windows {
        let (medium, fine) = (self.numbers(&self.medium), self.numbers(&self.fine));
        Windows { addresses: self.addresses.window(), medium, fine }
    }

    /// Returns the valid containers of a table of small chunks.
    fn numbers(&self, table: &Table<AtomicU32>) -> Window {
        let window = self.containers.window();
        if self.is_rewritten.load(Ordering::Relaxed) { window } else { table.within_reach(window) }
    }

    /// Moves on by one container; small chunks too far back to be told apart go.
    pub(crate) fn begin_container(&self, head: u64) {
        self.containers.set_head(head);
        if !self.is_rewritten.load(Ordering::Relaxed) {
            [&self.medium, &self.fine].into_iter().for_each(|table| table.age(self.numbers(table)));
        }
    }

    /// Lets no small chunk go for as long as everything is written again, since as many containers as there are come
    /// before it moves.
    pub(crate) fn set_rewritten(&self, is_rewritten: bool) {
        self.is_rewritten.store(is_rewritten, Ordering::Relaxed);
    }

    /// Counts the valid entries of each table, of large ones by an estimate.
    pub(crate) fn live(&self) -> [u64; 3] {
        let Windows { addresses, medium, fine } = self.windows();
        [self.coarse.live(addresses), self.medium.live(medium), self.fine.live(fine)]
    }

    /// Returns the candidate places of a chunk.
    pub(crate) fn places(&self, tag: u64, class: Class) -> Vec<u64> {
        self.places_in(tag, class, self.windows())
    }

    /// Returns the candidate places of a chunk, among those valid at a moment.
    pub(crate) fn places_in(&self, tag: u64, class: Class, windows: Windows) -> Vec<u64> {
        let mut places = Vec::new();
        let collect = |place| {
            places.push(place);
            ControlFlow::<()>::Continue(())
        };
        let _ = match class {
            Class::Coarse => self.coarse.probe(tag, windows.addresses, collect),
            Class::Medium => self.medium.probe(tag, windows.medium, collect),
            Class::Fine => self.fine.probe(tag, windows.fine, collect),
        };
        places
    }

    /// Prefetches the lines of these chunks. Misses in sequence overlap; each by itself costs more than all other
    /// work for a chunk.
    pub(crate) fn touch(&self, chunks: impl Iterator<Item = (u64, Class)>) {
        let touched = chunks.fold(0, |all, (tag, class)| {
            all ^ match class {
                Class::Coarse => self.coarse.touch(tag),
                Class::Medium => self.medium.touch(tag),
                Class::Fine => self.fine.touch(tag),
            }
        });
        black_box(touched);
    }

    /// Points a chunk to its address and container.
    pub(crate) fn put(&self, tag: u64, class: Class, address: u64, container: u64) -> Put {
        match class {
            Class::Coarse => self.coarse.put(tag, address, self.addresses.window()),
            Class::Medium => self.medium.put(tag, container, self.numbers(&self.medium)),
            Class::Fine => self.fine.put(tag, container, self.numbers(&self.fine)),
        }
    }

    pub(crate) fn forget(&self, tag: u64, class: Class, place: u64) {
        match class {
            Class::Coarse => self.coarse.forget(tag, place),
            Class::Medium => self.medium.forget(tag, place),
            Class::Fine => self.fine.forget(tag, place),
        }
    }
}

/// Returns the bits of an address for 65,536 distinct segments. Each start, and each sync on a full disk, may leave a
/// short segment. The ring has room for far more of these than of whole ones, and each takes a number.
const fn numbers_bits(span_bits: u32) -> u32 {
    16 + span_bits
}

/// The least length of two neighbouring containers, unless closed early.
const CONTAINER_BYTES: u64 = 32_768;
