//! Interceptions behind the marks of rules.

use std::sync::{Arc, Weak};

/// The interceptions by their places in the loaded rules' configuration.
pub(super) struct Places<T> {
    known: Vec<Weak<T>>,
    /// Other rules are being loaded: marks of the old and the new ones look alike.
    changing: bool,
}

/// The meaning of a mark.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<T> {
    Open(Arc<T>),
    /// An interception to be opened, or still unknown; a repeated packet finds out.
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
    /// Exchanges the loaded rules' interceptions; a dropped one counts as not yet open.
    pub(super) fn set(&mut self, places: Vec<Weak<T>>) {
        self.known = places;
    }

    /// From now on a mark may be of other rules.
    pub(super) fn begin_change(&mut self) {
        self.changing = true;
    }

    /// From now on every mark belongs to the rules of these places, or to the old rules if none are given.
    pub(super) fn end_change(&mut self, places: Option<Vec<Weak<T>>>) {
        self.changing = false;
        if let Some(places) = places {
            self.known = places;
        }
    }

    /// Finds the interception of a mark's place, if it has one.
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
    fn marks_are_void_during_a_change_of_rules() {
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
        // A new one is first, and not open yet.
        let [first_weak, second_weak] = weak;
        places.end_change(Some(vec![Weak::new(), second_weak, first_weak]));
        assert_eq!(places.find(Some(0)), Place::NotYet);
        assert_eq!(places.find(Some(1)), Place::Open(second));
        assert_eq!(places.find(Some(2)), Place::Open(first));
        assert_eq!(places.find(Some(3)), Place::Nobodys);
    }

    #[test]
    fn failed_load_of_rules_changes_nothing() {
        let only = Arc::new("only");
        let mut places = Places::default();
        places.set(vec![Arc::downgrade(&only)]);
        places.begin_change();
        places.end_change(None);
        assert_eq!(places.find(Some(0)), Place::Open(only));
    }
}
