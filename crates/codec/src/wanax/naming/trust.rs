//! Whether the peer's store is believed to have what the hints say.
//!
//! It is probed for a few chunks when gateways meet, so a store without its content, and without knowledge of the loss,
//! is doubted before anything is named in vain; and vain names are counted. While it is doubted it is probed for the
//! chunks to be named; they cross meanwhile.

use super::Naming;
use crate::Now;
use crate::transfer::{Content, Item};
use crate::wanax::Name;
use crate::wanax::hints::PackedTag;
use crate::wanax::price::{Price, SHORT_NAME};
use crate::wire::{NameEntry, Probe, Probed};

/// How far the store is believed.
pub(crate) struct Trust {
    /// Bytes named and not there, less those that were there since.
    doubt: u64,
    /// Whether the store itself said it lacks what it is believed to have: then it is for it to say as well it has
    /// something, and nothing is named to find out.
    denies: bool,
    /// Chunks put since it denied all of its probes, proven or not by the next answer.
    put_since: Option<Vec<PackedTag>>,
    /// The worth of its word after vain names.
    word: Word,
    /// Blocks without names for the doubt, since the last with some.
    passed: u32,
    /// So many are not, before one is.
    passes: u32,
    probing: Probing,
}

/// Whether a store exposed by vain names is believed at its word: it may not know its losses.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Word {
    /// It is.
    #[default]
    Good,
    /// It was, and no name was right since.
    Given,
    /// It was, and names were in vain: until one is right, it is not.
    Broken,
}

/// What is asked, and whether it was answered.
#[derive(Default)]
struct Probing {
    /// Of the last question; numbers count up from 1.
    request: u64,
    /// The chunks it asks for, each with its length, while the answer is of use.
    asked: Vec<(Name, u32)>,
    due: bool,
    /// Whether a block bringing what is asked for follows the question: said again, it would be asked too late.
    goes_ahead: bool,
}

impl Probing {
    /// Takes an answer; returns the chunks asked for, and whether each is there. Nothing if it answers no question, one
    /// answered, or not what was asked.
    fn answered(&mut self, probed: &Probed) -> Option<impl Iterator<Item = (Name, u32, bool)>> {
        if probed.request != self.request || probed.held.len() != self.asked.len() {
            return None;
        }
        let asked = std::mem::take(&mut self.asked).into_iter();
        self.due = false;
        Some(asked.zip(probed.held.clone()).map(|((name, len), held)| (name, len, held)))
    }
}

impl Default for Trust {
    fn default() -> Self {
        let (passes, probing) = (LEAST_PASSES, Probing::default());
        Self { doubt: 0, denies: false, put_since: None, word: Word::Good, passed: 0, passes, probing }
    }
}

impl Trust {
    /// Believes a store that was just met, and asks it for some chunks.
    pub(crate) fn meet(&mut self, chunks: &[(Name, u32)]) {
        self.begin();
        self.ask(chunks);
    }

    /// Believes a store without known content to lack.
    fn begin(&mut self) {
        let probing = std::mem::take(&mut self.probing);
        *self = Self { probing, ..Self::default() };
    }

    /// Has a new question sent, if there is anything to be asked for; an answer to the last one is of no use any more.
    pub(crate) fn ask(&mut self, chunks: &[(Name, u32)]) {
        let request = self.probing.request + 1;
        let (asked, due) = (chunks.to_vec(), !chunks.is_empty());
        self.probing = Probing { request, asked, due, goes_ahead: false };
    }

    /// Has the question sent again, if it is not answered.
    fn resend_control_state(&mut self) {
        if self.probing.goes_ahead {
            return self.cease();
        }
        self.probing.due = !self.probing.asked.is_empty();
    }

    /// Has no more use for an answer.
    pub(crate) fn cease(&mut self) {
        self.ask(&[]);
    }

    /// Whether the store has lately had what was named.
    pub(crate) const fn is_given(&self) -> bool {
        self.doubt < DOUBTFUL
    }

    /// Whether hints are gone by for the next block.
    pub(crate) fn trusts(&mut self) -> bool {
        let passes = if self.denies { MOST_PASSES } else { self.passes };
        self.passed = if self.is_given() || self.passed >= passes { 0 } else { self.passed + 1 };
        self.passed == 0
    }

    /// Takes note of whether anything was named: if the store is doubted, the next ones wait for longer, until some
    /// were right, since a flow stands still for a round trip each time they are not.
    pub(crate) fn tried(&mut self, named: bool) {
        if !self.is_given() && named {
            self.passes = (2 * self.passes).min(MOST_PASSES);
        }
    }

    /// Takes note of a right name. It counts for more than a vain one: of a store with half, names save half, and one
    /// believed and doubted in turns is named too little.
    pub(crate) fn confirm(&mut self, entry: &NameEntry) {
        self.doubt = self.doubt.saturating_sub(RIGHT_OUTWEIGHS * u64::from(entry.len));
        self.passes = LEAST_PASSES;
        self.word = Word::Good;
        self.put_since = None;
        self.denies &= !self.is_given();
        if entry.behind.is_none() {
            // This says more of the store than an answer still to come.
            self.cease();
        }
    }

    /// Takes note of what was put.
    pub(crate) fn note_put(&mut self, chunks: &[PackedTag]) {
        if let Some(since) = &mut self.put_since {
            since.extend(chunks.iter().take(MOST_PUT.saturating_sub(since.len())));
        }
    }

    /// Takes the store's word that it lacks most of its believed chunks.
    fn deny(&mut self) {
        self.doubt = self.doubt.max(DOUBTFUL);
        self.denies = true;
        self.passed = 0;
    }

    /// Takes the store's word that it has most of its believed chunks. A store exposed by vain names is taken at its
    /// word once, since it may not know its losses, and again after right names; and half of the doubt stays, so little
    /// in vain is enough to doubt it again.
    fn affirm(&mut self) {
        let denied = std::mem::take(&mut self.denies);
        if denied || !self.is_given() && self.word == Word::Good {
            self.doubt = DOUBTFUL / 2;
            self.word = if denied { self.word } else { Word::Given };
        }
    }

    /// Takes note of bytes named and not there.
    fn doubt(&mut self, bytes: u64) {
        self.doubt = self.doubt.saturating_add(bytes).min(2 * DOUBTFUL);
        if !self.is_given() && self.word == Word::Given {
            self.word = Word::Broken;
        }
    }
}

/// A store doubted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubted {
    /// So many of the probes are not there.
    pub(crate) absent: usize,
    /// So many are believed to be.
    pub(crate) believed: usize,
}

impl Naming {
    /// Takes note of bytes named and not there. Once they are many, the store may have lost everything, and only some
    /// blocks are named until some were right.
    pub(crate) fn doubt(&mut self, bytes: u64) {
        self.trust.doubt(bytes);
    }

    /// Returns the question the peer will be asked when it is met, if its store is the one known.
    pub(crate) fn next_probe(&self) -> Option<Probe> {
        let chunks = self.hints.probes().to_vec();
        (!chunks.is_empty()).then(|| Probe { request: self.trust.probing.request + 1, chunks })
    }

    /// Takes the question that is to go ahead of the block just named.
    pub(crate) fn poll_probe_ahead(&mut self) -> Option<Probe> {
        if self.trust.probing.goes_ahead { self.poll_probe() } else { None }
    }

    /// Takes the question to be sent, if one is due.
    pub(crate) fn poll_probe(&mut self) -> Option<Probe> {
        let Probing { request, asked, due, .. } = &mut self.trust.probing;
        std::mem::take(due).then(|| Probe { request: *request, chunks: asked.clone() })
    }

    /// A lane is gone, and with it perhaps the question that went ahead of a block: the next block asks anew.
    pub(crate) fn handle_lane_lost(&mut self) {
        if self.trust.probing.goes_ahead {
            self.trust.cease();
        }
    }

    /// Has everything said again that may have been lost.
    pub(crate) fn resend_control_state(&mut self) {
        self.trust.resend_control_state();
    }

    /// Probes for the largest chunk to be named of a block, were the store not doubted, unless a question is
    /// unanswered. The answer is of the time before the block.
    pub(crate) fn ask_instead(&mut self, plain: &[u8], price: Price, now: Now) {
        if !self.trust.probing.asked.is_empty() {
            return;
        }
        let clock = self.clock(now);
        let known = self.scratch.seen.iter().filter(|(node, tag)| self.hints.lookup(*tag, node.len, clock));
        if let Some((node, tag)) = known.max_by_key(|(node, _)| node.len)
            && let Some(chunk) =
                plain.get(node.range()).filter(|chunk| !price.is_below_name(chunk, SHORT_NAME))
        {
            self.trust.ask(&[(self.key.name_tagged(*tag, chunk), node.len)]);
            self.trust.probing.goes_ahead = true;
        }
    }

    /// Takes the answer to a probe. Absent chunks are forgotten, unless the store is doubted and was sent them; if they
    /// are more than half of the believed ones, the store is doubted. Says so if it was not before.
    ///
    /// If it has none of them, nor of the next probe, all hints are forgotten but those put meanwhile, and it is
    /// believed again: blocks are not always cut alike, so content sent again would leave some hints of lost chunks,
    /// each to be named in vain one day.
    pub(crate) fn handle_probed(&mut self, probed: &Probed, now: Now) -> Option<Doubted> {
        let (mut absent, mut believed) = (0, 0);
        let clock = self.clock(now);
        let was_given = self.trust.is_given();
        for (name, len, held) in self.trust.probing.answered(probed)? {
            if self.hints.lookup(name.tag(), len, clock) {
                believed += 1;
                absent += usize::from(!held);
                if !held && was_given {
                    self.hints.forget(name.tag(), len);
                }
            }
        }
        let has_none = believed > 0 && absent == believed;
        let put_since = self.trust.put_since.take();
        if has_none && let Some(put) = put_since {
            self.hints.clear();
            self.hints.insert_all(&put, clock);
            // What is known from now on, it is given from now on.
            self.trust.begin();
        } else if 2 * absent > believed {
            self.trust.put_since = (was_given && has_none && absent >= LEAST_TO_FORGET).then(Vec::new);
            self.trust.deny();
        } else if believed > 0 {
            self.trust.affirm();
        }
        (was_given && !self.trust.is_given()).then_some(Doubted { absent, believed })
    }

    /// Takes a probe of a block's new chunks, once in a while: its first and largest, if new.
    pub(crate) fn keep_probe(&mut self, item: &Item, clock: u64) {
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

/// So many bytes named in vain mean the store may be another than it was.
const DOUBTFUL: u64 = 128 << 10;
/// The weight of a right name against a vain one: a store with a third of the named bytes stays believed.
const RIGHT_OUTWEIGHS: u64 = 2;
/// So many chunks at least, all of a question, and one more prove together the loss of everything.
const LEAST_TO_FORGET: usize = 2;
/// So many chunks put meanwhile are known then, 512 KiB of tags; the first ones, if it is more.
const MOST_PUT: usize = 1 << 16;
/// So many blocks are then not named before one is, twice as many before the next, and so on; with blocks of 64 KiB, 1
/// and at most 16 MiB. So many at most as well if the store denied what it was asked for and does not answer any more.
const LEAST_PASSES: u32 = 16;
const MOST_PASSES: u32 = 256;

#[cfg(test)]
mod tests;
