//! The compressed or encrypted share of measured content.

use std::io::{self, Read};

use serde::Serialize;

/// Bytes by the reason for their incompressibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Content {
    /// In files with the beginning of a compressed format.
    pub(crate) compressed: u64,
    /// In files with the beginning of an encryption program's output.
    pub(crate) encrypted: u64,
    /// In other files, as dense as if they were either.
    pub(crate) either: u64,
}

/// A file examined while it is read.
pub(crate) struct Looking<'a, R> {
    source: R,
    content: &'a mut Content,
    kind: Option<Kind>,
    window: Vec<u8>,
    /// Whether the last window was dense; it decides for an end too short to tell.
    dense: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Compressed,
    Encrypted,
    Other,
}

impl<'a, R: Read> Looking<'a, R> {
    /// Examines the bytes of `source`, and adds the result to `content`.
    pub(crate) fn new(source: R, content: &'a mut Content) -> Self {
        Self { source, content, kind: None, window: Vec::new(), dense: false }
    }
}

impl<R> Looking<'_, R> {
    /// Counts the bytes read since the last time.
    fn look(&mut self) {
        let bytes = self.window.len() as u64;
        if self.window.len() >= LEAST_JUDGED {
            self.dense = is_dense(&self.window);
        }
        let kind = *self.kind.get_or_insert_with(|| kind(&self.window));
        match kind {
            Kind::Compressed => self.content.compressed += bytes,
            Kind::Encrypted => self.content.encrypted += bytes,
            Kind::Other if self.dense => self.content.either += bytes,
            Kind::Other => {}
        }
        self.window.clear();
    }
}

impl<R: Read> Read for Looking<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(WINDOW - self.window.len());
        let count = self.source.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.window.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if self.window.len() == WINDOW || (count == 0 && !self.window.is_empty()) {
            self.look();
        }
        Ok(count)
    }
}

/// Goes by the first bytes of a file.
fn kind(begin: &[u8]) -> Kind {
    let is = |magics: &[&[u8]]| magics.iter().any(|magic| begin.starts_with(magic));
    let at = |offset: usize, magic: &[u8]| begin.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if is(&COMPRESSED) || at(4, b"ftyp") || (begin.starts_with(b"RIFF") && at(8, b"WEBP")) {
        Kind::Compressed
    } else if is(&ENCRYPTED) {
        Kind::Encrypted
    } else {
        Kind::Other
    }
}

/// Says whether bytes are spread as evenly as those of compressed and encrypted content are: their entropy is near 8 bits.
fn is_dense(bytes: &[u8]) -> bool {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = bytes.len() as f64;
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / total);
    let entropy: f64 = shares.map(|share| -share * share.log2()).sum();
    entropy >= DENSE
}

/// The first bytes of compressed formats: gzip, zip, zstd, xz, bzip2, 7z, lz4, rar, PNG, JPEG, GIF, Matroska, Ogg, MP3, FLAC.
const COMPRESSED: [&[u8]; 15] = [
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ\0",
    b"BZh",
    b"7z\xbc\xaf\x27\x1c",
    b"\x04\x22\x4d\x18",
    b"Rar!",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\x1a\x45\xdf\xa3",
    b"OggS",
    b"ID3",
    b"fLaC",
];
/// The first bytes of files by OpenSSL, age, OpenPGP, LUKS and KeePass.
const ENCRYPTED: [&[u8]; 5] =
    [b"Salted__", b"age-encryption.org/", b"-----BEGIN PGP MESSAGE", b"LUKS\xba\xbe", b"\x03\xd9\xa2\x9a"];
/// Bytes judged together, as many as a block has.
const WINDOW: usize = 64 << 10;
/// Of fewer bytes the entropy says too little.
const LEAST_JUDGED: usize = 4 << 10;
/// Bits a byte: random bytes have 7.95 in the shortest window, and text and programs below 7.
const DENSE: f64 = 7.8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file in small parts, as pipes give them.
    fn met(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        let mut looking = Looking::new(bytes, &mut content);
        let mut part = [0; 1000];
        let mut out = Vec::new();
        loop {
            match looking.read(&mut part).unwrap() {
                0 => break,
                count => out.extend_from_slice(&part[..count]),
            }
        }
        assert!(out == bytes, "what is looked at is not changed");
        content
    }

    /// Evenly spread bytes, from a generator of numbers [Marsaglia 2003].
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        std::iter::repeat_with(&mut next).flatten().take(len).collect()
    }

    #[test]
    fn content_is_told_by_its_beginning_or_density() {
        let with = |magic: &[u8], len| [magic, &noise(len)].concat();
        assert_eq!(met(&with(b"PK\x03\x04", 100)), Content { compressed: 104, ..Content::default() });
        assert_eq!(met(&with(b"\0\0\0\x20ftyp", 200_000)).compressed, 200_008);
        assert_eq!(met(&with(b"Salted__", 100_000)), Content { encrypted: 100_008, ..Content::default() });
        assert_eq!(met(&noise(200_000)), Content { either: 200_000, ..Content::default() });
        let text = "a text of some words that are like others. ".repeat(5000);
        assert_eq!(met(text.as_bytes()), Content::default());
        let mixed = [text.as_bytes(), &noise(1 << 20)].concat();
        assert!((900_000..1_150_000).contains(&met(&mixed).either), "{:?}", met(&mixed));
        assert_eq!(met(b""), Content::default());
    }
}
