//! Encryption at rest: files of separately sealed pages, with random access.

use std::fmt;
use std::io;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hmac;

/// Encrypts a store's writes with AES-256-GCM, under keys derived for each file from a secret.
///
/// A file's key is the HMAC-SHA256 of its salt, 128 random bits in its first page, under the HMAC-SHA256 of `oncewire
/// chunk store: files` under the secret. The number of a page is its nonce, and no page of a file is ever written
/// twice: the remains of a crash are cut, never continued.
pub struct Sealer {
    id: [u8; 16],
    files: hmac::Key,
    salts: Box<dyn Fn() -> io::Result<[u8; 16]> + Send + Sync>,
}

impl Sealer {
    /// Derives from a secret; `salts` gives 128 bits from a random source of the system, new ones with each call.
    pub fn new(secret: &[u8; 32], salts: impl Fn() -> io::Result<[u8; 16]> + Send + Sync + 'static) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let named = hmac::sign(&secret, b"oncewire chunk store: id");
        let mut id = [0; 16];
        id.iter_mut().zip(named.as_ref()).for_each(|(to, from)| *to = *from);
        let files =
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, b"oncewire chunk store: files").as_ref());
        Self { id, files, salts: Box::new(salts) }
    }

    /// Returns the mark of this secret's files.
    pub(crate) fn id(&self) -> [u8; 16] {
        self.id
    }

    pub(crate) fn salt(&self) -> io::Result<[u8; 16]> {
        (self.salts)()
    }

    pub(crate) fn file(&self, salt: &[u8; 16]) -> FileSeal {
        let key = hmac::sign(&self.files, salt);
        let key =
            UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("a tag of HMAC-SHA256 has a key's length");
        FileSeal(LessSafeKey::new(key))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(secret)")
    }
}

/// Seals the pages of one file.
pub(crate) struct FileSeal(LessSafeKey);

impl FileSeal {
    /// Encrypts a page in place and returns its tag.
    pub(crate) fn close(&self, page: u64, bytes: &mut [u8]) -> io::Result<Tag> {
        self.0
            .seal_in_place_separate_tag(nonce(page), Aad::empty(), bytes)
            .map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    /// Decrypts a page and the tag behind it in place; None if it was changed.
    pub(crate) fn open<'a>(&self, page: u64, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.0.open_in_place(nonce(page), Aad::empty(), bytes).ok()
    }
}

fn nonce(page: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&page.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// The extra bytes of a sealed page.
pub(crate) const TAG_LEN: usize = 16;
