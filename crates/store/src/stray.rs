//! What has the name of a segment and no place in the ring.
//!
//! The ring is in the order of numbers, and new segments go behind the last. A file that nothing was read from says only
//! by its name where that is, and anybody can give a file a name: one whose number is far beyond what the store has come
//! to is passed over, or all that is there would have to go before it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::recover::Opened;
use crate::segment::Segment;
use crate::{Fault, Faults, Store};

/// Says whether a number is one that the store may have come to that would go on with `next`, as far as what it has read
/// says.
pub(crate) fn is_near(number: u64, next: u64) -> bool {
    number < next + NEAR
}

impl Store {
    /// Takes those out of the ring that are beyond its next number.
    pub(crate) fn pass_over(&mut self, ring: &mut VecDeque<Arc<Segment>>, next: u64, opened: &mut Opened) {
        let kept = ring.partition_point(|segment| segment.number < next);
        self.strays = ring.split_off(kept).into();
        for stray in &self.strays {
            opened.note(format!("{}: {FAR}: passed over", stray.file.name()));
        }
    }

    /// Says whether this is the name of a file that was passed over when the store was opened.
    pub(crate) fn is_passed_over(&self, name: &str) -> bool {
        self.others.contains_key(name) || self.strays.iter().any(|stray| stray.file.name() == name)
    }

    /// Returns what has the name of a segment and stays as it is, whatever is done with the store.
    pub(crate) fn passed_over(&self) -> Faults {
        let others = self.others.iter().map(|(file, why)| (file.as_str(), *why));
        let strays = self.strays.iter().filter_map(|stray| Some((stray.file.name(), stray.closed?)));
        Faults::of(others.chain(strays).map(|(file, why)| Fault::NotTried { file: file.to_owned(), why }))
    }

    /// Returns the segments that were gone when the store was opened, and those in which nothing can be read and that are
    /// not in the ring.
    pub(crate) fn gone(&self) -> Faults {
        let missing = self.missing.iter().map(|(file, flaw)| flaw.of(file));
        Faults::of(missing.chain(self.strays.iter().filter_map(|stray| stray.flaw())))
    }

    /// Removes those in which nobody can ever read anything, as the next start would.
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

/// Why a file is passed over that may still be the store's.
const FAR: &str = "its number is far beyond those of the segments that were read";

/// So many numbers may be left out in front of a file that nothing was read from: some that were read by nobody for a
/// while, or removed.
const NEAR: u64 = 1024;
