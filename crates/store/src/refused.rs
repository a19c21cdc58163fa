//! Places refused by the disk, for another copy of their content when it comes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::index::Class;
use crate::{Part, Store};

/// The content of one request: the place, told apart as [`Store::locate`] does, and the length of a large chunk.
type Spot = (u64, u32);

/// Places refused at their last read, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    spots: Mutex<BTreeSet<Spot>>,
    /// How many there are, since nearly always there are none.
    count: AtomicUsize,
}

impl Refused {
    /// Notes how a place was read.
    pub(crate) fn note(&self, (class, place, len): (Class, u64, u32), refused: bool) {
        if !refused && self.is_empty() {
            return;
        }
        let mut spots = self.spots.lock();
        match refused {
            true => spots.insert(spot(class, place, len)),
            false => spots.remove(&spot(class, place, len)),
        };
        if spots.len() > MOST_REFUSED {
            // The oldest places leave the ring first.
            spots.pop_first();
        }
        self.count.store(spots.len(), Ordering::Relaxed);
    }

    fn has(&self, class: Class, place: u64, len: u32) -> bool {
        self.spots.lock().contains(&spot(class, place, len))
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl Store {
    /// Says whether any of these chunks is indexed at a refused place.
    pub(crate) fn is_refused(&self, parts: &[Part]) -> bool {
        if self.refused.is_empty() && !self.gave_up.load(Ordering::Relaxed) {
            return false;
        }
        parts.iter().any(|part| {
            let class = Class::of(part.len);
            let places = self.index.places(part.tag, class);
            places.into_iter().any(|place| {
                self.refused.has(class, place, part.len) || self.is_in_given_up_segment(class, place)
            })
        })
    }

    fn is_in_given_up_segment(&self, class: Class, place: u64) -> bool {
        let segment = match class {
            Class::Coarse => self.segment(place >> self.span_bits),
            Class::Medium | Class::Fine => self.holder(place).map(|(segment, _)| segment),
        };
        segment.is_some_and(|segment| segment.is_given_up())
    }
}

fn spot(class: Class, place: u64, len: u32) -> Spot {
    match class {
        Class::Coarse => (place << 1, len),
        // A container is read as a whole.
        Class::Medium | Class::Fine => (place << 1 | 1, 0),
    }
}

/// A disk with more bad places is refused segment by segment. They take some hundred kilobytes.
const MOST_REFUSED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_read_again_is_refused_no_longer() {
        let refused = Refused::default();
        let (root, first) = ((Class::Coarse, 8, 65_536), (Class::Coarse, 8, 8192));
        refused.note(root, true);
        refused.note(first, false);
        assert!(refused.has(Class::Coarse, 8, 65_536), "a part of it can be read, and it cannot");
        assert!(!refused.has(Class::Coarse, 8, 8192));
        refused.note(root, false);
        assert!(refused.is_empty());
    }

    #[test]
    fn no_more_places_are_remembered_than_are_worth_it() {
        let refused = Refused::default();
        let places = 0..2 * MOST_REFUSED as u64;
        places.clone().for_each(|place| refused.note((Class::Fine, place, 128), true));
        let kept = places.filter(|place| refused.has(Class::Fine, *place, 64)).collect::<Vec<_>>();
        assert_eq!((kept.len(), kept[0]), (MOST_REFUSED, MOST_REFUSED as u64), "the youngest");
    }
}
