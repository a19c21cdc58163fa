//! The receiving half's side of the chunk store beside reads: puts and reports.

use std::collections::VecDeque;

use super::{NameKey, Shape};
use crate::Now;
use crate::contract::{ChunkPlace, Purpose, StoreReply, StoreRequest, StoreState};
use crate::verify::Verified;
use crate::wire::{NamesHello, Probe, Probed, Sought, StoreHeld};

/// The store as this half sees it.
pub(crate) struct StoreSide {
    /// Whether there is one.
    exists: bool,
    /// How the peer names and cuts.
    names: Option<NamesHello>,
    puts: VecDeque<StoreRequest>,
    put: u64,
    not_put: u64,
    /// What the store said last, and when.
    state: Option<(StoreState, Now)>,
    /// What was told of it: whether chunks are being taken, and when the oldest was put, in seconds.
    told: Option<(bool, i64)>,
    serial: u64,
    due: bool,
    probed: Asked,
}

/// The peer's last question for what is in the store: there is room for one.
#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    /// The store is to be asked so.
    Due(StoreRequest, Question),
    /// It was asked.
    Waiting(Question),
    /// The answer is to be sent.
    Answered(Probed),
}

/// A question as it is answered.
#[derive(Clone, Copy)]
struct Question {
    ticket: u64,
    request: u64,
    chunks: usize,
}

/// Blocks waiting to be put at most; what is beyond is not put.
const MAX_PUTS: usize = 512;
/// The peer is told once so many seconds of the store are gone.
const NEWS_SECS: u64 = 30;

impl StoreSide {
    pub(crate) fn new(exists: bool) -> Self {
        Self {
            exists,
            names: None,
            puts: VecDeque::new(),
            put: 0,
            not_put: 0,
            state: None,
            told: None,
            serial: 0,
            due: false,
            probed: Asked::Nothing,
        }
    }

    /// Meets a new instance of the peer, told nothing.
    pub(crate) fn meet(&mut self, names: Option<NamesHello>) {
        self.names = names;
        self.probed = Asked::Nothing;
        self.resend_control_state();
    }

    /// What chunks are named with, if they can be read at all.
    pub(crate) fn key(&self) -> Option<&NameKey> {
        self.names.as_ref().filter(|_| self.exists).map(|names| &names.key)
    }

    /// Has a block put into the store.
    pub(crate) fn put(&mut self, block: &Verified) {
        let taking = self.state.is_none_or(|(state, _)| state.taking);
        match self.names.as_ref().filter(|_| self.exists && taking && self.puts.len() < MAX_PUTS) {
            Some(NamesHello { key, shape }) => {
                self.put += 1;
                let (key, shape): (NameKey, Shape) = (key.clone(), *shape);
                self.puts.push_back(StoreRequest::Put { plain: block.plain().clone(), key, shape });
            }
            None => self.not_put += 1,
        }
    }

    /// Blocks put so far.
    pub(crate) fn put_count(&self) -> u64 {
        self.put
    }

    /// Blocks to be put that were not.
    pub(crate) fn not_put_count(&self) -> u64 {
        self.not_put
    }

    pub(crate) fn poll_put(&mut self) -> Option<StoreRequest> {
        self.puts.pop_front()
    }

    /// Takes a question of the peer. Who names nothing has nothing to ask for: a chunk is known by its name under the
    /// key the peer's hello brought.
    pub(crate) fn ask(&mut self, ticket: u64, probe: Probe) {
        let Some(key) = self.key().cloned() else { return };
        let Probe { request, chunks } = probe;
        let question = Question { ticket, request, chunks: chunks.len() };
        let chunks = chunks.iter().map(|(name, len)| Sought { tag: name.tag(), len: *len }).collect();
        self.probed =
            Asked::Due(StoreRequest::Peek { ticket, chunks, key, purpose: Purpose::Survey }, question);
    }

    /// What the store is to be asked for the peer.
    pub(crate) fn poll_peek(&mut self) -> Option<StoreRequest> {
        match std::mem::take(&mut self.probed) {
            Asked::Due(peek, question) => {
                self.probed = Asked::Waiting(question);
                Some(peek)
            }
            other => {
                self.probed = other;
                None
            }
        }
    }

    /// Takes an answer of the store, if it is one the peer waits for; returns whether it was.
    pub(crate) fn handle_reply(&mut self, reply: &StoreReply) -> bool {
        let Asked::Waiting(Question { ticket, request, chunks }) = self.probed else { return false };
        if reply.ticket() != ticket {
            return false;
        }
        self.probed = match reply {
            StoreReply::Places { places, .. } => {
                let held = (0..chunks).map(|at| places.get(at) != Some(&ChunkPlace::Absent)).collect();
                Asked::Answered(Probed { request, held })
            }
            // The peer goes without an answer.
            _ => Asked::Nothing,
        };
        true
    }

    /// Takes the answer the peer waits for.
    pub(crate) fn poll_probed(&mut self) -> Option<Probed> {
        match std::mem::take(&mut self.probed) {
            Asked::Answered(probed) => Some(probed),
            other => {
                self.probed = other;
                None
            }
        }
    }

    pub(crate) fn handle_state(&mut self, state: StoreState, now: Now) {
        self.state = Some((state, now));
        let oldest = now.as_secs() as i64 - state.age_secs as i64;
        let told =
            self.told.filter(|&(taking, told)| taking == state.taking && oldest.abs_diff(told) < NEWS_SECS);
        if told.is_none() {
            self.told = Some((state.taking, oldest));
            self.resend_control_state();
        }
    }

    /// Has the peer told again, if it is one knowing of named chunks.
    pub(crate) fn resend_control_state(&mut self) {
        self.due = self.exists && self.names.is_some() && self.state.is_some();
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due || matches!(self.probed, Asked::Answered(_))
    }

    /// What is to be said of the store; its oldest chunk has grown older since it said so.
    pub(crate) fn poll_held(&mut self, now: Now) -> Option<StoreHeld> {
        let (state, at) = self.state.filter(|_| std::mem::take(&mut self.due))?;
        self.serial += 1;
        let age_secs = state.age_secs.saturating_add(now.saturating_sub(at).as_secs());
        Some(StoreHeld { serial: self.serial, taking: state.taking, age_secs })
    }
}
