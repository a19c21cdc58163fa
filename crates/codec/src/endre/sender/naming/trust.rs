//! Whether the peer's store is believed to have what the hints say.
//!
//! It is asked for a few chunks when gateways meet, so that a store which has lost everything without knowing it is
//! doubted before anything is named in vain; and what was named in vain is counted.

use super::Naming;
use crate::Now;
use crate::cache::{Content, Item};
use crate::wanax::Name;
use crate::wanax::hints::PackedTag;
use crate::wire::{Probe, Probed};

/// What is asked, and whether it was answered.
#[derive(Default)]
pub(super) struct Probing {
    /// Of the last question; numbers count up from 1.
    request: u64,
    /// The chunks that it asks for, each with its length, while the answer is of use.
    asked: Vec<(Name, u32)>,
    due: bool,
}

impl Probing {
    /// Has a new question sent, if there is anything to be asked for; an answer to the last one is of no use any more.
    pub(super) fn ask(&mut self, chunks: &[(Name, u32)]) {
        self.request += 1;
        self.asked = chunks.to_vec();
        self.restate();
    }

    /// Has the question sent again, if it is not answered.
    fn restate(&mut self) {
        self.due = !self.asked.is_empty();
    }

    /// Has no more use for an answer.
    pub(super) fn cease(&mut self) {
        self.ask(&[]);
    }

    /// Takes an answer; returns the chunks that were asked for, and whether each is there. Nothing if it answers no
    /// question, one that was answered, or not what was asked.
    fn answered(&mut self, probed: &Probed) -> Option<impl Iterator<Item = (Name, u32, bool)>> {
        if probed.request != self.request || probed.held.len() != self.asked.len() {
            return None;
        }
        let asked = std::mem::take(&mut self.asked).into_iter();
        self.due = false;
        Some(asked.zip(probed.held.clone()).map(|((name, len), held)| (name, len, held)))
    }
}

/// A store that is doubted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::endre::sender) struct Doubted {
    /// So many of the probes are not there.
    pub(in crate::endre::sender) absent: usize,
    /// So many are believed to be.
    pub(in crate::endre::sender) believed: usize,
}

impl Naming {
    /// Takes note of bytes that were named and not there. Once they are many, the store may have lost everything, and
    /// only some blocks are named until some were right.
    pub(in crate::endre::sender) fn doubt(&mut self, bytes: u64) {
        self.doubt = self.doubt.saturating_add(bytes).min(2 * DOUBTFUL);
    }

    /// Whether hints are gone by for the next block.
    pub(super) fn trusts(&mut self) -> bool {
        self.passed = if self.is_trusted() || self.passed >= self.passes { 0 } else { self.passed + 1 };
        self.passed == 0
    }

    /// Takes note that names were tried although the store is doubted: the next ones wait for longer, until some were
    /// right, since a flow stands still for a round trip each time they are not.
    pub(super) fn tried(&mut self) {
        if !self.is_trusted() && !self.names.is_empty() {
            self.passes = (2 * self.passes).min(MOST_PASSES);
        }
    }

    /// Whether the store has lately had what was named.
    pub(super) const fn is_trusted(&self) -> bool {
        self.doubt < DOUBTFUL
    }

    /// Returns the question that the peer will be asked when it is met, if its store is the one that is known.
    pub(in crate::endre::sender) fn next_probe(&self) -> Option<Probe> {
        let chunks = self.hints.probes().to_vec();
        (!chunks.is_empty()).then(|| Probe { request: self.probing.request + 1, chunks })
    }

    /// Takes the question to be sent, if one is due.
    pub(in crate::endre::sender) fn poll_probe(&mut self) -> Option<Probe> {
        let Probing { request, asked, due } = &mut self.probing;
        std::mem::take(due).then(|| Probe { request: *request, chunks: asked.clone() })
    }

    /// Has everything said again that may have been lost.
    pub(in crate::endre::sender) fn restate(&mut self) {
        self.probing.restate();
    }

    /// Takes what the store has of what was asked for. What it lacks is forgotten; if that is more than half of what is
    /// believed to be there, the store is doubted, as if as much as it takes had been named in vain.
    pub(in crate::endre::sender) fn handle_probed(&mut self, probed: &Probed, now: Now) -> Option<Doubted> {
        let (mut absent, mut believed) = (0, 0);
        let clock = self.clock(now);
        for (name, len, held) in self.probing.answered(probed)? {
            if self.hints.lookup(name.tag(), len, clock) {
                believed += 1;
                absent += usize::from(!held);
                if !held {
                    self.hints.forget(name.tag(), len);
                }
            }
        }
        let is_doubted = 2 * absent > believed;
        if is_doubted {
            self.doubt(DOUBTFUL);
            self.passes = self.passes.max(KNOWN_PASSES);
        }
        is_doubted.then_some(Doubted { absent, believed })
    }

    /// Takes a probe of what a block brought to the store, once in a while: its first and largest chunk, if that was new.
    pub(super) fn keep_probe(&mut self, item: &Item, clock: u64) {
        let (Content::Block { plain, .. }, Some(new)) = (&item.content, item.news.first()) else { return };
        if !self.hints.wants_probe(plain.len() as u64) {
            return;
        }
        let mut first = None;
        self.tree.search(plain, |node| {
            first.get_or_insert(*node);
            false
        });
        let Some((len, chunk)) = first.and_then(|node| Some((node.len, plain.get(node.range())?))) else {
            return;
        };
        let tag = self.key.tag(chunk);
        if *new == PackedTag::new(tag, len) {
            self.hints.keep_probe(self.key.name_tagged(tag, chunk), len, clock);
        }
    }
}

/// So many bytes named in vain mean that the store may be another than it was.
pub(super) const DOUBTFUL: u64 = 128 << 10;
/// So many blocks are then not named before one is, twice as many before the next, and so on; with blocks of 64 KiB, 1
/// and at most 16 MiB.
pub(super) const LEAST_PASSES: u32 = 16;
const MOST_PASSES: u32 = 256;
/// So many are not, before the first one is, if the store itself said what it lacks: by then a flow's window is wide
/// enough that it does not stand still for one block.
const KNOWN_PASSES: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanax::{NAME_LEN, NameKey, NamesConfig, Shape};
    use crate::wire::StoreHeld;

    const LEN: u32 = 60_000;
    const CLOCK_SECS: u64 = 10_000;

    fn name(number: u64) -> Name {
        let mut name = [number as u8; NAME_LEN];
        name[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Name(name)
    }

    /// Meets a store in which so many probes are believed to be, put some time ago.
    fn naming(probes: u64, put_secs: impl Fn(u64) -> u64) -> Naming {
        let (key, shape) = (NameKey::new([1; 32]), Shape::default());
        let config = NamesConfig { key, shape, hint_memory: 1 << 16, saved: None, clock_secs: CLOCK_SECS };
        let (mut naming, _) = Naming::new(&config);
        naming.hints.bind(7);
        for number in 0..probes {
            let (name, put_secs) = (name(number), put_secs(number));
            naming.hints.insert(PackedTag::new(name.tag(), LEN), put_secs);
            naming.hints.keep_probe(name, LEN, put_secs);
        }
        naming.meet(Some(7));
        naming
    }

    /// Answers the first question: so many of them are not there.
    fn answer(naming: &mut Naming, absent: u64) -> Option<Doubted> {
        let Probe { request, chunks } = naming.poll_probe().unwrap();
        let held = (0..chunks.len() as u64).map(|at| at >= absent).collect();
        naming.handle_probed(&Probed { request, held }, Now::ZERO)
    }

    #[test]
    fn a_store_is_doubted_if_it_lacks_more_than_half_of_what_is_believed() {
        for (probes, absent, is_doubted) in [
            (1, 0, false),
            (1, 1, true),
            (2, 1, false),
            (3, 2, true),
            (16, 8, false),
            (16, 9, true),
            (16, 16, true),
        ] {
            let mut naming = naming(probes, |_| CLOCK_SECS - 60);
            let doubted = answer(&mut naming, absent);
            let expected = Doubted { absent: absent as usize, believed: probes as usize };
            assert_eq!(doubted, is_doubted.then_some(expected), "{absent} of {probes}");
            assert_eq!(naming.is_trusted(), !is_doubted, "{absent} of {probes}");
            // What is not there is named no more.
            let known =
                (0..probes).filter(|at| naming.hints.lookup(name(*at).tag(), LEN, CLOCK_SECS)).count();
            assert_eq!(known as u64, probes - absent);
        }
    }

    #[test]
    fn the_doubt_is_the_one_that_names_in_vain_raise_and_is_tried_later() {
        let mut naming = naming(4, |_| CLOCK_SECS - 60);
        assert!(naming.trusts());
        answer(&mut naming, 4);
        assert_eq!((0..).position(|_| naming.trusts()), Some(KNOWN_PASSES as usize));
        naming.meet(Some(7));
        assert!(naming.trusts());
    }

    #[test]
    fn what_the_store_says_it_has_evicted_is_not_believed() {
        let mut naming = naming(8, |number| CLOCK_SECS - if number < 5 { 4000 } else { 100 });
        naming.handle_held(&StoreHeld { serial: 1, taking: true, age_secs: 1000 }, Now::ZERO);
        assert_eq!(answer(&mut naming, 6), None);
        assert!(naming.is_trusted());
    }

    #[test]
    fn whoever_believes_nothing_asks_nothing() {
        assert_eq!(naming(0, |_| 0).poll_probe(), None);
        let mut other = naming(3, |_| CLOCK_SECS);
        other.meet(Some(8));
        assert_eq!(other.poll_probe(), None);
        let mut none = naming(3, |_| CLOCK_SECS);
        none.meet(None);
        assert_eq!(none.poll_probe(), None);
        none.restate();
        assert_eq!(none.poll_probe(), None);
        none.meet(Some(7));
        none.clear();
        assert_eq!(none.poll_probe(), None);
    }

    #[test]
    fn of_a_question_that_was_replaced_no_answer_counts() {
        let mut naming = naming(3, |_| CLOCK_SECS);
        let first = naming.poll_probe().unwrap();
        naming.meet(Some(7));
        let none = Probed { request: first.request, held: vec![false; 3] };
        assert_eq!(naming.handle_probed(&none, Now::ZERO), None);
        let second = naming.poll_probe().unwrap();
        assert_eq!(second, Probe { request: first.request + 1, ..first });
        naming.restate();
        assert_eq!(naming.poll_probe(), Some(second.clone()), "it is said again");
        let none = Probed { request: second.request, ..none };
        assert!(naming.handle_probed(&none, Now::ZERO).is_some());
        assert_eq!(naming.handle_probed(&none, Now::ZERO), None);
        naming.restate();
        assert_eq!(naming.poll_probe(), None);
    }
}
