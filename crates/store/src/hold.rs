//! Refused writes: the store stops, or is held up for a while.

use std::io;

use crate::index::Class;
use crate::open_files::lacks_descriptors;
use crate::segment::{Coarse, Segment};
use crate::summary::Lists;
use crate::writer::{Tail, Writer, is_full};
use crate::{Store, is_of_the_process};

/// The unwritten memory of a closed segment.
pub(crate) struct Dropped {
    tail: Tail,
    /// Its large chunks.
    coarse: Vec<Coarse>,
    /// Its small ones.
    small: Lists,
}

impl Store {
    /// Says whether the reason why it takes nothing passes: the next [`Store::sync`] finds out.
    pub fn is_held_up(&self) -> bool {
        self.writing().held_up.is_some()
    }

    /// Takes nothing after a failed write: never again if the disk cannot be relied on, and until the next sync if it
    /// has no room, or the process may open no more files. Unwritten content is dropped.
    pub(crate) fn refuse(&self, writer: &mut Writer, error: &io::Error) {
        self.counters.write_errors.add(1);
        match is_full_error(error) || is_of_the_process(error) {
            true => {
                writer.held_up = Some(error.to_string());
                self.leave_segment(writer);
                if is_full_error(error) {
                    writer.times_full += 1;
                    // Ever more rarely, since it does not help: others take the room, or hold the removed content.
                    if writer.times_full.is_power_of_two() {
                        self.make_room(writer, u64::MAX);
                    }
                }
            }
            false => self.stop(writer, error),
        }
    }

    /// Begins a segment after a hold, and takes blocks again on success; says whether it was held up.
    ///
    /// # Errors
    /// If it is held up still.
    pub(crate) fn go_on(&self, writer: &mut Writer) -> io::Result<bool> {
        if writer.held_up.is_none() {
            return Ok(false);
        }
        // Before others give way to new content, for its room.
        self.cut_segment(writer)?;
        self.begin_segment(writer)?;
        (writer.held_up, writer.times_full) = (None, 0);
        Ok(true)
    }

    /// Takes nothing more: the disk cannot be relied on.
    fn stop(&self, writer: &mut Writer, error: &io::Error) {
        writer.stopped.get_or_insert_with(|| error.to_string());
        writer.held_up = None;
        self.forget(&self.drop_segment(writer));
    }

    /// Drops unwritten content, and adds no more to the open segment; returns both.
    pub(crate) fn drop_segment(&self, writer: &mut Writer) -> Dropped {
        let (coarse, small) = (std::mem::take(&mut writer.coarse), std::mem::take(&mut writer.small));
        writer.uncut = None;
        let mut tail = self.tail.write();
        if let Some(segment) = &tail.segment {
            segment.extent.write().cut(tail.at);
        }
        Dropped { tail: std::mem::take(&mut *tail), coarse, small }
    }

    /// Lets the index forget the content of a dropped and cut segment, so it is stored on its return. Its last
    /// container was closed before a write could fail.
    fn forget(&self, dropped: &Dropped) {
        let Some(segment) = &dropped.tail.segment else { return };
        let (containers, end) = {
            let extent = segment.extent.read();
            (extent.containers, extent.end)
        };
        for (tag, at) in dropped.coarse.iter().filter(|(_, at)| *at >= end) {
            self.index.forget(*tag, Class::Coarse, self.address(segment.number, *at));
        }
        dropped.small.forget(&self.index, segment.first_container, containers);
    }

    /// Leaves the open segment as a crash would, up to its surely durable part: after a failed sync, the system may
    /// have dropped unwritten pages, and the next sync would not say so.
    fn leave_segment(&self, writer: &mut Writer) {
        let Some(segment) = self.tail.read().segment.clone() else { return };
        let dropped = self.drop_segment(writer);
        let tail = &dropped.tail;
        let is_sound = !tail.sync_failed && segment.file.sync().is_ok();
        segment.extent.write().cut(if is_sound { tail.at } else { tail.synced });
        self.forget(&dropped);
        if segment.extent.read().containers == 0 {
            self.let_go(writer, segment.number);
            return;
        }
        writer.uncut = Some(segment);
        // It is tried again before the next one is begun.
        let _ = self.cut_segment(writer);
    }

    /// Gives back the unused room of the segment left last. A longer file is cut by the next start's scan.
    ///
    /// # Errors
    /// If the process may not even open it now.
    fn cut_segment(&self, writer: &mut Writer) -> io::Result<()> {
        let left = writer.uncut.take().filter(|left| self.segment(left.number).is_some());
        let Some(left) = left else { return Ok(()) };
        let room = u64::from(left.extent.read().end).next_multiple_of(left.file.payload() as u64);
        match left.file.cut(room) {
            Ok(()) => left.extent.write().file_len = left.file.file_len(room),
            Err(error) if is_of_the_process(&error) => {
                writer.uncut = Some(left);
                return Err(error);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Syncs the open segment.
    pub(crate) fn sync_segment(&self, segment: &Segment) -> io::Result<()> {
        let synced = segment.file.sync();
        let mut tail = self.tail.write();
        match &synced {
            Ok(()) => tail.synced = tail.at,
            // It was not even opened.
            Err(error) if lacks_descriptors(error) => {}
            Err(_) => tail.sync_failed = true,
        }
        synced
    }
}

fn is_full_error(error: &io::Error) -> bool {
    is_full(&Err::<(), _>(io::Error::from(error.kind())))
}
