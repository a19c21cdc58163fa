//! Digests or seals of a persisted log's bytes.
//!
//! The format stands in the [module doc](super).

use std::io;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hmac;

use oncewire_keys::StorageKey;
use oncewire_link::LogSide;

use super::index::{Format, Proof, Record, side_number};

/// Transformation of a log's bytes on their way to the disk and back.
#[derive(Clone, Debug)]
pub(super) enum Seal {
    /// They are written unchanged, with a digest.
    Clear,
    /// They are encrypted and authenticated.
    Keyed {
        /// Distinguishes logs of this key from another's.
        id: [u8; 16],
        /// Root of the records' keys.
        records: hmac::Key,
    },
}

impl Seal {
    /// Encrypts with a key if there is one.
    pub(super) fn new(key: Option<&StorageKey>) -> Self {
        let Some(key) = key else { return Self::Clear };
        let [id, _] = halves(key.derive("oncewire kept log: id"));
        let records = hmac::Key::new(hmac::HMAC_SHA256, &key.derive("oncewire kept log: records"));
        Self::Keyed { id, records }
    }

    /// Returns the index format of such a log.
    pub(super) fn format(&self) -> Format {
        match self {
            Self::Clear => Format::Clear,
            Self::Keyed { id, .. } => Format::Sealed { key: *id },
        }
    }

    /// Describes bytes of the log beginning at `start`, and returns their written form; `sealed` is its
    /// buffer if it differs from the bytes. None if their length is not a block's.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(super) fn close<'a>(
        &self,
        side: LogSide,
        (epoch, start): (u64, u64),
        plain: &'a [u8],
        sealed: &'a mut Vec<u8>,
    ) -> io::Result<Option<(Record, &'a [u8])>> {
        let Self::Keyed { records, .. } = self else {
            return Ok(Record::of(epoch, start, plain).map(|record| (record, plain)));
        };
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let proof = Proof::Seal { salt, tag: [0; 16] };
        let Some(mut record) = Record::new(epoch, start, plain.len(), proof) else { return Ok(None) };
        sealed.clear();
        sealed.extend_from_slice(plain);
        let aad = Aad::from(named(side, &record));
        let tag = record_key(records, &salt).seal_in_place_separate_tag(nonce(), aad, sealed);
        // It refuses only lengths beyond 64 GiB.
        let tag = tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(io::ErrorKind::InvalidInput)?;
        record.proof = Proof::Seal { salt, tag };
        Ok(Some((record, sealed)))
    }

    /// Turns written bytes back into those of the log, in place; false on a mismatch with the record.
    pub(super) fn open(&self, side: LogSide, record: &Record, bytes: &mut [u8]) -> bool {
        match (self, record.proof) {
            (Self::Clear, Proof::Digest(_)) => record.matches(bytes),
            (Self::Keyed { records, .. }, Proof::Seal { salt, tag }) => {
                let aad = Aad::from(named(side, record));
                let key = record_key(records, &salt);
                bytes.len() == record.len as usize
                    && key.open_in_place_separate_tag(nonce(), aad, Tag::from(tag), bytes, 0..).is_ok()
            }
            _ => false,
        }
    }

    /// Returns the content of a small file written as a whole; its first bytes, one of `first`, tell whether
    /// it is encrypted.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(super) fn close_whole(&self, first: [&[u8; 8]; 2], mut plain: Vec<u8>) -> io::Result<Vec<u8>> {
        let [clear, keyed] = first;
        let Self::Keyed { records, .. } = self else { return Ok([&clear[..], &plain].concat()) };
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let sealed =
            record_key(records, &salt).seal_in_place_separate_tag(nonce(), Aad::from(keyed), &mut plain);
        // It refuses only lengths beyond 64 GiB.
        let tag = sealed.map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok([&keyed[..], &salt, tag.as_ref(), &plain].concat())
    }

    /// Returns the input of [`Seal::close_whole`]; none if the file is another's, or changed.
    pub(super) fn open_whole(&self, first: [&[u8; 8]; 2], mut file: Vec<u8>) -> Option<Vec<u8>> {
        let [clear, keyed] = first;
        let Self::Keyed { records, .. } = self else {
            return file.starts_with(clear).then(|| file.split_off(clear.len()));
        };
        let rest = file.strip_prefix(&keyed[..])?;
        let (salt, rest) = rest.split_first_chunk::<16>()?;
        let (tag, sealed) = rest.split_first_chunk::<16>()?;
        let (key, mut sealed) = (record_key(records, salt), sealed.to_vec());
        key.open_in_place_separate_tag(nonce(), Aad::from(keyed), Tag::from(*tag), &mut sealed, 0..).ok()?;
        Some(sealed)
    }
}

/// Additional authenticated data of a record's bytes: side, epoch, offset, number.
fn named(side: LogSide, record: &Record) -> [u8; 24] {
    let mut named = [0; 24];
    named[..4].copy_from_slice(&side_number(side).to_le_bytes());
    named[4..8].copy_from_slice(&record.len.to_le_bytes());
    named[8..16].copy_from_slice(&record.epoch.to_le_bytes());
    named[16..].copy_from_slice(&record.start.to_le_bytes());
    named
}

/// Derives the key of one record; it seals nothing else.
fn record_key(records: &hmac::Key, salt: &[u8; 16]) -> LessSafeKey {
    let secret = hmac::sign(records, salt);
    let key =
        UnboundKey::new(&AES_256_GCM, secret.as_ref()).expect("a tag of HMAC-SHA256 has a key's length");
    LessSafeKey::new(key)
}

/// The only nonce of each record's key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn halves(secret: [u8; 32]) -> [[u8; 16]; 2] {
    let (pairs, _) = secret.as_chunks::<16>();
    [pairs[0], pairs[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"what a user sent, long enough not to come up by chance";

    fn keyed(byte: u8) -> Seal {
        Seal::new(Some(&StorageKey::from_bytes([byte; 32])))
    }

    fn sealed(seal: &Seal, side: LogSide, epoch: u64, start: u64) -> (Record, Vec<u8>) {
        let mut buffer = Vec::new();
        let (record, bytes) = seal.close(side, (epoch, start), PLAIN, &mut buffer).unwrap().unwrap();
        (record, bytes.to_vec())
    }

    #[test]
    fn sealed_bytes_come_back_and_show_nothing_of_themselves() {
        let seal = keyed(1);
        let (record, bytes) = sealed(&seal, LogSide::Out, 3, 100);
        assert_eq!(bytes.len(), PLAIN.len());
        assert!(!bytes.windows(4).any(|window| PLAIN.windows(4).any(|plain| plain == window)));
        let mut opened = bytes.clone();
        assert!(seal.open(LogSide::Out, &record, &mut opened));
        assert_eq!(opened, PLAIN);
        // The same bytes at the same place are sealed differently each time.
        assert_ne!(sealed(&seal, LogSide::Out, 3, 100).1, bytes);
    }

    #[test]
    fn seal_holds_for_its_place_and_key_alone() {
        let seal = keyed(1);
        let (record, bytes) = sealed(&seal, LogSide::Out, 3, 100);
        let opens =
            |seal: &Seal, side, record: &Record, bytes: &[u8]| seal.open(side, record, &mut bytes.to_vec());
        assert!(opens(&seal, LogSide::Out, &record, &bytes));
        assert!(!opens(&seal, LogSide::Inbound, &record, &bytes), "another side");
        assert!(!opens(&keyed(2), LogSide::Out, &record, &bytes), "another key");
        assert!(!opens(&Seal::Clear, LogSide::Out, &record, &bytes), "no key");
        for other in [
            Record { epoch: 4, ..record },
            Record { start: 101, ..record },
            Record { len: record.len - 1, ..record },
        ] {
            let bytes = &bytes[..other.len as usize];
            assert!(!opens(&seal, LogSide::Out, &other, bytes), "{other:?}");
        }
        let (elsewhere, _) = sealed(&seal, LogSide::Out, 3, 100);
        assert!(!opens(&seal, LogSide::Out, &elsewhere, &bytes), "another record of the same place");
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(!opens(&seal, LogSide::Out, &record, &flipped), "byte {at}");
        }
    }

    #[test]
    fn bytes_of_impossible_length_are_not_sealed() {
        let mut buffer = Vec::new();
        for seal in [Seal::Clear, keyed(1)] {
            assert!(seal.close(LogSide::Out, (1, 0), &[], &mut buffer).unwrap().is_none());
            assert!(seal.close(LogSide::Out, (1, u64::MAX), b"xy", &mut buffer).unwrap().is_none());
            assert!(seal.close(LogSide::Out, (1, 0), &[0; 65_537], &mut buffer).unwrap().is_none());
        }
    }

    #[test]
    fn golden_sealed_log_can_be_read() {
        // A golden value: the derivations must not change in silence.
        let Seal::Keyed { id, records } = keyed(7) else { panic!("it has a key") };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&id), GOLDEN_ID);
        let mut bytes = PLAIN.to_vec();
        let record = Record::new(1, 2, PLAIN.len(), Proof::Seal { salt: [9; 16], tag: [0; 16] }).unwrap();
        let aad = Aad::from(named(LogSide::Inbound, &record));
        let tag =
            record_key(&records, &[9; 16]).seal_in_place_separate_tag(nonce(), aad, &mut bytes).unwrap();
        assert_eq!(hex(tag.as_ref()), GOLDEN_TAG);
    }

    const GOLDEN_ID: &str = "4ce1e0fc6339c2b250809011cafe4012";

    const GOLDEN_TAG: &str = "76760853dc9ea1c1d47d7ea3dccf14db";
}
