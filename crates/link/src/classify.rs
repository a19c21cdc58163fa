//! Recognition of ciphers in a stream: they never repeat.
//!
//! A stream that begins with a hello of TLS or with the line of ssh is taken for this cipher to its end. A later
//! start of TLS, behind `CONNECT`, `STARTTLS` or a request of another protocol, is found by its records, and SMB by
//! its messages, any of which may be enciphered. Both are followed from header to header: behind a break in the
//! chain, the stream is coded again. The result depends on the stream alone, not on the sizes of reads.

mod head;
mod smb;
mod spread;
mod tls;

use std::fmt;

use self::head::{Head, Verdict};

/// A cipher, neither scanned nor remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cipher {
    /// TLS: a handshake record with a client or server hello, or a chain of records.
    Tls,
    /// ssh: its identification line.
    Ssh,
    /// SMB 3: messages behind a transform header.
    Smb,
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "tls",
            Self::Ssh => "ssh",
            Self::Smb => "smb",
        })
    }
}

/// A change of a stream to a cipher, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The first byte behind it. It may have been handled a while ago.
    pub(crate) at: u64,
    /// The cipher behind it; none for clear bytes.
    pub(crate) cipher: Option<Cipher>,
    /// The start of the cipher's first record, perhaps in the clear.
    pub(crate) begins: u64,
}

/// The state of one direction of a flow.
#[derive(Debug)]
pub(crate) struct Recogniser {
    /// Bytes handled so far, or given to the head.
    at: u64,
    head: Option<Head>,
    body: Body,
}

/// How the stream is followed behind its head.
#[derive(Debug)]
enum Body {
    Records(tls::Follower),
    Messages(smb::Follower),
    /// The rest of the stream is a cipher, whatever its bytes.
    Settled,
}

impl Recogniser {
    /// Starts at the first byte of a stream.
    pub(crate) fn new() -> Self {
        Self { at: 0, head: Some(Head::default()), body: Body::Records(tls::Follower::default()) }
    }

    /// Starts in the middle of a stream, at this offset.
    pub(crate) fn from(at: u64) -> Self {
        Self { at, head: None, body: Body::Records(tls::Follower::default()) }
    }

    /// Whether a hello of TLS was seen, so the other direction is about to bring the other one.
    pub(crate) fn has_hello(&self) -> bool {
        matches!(&self.body, Body::Records(records) if records.has_hello())
    }

    /// Takes the next bytes of the stream, and gives `each` the turns found in them, in order.
    pub(crate) fn handle(&mut self, bytes: &[u8], mut each: impl FnMut(Turn)) {
        if matches!(self.body, Body::Settled) {
            return;
        }
        let Some(head) = &mut self.head else { return self.follow(bytes, &mut each) };
        let (rest, verdict) = head.handle(bytes);
        let Some(verdict) = verdict else { return };
        let Some(head) = self.head.take() else { return };
        let (offset, first) = head.into_bytes();
        self.at = offset;
        match verdict {
            // All of it: a header before it is too little to be a block of its own.
            Verdict::Cipher(cipher) => {
                self.body = Body::Settled;
                return each(Turn { at: 0, cipher: Some(cipher), begins: 0 });
            }
            Verdict::Messages => self.body = Body::Messages(smb::Follower::default()),
            Verdict::Other => {}
        }
        self.follow(&first, &mut each);
        self.follow(rest, &mut each);
    }

    fn follow(&mut self, bytes: &[u8], each: &mut dyn FnMut(Turn)) {
        let start = self.at;
        self.at += bytes.len() as u64;
        match &mut self.body {
            Body::Records(records) => records.handle(start, bytes, each),
            Body::Messages(messages) => {
                if let Some(broken) = messages.handle(start, bytes, each) {
                    let mut records = tls::Follower::default();
                    records.handle(broken.at, &broken.header, each);
                    records.handle(broken.at + broken.header.len() as u64, broken.rest, each);
                    self.body = Body::Records(records);
                }
            }
            Body::Settled => {}
        }
    }
}

#[cfg(test)]
mod tests;
