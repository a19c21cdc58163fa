//! The first bytes of a stream: a verdict on the whole.

use super::Cipher;

/// The first bytes of a stream, kept up to the verdict.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// The offset of the first kept byte.
    offset: u64,
    kept: Vec<u8>,
    /// Remaining bytes of a PROXY header.
    skip: usize,
    is_behind_proxy_header: bool,
}

/// The verdict on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A cipher to its end.
    Cipher(Cipher),
    /// Messages of SMB; any of them may be enciphered.
    Messages,
    /// Something else; records of TLS may follow in it.
    Other,
}

/// The judgement from the bytes so far.
enum Judgement {
    /// Too little.
    More,
    /// They begin with a PROXY header of so many bytes.
    ProxyHeader(usize),
    Is(Verdict),
}

impl Head {
    /// Takes bytes; returns those not kept, and the verdict once there is one.
    pub(super) fn handle<'b>(&mut self, mut bytes: &'b [u8]) -> (&'b [u8], Option<Verdict>) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            self.offset += skipped as u64;
            let (kept, rest) =
                bytes.split_at(bytes.len().min(skipped + MOST.saturating_sub(self.kept.len())));
            self.kept.extend_from_slice(kept.get(skipped..).unwrap_or_default());
            bytes = rest;
            match judge(&self.kept, self.is_behind_proxy_header) {
                Judgement::Is(verdict) => return (bytes, Some(verdict)),
                Judgement::More if self.kept.len() >= MOST => return (bytes, Some(Verdict::Other)),
                Judgement::More => return (bytes, None),
                Judgement::ProxyHeader(len) => {
                    self.is_behind_proxy_header = true;
                    let here = len.min(self.kept.len());
                    self.kept.drain(..here);
                    self.offset += here as u64;
                    self.skip = len - here;
                }
            }
        }
    }

    /// Returns the kept bytes, and their offset.
    pub(super) fn into_bytes(self) -> (u64, Vec<u8>) {
        (self.offset, self.kept)
    }
}

fn judge(bytes: &[u8], is_behind_proxy_header: bool) -> Judgement {
    if !is_behind_proxy_header && let Some(judgement) = judge_proxy_header(bytes) {
        return judgement;
    }
    if let Some(verdict) = recognise(bytes) {
        return Judgement::Is(verdict);
    }
    let begins_so = |text: &[u8]| text.starts_with(bytes);
    let is_open = bytes.len() < HELLO && begins_hello(bytes)
        || SSH.iter().any(|line| begins_so(line))
        || bytes.len() < MESSAGE && begins_message(bytes);
    if is_open { Judgement::More } else { Judgement::Is(Verdict::Other) }
}

/// Judges a possible PROXY header or its beginning; none if it is neither.
fn judge_proxy_header(bytes: &[u8]) -> Option<Judgement> {
    let is_open = |header: &[u8]| header.starts_with(bytes);
    if let Some(header) = bytes.strip_prefix(PROXY_SIGNATURE) {
        let [_version, _family, high, low, ..] = header else { return Some(Judgement::More) };
        let len = PROXY_SIGNATURE.len() + 4 + usize::from(u16::from_be_bytes([*high, *low]));
        return Some(Judgement::ProxyHeader(len));
    }
    if bytes.starts_with(PROXY_LINE) {
        let line = bytes.get(..PROXY_LINE_MOST).unwrap_or(bytes);
        return match line.windows(2).position(|pair| pair == b"\r\n") {
            Some(end) => Some(Judgement::ProxyHeader(end + 2)),
            None => (bytes.len() < PROXY_LINE_MOST).then_some(Judgement::More),
        };
    }
    (is_open(PROXY_SIGNATURE) || is_open(PROXY_LINE)).then_some(Judgement::More)
}

/// Recognises a stream by its first bytes.
fn recognise(first: &[u8]) -> Option<Verdict> {
    if first.len() >= HELLO && begins_hello(first) {
        return Some(Verdict::Cipher(Cipher::Tls));
    }
    if SSH.iter().any(|line| first.starts_with(line)) {
        return Some(Verdict::Cipher(Cipher::Ssh));
    }
    (first.len() >= MESSAGE && begins_message(first)).then_some(Verdict::Messages)
}

/// Whether the bytes may begin a record of type handshake, version 3.x, length, then the type of handshake message
/// [RFC 8446 §4, §5.1].
fn begins_hello(bytes: &[u8]) -> bool {
    bytes.iter().zip(0..HELLO).all(|(&byte, at)| match at {
        0 => byte == 0x16,
        1 => byte == 3,
        2 => byte <= 4,
        5 => matches!(byte, 1 | 2),
        _ => true,
    })
}

/// Whether the bytes may begin a message of SMB behind its length [MS-SMB2 §2.1], or the session request before it on
/// port 139 [RFC 1002 §4.3.2].
fn begins_message(bytes: &[u8]) -> bool {
    if let [0x81, rest @ ..] = bytes {
        return rest.iter().zip([0, 0]).all(|(byte, zero)| *byte == zero)
            && rest.iter().zip(0..MESSAGE).all(|(&byte, at)| at != 3 || byte == ENCODED_NAME);
    }
    bytes.iter().zip(0..MESSAGE).all(|(&byte, at)| match at {
        0 => byte == 0,
        4 => matches!(byte, 0xFD..=0xFF),
        5 => byte == b'S',
        6 => byte == b'M',
        7 => byte == b'B',
        _ => true,
    })
}

/// How many bytes tell a hello.
const HELLO: usize = 6;
/// How many bytes tell a message of SMB.
const MESSAGE: usize = 8;
/// The length of an encoded NetBIOS name.
const ENCODED_NAME: u8 = 32;
/// The beginning of ssh [RFC 4253 §4.2, §5.1].
const SSH: [&[u8]; 2] = [b"SSH-2.0-", b"SSH-1.99-"];
/// [PROXY protocol §2.2].
const PROXY_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// [PROXY protocol §2.1].
const PROXY_LINE: &[u8] = b"PROXY ";
/// The longest line of version 1, with its end.
const PROXY_LINE_MOST: usize = 107;
/// The most kept bytes.
const MOST: usize = 128;
