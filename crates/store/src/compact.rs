//! Compaction: rewriting a store without damaged, superseded and unreadable content.

use std::io;
use std::sync::Arc;

use crate::container::{Container, HEADER};
use crate::index::{Class, Windows};
use crate::segment::Segment;
use crate::writer::Writer;
use crate::{Fault, Faults, Part, Progress, Store};

/// The results of rewriting.
#[derive(Debug, Default)]
pub struct Compacted {
    /// Rewritten containers.
    pub kept: u64,
    /// Containers without live content: found elsewhere, or nowhere any more.
    pub superseded: u64,
    /// Containers evicted for the requested size, the oldest first. They were not read, so damaged ones are among
    /// them.
    pub let_go: u64,
    /// Damaged and gone content.
    pub damaged: Faults,
    /// Containers unreadable in otherwise readable segments, and segments partly hidden by the disk at the opening:
    /// their unread content is gone.
    pub lost: Faults,
    /// Unreadable segments, and other files with the name of a segment: they stay as they are.
    pub left: Faults,
    /// Bytes of disk before.
    pub before: u64,
    /// Bytes of disk afterwards.
    pub after: u64,
}

impl Store {
    /// Writes all sound and indexed content again, in its order, and lets the old segments go.
    ///
    /// With `shrink_to` the oldest go first until the rest takes no more bytes of disk. It takes the room of about
    /// two segments beyond the capacity meanwhile, without evicting any for it. Work for a time without other
    /// writers. `progress` counts bytes of files.
    ///
    /// A place refused by the disk three times in a row is left behind if the disk reads other containers of the same
    /// segment and takes them elsewhere. A segment without any readable part stays, since an absent disk is no proof
    /// of loss.
    ///
    /// # Errors
    /// If the disk refuses to write, the process may read no more files, or it is cancelled; unfinished content stays
    /// in place.
    pub fn compact(&self, shrink_to: Option<u64>, progress: &Progress) -> io::Result<Compacted> {
        let mut writer = self.writing();
        if let Some(trouble) = &writer.stopped {
            return Err(io::Error::other(trouble.clone()));
        }
        self.seal(&mut writer).inspect_err(|error| self.refuse(&mut writer, error))?;
        let mut compacted = Compacted { before: self.file_bytes(), ..Compacted::default() };
        compacted.left.append(self.passed_over());
        compacted.damaged.append(self.gone());
        let mut excess = shrink_to.map_or(0, |bytes| excess(self.file_bytes(), bytes));
        let oldest = || {
            let ring = self.ring.read();
            ring.front().map(|segment| (segment.file_bytes(), segment.extent.read().containers))
        };
        while let Some((bytes, containers)) = oldest().filter(|(bytes, _)| *bytes <= excess) {
            excess -= bytes;
            compacted.let_go += u64::from(containers);
            self.evict_before(&writer, u64::MAX);
        }
        let old: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        progress.begin(self.file_bytes());
        writer.is_compacting = true;
        // Places are kept modulo a power of two: as the head moves on, the old ones would no longer be told apart.
        let windows = self.index.windows();
        self.index.set_rewritten(true);
        let done = old.iter().try_for_each(|segment| {
            let bytes = segment.file_bytes();
            self.rewrite(&mut writer, segment, (windows, &mut excess), &mut compacted)?;
            progress.advance(bytes).map_err(Halt::Write)
        });
        // The last segment gives back its unused room, or the rest may exceed the requested size.
        let done = done.and_then(|()| self.seal(&mut writer).map_err(Halt::Write));
        let done = done.and_then(|()| self.remove_strays().map_err(Halt::Write));
        compacted.after = self.file_bytes();
        let done = done.or_else(|halt| match halt {
            Halt::Read(_) => self.sync_locked(&mut writer).map_err(Halt::Write).and(Err(halt)),
            Halt::Write(_) => Err(halt),
        });
        let done = match done {
            Ok(()) => Ok(compacted),
            Err(Halt::Read(fault)) => {
                let why = format!("{fault}; it is left where it is, with all that came behind it");
                Err(io::Error::other(why))
            }
            Err(Halt::Write(error)) => {
                self.refuse(&mut writer, &error);
                Err(error)
            }
        };
        self.index.set_rewritten(false);
        writer.is_compacting = false;
        // Not before: for content still to move, they tell containers apart behind a damaged footer.
        self.shed_offsets(&writer);
        done
    }

    /// Writes the live content of a segment to the end of the ring, except its first `excess` bytes, and lets the
    /// segment go. `windows` are those at the start of rewriting.
    fn rewrite(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        (windows, excess): (Windows, &mut u64),
        compacted: &mut Compacted,
    ) -> Result<(), Halt> {
        if let Some(why) = segment.closed {
            compacted.left.push(Fault::NotTried { file: segment.file.name().to_owned(), why });
            return Ok(());
        }
        match patiently(segment, || segment.recall()) {
            Err(fault) if !fault.wants_again() => return Err(Halt::Read(fault)),
            Err(fault) => {
                compacted.left.push(fault);
                return Ok(());
            }
            Ok(_) => {}
        }
        let (mut lost, mut was_read) = (Faults::default(), false);
        // Apart: concurrent writes may have to change it.
        let containers = segment.extent.read().containers as usize;
        for i in 0..containers {
            if *excess > 0 {
                let bytes = segment.container(i).ok().flatten().map_or(0, |(_, bytes)| bytes as u64);
                *excess = excess.saturating_sub(bytes);
                compacted.let_go += 1;
                continue;
            }
            match patiently(segment, || self.load(segment, i)) {
                Ok(Some(container)) => {
                    let live = self.live_parts((segment, i), &container, windows);
                    self.rewrite_container(writer, &container, &live, compacted)?;
                }
                Ok(None) => {}
                Err(fault) if fault.is_damage() => compacted.damaged.push(fault),
                Err(fault) if !fault.wants_again() => return Err(Halt::Read(fault)),
                Err(fault) => {
                    lost.push(fault);
                    if !was_read && lost.len() >= MOST_REFUSED {
                        break;
                    }
                    continue;
                }
            }
            was_read = true;
        }
        if !was_read && !lost.is_empty() {
            lost.into_first().into_iter().for_each(|fault| compacted.left.push(fault));
            return Ok(());
        }
        if segment.is_to_be_looked_through() {
            let (file, why) = (segment.file.name().to_owned(), "a part of it could not be read at the start");
            lost.push(Fault::NotTried { file, why });
        }
        // A successful write tells bad places from an absent disk.
        self.sync_locked(writer).map_err(Halt::Write)?;
        compacted.lost.append(lost);
        // Places refused by the disk are of no use any more.
        let _ = segment.check_footer().and_then(|()| self.check_first_page(segment));
        segment.flaw().into_iter().for_each(|fault| compacted.damaged.push(fault));
        self.let_go(writer, segment.number);
        Ok(())
    }

    fn rewrite_container(
        &self,
        writer: &mut Writer,
        container: &Container,
        live: &[Part],
        compacted: &mut Compacted,
    ) -> Result<(), Halt> {
        if live.is_empty() {
            compacted.superseded += 1;
            return Ok(());
        }
        self.append(writer, container.blocks(), live, container.time_s).map_err(Halt::Write)?;
        self.close_container(writer);
        compacted.kept += 1;
        Ok(())
    }

    /// Returns the chunks of a container found in it by the index at the start of rewriting, without a newer place
    /// since.
    fn live_parts(
        &self,
        (segment, index): (&Segment, usize),
        container: &Container,
        windows: Windows,
    ) -> Vec<Part> {
        let Ok(Some((start, _))) = segment.container(index) else { return Vec::new() };
        let blocks = self.address(segment.number, start + HEADER as u32);
        let number = segment.first_container + index as u64;
        let is_live = |part: &Part| {
            let class = Class::of(part.len);
            let here = if class == Class::Coarse { blocks + u64::from(part.start) } else { number };
            self.index.places_in(part.tag, class, windows).contains(&here)
        };
        container.parts.iter().copied().filter(is_live).collect()
    }
}

/// Returns the bytes of files to remove to reach `most` at most, with an allowance for headers and footers of fewer
/// containers.
fn excess(bytes: u64, most: u64) -> u64 {
    bytes.checked_sub(most).filter(|excess| *excess > 0).map_or(0, |excess| excess + most / 64 + SPARE)
}

/// Pages of a new segment beside its containers.
const SPARE: u64 = 16 * 4096;

/// Why rewriting ended before all was done.
enum Halt {
    Read(Fault),
    Write(io::Error),
}

/// Reads until the disk has refused often enough to be believed.
fn patiently<T>(segment: &Segment, mut read: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut outcome = read();
    for _ in 1..TRIES {
        if !matches!(&outcome, Err(fault @ Fault::Io { .. }) if fault.wants_again()) {
            break;
        }
        segment.ask_again();
        outcome = read();
    }
    segment.ask_again();
    outcome
}

/// The number of attempts to read a refused place.
const TRIES: usize = 3;

/// Containers refused in a row before a fully unreadable segment is left alone: each may take the disk seconds.
const MOST_REFUSED: u64 = 16;
