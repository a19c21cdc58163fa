//! Records of TLS, followed from header to header.
//!
//! A chain begins with a hello, or, within another protocol, with application data. It is taken for a cipher once
//! several consecutive records of application data have evenly spread bytes. A hello alone, a capture of packets, or
//! two bytes with the look of a header are not: their lengths lead nowhere.

use oncewire_fingerprint::find_pair;

use super::spread::Spread;
use super::{Cipher, Turn};

/// The state of a stream with a possible start of TLS records anywhere.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The possible beginning of a chain, or of a header within it.
    seen: [u8; FIRST],
    have: usize,
    chain: Option<Chain>,
    /// Broken chains in spite of a hello or evenly spread records.
    broken: u8,
    has_hello: bool,
}

/// Consecutive records.
#[derive(Debug)]
struct Chain {
    begins: u64,
    begins_with_hello: bool,
    /// Remaining bytes of the record's body.
    left: usize,
    /// Uncounted bytes at the front of the body.
    uncounted: usize,
    is_data: bool,
    /// The start of the first record of application data.
    first_data: Option<u64>,
    data_records: u32,
    spread: Option<Spread>,
    is_cipher: bool,
}

impl Follower {
    /// Whether a hello was seen.
    pub(super) fn has_hello(&self) -> bool {
        self.has_hello
    }

    /// Takes the next bytes of the stream, from offset `at` on.
    pub(super) fn handle(&mut self, mut at: u64, mut bytes: &[u8], each: &mut dyn FnMut(Turn)) {
        while !bytes.is_empty() {
            let used = match &mut self.chain {
                Some(chain) if chain.left > 0 => {
                    let used = chain.pass(bytes);
                    self.judge(at + used as u64, each);
                    used
                }
                Some(_) => {
                    self.take_header(at, bytes.first().copied().unwrap_or_default(), each);
                    1
                }
                None if self.have > 0 => {
                    self.search(at, bytes.first().copied().unwrap_or_default());
                    1
                }
                None => match find_start(bytes) {
                    None => bytes.len(),
                    Some(found) => {
                        self.search(at + found as u64, bytes.get(found).copied().unwrap_or_default());
                        found + 1
                    }
                },
            };
            at += used as u64;
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Takes a byte at offset `at`, a possible beginning of a chain, or its continuation.
    fn search(&mut self, at: u64, byte: u8) {
        self.push(byte);
        while self.have > 0 && !begins_chain(self.seen()) {
            self.seen.copy_within(1.., 0);
            self.have -= 1;
        }
        let begins = at + 1 - self.have as u64;
        self.chain = Chain::begin(begins, self.seen());
        if let Some(chain) = &self.chain {
            self.has_hello |= chain.begins_with_hello;
            self.have = 0;
        }
    }

    /// Takes a byte at offset `at` of the header behind a record.
    fn take_header(&mut self, at: u64, byte: u8, each: &mut dyn FnMut(Turn)) {
        self.push(byte);
        if !continues_chain(self.seen()) {
            let (seen, have) = (self.seen, self.have);
            let start = at + 1 - have as u64;
            self.break_chain(start, each);
            // Among them the next chain may begin.
            seen.iter().take(have).zip(start..).for_each(|(&byte, at)| self.search(at, byte));
        } else if let Some((kind, len)) = header(self.seen()) {
            if let Some(chain) = &mut self.chain {
                chain.enter(kind, len, at + 1 - self.have as u64);
            }
            self.have = 0;
            self.judge(at + 1, each);
        }
    }

    /// Decides whether the chain is a cipher, if enough of it was seen up to offset `at`.
    fn judge(&mut self, at: u64, each: &mut dyn FnMut(Turn)) {
        let Some(chain) = &mut self.chain else { return };
        let least = if chain.begins_with_hello { BEHIND_HELLO } else { BY_ITSELF };
        let least = least << (2 * u32::from(self.broken)).min(MOST_DOUBLED);
        let (Some(data), false) = (chain.first_data, chain.data_records < least) else { return };
        match chain.spread.as_ref().and_then(Spread::verdict) {
            None => {}
            Some(true) => {
                (chain.is_cipher, chain.spread) = (true, None);
                each(Turn { at: data, cipher: Some(Cipher::Tls), begins: chain.begins });
            }
            Some(false) => self.break_chain(at, each),
        }
    }

    fn break_chain(&mut self, at: u64, each: &mut dyn FnMut(Turn)) {
        self.have = 0;
        let Some(chain) = self.chain.take() else { return };
        if chain.is_cipher {
            each(Turn { at, cipher: None, begins: chain.begins });
        }
        if chain.is_cipher || chain.begins_with_hello && chain.data_records > 0 {
            self.broken = self.broken.saturating_add(1);
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.seen.get_mut(self.have) {
            *slot = byte;
            self.have += 1;
        }
    }

    fn seen(&self) -> &[u8] {
        self.seen.get(..self.have).unwrap_or_default()
    }
}

impl Chain {
    /// Begins a chain with bytes that [begin one](begins_chain), if all checked bytes are there.
    fn begin(begins: u64, seen: &[u8]) -> Option<Self> {
        let (kind, len) = header(seen)?;
        let is_data = kind == DATA;
        let behind = seen.len() - HEADER;
        if !is_data && seen.len() < FIRST {
            return None;
        }
        let mut chain = Self {
            begins,
            begins_with_hello: !is_data,
            left: 0,
            uncounted: 0,
            is_data,
            first_data: None,
            data_records: 0,
            spread: None,
            is_cipher: false,
        };
        chain.enter(kind, len, begins);
        chain.left = len.saturating_sub(behind);
        Some(chain)
    }

    /// Enters a record with its header at `start`.
    fn enter(&mut self, kind: u8, len: usize, start: u64) {
        (self.left, self.is_data, self.uncounted) = (len, kind == DATA, NONCE);
        if self.is_data && !self.is_cipher {
            self.data_records = self.data_records.saturating_add(1);
            self.first_data.get_or_insert(start);
            self.spread.get_or_insert_default();
        }
    }

    /// Goes on in the record's body; returns how many bytes are of it.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let body = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= body.len();
        let uncounted = self.uncounted.min(body.len());
        self.uncounted -= uncounted;
        if let Some(spread) = self.spread.as_mut().filter(|_| self.is_data) {
            spread.count(body.get(uncounted..).unwrap_or_default());
        }
        body.len()
    }
}

/// Returns the first byte with a possible beginning of a chain.
fn find_start(bytes: &[u8]) -> Option<usize> {
    find_pair(bytes, [HANDSHAKE, DATA], MAJOR).or_else(|| {
        // The next byte is yet to come.
        let last = bytes.len().checked_sub(1)?;
        bytes.get(last).filter(|byte| matches!(**byte, HANDSHAKE | DATA)).map(|_| last)
    })
}

/// Returns type and length of the record, if its header is whole.
fn header(seen: &[u8]) -> Option<(u8, usize)> {
    match seen {
        [kind, _, _, high, low, ..] => Some((*kind, usize::from(u16::from_be_bytes([*high, *low])))),
        _ => None,
    }
}

/// Whether bytes may be, or begin, a header of a record of any type [RFC 8446 §5.1].
fn continues_chain(seen: &[u8]) -> bool {
    let fits = |(at, &byte): (usize, &u8)| match at {
        0 => (FIRST_TYPE..=LAST_TYPE).contains(&byte),
        1 => byte == MAJOR,
        2 => byte <= MOST_MINOR,
        _ => true,
    };
    seen.iter().enumerate().all(fits) && header(seen).is_none_or(|(_, len)| (1..=MOST_BODY).contains(&len))
}

/// Whether bytes may begin a chain: with application data, or with a hello, with its length checked against the
/// record's [RFC 8446 §4, §4.1.2].
fn begins_chain(seen: &[u8]) -> bool {
    let fits = |(at, &byte): (usize, &u8)| match at {
        0 => byte == HANDSHAKE,
        5 => matches!(byte, 1 | 2),
        6 => byte == 0,
        9 => byte == MAJOR,
        10 => byte <= MOST_MINOR,
        _ => true,
    };
    if !continues_chain(seen) {
        return false;
    }
    if seen.first() == Some(&DATA) {
        return true;
    }
    let is_inside = match seen {
        [_, _, _, high, low, _, 0, message_high, message_low, ..] => {
            let message = usize::from(u16::from_be_bytes([*message_high, *message_low]));
            let record = usize::from(u16::from_be_bytes([*high, *low]));
            (LEAST_HELLO..=record.saturating_sub(4)).contains(&message)
        }
        _ => true,
    };
    seen.iter().enumerate().all(fits) && is_inside
}

/// Length of a header.
const HEADER: usize = 5;
/// The checked bytes of a hello: headers of record and message, version.
const FIRST: usize = 11;
const MAJOR: u8 = 3;
/// Drafts of TLS 1.3 had 4.
const MOST_MINOR: u8 = 4;
/// Change of cipher, alert, handshake, application data, heartbeat.
const FIRST_TYPE: u8 = 20;
const LAST_TYPE: u8 = 24;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// The longest body [RFC 5246 §6.2.3]; TLS 1.3 allows less.
const MOST_BODY: usize = (1 << 14) + 2048;
/// Version, random bytes, length of the session's name, a cipher and a compression: a hello has no less.
const LEAST_HELLO: usize = 38;
/// A body's first bytes in TLS 1.2: perhaps a counter.
const NONCE: usize = 8;
/// So many records of application data make a chain behind a hello a cipher: the second one proves the first one's length.
const BEHIND_HELLO: u32 = 2;
/// The same of a chain without a hello.
const BY_ITSELF: u32 = 4;
/// After each broken chain, four times as many are asked for, up to 2 to the power of this.
const MOST_DOUBLED: u32 = 16;
