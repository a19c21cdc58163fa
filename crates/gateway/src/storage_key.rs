//! The key that what is kept on disk is encrypted with (`[gateway] encrypt_key_file`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;

use crate::key_file::{self, Unreadable};

/// A secret of 32 bytes for what is kept on disk; it is never used itself, but derived from for each purpose.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageKey([u8; 32]);

/// Why a storage key cannot be made or used; every message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StorageKeyError {
    /// There is no such file.
    #[error("{path}: no such key file; make one with `oncewire keygen --encrypt-key --out {path}`",
            path = .0.display())]
    Missing(PathBuf),
    /// It was to be written where something is already.
    #[error("{path}: exists already and is never overwritten; choose another name", path = .0.display())]
    Exists(PathBuf),
    /// Others than the owner may read or change the file.
    #[error("{path}: mode {mode:04o} lets others at the secret key; run `chmod 600 {path}`", path = .path.display())]
    Exposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{path}: not a storage key (one line that starts with {PREFIX}, or 64 hexadecimal digits); make one \
             with `oncewire keygen --encrypt-key --out FILE`", path = .0.display())]
    NotAKey(PathBuf),
    /// The file holds a gateway's key pair.
    #[error("{path}: holds a gateway's key pair, which serves identity alone; make a storage key with \
             `oncewire keygen --encrypt-key --out FILE`", path = .0.display())]
    Identity(PathBuf),
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The key file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system: {0}")]
    Random(getrandom::Error),
}

impl StorageKey {
    /// Takes 32 secret bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Makes a new key and writes it to `path`, which must not exist, readable by its owner alone.
    ///
    /// # Errors
    /// [`StorageKeyError::Exists`] if anything is at `path` already; it is left alone.
    pub fn create(path: &Path) -> Result<Self, StorageKeyError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(StorageKeyError::Random)?;
        key_file::create(path, &format!("{PREFIX}{}\n", BASE64.encode(bytes))).map_err(
            |error| match error.kind() {
                io::ErrorKind::AlreadyExists => StorageKeyError::Exists(path.to_owned()),
                _ => StorageKeyError::Io { path: path.to_owned(), source: error },
            },
        )?;
        Ok(Self(bytes))
    }

    /// Reads a key file: the line that [`Self::create`] writes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no storage key.
    pub fn load(path: &Path) -> Result<Self, StorageKeyError> {
        let bytes = key_file::read(path).map_err(|error| {
            let path = path.to_owned();
            match error {
                Unreadable::Missing => StorageKeyError::Missing(path),
                Unreadable::NotAFile => StorageKeyError::NotAKey(path),
                Unreadable::Exposed(mode) => StorageKeyError::Exposed { path, mode },
                Unreadable::Io(source) => StorageKeyError::Io { path, source },
            }
        })?;
        let line = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        if line.starts_with(crate::identity::SECRET_PREFIX) {
            return Err(StorageKeyError::Identity(path.to_owned()));
        }
        Self::parse(line).ok_or_else(|| StorageKeyError::NotAKey(path.to_owned()))
    }

    fn parse(line: &str) -> Option<Self> {
        let bytes = match line.strip_prefix(PREFIX) {
            Some(text) => BASE64.decode(text).ok()?.try_into().ok()?,
            None => from_hex(line)?,
        };
        // A placeholder, never a key.
        (bytes != [0; 32]).then_some(Self(bytes))
    }

    /// Derives a secret for one purpose; two purposes give unrelated secrets, one purpose always the same.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut secret = [0; 32];
        secret.copy_from_slice(hmac::sign(&key, purpose.as_bytes()).as_ref());
        secret
    }
}

impl fmt::Debug for StorageKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageKey(…)")
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

/// What a key file's line begins with, so that it is never mistaken for a gateway's key pair.
const PREFIX: &str = "oncewire-storage-v1:";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::identity::Identity;

    fn written(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("storage.key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn a_written_key_is_read_back_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("storage.key");
        let made = StorageKey::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(StorageKey::load(&path).unwrap(), made);
        assert!(matches!(StorageKey::create(&path), Err(StorageKeyError::Exists(_))));
        assert_eq!(StorageKey::load(&path).unwrap(), made, "it is left alone");
        assert_eq!(format!("{made:?}"), "StorageKey(…)");
    }

    #[test]
    fn sixty_four_digits_are_a_key_too() {
        let dir = tempfile::tempdir().unwrap();
        let key = StorageKey::load(&written(dir.path(), &format!("{}\n", "0aF1".repeat(16)))).unwrap();
        assert_eq!(key, StorageKey::from_bytes([0x0a, 0xf1].repeat(16).try_into().unwrap()));
    }

    #[test]
    fn what_is_no_storage_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let other = Identity::from_seed([7; 32]).public_key().to_string();
        let short = "ab".repeat(31);
        let zeros = "0".repeat(64);
        for text in ["", "key", &other, &short, &format!("{short}a"), &zeros, "oncewire-storage-v1:AAAA"] {
            let error = StorageKey::load(&written(dir.path(), text)).unwrap_err();
            assert!(matches!(error, StorageKeyError::NotAKey(_)), "{text}: {error}");
        }
        let own = dir.path().join("own.key");
        Identity::create(&own).unwrap();
        assert!(matches!(StorageKey::load(&own), Err(StorageKeyError::Identity(_))));
        let missing = StorageKey::load(&dir.path().join("nowhere")).unwrap_err();
        assert!(missing.to_string().contains("keygen --encrypt-key --out"), "{missing}");
        assert!(matches!(StorageKey::load(dir.path()), Err(StorageKeyError::NotAKey(_))));
        let path = written(dir.path(), &"ab".repeat(32));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(StorageKey::load(&path), Err(StorageKeyError::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn purposes_and_keys_have_secrets_of_their_own() {
        let (a, b) = (StorageKey::from_bytes([1; 32]), StorageKey::from_bytes([2; 32]));
        assert_eq!(a.derive("x"), a.derive("x"));
        assert_ne!(a.derive("x"), a.derive("y"));
        assert_ne!(a.derive("x"), b.derive("x"));
    }
}
