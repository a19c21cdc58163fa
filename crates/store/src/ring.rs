//! The ring of segments: finding one, letting one go, and which of them the disk refuses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::segment::Segment;
use crate::writer::Writer;
use crate::{Store, summary};

impl Store {
    /// Returns how many segments are set aside: the disk refuses to read them. Nothing that is in them is forgotten, but
    /// for those that are [given up](Store::given_up).
    pub fn set_aside(&self) -> usize {
        self.ring.read().iter().filter(|segment| segment.is_aside()).count()
    }

    /// Returns how many segments are given up: the disk refused them each time that they were tried again, while it read
    /// others. What is in them is forgotten as it is asked for, so that it is stored again; their files stay until their
    /// turn in the ring comes, and the next start looks into them anew.
    pub fn given_up(&self) -> usize {
        self.ring.read().iter().filter(|segment| segment.is_given_up()).count()
    }

    /// Lets the disk be asked once more for what is in segments that are set aside, and returns the files of those that
    /// are given up from now on. When to, is the owner's to say: a disk that refuses may take seconds to do so, and
    /// [`ROUNDS_TO_GIVE_UP`] times that it refuses what it was asked in between count as proof. A round in which the disk
    /// read nothing else proves nothing.
    pub fn try_again(&self) -> Vec<String> {
        let delivers = self.delivered.swap(false, Ordering::Relaxed);
        // What is put goes to this one, whatever is known of it.
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

    /// Returns the segment that has a container, and which of its containers that is.
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

    /// Lets a segment go, wherever it is in the ring, and returns how many bytes its files gave back, 0 if the disk keeps
    /// any of them; none if it is not there.
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
        // An index that is still there no longer matches the files, so it is in nobody's way if this fails.
        let _ = self.leave_as_found();
        // A file that stays is found and removed, or taken up, by the next start.
        let removed = match gone.has_summary() {
            true => self.backend.remove_all(&[gone.file.name().to_owned(), summary::file_name(number)]),
            false => gone.file.remove(),
        };
        Some(removed.map_or(0, |()| gone.file_bytes()))
    }

    /// Frees the memory of the offsets of containers that no entry of a small chunk can point to any more. They are
    /// needed again only to say what is damaged.
    pub(crate) fn shed_offsets(&self, writer: &Writer) {
        let reach = writer.next_container.saturating_sub(self.index.reach());
        let ring = self.ring.read();
        let old = ring.partition_point(|segment| {
            segment.first_container + u64::from(segment.extent.read().containers) <= reach
        });
        // Those before one that has none have none either, or no footer.
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

/// Rounds of [`Store::try_again`] in a row, with reads of something else in each, in which the disk refuses a segment
/// before it is given up.
pub const ROUNDS_TO_GIVE_UP: u32 = 4;
