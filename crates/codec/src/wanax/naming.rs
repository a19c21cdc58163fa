//! Named chunks: the parts of a block in the peer's store, and the rest for the log.

mod ends;
mod tags;
mod trust;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

pub(crate) use self::tags::Tags;
pub(crate) use self::trust::Doubted;
use self::trust::Trust;
use super::hints::PackedTag;
use super::price::{NAME, Price, SHORT_NAME, Spent};
use super::under_way::UnderWay;
use super::{
    ChunkName, Hints, HintsError, LEAST_BLOCK, NameKey, NamesConfig, Node, Tree, is_worth_one_of_the_names,
};
use crate::Now;
use crate::contract::Parts;
use crate::endre::matcher::Copy;
use crate::entropy::Entropy;
use crate::transfer::{Content, Item, RetransmitBuffer};
use crate::wire::{FlowId, NameEntry, StoreHeld};

/// What the sending half knows of chunks and of the peer's store.
pub(crate) struct Naming {
    keys: NameKeys,
    /// The one of them that is in use.
    key: NameKey,
    tree: Tree,
    hints: Hints,
    /// What unacknowledged blocks bring to the peer's store.
    under_way: UnderWay,
    clock_secs: u64,
    /// The peer's store, as far as is known.
    store: Option<Store>,
    tags: Tags,
    trust: Trust,
    /// Whether others are told what the store has.
    pub(crate) tells: bool,
    /// The entropy stage's recent results for each flow.
    spent: BTreeMap<FlowId, Spent>,
    scratch: Scratch,
}

/// Memory used again from block to block.
#[derive(Default)]
struct Scratch {
    /// Chunks not left to the log, and their tags.
    seen: Vec<(Node, u64)>,
    /// The bytes saved by the copies before each, and by all.
    saved: Vec<usize>,
    /// Parts the peer has, not worth a name.
    left: Vec<Range<usize>>,
}

/// What names are made with.
struct NameKeys {
    /// For the peer alone.
    own: NameKey,
    /// Between members of the group the peer is to be in.
    group: Option<NameKey>,
}

#[derive(Clone, Copy)]
struct Store {
    taking: bool,
    serial: u64,
}

/// A block to be named.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) plain: &'a [u8],
    /// The log's part of it.
    pub(crate) copies: &'a [Copy],
    /// The known blocks it consists of, as it was cut.
    pub(crate) parts: &'a Parts,
    pub(crate) price: Price,
}

/// When a block is named, and by which knowledge.
#[derive(Clone, Copy)]
struct Moment {
    now: Now,
    clock: u64,
    /// Whether the hints are believed.
    trusts: bool,
}

/// The names of a block; its memory is used again from block to block.
#[derive(Default)]
pub(crate) struct Named {
    /// In order.
    pub(crate) names: Vec<NameEntry>,
    /// The block without its named parts; only if there are names.
    pub(crate) residue: Vec<u8>,
    /// Whether the peer is to put the block into its store.
    pub(crate) keep: bool,
    /// The chunks the peer then has.
    pub(crate) news: Vec<PackedTag>,
}

impl Named {
    /// Starts a block without names.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.residue.clear();
        self.news.clear();
        self.keep = false;
    }

    /// Takes the chunks the peer has once it has put the block.
    pub(crate) fn take_news(&mut self) -> Vec<PackedTag> {
        if self.keep { std::mem::take(&mut self.news) } else { Vec::new() }
    }
}

impl Naming {
    /// Starts with what was saved, or says why not.
    pub(crate) fn new(config: &NamesConfig) -> (Self, Option<HintsError>) {
        let saved = config.saved.as_deref().map(|saved| Hints::restore(config.hint_memory, saved));
        let (hints, error) = match saved {
            Some(Ok(hints)) => (hints, None),
            Some(Err(error)) => (Hints::new(config.hint_memory), Some(error)),
            None => (Hints::new(config.hint_memory), None),
        };
        let keys = NameKeys { own: config.key.clone(), group: config.group.clone() };
        let naming = Self {
            key: keys.own.clone(),
            keys,
            tree: Tree::new(config.shape),
            hints,
            under_way: UnderWay::new(config.hint_memory / UNDER_WAY_SHARE),
            clock_secs: config.clock_secs,
            store: None,
            tags: Tags::default(),
            trust: Trust::default(),
            tells: false,
            spent: BTreeMap::new(),
            scratch: Scratch::default(),
        };
        (naming, error)
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Returns the bytes of memory of all that is known of chunks.
    pub(crate) fn memory(&self) -> u64 {
        self.hints.memory() + self.under_way.memory()
    }

    /// Meets a peer with a store, or with none, to which chunks may be named by their tags as `tags` says, and under
    /// the group's key if it has shown it is of the group.
    pub(crate) fn meet(&mut self, store: Option<u64>, tags: Tags, is_of_group: bool) {
        self.tags = tags;
        let group = self.keys.group.as_ref().filter(|_| is_of_group);
        self.key = group.unwrap_or(&self.keys.own).clone();
        if let Some(id) = store {
            // Hints are of names under one key: under another the same store is another one.
            let is_left_out = self.keys.group.is_some() && !is_of_group;
            self.hints.bind(if is_left_out { id ^ LEFT_OUT } else { id });
        }
        self.store = store.map(|_| Store { taking: true, serial: 0 });
        self.under_way.clear();
        // Nothing of it has been waited for: what is named before the answer is there finds out by itself.
        self.trust.meet(if store.is_some() { self.hints.probes() } else { &[] });
    }

    /// Whether the peer has a store.
    pub(crate) fn is_met(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.hints.clear();
        self.under_way.clear();
        // Nothing is known any more the store could lack.
        self.trust.meet(&[]);
    }

    /// Notes what a block brings to the peer's store, as soon as it is sent.
    pub(crate) fn sent(&mut self, news: &[PackedTag], seq: u64) {
        self.under_way.insert_all(news, seq);
    }

    /// Takes the peer's report of its store; an older one is passed over.
    pub(crate) fn handle_held(&mut self, held: &StoreHeld, now: Now) {
        let clock = self.clock(now);
        if let Some(store) = self.store.as_mut().filter(|store| held.serial > store.serial) {
            let comes_back = held.taking && !store.taking;
            *store = Store { taking: held.taking, serial: held.serial };
            if comes_back {
                // It could not tell what it has before.
                self.trust.ask(self.hints.probes());
            }
            self.hints.set_oldest(clock.saturating_sub(held.age_secs));
        }
    }

    /// Whether the peer puts what it is sent.
    pub(crate) fn is_put(&self) -> bool {
        self.store.is_some_and(|store| store.taking)
    }

    /// Takes note of an acknowledged block: its news were put, its absent named chunks as well, and the other named
    /// ones were there, unless they crossed all the same. Returns the chunks there now, if others are told.
    pub(crate) fn settle(&mut self, item: &Item, now: Now) -> Vec<PackedTag> {
        let clock = self.clock(now);
        let put = self.put_by(item);
        match self.trust.is_given() {
            true => self.hints.insert_all(&put, clock),
            // What a store doubted had of them it may have lost since.
            false => self.hints.renew_all(&put, clock),
        }
        self.trust.note_put(&put);
        self.keep_probe(item, clock);
        let (mut there, mut had_elsewhere) = (put.into_owned(), Vec::new());
        for (index, entry) in (0..).zip(&item.names) {
            if !item.absent.contains(&index) && !item.has_crossed(index) {
                let chunk = PackedTag::new(entry.name.tag(), entry.len);
                self.trust.confirm(entry);
                // A store taking nothing for now cannot say how far it reaches.
                let is_older = self.is_put() && self.hints.confirm(chunk, clock);
                had_elsewhere.extend(is_older.then(|| entry.range()));
                there.push(chunk);
            }
        }
        if let Content::Block { plain, .. } = &item.content
            && !had_elsewhere.is_empty()
        {
            // Whoever has a chunk has those in it.
            let is_in = |node: &Node, range: &Range<usize>| {
                range.start <= node.range().start && node.range().end <= range.end
            };
            for chunk in self.cut(plain, |node| had_elsewhere.iter().any(|range| is_in(node, range))) {
                self.hints.confirm(chunk, clock);
            }
        }
        there.retain(|chunk| self.tells && !chunk.is_smallest());
        there
    }

    /// Returns the chunks brought by a block. One with vain names is put whole, with chunks not looked for, and of
    /// equally doubtful knowledge.
    fn put_by<'i>(&mut self, item: &'i Item) -> Cow<'i, [PackedTag]> {
        match &item.content {
            Content::Block { plain, .. } if item.keep && !item.absent.is_empty() => {
                Cow::Owned(self.cut(plain, |_| true))
            }
            _ => Cow::Borrowed(&item.news),
        }
    }

    /// Returns those of a block's chunks wanted.
    fn cut(&mut self, plain: &[u8], is_wanted: impl Fn(&Node) -> bool) -> Vec<PackedTag> {
        let Self { key, tree, .. } = self;
        let mut chunks = Vec::new();
        tree.search(plain, |node| {
            let chunk = plain.get(node.range()).filter(|_| is_wanted(node));
            chunks.extend(chunk.map(|chunk| PackedTag::new(key.tag(chunk), node.len)));
            true
        });
        chunks
    }

    /// Notes chunks readable at the peer, sent by somebody else.
    pub(crate) fn stored(&mut self, chunks: &[PackedTag], now: Now) {
        let clock = self.clock(now);
        chunks.iter().for_each(|&chunk| self.hints.insert_told(chunk, clock));
    }

    /// Notes that the peer does not have chunks.
    pub(crate) fn forget<'n>(&mut self, names: impl Iterator<Item = &'n NameEntry>) {
        names.for_each(|entry| {
            self.hints.forget(entry.name.tag(), entry.len);
            self.under_way.forget(PackedTag::new(entry.name.tag(), entry.len));
        });
    }

    /// A block did not match in which chunks were named by their tags.
    pub(crate) fn distrust_tags(&mut self, now: Now) {
        self.tags.distrust(now);
    }

    /// Returns the price of the next block of a flow.
    pub(crate) fn price(&self, flow: FlowId, entropy: Entropy) -> Price {
        Price::new(entropy, self.spent.get(&flow).copied().unwrap_or_default())
    }

    /// Counts a body of a flow, and its length behind the entropy stage.
    pub(crate) fn count_spent(&mut self, flow: FlowId, into: usize, out: usize) {
        self.spent.entry(flow).or_default().count(into, out);
    }

    /// Gives back what a flow holds.
    pub(crate) fn finish_flow(&mut self, flow: FlowId) {
        self.spent.remove(&flow);
    }

    /// Names the parts of a block known to the peer's store and not covered by copies, into the cleared `named`. An
    /// unacknowledged chunk is named as well, with the block of `sent` bringing it.
    pub(crate) fn name(&mut self, source: &Source<'_>, sent: &RetransmitBuffer, now: Now, named: &mut Named) {
        let &Source { plain, copies, parts, price } = source;
        let Some(store) = self.store.filter(|_| plain.len() >= LEAST_BLOCK) else { return };
        self.cover(copies);
        let cost = plain.len() - self.scratch.saved.last().copied().unwrap_or(0);
        if cost <= LEFT_TO_LOG.max(plain.len() / COVERED_SHARE) {
            return;
        }
        let moment = Moment { now, clock: self.clock(now), trusts: self.trust.trusts() };
        let in_parts = parts.ends.last() == Some(&plain.len());
        let whole = [plain.len()];
        self.look(source, if in_parts { &parts.ends } else { &whole }, moment);
        self.walk(source, sent, moment, named);
        tags::settle(&mut named.names, plain, &self.key);
        match moment.trusts {
            true => self.trust.tried(!named.names.is_empty()),
            false => self.ask_instead(plain, price, now),
        }
        if !named.names.is_empty() {
            literals(&named.names, plain).for_each(|piece| named.residue.extend_from_slice(piece));
        }
        let known = named.names.iter().map(NameEntry::range).chain(self.scratch.left.iter().cloned());
        let known: usize = known.map(|range| cost_in(range, copies, &self.scratch.saved)).sum();
        let has_news = cost - known > plain.len() / COVERED_SHARE;
        let is_news = match in_parts {
            true => parts.are_root && named.names.len() > FEW,
            false => has_news || named.names.len() > MANY && !self.tree.shape().is_single(),
        };
        named.keep = store.taking && is_news;
        if named.keep && in_parts {
            self.tell_whole(plain, moment.clock, &mut named.news);
        }
    }

    fn cover(&mut self, copies: &[Copy]) {
        let saved = &mut self.scratch.saved;
        saved.clear();
        saved.push(0);
        let mut sum = 0;
        saved.extend(copies.iter().map(|copy| {
            sum += saved_by(copy);
            sum
        }));
    }

    /// Names the largest chunks of the block known and not left to the log.
    fn walk(&mut self, source: &Source<'_>, sent: &RetransmitBuffer, moment: Moment, out: &mut Named) {
        let &Source { plain, price, .. } = source;
        let Moment { now, clock, trusts } = moment;
        let Self { key, hints, under_way, tags, scratch: Scratch { seen, left, .. }, .. } = self;
        let Named { names, news, .. } = out;
        left.clear();
        let mut named = 0;
        for &(node, tag) in seen.iter() {
            if node.at < named {
                continue;
            }
            let held = trusts && hints.lookup(tag, node.len, clock);
            let behind = match trusts && !held {
                true => behind(under_way, PackedTag::new(tag, node.len), sent),
                false => None,
            };
            if (held || behind.is_some())
                && let Some(chunk) = plain.get(node.range())
            {
                let (at, len, level) = (node.at, node.len, node.level);
                let is_own = || behind.is_some() || hints.is_own(tag, len);
                let is_short = tags.suffice_for(len, is_own, now);
                let rest = plain.len() - at as usize;
                if !is_worth_one_of_the_names(names.len(), len as usize, rest)
                    || price.is_below_name(chunk, if is_short { SHORT_NAME } else { NAME })
                {
                    left.push(node.range());
                } else {
                    let name = match is_short {
                        true => ChunkName::Short(tag),
                        false => ChunkName::Full(key.name_tagged(tag, chunk)),
                    };
                    names.push(NameEntry { at, len, level, name, behind });
                }
                named = at + len;
            } else {
                news.push(PackedTag::new(tag, node.len));
            }
        }
    }

    /// Makes news of what the peer has once it has put a block of parts. By itself the block is not cut into these: it
    /// is cut as a whole.
    fn tell_whole(&mut self, plain: &[u8], clock: u64, news: &mut Vec<PackedTag>) {
        let Self { key, tree, hints, .. } = self;
        news.clear();
        tree.search(plain, |node| {
            let Some(chunk) = plain.get(node.range()) else { return false };
            let tag = key.tag(chunk);
            let is_new = !hints.lookup(tag, node.len, clock);
            news.extend(Some(PackedTag::new(tag, node.len)).filter(|_| is_new));
            is_new
        });
    }

    /// Computes the tags of all chunks that may be named and are not left to the log, the larger before those in them,
    /// and asks for the places of their hints, so the memory of one does not have to be waited for before the next. A
    /// block known whole is not cut.
    fn look(&mut self, source: &Source<'_>, parts: &[usize], moment: Moment) {
        let Self { key, tree, hints, scratch: Scratch { seen, saved, .. }, .. } = self;
        let &Source { plain, copies, price, .. } = source;
        let (least, Moment { clock, trusts, .. }) = (price.least_named(), moment);
        seen.clear();
        let mut start = 0;
        for &end in parts {
            let first = seen.len();
            tree.search(plain.get(start..end).unwrap_or_default(), |node: &Node| {
                let node = Node { at: start as u32 + node.at, ..*node };
                let len = node.len as usize;
                if len < least {
                    return false;
                }
                let cost = cost_in(node.range(), copies, saved);
                if cost <= LEFT_TO_LOG && cost < len {
                    return false;
                }
                let Some(chunk) = plain.get(node.range()) else { return false };
                let tag = key.tag(chunk);
                seen.push((node, tag));
                if seen.len() == first + 1 && trusts && hints.lookup(tag, node.len, clock) {
                    return false;
                }
                hints.prefetch(PackedTag::new(tag, node.len));
                true
            });
            start = end;
        }
    }

    fn clock(&self, now: Now) -> u64 {
        self.clock_secs.saturating_add(now.as_secs())
    }
}

/// Returns how far back the block was sent bringing a chunk, if it is not acknowledged: until then the hints do not
/// know of the chunk.
fn behind(under_way: &UnderWay, chunk: PackedTag, sent: &RetransmitBuffer) -> Option<NonZeroU32> {
    let seq = under_way.find(chunk).filter(|&seq| sent.item(seq).is_some_and(|item| item.keep))?;
    NonZeroU32::new(u32::try_from(sent.next_seq() - seq).ok()?)
}

/// Returns the parts of a block that are not named, in order; some may be empty.
pub(crate) fn literals<'a>(names: &'a [NameEntry], plain: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(names.iter().map(NameEntry::end));
    let ends = names.iter().map(|entry| entry.at as usize).chain([plain.len()]);
    starts.zip(ends).map(|(start, end)| plain.get(start..end).unwrap_or_default())
}

/// Returns the cost of a range of the block left to the log: the bytes outside of copies, and the copies ending in it;
/// `saved` is as [`Naming::cover`] leaves it.
fn cost_in(range: Range<usize>, copies: &[Copy], saved: &[usize]) -> usize {
    let before = |position: usize| {
        let whole = copies.partition_point(|copy| copy.end() <= position);
        let cut =
            copies.get(whole).map_or(0, |copy| position.saturating_sub(copy.at as usize).min(saved_by(copy)));
        saved.get(whole).copied().unwrap_or(0) + cut
    };
    range.len() - (before(range.end) - before(range.start))
}

/// Returns how many bytes less a block takes for a copy.
fn saved_by(copy: &Copy) -> usize {
    (copy.len as usize).saturating_sub(COPY)
}

/// Replaces `out` by what `names` leave of `copies`, placed as in the residue.
pub(crate) fn trim(copies: &[Copy], names: &[NameEntry], out: &mut Vec<Copy>) {
    out.clear();
    let (mut passed, mut removed) = (0, 0);
    for copy in copies {
        while let Some(entry) = names.get(passed).filter(|entry| entry.end() <= copy.at as usize) {
            removed += entry.len;
            passed += 1;
        }
        let (mut at, end) = (copy.at, copy.end() as u32);
        let mut gone = removed;
        for entry in names.iter().skip(passed).take_while(|entry| entry.at < end) {
            push_piece(copy, at..entry.at, gone, out);
            at = at.max(entry.end() as u32);
            gone += entry.len;
        }
        push_piece(copy, at..end, gone, out);
    }
}

/// Appends the part `range` of a copy, unless it is not worth a token.
fn push_piece(copy: &Copy, range: Range<u32>, removed: u32, out: &mut Vec<Copy>) {
    let len = range.end.saturating_sub(range.start);
    if len == copy.len || len >= LEAST_PIECE {
        let source = copy.source.plus(u64::from(range.start - copy.at));
        out.push(Copy { at: range.start - removed, len, source });
    }
}

/// Tells the hints of a store whose gateway is to be of a group and is not from those under the group's key.
const LEFT_OUT: u64 = 0x6f75_7473_6964_6572;
/// What a copy takes.
const COPY: usize = 5;
/// A chunk partly in the log, at a cost of no more than a name's length and a little, is left to it.
const LEFT_TO_LOG: usize = 48;
/// A piece of a copy that names left is a literal below this.
const LEAST_PIECE: u32 = 16;
/// A block that costs at most one byte in so many is left to the log, or is not put into the store.
const COVERED_SHARE: usize = 128;
/// A block of more names than this is put for its larger chunks, so it takes fewer names, and reads, the next time.
const MANY: usize = 8;
/// A root of no more parts the peer has is not put as a whole: one name instead of so many saves little.
const FEW: usize = 2;
/// So small a part of the memory for hints is for what is under way: with 16 MiB, 16,384 chunks of 256 bytes and more.
const UNDER_WAY_SHARE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOffset;

    fn copy(at: u32, len: u32, source: u64) -> Copy {
        Copy { at, len, source: LogOffset(source) }
    }

    fn entry(at: u32, len: u32) -> NameEntry {
        NameEntry { at, len, level: 0, name: ChunkName::Short(0), behind: None }
    }

    fn trimmed(copies: &[Copy], names: &[NameEntry]) -> Vec<Copy> {
        let mut out = Vec::new();
        trim(copies, names, &mut out);
        out
    }

    #[test]
    fn named_parts_are_cut_out_of_copies() {
        let whole = copy(100, 1000, 5000);
        assert_eq!(trimmed(&[whole], &[]), [whole]);
        assert_eq!(trimmed(&[whole], &[entry(0, 100)]), [copy(0, 1000, 5000)]);
        assert_eq!(trimmed(&[whole], &[entry(1100, 50)]), [whole]);
        assert_eq!(trimmed(&[whole], &[entry(50, 100)]), [copy(50, 950, 5050)]);
        assert_eq!(trimmed(&[whole], &[entry(1000, 200)]), [copy(100, 900, 5000)]);
        assert_eq!(trimmed(&[whole], &[entry(90, 1100)]), []);
        assert_eq!(
            trimmed(&[whole], &[entry(300, 100), entry(405, 95), entry(600, 200)]),
            [copy(100, 200, 5000), copy(305, 100, 5400), copy(405, 300, 5700)]
        );
        // A chunk over the end of one copy and the start of the next.
        let next = copy(1100, 100, 9000);
        assert_eq!(trimmed(&[whole, next], &[entry(1050, 75)]), [copy(100, 950, 5000), copy(1050, 75, 9025)]);
    }

    #[test]
    fn part_left_to_the_log_costs_literals_and_copies() {
        let copies = [copy(10, 20, 0), copy(40, 10, 0)];
        let saved = [0, 20 - COPY, 30 - 2 * COPY];
        for (range, literals, ends) in [
            (0..100, 70, 2),
            (0..10, 10, 0),
            (10..30, 0, 1),
            (10..25, 0, 0),
            (25..30, 0, 1),
            (15..45, 10, 1),
            (30..40, 10, 0),
            (45..60, 10, 1),
            (60..61, 1, 0),
        ] {
            assert_eq!(cost_in(range.clone(), &copies, &saved), literals + ends * COPY, "{range:?}");
        }
        assert_eq!(cost_in(5..9, &[], &[0]), 4);
    }
}
