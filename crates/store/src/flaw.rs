//! Harmed segments without a footer, told from the remains of a crash.
//!
//! A crash leaves the last segment unsealed, at full length. The next start cuts it behind its last container and
//! writes a [summary](crate::summary) that says so. A segment left by a running store ends there, too. No store and
//! no crash makes other states.

use crate::Fault;
use crate::paged::PAGE;

/// The proof of a segment's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: &'static str,
    /// Missing containers, as far as their number is known.
    pub(crate) gone: u32,
}

impl Flaw {
    pub(crate) fn of(self, file: &str) -> Fault {
        Fault::Broken { file: file.to_owned(), what: self.what, gone: self.gone }
    }
}

/// A segment's description in the saved index or a summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) file_len: u64,
    pub(crate) containers: u32,
    pub(crate) has_footer: bool,
}

/// A segment without a sound footer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsealed {
    pub(crate) file_len: u64,
    /// Containers found in it.
    pub(crate) containers: u32,
    /// The file's length up to the last of them.
    pub(crate) cut_len: u64,
    /// The length of an open segment.
    pub(crate) full_len: u64,
    /// Whether no other one of the store was begun after it.
    pub(crate) is_newest: bool,
    /// Whether the header of its last container asks for more room than there is.
    pub(crate) is_cut_short: bool,
    /// Whether its first page holds something else than a first page.
    pub(crate) page_is_harmed: bool,
}

impl Unsealed {
    /// Returns the proof of its loss; none if it may be from a crash.
    pub(crate) fn flaw(&self, said: Option<Said>) -> Option<Flaw> {
        let Some(said) = said else { return self.sign().map(|what| Flaw { what, gone: 0 }) };
        let gone = said.containers.saturating_sub(self.containers);
        let sign = if said.has_footer {
            "its footer is gone"
        } else if said.file_len != self.file_len {
            "it is not as long as it was left"
        } else if gone > 0 {
            "a part of it is gone"
        } else {
            return None;
        };
        Some(Flaw { what: sign, gone })
    }

    /// The same for one without any description.
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
    fn state_after_a_crash_is_no_flaw() {
        assert_eq!(flaw(|_| {}, None), None);
        assert_eq!(flaw(|left| left.file_len = 20 << 12, None), None);
        assert_eq!(flaw(|left| left.file_len = 22 << 12, None), None, "it was about to be sealed");
        assert_eq!(flaw(|left| (left.file_len, left.is_newest) = (20 << 12, false), None), None);
        assert_eq!(flaw(|left| (left.file_len, left.containers) = (0, 0), None), None);
        let said = Said { file_len: 64 << 12, containers: 9, has_footer: false };
        assert_eq!(flaw(|_| {}, Some(said)), None);
    }

    #[test]
    fn state_no_crash_leaves_is_a_flaw() {
        let gone = Some(("its footer is gone", 0));
        assert_eq!(flaw(|left| left.file_len += 1, None), Some(("it ends within a page", 0)));
        assert_eq!(flaw(|left| left.is_cut_short = true, None), Some(("it ends within a container", 0)));
        assert_eq!(flaw(|left| (left.file_len, left.is_newest) = (22 << 12, false), None), gone);
        let nothing = Some(("nothing in it can be read", 0));
        assert_eq!(flaw(|left| (left.containers, left.is_newest) = (0, false), None), nothing);
        assert_eq!(flaw(|left| (left.containers, left.page_is_harmed) = (0, true), None), nothing);
    }

    #[test]
    fn description_gives_the_amount_lost() {
        let said = Said { file_len: 64 << 12, containers: 12, has_footer: true };
        assert_eq!(flaw(|_| {}, Some(said)), Some(("its footer is gone", 3)));
        let said = Said { has_footer: false, ..said };
        assert_eq!(flaw(|_| {}, Some(said)), Some(("a part of it is gone", 3)));
        assert_eq!(flaw(|left| left.file_len = 0, Some(said)), Some(("it is not as long as it was left", 3)));
    }
}
