//! The reading end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::container::{Container, HEADER, Lengths, Place};
use crate::index::Class;
use crate::segment::Segment;
use crate::{Fault, Store};

impl Store {
    /// Reads the chunk with this tag and length, if `check` accepts it.
    ///
    /// `check` compares content with the whole name, or as much of it as there is; it may be called with other
    /// content than that of the chunk. None if the chunk is not there: it never was, it is gone, or only another one
    /// with a similar tag is there. Large chunks take one request to the disk for exactly their bytes; those of less
    /// than 4 KiB one for their container, unless it was read recently. Unwritten content takes none.
    ///
    /// # Errors
    /// If the content is damaged or given up: it is forgotten, so the chunk can be stored again. Or if it cannot be
    /// read now: nothing is forgotten then, for a later read may succeed; but after a refusal of this very place, a
    /// block with the chunk is [stored](Store::insert) when it comes, although it is known.
    pub fn read(&self, tag: u64, len: u32, check: &dyn Fn(&[u8]) -> bool) -> Result<Option<Vec<u8>>, Fault> {
        self.read_telling(tag, len, check, &mut 0)
    }

    /// Reads a chunk, and counts its requests to the disk.
    pub(crate) fn read_telling(
        &self,
        tag: u64,
        len: u32,
        check: &dyn Fn(&[u8]) -> bool,
        requests: &mut u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let class = Class::of(len);
        let mut fault = None;
        for place in self.index.places(tag, class) {
            let found = match class {
                Class::Coarse => self.read_coarse(place, len, check, requests),
                Class::Medium | Class::Fine => self.read_small(place, tag, len, check, requests),
            };
            let is_refused = found.as_ref().is_err_and(|fault| !fault.is_lost());
            if found.as_ref().err().is_none_or(Fault::wants_again) {
                self.refused.note((class, place, len), is_refused);
            }
            match found {
                Ok(Some(bytes)) => {
                    self.count_hit(bytes.len());
                    return Ok(Some(bytes));
                }
                Ok(None) => {}
                Err(error) if error.is_lost() => fault = fault.or(Some(error)),
                Err(error) => {
                    fault = Some(error);
                    continue;
                }
            }
            // Or a store in the belief of having the chunk would not take it when it comes again.
            self.index.forget(tag, class, place);
        }
        match fault {
            Some(fault) => {
                let counter = match &fault {
                    Fault::Damaged { .. } | Fault::Broken { .. } => &self.counters.faults,
                    Fault::GivenUp { .. } => &self.counters.given_up,
                    Fault::Io { .. } | Fault::NotTried { .. } | Fault::Hangs => &self.counters.unreadable,
                };
                counter.add(1);
                Err(fault)
            }
            None => {
                self.counters.absent.add(1);
                Ok(None)
            }
        }
    }

    /// Counts a found chunk.
    pub(crate) fn count_hit(&self, bytes: usize) {
        self.counters.hits.add(1);
        self.counters.hit_bytes.add(bytes as u64);
    }

    fn read_coarse(
        &self,
        address: u64,
        len: u32,
        check: &dyn Fn(&[u8]) -> bool,
        requests: &mut u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let (number, at) = (address >> self.span_bits, (address & ((1 << self.span_bits) - 1)) as u32);
        let Some(segment) = self.segment(number) else { return Ok(None) };
        let bytes = match self.bytes_at(&segment, at, len as usize, requests)? {
            Some(bytes) if check(&bytes) => return Ok(Some(bytes)),
            Some(bytes) => bytes,
            None => return Ok(None),
        };
        // Either another chunk lies here, or this one is damaged. Its container knows.
        drop(bytes);
        let container = segment.container_at(at).and_then(|index| match index {
            Some(index) => self.load_telling(&segment, index, requests),
            None => Ok(None),
        });
        match container {
            Err(fault) if fault.is_damage() => Err(fault),
            // In each case the chunk is not here.
            _ => Ok(None),
        }
    }

    fn read_small(
        &self,
        number: u64,
        tag: u64,
        len: u32,
        check: &dyn Fn(&[u8]) -> bool,
        requests: &mut u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(found) = self.tail.read().in_open(number, tag, len) {
            return Ok(found.filter(|bytes| check(bytes)));
        }
        let Some(container) = self.container(number, requests)? else { return Ok(None) };
        Ok(container.find(tag, len).filter(|bytes| check(bytes)).map(<[u8]>::to_vec))
    }

    /// Returns a container by its number, from memory if it was one of the last.
    fn container(&self, number: u64, requests: &mut u32) -> Result<Option<Arc<Container>>, Fault> {
        let mut recent = self.recent.lock();
        if let Some(at) = recent.iter().position(|(known, _)| *known == number) {
            let found = recent.remove(at);
            let container = found.as_ref().map(|(_, container)| Arc::clone(container));
            recent.extend(found);
            return Ok(container);
        }
        drop(recent);
        let Some((segment, index)) = self.holder(number) else { return Ok(None) };
        let Some(container) = self.load_telling(&segment, index, requests)?.map(Arc::new) else {
            return Ok(None);
        };
        let mut recent = self.recent.lock();
        recent.push_back((number, Arc::clone(&container)));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        Ok(Some(container))
    }

    /// Reads a container and compares it with its check.
    pub(crate) fn load(&self, segment: &Segment, index: usize) -> Result<Option<Container>, Fault> {
        self.load_telling(segment, index, &mut 0)
    }

    fn load_telling(
        &self,
        segment: &Segment,
        index: usize,
        requests: &mut u32,
    ) -> Result<Option<Container>, Fault> {
        let Some((at, len)) = self.unless_gone(segment, segment.container(index))? else { return Ok(None) };
        let read = match self.bytes_at(segment, at, len, requests) {
            Err(fault) => match self.own_len(segment, at, len, requests) {
                Some(len) => self.bytes_at(segment, at, len, requests),
                None => Err(fault),
            },
            read => read,
        };
        let Some(mut bytes) = read? else { return Ok(None) };
        let damaged = |what| segment.file.damaged(u64::from(at), what);
        let lengths = Lengths::decode(&bytes).ok_or_else(|| damaged("no container where one was written"))?;
        bytes.truncate(lengths.total());
        let place = Place { store: self.id, segment: segment.number, at: u64::from(at) };
        Container::decode(bytes, place).map(Some).ok_or_else(|| damaged("container fails its check"))
    }

    /// Returns the length in a container's header, if it takes fewer pages than were read in vain: in a crashed
    /// segment, an unreadable place may lie between it and the next container found.
    fn own_len(&self, segment: &Segment, at: u32, read: usize, requests: &mut u32) -> Option<usize> {
        if segment.extent.read().has_footer || segment.is_aside() {
            return None;
        }
        self.counters.disk_reads.add(1);
        *requests += 1;
        // Not as a read of the segment: a readable header proves little about the rest of it.
        let header = segment.file.read(u64::from(at), HEADER).ok()?;
        let own = Lengths::decode(&header)?.total();
        let last_page = |len: usize| (at as usize + len - 1) / segment.file.payload();
        (last_page(own) < last_page(read)).then_some(own)
    }

    /// Returns bytes of a segment from memory or disk; none if there is nothing, or no longer.
    fn bytes_at(
        &self,
        segment: &Segment,
        at: u32,
        len: usize,
        requests: &mut u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(bytes) = self.tail.read().read(segment.number, at, len) {
            return Ok(Some(bytes));
        }
        if u64::from(at) + len as u64 > u64::from(segment.extent.read().end) {
            return Ok(None);
        }
        if !segment.is_aside() {
            self.counters.disk_reads.add(1);
            *requests += 1;
        }
        let read = segment.read(u64::from(at), len);
        if read.is_ok() {
            self.delivered.store(true, Ordering::Relaxed);
        }
        self.unless_gone(segment, read.map(Some))
    }

    /// Ignores apparent damage in a segment evicted during the read.
    fn unless_gone<T>(&self, segment: &Segment, read: Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
        match read {
            Err(fault) if fault.is_damage() && self.segment(segment.number).is_none() => Ok(None),
            read => read,
        }
    }
}

/// Recently read containers in memory: at most 3 MiB.
const RECENT: usize = 16;
