//! The ring of segments: lookup, eviction, and refusals of the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::segment::Segment;
use crate::writer::Writer;
use crate::{Store, summary};

impl Store {
    /// Returns the number of segments set aside: the disk refuses to read them. Nothing in them is forgotten, except
    /// in [given-up](Store::given_up) ones.
    pub fn set_aside(&self) -> usize {
        self.ring.read().iter().filter(|segment| segment.is_aside()).count()
    }

    /// Returns the number of given-up segments: the disk refused each retry, but read others. Their content is
    /// forgotten on request, so it is stored again; their files stay until their turn in the ring, and the next start
    /// looks into them anew.
    pub fn given_up(&self) -> usize {
        self.ring.read().iter().filter(|segment| segment.is_given_up()).count()
    }

    /// Lets the disk be asked once more for segments set aside, and returns the files newly given up. The owner
    /// decides the time: a refusing disk may take seconds to do so, and [`ROUNDS_TO_GIVE_UP`] refusals of requests in
    /// between count as proof. A round without any other successful read proves nothing.
    pub fn try_again(&self) -> Vec<String> {
        let delivers = self.delivered.swap(false, Ordering::Relaxed);
        // New content goes to this one, in any state.
        let filled = self.tail.read().segment.as_ref().map(|segment| segment.number);
        let mut given_up = Vec::new();
        for segment in self.ring.read().iter() {
            if segment.begin_round(delivers && Some(segment.number) != filled) {
                given_up.push(segment.file.name().to_owned());
            }
        }
        if !given_up.is_empty() {
            self.gave_up.store(true, Ordering::Relaxed);
        }
        given_up
    }

    /// Returns a segment by its number.
    pub(crate) fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        let ring = self.ring.read();
        let at = ring.binary_search_by_key(&number, |segment| segment.number).ok()?;
        ring.get(at).cloned()
    }

    /// Returns the segment of a container, and its index within.
    pub(crate) fn holder(&self, container: u64) -> Option<(Arc<Segment>, usize)> {
        let ring = self.ring.read();
        let at = ring.partition_point(|segment| segment.first_container <= container).checked_sub(1)?;
        let segment = ring.get(at)?;
        Some((Arc::clone(segment), (container - segment.first_container) as usize))
    }

    /// Returns bytes of all segments' files and of their summaries.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.ring.read().iter().map(|segment| segment.file_bytes()).sum()
    }

    /// Says whether the index cannot tell the oldest segment from one with this number.
    pub(crate) fn outruns_index(&self, number: u64) -> bool {
        let numbers = self.index.coarse.place_bits() - self.span_bits;
        self.ring.read().front().is_some_and(|front| (number - front.number) >> numbers > 0)
    }

    /// Lets the oldest segment go if it is older than this one, and returns how many bytes its files gave back; none if
    /// there is no such segment.
    pub(crate) fn evict_before(&self, writer: &Writer, number: u64) -> Option<u64> {
        let oldest = self.ring.read().front().map(|front| front.number);
        self.let_go(writer, oldest.filter(|oldest| *oldest < number)?)
    }

    /// Evicts a segment anywhere in the ring, and returns the bytes given back by its files, 0 if the disk keeps any
    /// of them; none if it is not there.
    pub(crate) fn let_go(&self, writer: &Writer, number: u64) -> Option<u64> {
        let gone = {
            let mut ring = self.ring.write();
            let at = ring.binary_search_by_key(&number, |segment| segment.number);
            let gone = at.ok().and_then(|at| ring.remove(at))?;
            let (segment, container) =
                ring.front().map_or((writer.next_segment, writer.next_container), |front| {
                    (front.number, front.first_container)
                });
            self.index.addresses.set_oldest(segment << self.span_bits);
            self.index.containers.set_oldest(container);
            gone
        };
        self.counters.evicted_segments.add(1);
        // A remaining index no longer matches the files, so it does no harm if this fails.
        let _ = self.leave_as_found();
        // A remaining file is found and removed, or taken up, by the next start.
        let removed = match gone.has_summary() {
            true => self.backend.remove_all(&[gone.file.name().to_owned(), summary::file_name(number)]),
            false => gone.file.remove(),
        };
        Some(removed.map_or(0, |()| gone.file_bytes()))
    }

    /// Frees the memory of container offsets beyond the reach of small chunks' entries. They are needed again only to
    /// report damage.
    pub(crate) fn shed_offsets(&self, writer: &Writer) {
        let reach = writer.next_container.saturating_sub(self.index.reach());
        let ring = self.ring.read();
        let old = ring.partition_point(|segment| {
            segment.first_container + u64::from(segment.extent.read().containers) <= reach
        });
        // Those before one without offsets have none either, or no footer.
        for segment in ring.iter().take(old).rev() {
            let extent = segment.extent.read();
            let is_done = extent.has_footer && extent.starts.is_empty();
            drop(extent);
            if is_done {
                return;
            }
            segment.shed();
        }
    }
}

/// Rounds of [`Store::try_again`] in a row, with other successful reads in each, in which the disk refuses a segment
/// before it is given up.
pub const ROUNDS_TO_GIVE_UP: u32 = 4;
