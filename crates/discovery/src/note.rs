//! Discovery notes: sealed datagrams of one length.
//!
//! Four bytes of format, a nonce of 12, and 326 bytes under AES-256-GCM (with the group's key) with its tag
//! of 16. The plain bytes are version, public key, tunnel port, challenge, answer, site, name, addresses of
//! others, and zeros; numbers are little-endian, texts follow their length. All notes have the same length:
//! no answer is longer than its question, and the length reveals nothing.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use oncewire_keys::PublicKey;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// A member's statement about itself, addressed to a known one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its key in the tunnel.
    pub public_key: PublicKey,
    /// Its tunnel's port, at the note's source address.
    pub port: u16,
    /// To be answered by the receiver as a proof of presence; 0 is none.
    pub challenge: u64,
    /// The receiver's challenge; 0 answers none.
    pub answer: u64,
    /// Its site, at most [`MAX_TEXT`] bytes.
    pub site: String,
    /// Its name, at most [`MAX_TEXT`] bytes.
    pub name: String,
    /// Addresses of other members known to it, at most [`MAX_OTHERS`].
    pub others: Vec<SocketAddr>,
}

/// Seals and opens the notes of one group.
#[derive(Debug)]
pub struct NoteKey(LessSafeKey);

/// The bytes of every datagram.
pub const NOTE_LEN: usize = MAGIC.len() + NONCE_LEN + PLAIN_LEN + TAG_LEN;
/// The most bytes of a text.
pub const MAX_TEXT: usize = 64;
/// The most addresses in one note.
pub const MAX_OTHERS: usize = 8;

const MAGIC: &[u8; 4] = b"owd1";
const VERSION: u8 = 1;
const TAG_LEN: usize = 16;
const ADDRESS_LEN: usize = 18;
const PLAIN_LEN: usize = 1 + 32 + 2 + 8 + 8 + 2 * (1 + MAX_TEXT) + 1 + MAX_OTHERS * ADDRESS_LEN;

impl NoteKey {
    /// Takes the group's secret for notes; none if the system refuses it (never in a working build).
    pub fn new(secret: &[u8; 32]) -> Option<Self> {
        Some(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret).ok()?)))
    }

    /// Seals a note with a fresh nonce; none if it does not fit.
    pub fn seal(&self, note: &Note, nonce: [u8; NONCE_LEN]) -> Option<Vec<u8>> {
        let mut plain = note.encode()?;
        let aad = Aad::from(MAGIC);
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut plain).ok()?;
        Some([MAGIC.as_slice(), &nonce, &plain].concat())
    }

    /// Opens a datagram; none if it is not a note of this group.
    pub fn open(&self, datagram: &[u8]) -> Option<Note> {
        if datagram.len() != NOTE_LEN {
            return None;
        }
        let (nonce, sealed) = datagram.strip_prefix(MAGIC)?.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        Note::decode(self.0.open_in_place(nonce, Aad::from(MAGIC), &mut sealed).ok()?)
    }
}

impl Note {
    fn encode(&self) -> Option<Vec<u8>> {
        let mut plain = vec![VERSION];
        plain.extend_from_slice(self.public_key.as_bytes());
        plain.extend_from_slice(&self.port.to_le_bytes());
        plain.extend_from_slice(&self.challenge.to_le_bytes());
        plain.extend_from_slice(&self.answer.to_le_bytes());
        for text in [&self.site, &self.name] {
            plain.push(u8::try_from(text.len()).ok().filter(|_| text.len() <= MAX_TEXT)?);
            plain.extend_from_slice(text.as_bytes());
        }
        plain.push(u8::try_from(self.others.len()).ok().filter(|_| self.others.len() <= MAX_OTHERS)?);
        for other in &self.others {
            let ip = match other.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            plain.extend_from_slice(&ip.octets());
            plain.extend_from_slice(&other.port().to_le_bytes());
        }
        plain.resize(PLAIN_LEN, 0);
        Some(plain)
    }

    /// Reads sealed output and nothing else: one note has one form.
    pub fn decode(plain: &[u8]) -> Option<Self> {
        let mut rest = plain.strip_prefix(&[VERSION])?;
        let public_key = PublicKey::from_bytes(take(&mut rest)?);
        let port = u16::from_le_bytes(take(&mut rest)?);
        let challenge = u64::from_le_bytes(take(&mut rest)?);
        let answer = u64::from_le_bytes(take(&mut rest)?);
        let site = take_text(&mut rest)?;
        let name = take_text(&mut rest)?;
        let [count] = take(&mut rest)?;
        if usize::from(count) > MAX_OTHERS || port == 0 {
            return None;
        }
        let others = (0..count).map(|_| take_address(&mut rest)).collect::<Option<_>>()?;
        let whole = plain.len() == PLAIN_LEN && rest.iter().all(|byte| *byte == 0);
        whole.then_some(Self { public_key, port, challenge, answer, site, name, others })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*taken)
}

/// Texts are names as the configuration takes them: they end up in logs and terminals.
fn take_text(rest: &mut &[u8]) -> Option<String> {
    let [len] = take(rest)?;
    let (text, behind) = rest.split_at_checked(usize::from(len))?;
    *rest = behind;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let good = (1..=MAX_TEXT).contains(&text.len()) && text.iter().all(plain);
    good.then(|| String::from_utf8_lossy(text).into_owned())
}

fn take_address(rest: &mut &[u8]) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(take::<16>(rest)?).to_canonical();
    Some(SocketAddr::new(ip, u16::from_le_bytes(take(rest)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> NoteKey {
        NoteKey::new(&[byte; 32]).unwrap()
    }

    fn note() -> Note {
        Note {
            public_key: PublicKey::from_bytes([7; 32]),
            port: 7400,
            challenge: 1,
            answer: 2,
            site: "town".into(),
            name: "first".into(),
            others: vec!["10.0.0.1:7400".parse().unwrap(), "[fd00::1]:1".parse().unwrap()],
        }
    }

    #[test]
    fn sealed_note_equals_its_golden_bytes() {
        let plain = note().encode().unwrap();
        let hex: String = plain.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = format!(
            "01{}e81c 0100000000000000 0200000000000000 04746f776e 056669727374 02 \
             00000000000000000000ffff0a000001e81c fd000000000000000000000000000001 0100",
            "07".repeat(32)
        );
        let expected = expected.replace(' ', "");
        assert_eq!(hex, format!("{expected}{}", "00".repeat(PLAIN_LEN - expected.len() / 2)));
        let sealed = key(1).seal(&note(), [3; NONCE_LEN]).unwrap();
        assert_eq!((sealed.len(), NOTE_LEN), (NOTE_LEN, 358));
        assert_eq!(key(1).open(&sealed), Some(note()));
    }

    #[test]
    fn cut_changed_or_foreign_datagrams_are_no_notes() {
        let sealed = key(1).seal(&note(), [3; NONCE_LEN]).unwrap();
        assert_eq!(key(2).open(&sealed), None);
        assert_eq!(key(1).open(&[sealed.as_slice(), &[0]].concat()), None);
        for at in 0..sealed.len() {
            assert_eq!(key(1).open(&sealed[..at]), None);
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key(1).open(&changed), None, "byte {at}");
        }
    }

    #[test]
    fn oversized_note_is_not_sealed() {
        let long = Note { name: "x".repeat(MAX_TEXT + 1), ..note() };
        assert_eq!(key(1).seal(&long, [3; NONCE_LEN]), None);
        let many = Note { others: vec![note().others[0]; MAX_OTHERS + 1], ..note() };
        assert_eq!(key(1).seal(&many, [3; NONCE_LEN]), None);
        let most = Note {
            name: "x".repeat(MAX_TEXT),
            site: "y".repeat(MAX_TEXT),
            others: vec![note().others[1]; MAX_OTHERS],
            ..note()
        };
        assert_eq!(key(1).open(&key(1).seal(&most, [3; NONCE_LEN]).unwrap()), Some(most));
    }

    proptest! {
        #[test]
        fn decoded_note_encodes_to_the_same_bytes(
            noise in prop::collection::vec(any::<u8>(), 0..PLAIN_LEN + 9),
            changes in prop::collection::vec((0..PLAIN_LEN, any::<u8>()), 0..4),
        ) {
            let mut changed = note().encode().unwrap();
            changes.into_iter().for_each(|(at, byte)| changed[at] = byte);
            for plain in [noise, changed] {
                if let Some(read) = Note::decode(&plain) {
                    prop_assert_eq!(read.encode(), Some(plain));
                }
            }
        }
    }
}
