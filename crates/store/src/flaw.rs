//! Telling a segment that a crash left without a footer from one that has lost what was in it.
//!
//! A crash leaves the last segment unsealed, and it keeps its full length until the next start cuts it behind its last
//! container and writes a [summary](crate::summary), which says that there is no footer. What is written to a segment
//! that is left while the store runs ends there, too. Other states are none that a store or a crash makes.

use crate::Fault;
use crate::paged::PAGE;

/// What shows that a segment has lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: &'static str,
    /// Containers that were in it and are not found, as far as anything says how many there were.
    pub(crate) gone: u32,
}

impl Flaw {
    pub(crate) fn of(self, file: &str) -> Fault {
        Fault::Broken { file: file.to_owned(), what: self.what, gone: self.gone }
    }
}

/// What the saved index or a summary says of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) file_len: u64,
    pub(crate) containers: u32,
    pub(crate) has_footer: bool,
}

/// A segment in which there is no sound footer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsealed {
    pub(crate) file_len: u64,
    /// Containers that were found in it.
    pub(crate) containers: u32,
    /// The length of a file that ends behind the last of them.
    pub(crate) cut_len: u64,
    /// The length of one that is being filled.
    pub(crate) full_len: u64,
    /// Whether no other one of the store was begun after it.
    pub(crate) is_newest: bool,
    /// Whether its last container has a header, and not the room that the header asks for.
    pub(crate) is_cut_short: bool,
    /// Whether its first page holds something that is no first page.
    pub(crate) page_is_harmed: bool,
}

impl Unsealed {
    /// Returns what proves that it has lost something; none if it may be as a crash left it.
    pub(crate) fn flaw(&self, said: Option<Said>) -> Option<Flaw> {
        let Some(said) = said else { return self.sign().map(|what| Flaw { what, gone: 0 }) };
        let gone = said.containers.saturating_sub(self.containers);
        let what = if said.has_footer {
            "its footer is gone"
        } else if said.file_len != self.file_len {
            "it is not as long as it was left"
        } else if gone > 0 {
            "a part of it is gone"
        } else {
            return None;
        };
        Some(Flaw { what, gone })
    }

    /// The same of one of which nothing else speaks.
    fn sign(&self) -> Option<&'static str> {
        if !self.file_len.is_multiple_of(PAGE as u64) {
            Some("it ends within a page")
        } else if self.is_cut_short {
            Some("it ends within a container")
        } else if self.containers == 0 && (self.page_is_harmed || !self.is_newest) {
            Some("nothing in it can be read")
        } else if !self.is_newest && ![self.cut_len, self.full_len].contains(&self.file_len) {
            Some("its footer is gone")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Unsealed = Unsealed {
        file_len: 64 << 12,
        containers: 9,
        cut_len: 20 << 12,
        full_len: 64 << 12,
        is_newest: true,
        is_cut_short: false,
        page_is_harmed: false,
    };

    fn flaw(change: impl FnOnce(&mut Unsealed), said: Option<Said>) -> Option<(&'static str, u32)> {
        let mut left = LEFT;
        change(&mut left);
        left.flaw(said).map(|flaw| (flaw.what, flaw.gone))
    }

    #[test]
    fn what_a_crash_may_leave_is_no_flaw() {
        assert_eq!(flaw(|_| {}, None), None);
        assert_eq!(flaw(|left| left.file_len = 20 << 12, None), None);
        assert_eq!(flaw(|left| left.file_len = 22 << 12, None), None, "it was about to be sealed");
        assert_eq!(flaw(|left| (left.file_len, left.is_newest) = (20 << 12, false), None), None);
        assert_eq!(flaw(|left| (left.file_len, left.containers) = (0, 0), None), None);
        let said = Said { file_len: 64 << 12, containers: 9, has_footer: false };
        assert_eq!(flaw(|_| {}, Some(said)), None);
    }

    #[test]
    fn what_no_crash_leaves_is_one() {
        let gone = Some(("its footer is gone", 0));
        assert_eq!(flaw(|left| left.file_len += 1, None), Some(("it ends within a page", 0)));
        assert_eq!(flaw(|left| left.is_cut_short = true, None), Some(("it ends within a container", 0)));
        assert_eq!(flaw(|left| (left.file_len, left.is_newest) = (22 << 12, false), None), gone);
        let nothing = Some(("nothing in it can be read", 0));
        assert_eq!(flaw(|left| (left.containers, left.is_newest) = (0, false), None), nothing);
        assert_eq!(flaw(|left| (left.containers, left.page_is_harmed) = (0, true), None), nothing);
    }

    #[test]
    fn what_is_known_of_it_says_how_much_it_has_lost() {
        let said = Said { file_len: 64 << 12, containers: 12, has_footer: true };
        assert_eq!(flaw(|_| {}, Some(said)), Some(("its footer is gone", 3)));
        let said = Said { has_footer: false, ..said };
        assert_eq!(flaw(|_| {}, Some(said)), Some(("a part of it is gone", 3)));
        assert_eq!(flaw(|left| left.file_len = 0, Some(said)), Some(("it is not as long as it was left", 3)));
    }
}
