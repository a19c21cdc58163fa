//! Both halves of one direction, in one thread, directly connected.
//!
//! **What is modelled.** One lane; every frame arrives at once, in order and unharmed; time stands still unless it is
//! [let pass](Pair::pass). The receiving half is asked for feedback after each block, and acknowledges several blocks
//! at a time as it does on a link; with so much pending that the next block could not be remembered, it is asked for
//! all its feedback. So the bound on bytes in flight, a matter of the link's delay, costs nothing here. A chunk store
//! answers at once, and its work is in no figure. Credit, flow opening and TLS are the link's and the tunnel's, and
//! are not part of the figures.

mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::contract::{
    Cut, Decoder, Delivery, Encoder, EncoderNames as _, Feedback, Parts, Payload, PeerFault, PeerSender,
    PeerState, ReceiveStats, Repair, SendStats, StorePort as _, Tail,
};
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use oncewire_codec::wanax::hints::save_by;
use oncewire_codec::wanax::{NameKey, NamesConfig, SHORT_BELOW, Shape};
use oncewire_codec::wire::{FlowId, Frame, LaneId, MAX_BLOCK, NamesHello, take_frame};
use oncewire_codec::{Matching, Now, Plan, StrongKind};

use self::store::MemoryStore;
use crate::cpu::Stopwatch;
use crate::encoder::DIGEST_SEED;

/// How a pair is set up; [`PairConfig::default`] is how the figures of the papers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairConfig {
    /// How the bytes are coded; `None`: they cross as they are.
    pub plan: Option<Plan>,
    /// Plain bytes in the log.
    pub log_memory: u64,
    /// The most unacknowledged log bytes.
    pub max_in_flight: u64,
    /// The table, and the bytes of a fingerprint.
    pub params: MatchParams,
    /// The cut of chunks for the receiving end's store, beside the log; `None`: it has no store.
    pub store: Option<Shape>,
    /// The bytes for the sending half's knowledge of the store.
    pub hint_memory: u64,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            plan: Some(Plan { entropy: Entropy::Zstd(1), ..Plan::default() }),
            log_memory: 256 << 20,
            max_in_flight: 64 << 20,
            params: MatchParams::default(),
            store: None,
            hint_memory: 64 << 20,
        }
    }
}

/// A sending and a receiving half, and their frames.
pub struct Pair {
    config: PairConfig,
    sender: Sender,
    receiver: Receiver,
    store: MemoryStore,
    /// The time at the start of both halves, and the time passed since.
    clock_secs: u64,
    now: Now,
    /// Undelivered blocks, by flow and flow offset.
    undelivered: BTreeMap<(FlowId, u64), (Bytes, bool)>,
    frames: Vec<u8>,
    feedback: Vec<u8>,
    encoding: Stopwatch,
    decoding: Stopwatch,
    totals: Totals,
}

/// The totals of a pair so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Delivered bytes, each compared with the original.
    pub delivered: u64,
    /// Bytes of all frames, both ways.
    pub wire: u64,
    /// The part of `wire` for feedback: acknowledgements, and requests to send again.
    pub feedback: u64,
    /// Processor time of the sending half.
    pub encoding: Duration,
    /// Processor time of the receiving half.
    pub decoding: Duration,
    /// The most memory of the sending half: log, tables, contexts and kept blocks.
    pub sender_memory: u64,
    /// The most memory of the receiving half: log, contexts and waiting blocks.
    pub receiver_memory: u64,
}

/// A fault of the halves; always an error in the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The output differs from the input.
    #[error("the block at byte {offset} came out changed")]
    Changed {
        /// Flow offset of the block.
        offset: u64,
    },
    /// A block did not come out, however often it was sent again.
    #[error("the block at byte {offset} did not come out")]
    Lost {
        /// Flow offset of the block.
        offset: u64,
    },
    /// A block came out without having been sent, or twice.
    #[error("something came out that was not sent")]
    Stray,
    /// One half refused a frame of the other.
    #[error("one half refused a frame of the other: {0}")]
    Refused(#[from] PeerFault),
}

impl Pair {
    /// Starts both halves with empty logs.
    pub fn new(config: PairConfig) -> Self {
        let (sender, receiver) = halves(config, None, 0);
        Self {
            config,
            sender,
            receiver,
            store: MemoryStore::default(),
            clock_secs: 0,
            now: Now::ZERO,
            undelivered: BTreeMap::new(),
            frames: Vec::new(),
            feedback: Vec::new(),
            encoding: Stopwatch::default(),
            decoding: Stopwatch::default(),
            totals: Totals::default(),
        }
    }

    /// Cuts the next block of a flow from the front of `bytes`, as a link does; `at_end`: nothing follows them.
    pub fn cut(&mut self, flow: FlowId, bytes: &[u8], at_end: bool) -> Cut {
        match &self.config.plan {
            Some(plan) => {
                let tail = if at_end { Tail::EndOfStream } else { Tail::More };
                let (sender, now) = (&mut self.sender, self.now);
                self.encoding.time(|| sender.cut(flow, plan, bytes, tail, MAX_BLOCK, now))
            }
            None => Cut::at(bytes.len().min(MAX_BLOCK)),
        }
    }

    /// Lets the store lose everything; neither half is told.
    pub fn lose_store(&mut self) {
        self.lose_blocks(|_| true);
    }

    /// Lets the store lose the content of certain blocks, counted from 0 as they were put; neither half is told.
    pub fn lose_blocks(&mut self, is_lost: impl Fn(u64) -> bool) {
        self.store.lose(is_lost);
    }

    /// Lets time pass; the knowledge of the store grows older by it.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.store.set_clock(self.clock_secs + self.now.as_secs());
    }

    /// Starts both halves anew, so many seconds later: their logs are empty, and the sending half knows of the store
    /// only its saved hints. They meet as gateways do, so the store is asked for some chunks before anything is sent,
    /// and tells its age.
    ///
    /// # Errors
    /// If one half refuses a frame of the other.
    pub fn restart(&mut self, later_secs: u64) -> Result<(), PairError> {
        let saved = save_by(|at| self.sender.save_hints(at));
        self.clock_secs += std::mem::take(&mut self.now).as_secs() + later_secs;
        (self.sender, self.receiver) = halves(self.config, saved, self.clock_secs);
        self.store.set_clock(self.clock_secs);
        self.receiver.handle_store_state(self.store.state(), self.now);
        self.sender.poll_probe(&mut self.frames);
        self.hand_over()?;
        self.return_feedback(true)
    }

    /// Sends a block of at most [`oncewire_codec::wire::MAX_BLOCK`] bytes and compares the output.
    ///
    /// # Errors
    /// If the block does not come out as it was.
    pub fn send(&mut self, flow: FlowId, offset: u64, plain: Bytes, fin: bool) -> Result<(), PairError> {
        self.send_parts(flow, offset, plain, fin, Parts::default())
    }

    /// As [`Self::send`], for a block from [`Self::cut`].
    ///
    /// # Errors
    /// If the block does not come out as it was.
    pub fn send_parts(
        &mut self,
        flow: FlowId,
        offset: u64,
        plain: Bytes,
        fin: bool,
        parts: Parts,
    ) -> Result<(), PairError> {
        let waiting = self.sender.stats().kept;
        if waiting + plain.len() as u64 > self.config.max_in_flight || !self.sender.load().has_room {
            self.return_feedback(true)?;
        }
        self.undelivered.insert((flow, offset), (plain.clone(), fin));
        let payload = Payload { flow, offset, plain, fin, plan: self.config.plan, parts };
        let (sender, frames, now) = (&mut self.sender, &mut self.frames, self.now);
        self.encoding.time(|| sender.handle_payload(payload, LANE, now, frames));
        for _ in 0..MAX_ROUNDS {
            self.totals.sender_memory = self.totals.sender_memory.max(self.sender.stats().memory);
            self.hand_over()?;
            self.return_feedback(false)?;
            let (sender, frames) = (&mut self.sender, &mut self.frames);
            self.encoding.time(|| {
                while sender.poll_repair(Repair::Chunks(Some(LANE)), frames)
                    || sender.poll_repair(Repair::Chunks(None), frames)
                    || sender.poll_repair(Repair::Block, frames)
                {}
            });
            if self.frames.is_empty() {
                break;
            }
        }
        match self.undelivered.keys().next() {
            Some(&(_, offset)) => Err(PairError::Lost { offset }),
            None => Ok(()),
        }
    }

    /// Ends a flow: its memory is given back, and everything is acknowledged.
    ///
    /// # Errors
    /// If one half refuses a frame of the other.
    pub fn finish_flow(&mut self, flow: FlowId) -> Result<(), PairError> {
        let sender = &mut self.sender;
        self.encoding.time(|| sender.finish_flow(flow));
        self.return_feedback(true)
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> Totals {
        Totals { encoding: self.encoding.spent(), decoding: self.decoding.spent(), ..self.totals }
    }

    /// Returns counters and sizes of the sending half, as they are now.
    pub fn sender_stats(&self) -> SendStats {
        self.sender.stats()
    }

    /// Returns counters and sizes of the receiving half, as they are now.
    pub fn receiver_stats(&self) -> ReceiveStats {
        self.receiver.stats()
    }

    /// Lets all frames arrive.
    fn hand_over(&mut self) -> Result<(), PairError> {
        let frames = std::mem::take(&mut self.frames);
        self.totals.wire += frames.len() as u64;
        let (receiver, now) = (&mut self.receiver, self.now);
        self.decoding.time(|| -> Result<_, PeerFault> {
            let mut rest = &frames[..];
            while let Some((kind, body, used)) = take_frame(rest)? {
                match Frame::decode(kind, body)? {
                    Frame::Block(block) => receiver.handle_block(block, LANE, now)?,
                    Frame::Chunks(chunks) => receiver.handle_chunks(chunks, now)?,
                    Frame::Probe(probe) => receiver.handle_probe(probe),
                    _ => {}
                }
                rest = rest.get(used..).unwrap_or_default();
            }
            Ok(())
        })?;
        while let Some(request) = receiver.poll_chunk_store() {
            if let Some(reply) = self.store.handle(request) {
                self.decoding.time(|| receiver.handle_store(reply, now));
            }
        }
        let delivered: Vec<Delivery> = std::iter::from_fn(|| receiver.poll_payload()).collect();
        self.totals.receiver_memory = self.totals.receiver_memory.max(self.receiver.stats().memory);
        self.frames = frames;
        self.frames.clear();
        delivered.into_iter().try_for_each(|delivery| self.compare(&delivery))
    }

    fn compare(&mut self, delivery: &Delivery) -> Result<(), PairError> {
        let Delivery::Data { flow, offset, plain, fin } = delivery else { return Err(PairError::Stray) };
        let sent = self.undelivered.remove(&(*flow, *offset)).ok_or(PairError::Stray)?;
        if (&sent.0, sent.1) != (plain, *fin) {
            return Err(PairError::Changed { offset: *offset });
        }
        self.totals.delivered += plain.len() as u64;
        Ok(())
    }

    /// Lets the receiving half send its due feedback, or all of it.
    fn return_feedback(&mut self, all: bool) -> Result<(), PairError> {
        let mut feedback = std::mem::take(&mut self.feedback);
        feedback.clear();
        let receiver = &mut self.receiver;
        self.decoding.time(|| receiver.poll_frame(all, &mut feedback));
        self.totals.wire += feedback.len() as u64;
        self.totals.feedback += feedback.len() as u64;
        let (sender, now) = (&mut self.sender, self.now);
        let taken = self.encoding.time(|| take_feedback(sender, &feedback, now));
        self.feedback = feedback;
        Ok(taken?)
    }
}

/// Makes both halves with empty logs; the sending half takes up the saved hints for the receiving half's store.
fn halves(config: PairConfig, mut saved: Option<Vec<u8>>, clock_secs: u64) -> (Sender, Receiver) {
    let key = NameKey::new([0; 32]);
    let names = config.store.map(|shape| NamesConfig {
        key: key.clone(),
        group: None,
        shape,
        hint_memory: config.hint_memory,
        saved: saved.take(),
        clock_secs,
    });
    let mut sender = Sender::new(SenderConfig {
        capacity: config.log_memory,
        max_in_flight: Some(config.max_in_flight),
        entropy: config.plan.map_or(Entropy::None, |plan| plan.entropy),
        contexts: CONTEXTS,
        params: config.params,
        // As in the daemon: a plan with chunks only keeps no bytes.
        keeps_bytes: config.plan.is_none_or(|plan| plan.matching == Matching::Max),
        digest_seed: DIGEST_SEED,
        persist: false,
        names,
    });
    let mut receiver = Receiver::new(ReceiverConfig {
        capacity: config.log_memory,
        max_in_flight: config.max_in_flight,
        contexts: CONTEXTS,
        digest_seed: DIGEST_SEED,
        persist: false,
        store: config.store.is_some(),
    });
    if let Some(shape) = config.store {
        let (capacity, max_in_flight) = (config.log_memory, config.max_in_flight);
        sender.handle_peer(PeerState {
            capacity,
            contexts: CONTEXTS,
            claim: None,
            store: Some(1),
            short_names_below: SHORT_BELOW,
            is_of_group: false,
            strong: StrongKind::default(),
            continues: false,
        });
        receiver.handle_peer(PeerSender {
            capacity,
            max_in_flight,
            digest_seed: DIGEST_SEED,
            names: Some(NamesHello { key, shape }),
            strong: StrongKind::default(),
            continues: false,
            probe: None,
        });
    }
    (sender, receiver)
}

fn take_feedback(sender: &mut Sender, mut bytes: &[u8], now: Now) -> Result<(), PeerFault> {
    while let Some((kind, body, used)) = take_frame(bytes)? {
        let feedback = match Frame::decode(kind, body)? {
            Frame::Ack(ack) => Some(Feedback::Ack(ack)),
            Frame::Need(ranges) => Some(Feedback::Need(ranges)),
            Frame::Refetch(refetch) => Some(Feedback::Refetch(refetch)),
            Frame::LogHeld(held) => Some(Feedback::Held(held)),
            Frame::ChunkRequest(request) => Some(Feedback::Chunks(request)),
            Frame::StoreHeld(held) => Some(Feedback::Store(held)),
            Frame::Probed(probed) => Some(Feedback::Probed(probed)),
            _ => None,
        };
        feedback.map_or(Ok(()), |feedback| sender.handle_feedback(feedback, now))?;
        bytes = bytes.get(used..).unwrap_or_default();
    }
    while sender.poll_event().is_some() {}
    Ok(())
}

const LANE: LaneId = LaneId(0);
/// Flows come one after the other, so one streaming context is their need on a link, too.
const CONTEXTS: usize = 1;
/// A block is sent once, and again after a mismatch; with more rounds than this it never arrives.
const MAX_ROUNDS: usize = 8;
