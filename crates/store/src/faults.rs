//! Faults found by a full scan: the first ones, and their number.

use crate::Fault;

/// Faults, of which the first 100 are kept: a bound for a disk full of them.
#[derive(Debug, Default)]
pub struct Faults {
    noted: Vec<Fault>,
    left_out: u64,
}

impl Faults {
    pub(crate) fn of(faults: impl Iterator<Item = Fault>) -> Self {
        let mut all = Self::default();
        faults.for_each(|fault| all.push(fault));
        all
    }

    /// Returns the first ones, at most 100 of them.
    pub fn noted(&self) -> &[Fault] {
        &self.noted
    }

    /// Returns how many there are beyond.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns how many there are in all.
    pub fn len(&self) -> u64 {
        self.noted.len() as u64 + self.left_out
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    pub(crate) fn push(&mut self, fault: Fault) {
        match self.noted.len() < MOST_NOTED {
            true => self.noted.push(fault),
            false => self.left_out += 1,
        }
    }

    /// Returns the first one alone.
    pub(crate) fn into_first(self) -> Option<Fault> {
        self.noted.into_iter().next()
    }

    /// Adds others behind these.
    pub(crate) fn append(&mut self, others: Self) {
        others.noted.into_iter().for_each(|fault| self.push(fault));
        self.left_out += others.left_out;
    }
}

const MOST_NOTED: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: u64) -> Faults {
        let mut faults = Faults::default();
        (0..count)
            .for_each(|at| faults.push(Fault::Damaged { file: "a".to_owned(), at, what: "is not one" }));
        faults
    }

    #[test]
    fn all_are_counted_and_the_first_are_kept() {
        let mut faults = some(70);
        faults.append(some(250));
        assert_eq!((faults.len(), faults.noted().len(), faults.left_out()), (320, 100, 220));
        assert!(faults.noted()[99].to_string().contains("offset 29"));
        assert!(!faults.is_empty() && some(0).is_empty());
    }
}
