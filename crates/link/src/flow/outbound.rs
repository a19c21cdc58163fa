//! The stream from our application: queue, credit, blocks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use oncewire_codec::contract::Tail;
use oncewire_codec::wire::{MAX_BLOCK, Message, Reset, ResetReason};

use crate::budget::{Part, SEND_QUEUE, Sum};

/// The stream from our application.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    messages: VecDeque<Message>,
    queue: VecDeque<Bytes>,
    queued: usize,
    /// The same, as all flows' are counted.
    counted: Part,
    /// The flow offset of the next byte to be sent.
    pub(crate) sent: u64,
    /// The first flow offset beyond the credit.
    pub(crate) credit: u64,
    /// The grant in the peer's hello, the least size of windows.
    initial: u64,
    /// The credit that ended within the next block; it waits for more.
    short_of: Option<u64>,
    finished: bool,
    fin_sent: bool,
    /// The reset at the end of the stream, behind the queued bytes within credit.
    reset: Option<ResetReason>,
    /// Whether more of the stream is about to come.
    more: bool,
    /// Whether the queue waits for it.
    held: bool,
    /// Whether the application waits for room.
    pub(crate) waits_for_room: bool,
    /// Whether the next bytes are a cipher.
    is_cipher: bool,
    /// The offsets of changes, and the new values, in order.
    turns: VecDeque<(u64, bool)>,
}

/// A piece at least this long is a block of its own rather than copied together with the next.
const OWN_BLOCK: usize = 16 * 1024;

impl Outbound {
    /// Starts with a flow's first credit; queued bytes are counted in a sum.
    pub(crate) fn new(credit: u64, queued: &Sum) -> Self {
        Self { credit, initial: credit, counted: Part::of(queued), ..Self::default() }
    }

    /// Bytes still to be queued below such a limit.
    pub(crate) fn room(&self, limit: u64) -> usize {
        (limit as usize).saturating_sub(self.queued)
    }

    /// Whether a waiting application is to be read again: with little queued, not for a few bytes each time.
    pub(crate) fn has_room_again(&self, limit: u64) -> bool {
        let least = if limit < SEND_QUEUE { limit as usize / 4 } else { 1 };
        self.room(limit) >= least
    }

    /// Bytes queued beyond the room, except the excess of the last block.
    pub(crate) fn beyond_room(&self, limit: u64) -> usize {
        let longer = if limit < SEND_QUEUE { 0 } else { MAX_BLOCK };
        self.queued.saturating_sub(limit as usize + longer)
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.expect(false);
        self.queued += bytes.len();
        self.counted.set(self.queued as u64);
        self.queue.push_back(bytes);
    }

    /// Says whether more of the stream is about to come: then the queue may wait for it.
    pub(crate) fn expect(&mut self, more: bool) {
        (self.more, self.held) = (more, false);
    }

    /// Takes note that bytes from offset `at` on, queued or yet to come, are a cipher, or no longer.
    pub(crate) fn turn(&mut self, at: u64, is_cipher: bool) {
        let last = self.turns.back().map_or(0, |(at, _)| *at);
        self.turns.push_back((at.max(last).max(self.sent), is_cipher));
    }

    /// Whether the next block is of a cipher.
    pub(crate) fn is_cipher(&mut self) -> bool {
        while let Some(&(at, is_cipher)) = self.turns.front()
            && at <= self.sent
        {
            self.turns.pop_front();
            self.is_cipher = is_cipher;
        }
        self.is_cipher
    }

    /// Bytes until the stream turns to a cipher, or back.
    fn until_turn(&self) -> u64 {
        self.turns
            .iter()
            .map(|(at, _)| at.saturating_sub(self.sent))
            .find(|&bytes| bytes > 0)
            .unwrap_or(u64::MAX)
    }

    /// Takes all messages that can be sent now.
    pub(crate) fn take_messages(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.pop_message()).collect()
    }

    pub(crate) fn push_message(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Takes the next message; a reset comes when no block can be sent any more.
    pub(crate) fn pop_message(&mut self) -> Option<Message> {
        if self.messages.is_empty() && !self.has_block() {
            let reason = self.reset.take()?;
            self.abandon();
            return Some(Message::Reset(Reset { reason, behind: Some(self.sent) }));
        }
        self.messages.pop_front()
    }

    /// Ends the stream with a reset.
    pub(crate) fn reset(&mut self, reason: ResetReason) {
        (self.finished, self.fin_sent) = (true, true);
        self.reset = Some(reason);
        self.short_of = None;
        self.expect(false);
    }

    fn has_block(&self) -> bool {
        let is_short = self.short_of.is_some_and(|credit| credit >= self.credit);
        !self.queue.is_empty() && self.sent < self.credit && !self.held && !is_short
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
        self.expect(false);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Drops unsent bytes.
    pub(crate) fn abandon(&mut self) {
        self.messages.clear();
        self.queue = VecDeque::new();
        self.queued = 0;
        self.counted.set(0);
        self.reset = None;
        self.finished = true;
        self.fin_sent = true;
    }

    /// Whether a block or message could be sent now.
    pub(crate) fn can_send(&self) -> bool {
        !self.messages.is_empty()
            || self.reset.is_some()
            || self.has_block()
            || (self.queue.is_empty() && self.finished && !self.fin_sent)
    }

    /// Whether all bytes of the application have been sent once.
    pub(crate) fn is_done(&self) -> bool {
        self.fin_sent && self.messages.is_empty() && self.reset.is_none()
    }

    /// Whether anything of the stream waits, if only the reset at its end.
    pub(crate) fn holds_stream(&self) -> bool {
        !self.queue.is_empty() || self.reset.is_some()
    }

    /// Takes the next block, of at most `most` bytes and [`MAX_BLOCK`]: its flow offset, its bytes, and whether it ends
    /// the stream.
    pub(crate) fn pop_block(&mut self, most: usize) -> Option<(u64, Bytes, bool)> {
        let limit = self.block_limit(most);
        let plain = if limit == 0 { Bytes::new() } else { self.gather(limit, OWN_BLOCK) };
        self.finish_block(plain)
    }

    /// Takes the next block, of at most [`MAX_BLOCK`] bytes, with its end from `end`, given its possible content and
    /// the bytes behind. A block that may grow with the next bytes waits for them, and one that may grow with more
    /// credit waits for credit, if this is not too much.
    pub(crate) fn pop_cut_block(
        &mut self,
        end: impl FnOnce(&[u8], Tail) -> usize,
    ) -> Option<(u64, Bytes, bool)> {
        let limit = self.block_limit(MAX_BLOCK);
        let mut plain = if limit == 0 { Bytes::new() } else { self.gather(limit, limit) };
        if !plain.is_empty() {
            // Bytes behind a turn are coded otherwise, so none of them is waited for.
            let is_turn = plain.len() as u64 == self.until_turn();
            let may_wait = self.may_wait_for_credit(plain.len()).filter(|_| !is_turn);
            let behind = match may_wait {
                _ if is_turn || self.queue.is_empty() && self.finished => Tail::EndOfStream,
                Some(least @ 1..) => Tail::Blocked(least),
                _ => Tail::More,
            };
            let cut = end(&plain, behind).max(1);
            let is_whole = cut < plain.len();
            self.held = !is_whole && self.more && plain.len() < limit;
            self.short_of = Some(self.credit).filter(|_| !is_whole && may_wait == Some(0));
            if self.held || self.short_of.is_some() {
                self.queue.push_front(plain);
                return None;
            }
            if cut < plain.len() {
                let rest = plain.split_off(cut);
                // A short block would keep the memory of all examined bytes until it is acknowledged.
                if cut < rest.len() / 4 {
                    plain = Bytes::copy_from_slice(&plain);
                }
                self.queue.push_front(rest);
            }
        }
        self.finish_block(plain)
    }

    /// Returns how many bytes of a block of so many may leave without more credit, if credit ends it: a cut at the
    /// end of credit is found in no store. The peer grants more once half a window is used, so a sender that holds
    /// back less of the smallest possible window waits only for an application without reads; with a quarter, little
    /// of it is idle.
    fn may_wait_for_credit(&self, len: usize) -> Option<usize> {
        let left = self.credit.saturating_sub(self.sent);
        let is_ended = len as u64 == left && !self.queue.is_empty() && len < MAX_BLOCK;
        (is_ended && self.reset.is_none()).then(|| left.saturating_sub(self.initial / 4) as usize)
    }

    fn block_limit(&self, most: usize) -> usize {
        let most = self.until_turn().min(most.min(MAX_BLOCK) as u64);
        self.credit.saturating_sub(self.sent).min(most) as usize
    }

    /// Counts a block taken off the queue.
    fn finish_block(&mut self, plain: Bytes) -> Option<(u64, Bytes, bool)> {
        let offset = self.sent;
        self.queued -= plain.len();
        self.counted.set(self.queued as u64);
        self.sent += plain.len() as u64;
        let fin = self.queue.is_empty() && self.finished && !self.fin_sent;
        self.fin_sent |= fin;
        (fin || !plain.is_empty()).then_some((offset, plain, fin))
    }

    /// Takes up to `limit` bytes off the queue; pieces below `own` are put together.
    fn gather(&mut self, limit: usize, own: usize) -> Bytes {
        let Some(mut first) = self.queue.pop_front() else { return Bytes::new() };
        if first.len() > limit {
            self.queue.push_front(first.split_off(limit));
            return first;
        }
        if self.queue.is_empty() || first.len() >= own.min(limit) {
            return first;
        }
        let mut block = BytesMut::with_capacity(limit.min(self.queued));
        block.extend_from_slice(&first);
        while let Some(mut next) = self.queue.pop_front() {
            let room = limit - block.len();
            if next.len() > room {
                self.queue.push_front(next.split_off(room));
            }
            block.extend_from_slice(&next);
            if block.len() == limit {
                break;
            }
        }
        block.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(pieces: &[usize], credit: u64) -> Outbound {
        let mut out = Outbound::new(credit, &Sum::default());
        pieces.iter().for_each(|&len| out.push(Bytes::from(vec![7; len])));
        out
    }

    #[test]
    fn small_pieces_travel_together_and_large_ones_alone() {
        let mut out = outbound(&[10, 20, 30], 1 << 20);
        assert_eq!(
            out.pop_block(MAX_BLOCK).map(|(offset, plain, fin)| (offset, plain.len(), fin)),
            Some((0, 60, false))
        );
        let mut out = outbound(&[40_000, 20], 1 << 20);
        assert_eq!(out.pop_block(MAX_BLOCK).map(|(_, plain, _)| plain.len()), Some(40_000));
        let mut out = outbound(&[MAX_BLOCK + 5], 1 << 20);
        assert_eq!(out.pop_block(MAX_BLOCK).map(|(_, plain, _)| plain.len()), Some(MAX_BLOCK));
        assert_eq!(
            out.pop_block(MAX_BLOCK).map(|(offset, plain, _)| (offset, plain.len())),
            Some((MAX_BLOCK as u64, 5))
        );
    }

    #[test]
    fn cut_block_leaves_the_rest_for_the_next() {
        let mut out = outbound(&[30_000, 30_000, 30_000], 1 << 20);
        out.finish();
        let mut seen = Vec::new();
        while let Some((_, plain, fin)) = out.pop_cut_block(|bytes, behind| {
            seen.push((bytes.len(), behind == Tail::EndOfStream));
            bytes.len().min(40_000)
        }) {
            seen.push((plain.len(), fin));
        }
        assert_eq!(
            seen,
            [
                (65_536, false),
                (40_000, false),
                (50_000, true),
                (40_000, false),
                (10_000, true),
                (10_000, true)
            ]
        );
        assert!(out.is_done());
    }

    #[test]
    fn bytes_short_of_a_cut_wait_for_more() {
        let whole = |bytes: &[u8], _: Tail| bytes.len();
        let releases: [fn(&mut Outbound); 4] = [
            |out| out.push(Bytes::new()),
            |out| out.expect(false),
            Outbound::finish,
            |out| out.reset(ResetReason::Application),
        ];
        for release in releases {
            let mut out = outbound(&[70_000], 1 << 20);
            out.expect(true);
            assert_eq!(out.pop_cut_block(whole).map(|(_, plain, _)| plain.len()), Some(65_536));
            assert_eq!(out.pop_cut_block(whole), None);
            assert!(!out.can_send() && !out.is_done());
            release(&mut out);
            assert!(out.can_send());
            assert_eq!(out.pop_cut_block(whole).map(|(_, plain, _)| plain.len()), Some(4_464));
        }
        let mut out = outbound(&[4_464], 1000);
        out.expect(true);
        assert_eq!(out.pop_cut_block(whole).map(|(_, plain, _)| plain.len()), Some(1000), "credit");
    }

    #[test]
    fn block_short_of_credit_waits_unless_the_peer_might_too() {
        let whole = |bytes: &[u8], _: Tail| bytes.len();
        let len = |block: Option<(u64, Bytes, bool)>| block.map(|(_, plain, _)| plain.len());
        let mut out = outbound(&[200_000], 80_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        assert_eq!(len(out.pop_cut_block(whole)), None);
        assert!(!out.can_send());
        out.credit += 1;
        assert!(out.can_send());
        assert_eq!(len(out.pop_cut_block(whole)), None);
        out.credit = 3 * MAX_BLOCK as u64;
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        // The last bytes of a stream need no more credit than their own.
        out.credit = 200_000;
        assert_eq!(len(out.pop_cut_block(whole)), Some(200_000 - 3 * MAX_BLOCK));
        // With more of the window left, the most bytes wait, from a smaller chunk's end on if there is one.
        let mut out = outbound(&[200_000], 100_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        let mut seen = None;
        let chunk = out.pop_cut_block(|_, behind| {
            seen = Some(behind);
            10_000
        });
        assert_eq!((seen, len(chunk)), (Some(Tail::Blocked(100_000 - MAX_BLOCK - 25_000)), Some(10_000)));
        assert_eq!(len(out.pop_cut_block(whole)), None);
        let mut out = outbound(&[200_000], 100_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        assert_eq!(len(out.pop_cut_block(whole)), Some(100_000 - MAX_BLOCK));
        // Bytes before a reset are sent as far as credit goes.
        let mut out = outbound(&[200_000], 80_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        assert_eq!(len(out.pop_cut_block(whole)), None);
        out.reset(ResetReason::Application);
        assert_eq!(len(out.pop_cut_block(whole)), Some(80_000 - MAX_BLOCK));
        assert!(out.pop_message().is_some() && out.is_done());
    }

    #[test]
    fn a_short_block_keeps_no_memory_but_its_own() {
        let mut out = outbound(&[MAX_BLOCK, MAX_BLOCK], 1 << 20);
        for _ in 0..20 {
            let (_, plain, _) = out.pop_cut_block(|bytes, _| bytes.len().min(3000)).unwrap();
            assert!(plain.len() == 3000 && plain.is_unique());
        }
    }

    #[test]
    fn nothing_is_sent_beyond_credit_and_the_end_comes_last() {
        let mut out = outbound(&[100], 60);
        out.finish();
        assert_eq!(out.pop_block(MAX_BLOCK).map(|(_, plain, fin)| (plain.len(), fin)), Some((60, false)));
        assert!(!out.can_send());
        assert_eq!(out.pop_block(MAX_BLOCK), None);
        out.credit = 200;
        assert_eq!(out.pop_block(MAX_BLOCK).map(|(_, plain, fin)| (plain.len(), fin)), Some((40, true)));
        assert!(out.is_done() && !out.can_send());
    }
}
