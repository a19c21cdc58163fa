//! Strays: files with a segment's name and no place in the ring.
//!
//! The ring is in the order of numbers, and new segments go behind the last. An unread file gives its number only by
//! its name, and anybody can give a file a name: a number far beyond the store's is passed over, or all existing
//! segments would have to go before it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::recover::Opened;
use crate::segment::Segment;
use crate::{Fault, Faults, Store};

/// Says whether the store may have reached a number, if it would go on with `next` by all readable segments.
pub(crate) fn is_near(number: u64, next: u64) -> bool {
    number < next + NEAR
}

impl Store {
    /// Takes those beyond the ring's next number out of it.
    pub(crate) fn pass_over(&mut self, ring: &mut VecDeque<Arc<Segment>>, next: u64, opened: &mut Opened) {
        let kept = ring.partition_point(|segment| segment.number < next);
        self.strays = ring.split_off(kept).into();
        for stray in &self.strays {
            opened.note(format!("{}: {FAR}: passed over", stray.file.name()));
        }
    }

    /// Says whether this is the name of a file passed over at the opening.
    pub(crate) fn is_passed_over(&self, name: &str) -> bool {
        self.others.contains_key(name) || self.strays.iter().any(|stray| stray.file.name() == name)
    }

    /// Returns the other things with the name of a segment; they stay as they are under any operation.
    pub(crate) fn passed_over(&self) -> Faults {
        let others = self.others.iter().map(|(file, why)| (file.as_str(), *why));
        let strays = self.strays.iter().filter_map(|stray| Some((stray.file.name(), stray.closed?)));
        Faults::of(others.chain(strays).map(|(file, why)| Fault::NotTried { file: file.to_owned(), why }))
    }

    /// Returns the segments missing at the opening, and the unreadable ones outside the ring.
    pub(crate) fn gone(&self) -> Faults {
        let missing = self.missing.iter().map(|(file, flaw)| flaw.of(file));
        Faults::of(missing.chain(self.strays.iter().filter_map(|stray| stray.flaw())))
    }

    /// Removes those unreadable for ever, as the next start would.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn remove_strays(&self) -> io::Result<()> {
        self.strays.iter().filter(|stray| stray.closed.is_none()).try_for_each(|stray| {
            self.leave_as_found()?;
            stray.file.remove()
        })
    }
}

/// Why a file perhaps of the store is passed over.
const FAR: &str = "its number is far beyond those of the segments that were read";

/// So many numbers may be missing before an unread file: those of segments unread for a while, or removed.
const NEAR: u64 = 1024;
