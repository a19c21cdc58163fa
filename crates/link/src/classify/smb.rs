//! SMB messages, followed by their lengths; transform headers mean encryption.
//!
//! A stream of SMB begins with its negotiation in the clear. Later on each message may be enciphered or not, by its
//! session and its share.

use super::spread::Spread;
use super::{Cipher, Turn};

/// The state of a stream of SMB messages.
#[derive(Debug)]
pub(super) struct Follower {
    /// The beginning of the present message.
    seen: [u8; TRANSFORM],
    have: usize,
    /// Remaining bytes of the message, behind those.
    left: usize,
    /// Uncounted bytes among them.
    uncounted: usize,
    is_enciphered: bool,
    /// The start of enciphered messages.
    begins: Option<u64>,
    spread: Option<Spread>,
    is_cipher: bool,
}

/// The end of the chain of messages.
#[derive(Debug)]
pub(super) struct Broken<'b> {
    /// The offset of the first byte outside a message.
    pub(super) at: u64,
    /// Its first bytes.
    pub(super) header: Vec<u8>,
    /// The unhandled rest of the bytes given.
    pub(super) rest: &'b [u8],
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            seen: [0; TRANSFORM],
            have: 0,
            left: 0,
            uncounted: 0,
            is_enciphered: false,
            begins: None,
            spread: None,
            is_cipher: false,
        }
    }
}

/// The judgement from a message's first bytes.
enum Start {
    /// Too little.
    More,
    /// No message.
    Wrong,
    /// A message, with so many bytes still to come.
    Is { left: usize, kind: Kind },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Enciphered,
    /// A message in the clear, with its length.
    Clear(usize),
    /// Of the session service below SMB.
    Session,
}

impl Follower {
    /// Takes the next bytes of the stream, from offset `at` on; returns the end of the chain of messages.
    pub(super) fn handle<'b>(
        &mut self,
        mut at: u64,
        mut bytes: &'b [u8],
        each: &mut dyn FnMut(Turn),
    ) -> Option<Broken<'b>> {
        while let Some((&byte, behind)) = bytes.split_first() {
            if self.left > 0 {
                let body = bytes.get(..self.left).unwrap_or(bytes);
                self.pass(body);
                at += body.len() as u64;
                bytes = bytes.get(body.len()..).unwrap_or_default();
                if self.judge(each) {
                    return Some(self.broken(at, &[], bytes, each));
                }
                continue;
            }
            (at, bytes) = (at + 1, behind);
            if let Some(slot) = self.seen.get_mut(self.have) {
                *slot = byte;
                self.have += 1;
            }
            let seen = self.seen;
            let seen = seen.get(..self.have).unwrap_or_default();
            let start = at - seen.len() as u64;
            match judge(seen) {
                Start::More => {}
                Start::Wrong => return Some(self.broken(start, seen, bytes, each)),
                Start::Is { left, kind } => self.enter(left, kind, start, each),
            }
        }
        None
    }

    /// Enters a message at `start`.
    fn enter(&mut self, left: usize, kind: Kind, start: u64, each: &mut dyn FnMut(Turn)) {
        (self.have, self.left) = (0, left);
        self.is_enciphered = kind == Kind::Enciphered;
        match kind {
            Kind::Enciphered => {
                self.uncounted = TRANSFORM_REST;
                self.begins.get_or_insert(start);
                if !self.is_cipher {
                    self.spread.get_or_insert_default();
                }
            }
            Kind::Clear(len) if len >= WORTH_A_TURN => self.turn_back(start, each),
            Kind::Clear(_) | Kind::Session => {}
        }
    }

    /// Goes on in the body of a message.
    fn pass(&mut self, body: &[u8]) {
        self.left -= body.len();
        let uncounted = self.uncounted.min(body.len());
        self.uncounted -= uncounted;
        if let Some(spread) = self.spread.as_mut().filter(|_| self.is_enciphered) {
            spread.count(body.get(uncounted..).unwrap_or_default());
        }
    }

    /// Decides whether apparently enciphered messages are, once enough was seen; returns whether they are not.
    fn judge(&mut self, each: &mut dyn FnMut(Turn)) -> bool {
        let Some(begins) = self.begins else { return false };
        match self.spread.as_ref().and_then(Spread::verdict) {
            Some(true) => {
                (self.is_cipher, self.spread) = (true, None);
                each(Turn { at: begins, cipher: Some(Cipher::Smb), begins });
                false
            }
            verdict => verdict.is_some(),
        }
    }

    /// Codes the bytes from `at` on.
    fn turn_back(&mut self, at: u64, each: &mut dyn FnMut(Turn)) {
        let begins = self.begins.take().unwrap_or(at);
        self.spread = None;
        if std::mem::take(&mut self.is_cipher) {
            each(Turn { at, cipher: None, begins });
        }
    }

    fn broken<'b>(
        &mut self,
        at: u64,
        header: &[u8],
        rest: &'b [u8],
        each: &mut dyn FnMut(Turn),
    ) -> Broken<'b> {
        self.turn_back(at, each);
        Broken { at, header: header.to_vec(), rest }
    }
}

/// Judges the first bytes of a message: behind its type and length [MS-SMB2 §2.1] a protocol's name, and behind that
/// of an enciphered one its stated length [MS-SMB2 §2.2.41].
fn judge(seen: &[u8]) -> Start {
    let [kind, high, middle, low, rest @ ..] = seen else { return Start::More };
    let len = usize::from(*high) << 16 | usize::from(u16::from_be_bytes([*middle, *low]));
    match kind {
        0 => {}
        // Session service [RFC 1002 §4.3].
        0x81..=0x85 if len <= MOST_SESSION => return Start::Is { left: len, kind: Kind::Session },
        _ => return Start::Wrong,
    }
    if len < rest.len() || len < 4 {
        return Start::Wrong;
    }
    match rest {
        [0xFD, b'S', b'M', b'B', transform @ ..] => match transform.get(SIZE_AT..SIZE_AT + 4) {
            None if len < TRANSFORM_LEN => Start::Wrong,
            None => Start::More,
            Some(size) => {
                let size = size.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte));
                match size == len - TRANSFORM_LEN {
                    true => Start::Is { left: len - rest.len(), kind: Kind::Enciphered },
                    false => Start::Wrong,
                }
            }
        },
        [0xFC | 0xFE | 0xFF, b'S', b'M', b'B', ..] => {
            Start::Is { left: len - rest.len(), kind: Kind::Clear(len) }
        }
        [] | [0xFC..=0xFF] | [0xFC..=0xFF, b'S'] | [0xFC..=0xFF, b'S', b'M'] => Start::More,
        _ => Start::Wrong,
    }
}

/// Length of a transform header.
const TRANSFORM_LEN: usize = 52;
/// The place of the message's length, behind the protocol's name.
const SIZE_AT: usize = 32;
/// The checked bytes of an enciphered message: type, length, protocol, signature, nonce, length.
const TRANSFORM: usize = 4 + 4 + SIZE_AT + 4;
/// The rest of the header.
const TRANSFORM_REST: usize = TRANSFORM_LEN - 4 - SIZE_AT - 4;
/// The longest message of the session service.
const MOST_SESSION: usize = 1024;
/// The least length of a clear message worth a block's border.
const WORTH_A_TURN: usize = 4096;
