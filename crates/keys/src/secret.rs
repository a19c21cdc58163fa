//! Files of 32 secret bytes, shared or private, apart from key pairs.
//!
//! One line each, with its purpose.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;

use crate::key_file::{self, NotMade, Unreadable};

/// Purpose of a secret.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretKind {
    /// Prefix of its file's line: it is never mistaken for another.
    pub(crate) prefix: &'static str,
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Its generating command, up to the file's name.
    pub(crate) command: &'static str,
}

/// Why a secret cannot be made or used; every message names the file, and a known remedy.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// There is no such file.
    #[error("{path}: no such key file; make one with `{command} {path}`", path = .0.display(), command = .1.command)]
    Missing(PathBuf, &'static SecretKind),
    /// A file exists in its place.
    #[error("{path}: exists already and is never overwritten; choose another name", path = .0.display())]
    Exists(PathBuf),
    /// Its directory is missing.
    #[error("{path}: there is no directory {directory}; make it with `mkdir -p {directory}`, or choose another name",
            path = .path.display(), directory = .directory.display())]
    NoDirectory {
        /// The key file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// Others than the owner may read or change the file.
    #[error("{path}: permissions {mode:04o} are too open for a secret key; run `chmod 600 {path}`", path = .path.display())]
    Exposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{path}: not a {name} (one line that starts with {prefix}, or 64 hexadecimal digits); make one \
             with `{command} FILE`", path = .0.display(), name = .1.name, prefix = .1.prefix, command = .1.command)]
    NotAKey(PathBuf, &'static SecretKind),
    /// The file holds a gateway's key pair.
    #[error("{path}: holds a gateway's key pair, which serves identity alone; make a {name} with \
             `{command} FILE`", path = .0.display(), name = .1.name, command = .1.command)]
    Identity(PathBuf, &'static SecretKind),
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The key file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system: {0}")]
    Random(getrandom::Error),
}

/// 32 bytes never used themselves, but as the root of derived keys for each purpose.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// Makes a new one and writes it to a new file at `path`, readable by its owner alone.
    pub(crate) fn create(path: &Path, kind: &'static SecretKind) -> Result<Self, SecretError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(SecretError::Random)?;
        let line = format!("{}{}\n", kind.prefix, BASE64.encode(bytes));
        key_file::create(path, &line).map_err(|error| {
            let path = path.to_owned();
            match error {
                NotMade::Exists => SecretError::Exists(path),
                NotMade::NoDirectory(directory) => SecretError::NoDirectory { path, directory },
                NotMade::Io(source) => SecretError::Io { path, source },
            }
        })?;
        Ok(Self(bytes))
    }

    /// Reads a file: the line written by [`Self::create`], or 64 hexadecimal digits.
    pub(crate) fn load(path: &Path, kind: &'static SecretKind) -> Result<Self, SecretError> {
        let bytes = key_file::read(path).map_err(|error| {
            let path = path.to_owned();
            match error {
                Unreadable::Missing => SecretError::Missing(path, kind),
                Unreadable::Exposed(mode) => SecretError::Exposed { path, mode },
                Unreadable::Io(source) => SecretError::Io { path, source },
            }
        })?;
        let line = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        if line.starts_with(crate::identity::SECRET_PREFIX) {
            return Err(SecretError::Identity(path.to_owned(), kind));
        }
        Self::parse(line, kind).ok_or_else(|| SecretError::NotAKey(path.to_owned(), kind))
    }

    fn parse(line: &str, kind: &SecretKind) -> Option<Self> {
        let bytes = match line.strip_prefix(kind.prefix) {
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

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    bytes.try_into().ok().filter(|_| rest.is_empty())
}
