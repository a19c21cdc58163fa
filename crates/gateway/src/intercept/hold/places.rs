//! Whom the marks of rules speak of.

use std::sync::{Arc, Weak};

/// The interceptions by their places in the configuration that the loaded rules were made of.
pub(super) struct Places<T> {
    known: Vec<Weak<T>>,
    /// Other rules are being loaded: whether a mark is theirs or of those before cannot be seen.
    changing: bool,
}

/// Whom a mark speaks of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<T> {
    Open(Arc<T>),
    /// One that will be open, or it will be known who it is; a packet that comes again then finds out.
    NotYet,
    /// None of this gateway's.
    Nobodys,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { known: Vec::new(), changing: false }
    }
}

impl<T> Places<T> {
    /// Exchanges those that the loaded rules speak of; one that is gone is not open yet.
    pub(super) fn set(&mut self, places: Vec<Weak<T>>) {
        self.known = places;
    }

    /// From now on a mark may be of other rules.
    pub(super) fn begin_change(&mut self) {
        self.changing = true;
    }

    /// From now on every mark is of the rules that these were given for, or of those before if none are.
    pub(super) fn end_change(&mut self, places: Option<Vec<Weak<T>>>) {
        self.changing = false;
        if let Some(places) = places {
            self.known = places;
        }
    }

    /// Finds whom the place in a mark means, if it has one.
    pub(super) fn find(&self, place: Option<usize>) -> Place<T> {
        match place {
            Some(_) if self.changing => Place::NotYet,
            Some(place) => match self.known.get(place) {
                Some(known) => known.upgrade().map_or(Place::NotYet, Place::Open),
                None => Place::Nobodys,
            },
            None => Place::Nobodys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_means_nobody_while_rules_change_and_one_of_the_new_ones_after() {
        let (first, second) = (Arc::new("first"), Arc::new("second"));
        let weak = [&first, &second].map(Arc::downgrade);
        let mut places = Places::default();
        places.set(weak.to_vec());
        assert_eq!(places.find(Some(0)), Place::Open(Arc::clone(&first)));
        places.begin_change();
        assert_eq!(
            [0, 1, 2].map(|place| places.find(Some(place))),
            [Place::NotYet, Place::NotYet, Place::NotYet]
        );
        assert_eq!(places.find(None), Place::Nobodys);
        // A new one is first, which is not open yet.
        let [first_weak, second_weak] = weak;
        places.end_change(Some(vec![Weak::new(), second_weak, first_weak]));
        assert_eq!(places.find(Some(0)), Place::NotYet);
        assert_eq!(places.find(Some(1)), Place::Open(second));
        assert_eq!(places.find(Some(2)), Place::Open(first));
        assert_eq!(places.find(Some(3)), Place::Nobodys);
    }

    #[test]
    fn rules_that_were_not_loaded_change_nothing() {
        let only = Arc::new("only");
        let mut places = Places::default();
        places.set(vec![Arc::downgrade(&only)]);
        places.begin_change();
        places.end_change(None);
        assert_eq!(places.find(Some(0)), Place::Open(only));
    }
}
