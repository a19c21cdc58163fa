//! Rebuilding the index of small chunks, from summaries or containers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::ahead::Ahead;
use crate::container::{Container, Lengths, Place};
use crate::index::Class;
use crate::paged::{Header, Kind, PAGE, Paged};
use crate::recover::Opened;
use crate::segment::{Coarse, Extent, Segment};
use crate::summary::{self, Lists, Summary};
use crate::{Fault, Progress, Store};

/// The first relevant segments of the ring for the index of small chunks.
struct Reach {
    /// The first whose containers are read for lack of a summary: from here on there are as many chunks as slots.
    read: usize,
    /// The first with room in the fine table for all later chunks.
    fine: usize,
    /// The first relevant to any table.
    any: usize,
}

impl Store {
    /// Indexes the small chunks of the youngest segments, as many as fit, the oldest of them first. `summaries` are
    /// the lengths of the existing ones.
    pub(crate) fn rebuild_small(
        &self,
        summaries: &BTreeMap<u64, u64>,
        opened: &mut Opened,
        progress: &Progress,
    ) -> io::Result<()> {
        let segments: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        let reach = self.reach(&segments);
        let first = reach.any.min(reach.read);
        progress.advance(first as u64)?;
        for (i, segment) in segments.iter().enumerate().skip(first) {
            let is_empty = segment.extent.read().small == Some([0; 2]);
            let summary = summaries.get(&segment.number).filter(|_| !is_empty);
            let is_read = summary.is_some_and(|len| self.read_summary(segment, *len, i >= reach.fine));
            if !is_empty && !is_read && i >= reach.read {
                self.read_containers(segment, opened, progress)?;
            }
            progress.advance(1)?;
        }
        Ok(())
    }

    /// Indexes the small chunks of a segment by its summary; says whether there is a sound one.
    fn read_summary(&self, segment: &Segment, len: u64, with_fine: bool) -> bool {
        let (name, sealer) = ((self.id, segment.number), self.sealer.as_deref());
        let summary = Summary::read(&self.backend, sealer, name, len, with_fine);
        let summary = summary.filter(|summary| summary.fits(&segment.extent.read(), &self.index));
        summary.is_some_and(|summary| summary.put(&self.index, segment.first_container, with_fine))
    }

    /// Indexes the small chunks of a segment by its containers, and makes a summary of them.
    fn read_containers(&self, segment: &Segment, opened: &mut Opened, progress: &Progress) -> io::Result<()> {
        let (containers, file_len) = {
            let extent = segment.extent.read();
            (extent.containers as usize, extent.file_len)
        };
        let (mut lists, mut ahead) = (Lists::default(), Ahead::new(&segment.file, file_len));
        for i in 0..containers {
            let container = match self.container_ahead(segment, &mut ahead, i) {
                Some(container) => Ok(Some(container)),
                None => self.load(segment, i),
            };
            match container {
                Ok(Some(container)) => {
                    let chunks = container.parts.iter().map(|part| (part.tag, Class::of(part.len)));
                    let small = chunks.filter(|(_, class)| *class != Class::Coarse);
                    self.index.touch(small.clone());
                    for (tag, class) in small {
                        self.index.put(tag, class, 0, segment.first_container + i as u64);
                    }
                    lists.add(&self.index, &container.parts);
                }
                Ok(None) => {}
                Err(Fault::NotTried { .. }) => break,
                Err(fault) => {
                    // One bad place costs the small chunks of a container, less than such a start each time.
                    if !fault.wants_again() {
                        segment.found_in_part();
                    }
                    opened.note(fault.to_string());
                }
            }
            progress.advance(0)?;
        }
        if segment.is_aside() {
            segment.found_in_part();
        }
        self.summarize(segment, &lists, None);
        Ok(())
    }

    /// Takes a container from the read-ahead, if it is there and sound.
    fn container_ahead(&self, segment: &Segment, ahead: &mut Ahead<'_>, index: usize) -> Option<Container> {
        let (at, len) = segment.container(index).ok()??;
        let bytes = ahead.get(u64::from(at), len)?;
        let own = Lengths::decode(bytes)?.total();
        let place = Place { store: self.id, segment: segment.number, at: u64::from(at) };
        Container::decode(bytes.get(..own)?.to_vec(), place)
    }

    /// Writes the summary of a closed segment, if `lists` has all of its containers; of one without a footer,
    /// `coarse` are its large chunks.
    ///
    /// It is not synced, and an error is none: without a sound one, the next start reads the segment. Returns the number
    /// of the segment and the length of the summary's file.
    pub(crate) fn summarize(
        &self,
        segment: &Segment,
        lists: &Lists,
        coarse: Option<&[Coarse]>,
    ) -> Option<(u64, u64)> {
        let extent = segment.extent.read().clone();
        let is_of_use = coarse.is_some() || (extent.has_footer && extent.small != Some([0; 2]));
        if !is_of_use || lists.containers != extent.containers || self.is_only_looked_at() {
            return None;
        }
        let seed = Segment::footer_seed(self.id, segment.number);
        let summary = lists.summary(&extent, coarse, self.index.small_layout(), seed);
        let written = self.write_summary(segment.number, summary);
        if written.is_err() {
            // A remaining file is removed with its segment's, or by the next start.
            let _ = self.backend.remove(&summary::file_name(segment.number));
        }
        segment.note_summary(*written.as_ref().unwrap_or(&0));
        Some((segment.number, written.ok()?))
    }

    /// Returns the length of the file.
    fn write_summary(&self, number: u64, mut summary: Vec<u8>) -> io::Result<u64> {
        let header = Header { kind: Kind::Summary, store: self.id, number };
        let len = summary::file_len(summary.len());
        let name = summary::file_name(number);
        let file = Paged::create(&self.backend, self.sealer.as_deref(), name, len, header)?;
        summary.resize(summary.len().next_multiple_of(file.payload()), 0);
        file.write(0, &summary)?;
        self.counters.written_bytes.add(PAGE as u64 + file.taken(0, summary.len()));
        Ok(len)
    }

    /// Removes the summaries of segments with footers and too old for the index of small chunks.
    pub(crate) fn shed_summaries(&self) {
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        let reach = self.reach(&ring);
        let is_done = |segment: &&Arc<Segment>| segment.has_summary() && segment.extent.read().has_footer;
        let old: Vec<_> = ring.iter().take(reach.any.min(reach.read)).filter(is_done).collect();
        if old.is_empty() {
            return;
        }
        let names: Vec<String> = old.iter().map(|segment| summary::file_name(segment.number)).collect();
        // A remaining file is removed with its segment, or by the next start.
        let _ = self.backend.remove_all(&names);
        old.iter().for_each(|segment| segment.note_summary(0));
    }

    /// Notes the segments with summaries, and removes the summaries of missing ones, the remains of a crash between
    /// both removals.
    pub(crate) fn take_summaries(&self, summaries: &BTreeMap<u64, u64>) {
        let mut of_none = Vec::new();
        for (number, len) in summaries {
            match self.segment(*number) {
                Some(segment) => segment.note_summary(*len),
                None => of_none.push(summary::file_name(*number)),
            }
        }
        if !of_none.is_empty() && !self.is_only_looked_at() {
            let _ = self.backend.remove_all(&of_none);
        }
    }

    fn reach(&self, ring: &[Arc<Segment>]) -> Reach {
        // Lines fill unevenly: chunks a quarter older still find a place here and there.
        let of_table = |class| self.index.small(class).slots() / 4 * 5;
        let slots = self.index.medium.slots() + self.index.fine.slots();
        let levels = |extent: &Extent| extent.levels.iter().map(|level| u64::from(level.chunks)).sum();
        let medium = first_within(ring, of_table(Class::Medium), |extent| extent.small_chunks()[0]);
        let fine = first_within(ring, of_table(Class::Fine), |extent| extent.small_chunks()[1]);
        Reach { read: first_within(ring, slots, levels), fine, any: medium.min(fine) }
    }
}

/// Returns the first segment from which on hardly more relevant chunks exist than fit.
fn first_within(ring: &[Arc<Segment>], mut room: u64, count: impl Fn(&Extent) -> u64) -> usize {
    let mut first = ring.len();
    for (i, segment) in ring.iter().enumerate().rev() {
        let chunks = count(&segment.extent.read());
        if chunks > 0 {
            first = i;
        }
        room = room.saturating_sub(chunks);
        if room == 0 {
            break;
        }
    }
    first
}
