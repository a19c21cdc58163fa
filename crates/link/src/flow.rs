//! The state of one flow.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use oncewire_codec::contract::Behind;
use oncewire_codec::wire::{
    Destination, FlowId, LaneId, MAX_BLOCK, Message, OpenFailure, Reset, ResetReason,
};
use oncewire_codec::{Now, Plan};

use crate::brought::Brought;
use crate::budget::{Part, SEND_QUEUE, Sum};
use crate::classify::{Cipher, Recogniser, Turn};
use crate::credit::Window;
use crate::reassembly::Reassembly;
use crate::sharing::Priority;

/// One flow, as one end of the link sees it.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// The flow's name across links and logs.
    pub(crate) name: u128,
    pub(crate) destination: Destination,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) plan: Option<Plan>,
    /// Whether it is the peer's policy by which there is no plan.
    pub(crate) peer_lowered: bool,
    /// What policy says; none: by what was sent.
    pub(crate) priority: Option<Priority>,
    /// The cipher that the flow turned out to be, in either direction.
    pub(crate) cipher: Option<Begun>,
    /// What is known of what our application sends.
    pub(crate) sent_kind: Recogniser,
    /// What is known of what our application is given, once our side has begun TLS.
    pub(crate) received_kind: Option<Box<Recogniser>>,
    pub(crate) opened_at: Now,
    pub(crate) lane: Option<LaneId>,
    pub(crate) last_lane: Option<LaneId>,
    /// Whether the flow stands in its lane's queue.
    pub(crate) queued_on_lane: bool,
    pub(crate) out: Outbound,
    pub(crate) inbound: Reassembly,
    pub(crate) window: Window,
    /// Whether a grant waits to be sent.
    pub(crate) credit_due: bool,
    pub(crate) open: OpenState,
    pub(crate) over: Option<Over>,
    /// The peer's reset, which waits for what was sent before it.
    pub(crate) reset: Option<WaitingReset>,
    /// Whether the application has been told of the far stream's end.
    pub(crate) far_end_told: bool,
    pub(crate) delivered_in: u64,
    pub(crate) keepalive: Keepalive,
    /// Bytes of frames that were sent for it, and that came for it.
    pub(crate) wire: [u64; 2],
    /// On what lane it comes.
    pub(crate) brought: Brought,
    /// The first credit of this flow's window, as all flows' are counted.
    #[expect(dead_code, reason = "it counts for as long as the flow is there")]
    pub(crate) first_credit: Part,
    /// What the application has not taken of what has come.
    pub(crate) received: Part,
}

/// How often applications' hosts probe the flow's connections, in seconds of silence; none if they do not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keepalive {
    /// The host of our application, as the peer was told.
    pub(crate) ours: Option<u16>,
    /// The host of the far one.
    pub(crate) far: Option<u16>,
}

/// A cipher that began somewhere in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) cipher: Cipher,
    /// How many bytes of the stream were before its first record.
    pub(crate) after: u64,
}

/// How far the opening has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    /// At the opening side: no answer yet.
    Asked,
    /// At the opening side: answered, the application not told yet.
    Answered(Result<SocketAddr, OpenFailure>),
    /// At the accepting side: the far connect is under way.
    Offered,
    /// Both sides know.
    Open,
}

/// Why a flow is over, and whether the application knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) reason: ResetReason,
    pub(crate) told: bool,
}

/// A reset that came before what was sent before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingReset {
    pub(crate) reason: ResetReason,
    /// The flow offset behind the last byte that is to come.
    pub(crate) behind: u64,
    pub(crate) deadline: Now,
}

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
    /// The first flow offset that may not be sent.
    pub(crate) credit: u64,
    /// What the peer's hello grants, which windows are never smaller than.
    initial: u64,
    /// The credit that ended before the block did which is to be sent next; it waits for more.
    short_of: Option<u64>,
    finished: bool,
    fin_sent: bool,
    /// The reset that ends the stream behind what credit allows of the queue.
    reset: Option<ResetReason>,
    /// Whether more of the stream is about to come.
    more: bool,
    /// Whether what is queued waits for it.
    held: bool,
    /// Whether the application waits for room.
    pub(crate) waits_for_room: bool,
    /// Whether what is sent next is a cipher.
    is_cipher: bool,
    /// The offsets at which that changes, and to what, in order.
    turns: VecDeque<(u64, bool)>,
}

/// A piece at least this long is a block of its own rather than copied together with the next.
const OWN_BLOCK: usize = 16 * 1024;

impl Outbound {
    /// Starts with a flow's first credit; what is queued is counted in a sum.
    pub(crate) fn new(credit: u64, queued: &Sum) -> Self {
        Self { credit, initial: credit, counted: Part::of(queued), ..Self::default() }
    }

    /// Bytes that may still be queued of so many.
    pub(crate) fn room(&self, limit: u64) -> usize {
        (limit as usize).saturating_sub(self.queued)
    }

    /// Whether an application that waits is to be read again: where little is queued, not for a few bytes each time.
    pub(crate) fn has_room_again(&self, limit: u64) -> bool {
        let least = if limit < SEND_QUEUE { limit as usize / 4 } else { 1 };
        self.room(limit) >= least
    }

    /// Bytes that are queued although there was no room, but for what the last block was longer than the room.
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

    /// Says whether more of the stream is about to come: then what is queued may wait for it.
    pub(crate) fn expect(&mut self, more: bool) {
        (self.more, self.held) = (more, false);
    }

    /// Takes note that what stands from offset `at` on, be it queued or yet to come, is a cipher, or is none any more.
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
    fn reset(&mut self, reason: ResetReason) {
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

    /// Drops what was not sent.
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

    /// Whether everything that the application gave has been sent once.
    pub(crate) fn is_done(&self) -> bool {
        self.fin_sent && self.messages.is_empty() && self.reset.is_none()
    }

    /// Whether anything of the stream waits, be it only the reset that ends it.
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

    /// Takes the next block, of at most [`MAX_BLOCK`] bytes, but where `end` says it should end, given what could be in
    /// it and what is behind that. What could be longer with what is about to come waits for that, and what could be with
    /// more credit waits for credit, if that is not too much.
    pub(crate) fn pop_cut_block(
        &mut self,
        end: impl FnOnce(&[u8], Behind) -> usize,
    ) -> Option<(u64, Bytes, bool)> {
        let limit = self.block_limit(MAX_BLOCK);
        let mut plain = if limit == 0 { Bytes::new() } else { self.gather(limit, limit) };
        if !plain.is_empty() {
            // What is behind a turn is coded otherwise, so nothing of it is waited for.
            let is_turn = plain.len() as u64 == self.until_turn();
            let may_wait = self.may_wait_for_credit(plain.len()).filter(|_| !is_turn);
            let behind = match may_wait {
                _ if is_turn || self.queue.is_empty() && self.finished => Behind::Nothing,
                Some(least @ 1..) => Behind::Later(least),
                _ => Behind::More,
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
                // A short block would keep the memory of all that was looked at until it is acknowledged.
                if cut < rest.len() / 4 {
                    plain = Bytes::copy_from_slice(&plain);
                }
                self.queue.push_front(rest);
            }
        }
        self.finish_block(plain)
    }

    /// Returns how many bytes of a block of so many are not to wait for more credit, if that ends it: a cut where it ended
    /// is found in no store. The peer grants more once half a window is used, so whoever holds back less of the smallest window
    /// that there can be waits for nothing but an application that reads; with a quarter, little of it is idle.
    fn may_wait_for_credit(&self, len: usize) -> Option<usize> {
        let left = self.credit.saturating_sub(self.sent);
        let is_ended = len as u64 == left && !self.queue.is_empty() && len < MAX_BLOCK;
        (is_ended && self.reset.is_none()).then(|| left.saturating_sub(self.initial / 4) as usize)
    }

    fn block_limit(&self, most: usize) -> usize {
        let most = self.until_turn().min(most.min(MAX_BLOCK) as u64);
        self.credit.saturating_sub(self.sent).min(most) as usize
    }

    /// Counts a block that was taken off the queue.
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

impl Flow {
    /// Looks for ciphers in what our application sends, before it is queued; returns whether the outcome changed.
    pub(crate) fn classify_sent(&mut self, bytes: &[u8]) -> bool {
        if self.plan.is_none() {
            return false;
        }
        let before = self.cipher;
        let (out, cipher) = (&mut self.out, &mut self.cipher);
        self.sent_kind.handle(bytes, |turn| {
            out.turn(turn.at, turn.cipher.is_some());
            *cipher = begun(turn);
        });
        if self.received_kind.is_none() && self.sent_kind.has_hello() {
            self.received_kind = Some(Box::new(Recogniser::from(self.delivered_in)));
        }
        self.cipher != before
    }

    /// Looks for ciphers in what our application is given; returns whether the outcome changed.
    pub(crate) fn classify_received(&mut self, bytes: &[u8]) -> bool {
        let (before, cipher) = (self.cipher, &mut self.cipher);
        if let Some(kind) = &mut self.received_kind {
            kind.handle(bytes, |turn| *cipher = begun(turn));
        }
        self.cipher != before
    }

    /// Counts what has come and is not taken.
    pub(crate) fn count_received(&mut self) {
        self.received.set(self.inbound.taken_in().saturating_sub(self.window.consumed()));
    }

    /// Whether our application, which takes `taking` bytes now, has taken all that there is. The shell may be faster: what
    /// it was given waits there for an application that does not read.
    pub(crate) fn waits(&self, taking: u64) -> bool {
        !self.inbound.has_ready() && self.window.consumed() + taking >= self.delivered_in
    }

    /// The class of what this side sends: what policy says, else `Bulk` from `bulk_after` bytes on.
    pub(crate) fn priority(&self, bulk_after: u64) -> Priority {
        let by_size = if self.out.sent >= bulk_after { Priority::Bulk } else { Priority::Normal };
        self.priority.unwrap_or(by_size)
    }

    /// How what this side sends is coded, if it is.
    pub(crate) fn plan(&mut self) -> Option<Plan> {
        let is_cipher = self.out.is_cipher();
        self.plan.filter(|_| !is_cipher)
    }

    /// Ends the flow, both directions; an application that is yet to be told still gets what arrived before.
    pub(crate) fn end(&mut self, reason: ResetReason, told: bool) {
        self.out.abandon();
        self.close(reason, told);
    }

    /// Ends the flow for our application, which knows; the far one gets what was queued, as far as credit goes,
    /// and then a reset.
    pub(crate) fn abort(&mut self, reason: ResetReason) {
        self.out.reset(reason);
        self.close(reason, true);
    }

    fn close(&mut self, reason: ResetReason, told: bool) {
        if told {
            self.inbound.clear();
            self.received.set(0);
        }
        self.credit_due = false;
        if self.over.is_none() {
            self.over = Some(Over { reason, told });
        }
    }

    /// Whether our application has nothing more to expect and nothing more to send.
    pub(crate) fn is_done(&self) -> bool {
        // An answer that the application has not been told yet keeps the flow.
        !matches!(self.open, OpenState::Answered(_))
            && self.out.is_done()
            && (self.over.is_some_and(|over| over.told) || self.far_end_told)
    }
}

fn begun(turn: Turn) -> Option<Begun> {
    turn.cipher.map(|cipher| Begun { cipher, after: turn.begins })
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
    fn a_block_that_is_cut_leaves_the_rest_for_the_next() {
        let mut out = outbound(&[30_000, 30_000, 30_000], 1 << 20);
        out.finish();
        let mut seen = Vec::new();
        while let Some((_, plain, fin)) = out.pop_cut_block(|bytes, behind| {
            seen.push((bytes.len(), behind == Behind::Nothing));
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
    fn what_is_short_of_a_cut_waits_for_what_is_about_to_come() {
        let whole = |bytes: &[u8], _: Behind| bytes.len();
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
    fn what_credit_would_cut_waits_for_credit_unless_the_peer_might_wait_for_it_too() {
        let whole = |bytes: &[u8], _: Behind| bytes.len();
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
        // With more of the window left, what is to wait is as much as may, from a smaller chunk's end on if there is one.
        let mut out = outbound(&[200_000], 100_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        let mut seen = None;
        let chunk = out.pop_cut_block(|_, behind| {
            seen = Some(behind);
            10_000
        });
        assert_eq!((seen, len(chunk)), (Some(Behind::Later(100_000 - MAX_BLOCK - 25_000)), Some(10_000)));
        assert_eq!(len(out.pop_cut_block(whole)), None);
        let mut out = outbound(&[200_000], 100_000);
        assert_eq!(len(out.pop_cut_block(whole)), Some(MAX_BLOCK));
        assert_eq!(len(out.pop_cut_block(whole)), Some(100_000 - MAX_BLOCK));
        // What a reset ends is sent as far as credit goes.
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
