//! A gateway's identity: an Ed25519 key pair and its text forms.
//!
//! Peers know each other by raw public key (RFC 7250): there is no certificate authority, name or expiry. The
//! secret is the 32-byte Ed25519 seed of RFC 8032; TLS wants PKCS #8 and SubjectPublicKeyInfo: that seed or
//! key behind a fixed prefix (RFC 8410). Operators handle one line of text.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Serialize, Serializer};

use crate::key_file::{self, NotMade, Unreadable};
use crate::tls::PinnedKeys;

/// The public half of a gateway's identity: printed by `keygen` and configured as `[[peer]] public_key`.
///
/// The text form is the base64 of the 32 bytes (44 characters). Keys are ordered by their bytes: the gateway
/// with the smaller one of two opens flows with even numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// Why a text is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// The text is the content of a key file; it must never leave its gateway.
    #[error("this is a secret key; give the public key that `oncewire keygen --show --out FILE` prints")]
    Secret,
    /// The text is not base64.
    #[error("not base64; a public key is the 44 characters that `oncewire keygen` printed")]
    NotBase64,
    /// The text is base64 of another number of bytes.
    #[error("{0} bytes long instead of 32; a public key is the 44 characters that `oncewire keygen` printed")]
    WrongLength(usize),
    /// Every byte is zero: a placeholder, never a key.
    #[error(
        "all zeros, which is a placeholder and no key; give the line that the peer's `oncewire keygen` printed"
    )]
    Zero,
}

impl PublicKey {
    /// Returns a verifier accepting a TLS 1.3 server with this key, and no other.
    pub fn verifier(self) -> Arc<dyn ServerCertVerifier> {
        PinnedKeys::new([self])
    }

    /// Takes the 32 bytes of a raw Ed25519 public key.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the raw Ed25519 public key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the key from a SubjectPublicKeyInfo in DER, the "certificate" of RFC 7250; none if it is of another
    /// algorithm or form.
    pub fn from_spki_der(der: &[u8]) -> Option<Self> {
        let raw = der.strip_prefix(SPKI_PREFIX.as_slice())?;
        Some(Self(raw.try_into().ok()?))
    }

    /// Returns the key as a SubjectPublicKeyInfo in DER (44 bytes, RFC 8410 §4).
    pub fn spki_der(&self) -> Vec<u8> {
        [SPKI_PREFIX.as_slice(), &self.0].concat()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.starts_with(SECRET_PREFIX) {
            return Err(PublicKeyError::Secret);
        }
        let bytes = BASE64.decode(text).map_err(|_| PublicKeyError::NotBase64)?;
        let raw: [u8; 32] =
            bytes.try_into().map_err(|bytes: Vec<u8>| PublicKeyError::WrongLength(bytes.len()))?;
        if raw == [0; 32] { Err(PublicKeyError::Zero) } else { Ok(Self(raw)) }
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A gateway's own key pair.
#[derive(Clone)]
pub struct Identity {
    seed: [u8; 32],
    public_key: PublicKey,
}

/// Why a key file cannot be made or used; every message names the file, and a known remedy.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no such file.
    #[error("{path}: no such key file; make one with `oncewire keygen --out {path}`", path = .0.display())]
    Missing(PathBuf),
    /// `keygen` met an existing file.
    #[error("{path}: exists already and is never overwritten; choose another name, or print its public key \
             with `oncewire keygen --show --out {path}`", path = .0.display())]
    Exists(PathBuf),
    /// `keygen` met a missing directory.
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
    #[error("{path}: not an oncewire key file (one line that starts with {SECRET_PREFIX}); make one with \
             `oncewire keygen --out FILE`", path = .0.display())]
    NotAKey(PathBuf),
    /// The file holds a public key.
    #[error("{path}: holds a public key; `key_file` names the file that `oncewire keygen --out` wrote",
            path = .0.display())]
    PublicOnly(PathBuf),
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

impl Identity {
    /// Makes a new key pair from the operating system's random source.
    ///
    /// # Errors
    /// [`IdentityError::Random`] if the source fails.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(IdentityError::Random)?;
        Ok(Self::from_seed(seed))
    }

    /// Derives the key pair from its 32-byte seed (RFC 8032 §5.1.5).
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every seed of 32 bytes is a key");
        let mut raw = [0; 32];
        raw.copy_from_slice(pair.public_key().as_ref());
        Self { seed, public_key: PublicKey(raw) }
    }

    /// Makes a new key pair and writes it to a new file at `path`, readable by its owner alone.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if anything is at `path` already, a dangling link included; it is left
    /// alone. [`IdentityError::NoDirectory`] if there is no directory for it.
    pub fn create(path: &Path) -> Result<Self, IdentityError> {
        let identity = Self::generate()?;
        let line = format!("{SECRET_PREFIX}{}\n", BASE64.encode(identity.seed));
        key_file::create(path, &line).map_err(|error| {
            let path = path.to_owned();
            match error {
                NotMade::Exists => IdentityError::Exists(path),
                NotMade::NoDirectory(directory) => IdentityError::NoDirectory { path, directory },
                NotMade::Io(source) => IdentityError::Io { path, source },
            }
        })?;
        Ok(identity)
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no key file.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let bytes = key_file::read(path).map_err(|error| {
            let path = path.to_owned();
            match error {
                Unreadable::Missing => IdentityError::Missing(path),
                Unreadable::Exposed(mode) => IdentityError::Exposed { path, mode },
                Unreadable::Io(source) => IdentityError::Io { path, source },
            }
        })?;
        Self::parse(&bytes).map_err(|public| match public {
            true => IdentityError::PublicOnly(path.to_owned()),
            false => IdentityError::NotAKey(path.to_owned()),
        })
    }

    /// Reads the line of a key file; the error is true for a public key.
    fn parse(bytes: &[u8]) -> Result<Self, bool> {
        let line = std::str::from_utf8(bytes).map_err(|_| false)?.trim();
        let Some(secret) = line.strip_prefix(SECRET_PREFIX) else {
            return Err(PublicKey::from_str(line).is_ok());
        };
        let seed = BASE64.decode(secret).ok().and_then(|seed| seed.try_into().ok()).ok_or(false)?;
        Ok(Self::from_seed(seed))
    }

    /// Returns the public half, for peers' configurations.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Returns the secret as PKCS #8 in DER (48 bytes, RFC 8410 §7).
    pub fn pkcs8_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from([PKCS8_PREFIX.as_slice(), &self.seed].concat()))
    }

    /// Returns the pair as rustls presents it: the raw public key in place of a certificate, and the signing
    /// key.
    ///
    /// # Errors
    /// If rustls refuses the key; a working build does not.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, rustls::Error> {
        let signing_key = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(
            [PKCS8_PREFIX.as_slice(), &self.seed].concat(),
        ))?;
        let certificate = CertificateDer::from(self.public_key.spki_der());
        Ok(Arc::new(CertifiedKey::new(vec![certificate], signing_key)))
    }

    /// Derives a secret for another purpose: the key itself serves identity alone.
    ///
    /// Two purposes give unrelated secrets, one purpose always the same.
    pub fn derive_secret(&self, purpose: &str) -> [u8; 32] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.seed);
        let tag = ring::hmac::sign(&key, purpose.as_bytes());
        let mut secret = [0; 32];
        secret.copy_from_slice(tag.as_ref());
        secret
    }
}

impl fmt::Debug for Identity {
    /// Shows the public half only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

/// Prefix of a key file's line, for people and programs to recognise a secret.
pub(crate) const SECRET_PREFIX: &str = "oncewire-secret-v1:";

/// RFC 8410 §7: OneAsymmetricKey version 0, Ed25519, an octet string of 32 bytes.
const PKCS8_PREFIX: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// RFC 8410 §4: SubjectPublicKeyInfo, Ed25519, a bit string of 32 bytes.
const SPKI_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn written_key_is_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branch.key");
        let made = Identity::create(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(Identity::load(&path).unwrap().public_key(), made.public_key());
    }

    #[test]
    fn existing_file_or_dangling_link_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branch.key");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(Identity::create(&path), Err(IdentityError::Exists(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let link = dir.path().join("link.key");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
        assert!(matches!(Identity::create(&link), Err(IdentityError::Exists(_))));
    }

    #[test]
    fn missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("nowhere");
        let error = Identity::create(&directory.join("branch.key")).unwrap_err().to_string();
        assert!(error.contains(&format!("mkdir -p {}", directory.display())), "{error}");
    }

    #[test]
    fn exposed_key_file_is_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branch.key");
        Identity::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::load(&path).unwrap_err().to_string();
        assert!(error.contains("0644") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn file_with_other_content_is_no_key_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branch.key");
        let public = Identity::from_seed([7; 32]).public_key().to_string();
        for (content, public) in [("", false), ("hello\n", false), (public.as_str(), true)] {
            let _ = std::fs::remove_file(&path);
            key_file::create(&path, content).unwrap();
            match Identity::load(&path).unwrap_err() {
                IdentityError::PublicOnly(_) => assert!(public),
                IdentityError::NotAKey(_) => assert!(!public),
                other => panic!("{other}"),
            }
        }
        assert!(matches!(Identity::load(&dir.path().join("none")), Err(IdentityError::Missing(_))));
        assert!(matches!(Identity::load(dir.path()), Err(IdentityError::Io { .. })));
    }

    #[test]
    fn public_key_of_rfc_8032_test_1_is_derived() {
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(Identity::from_seed(seed).public_key().as_bytes(), &public);
    }

    #[test]
    fn public_key_survives_its_text_and_its_der() {
        let key = Identity::from_seed([3; 32]).public_key();
        assert_eq!(key.to_string().len(), 44);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(PublicKey::from_spki_der(&key.spki_der()), Some(key));
        assert_eq!(PublicKey::from_spki_der(&key.spki_der()[1..]), None);
    }

    #[test]
    fn invalid_public_key_text_is_explained() {
        let parse = |text: &str| text.parse::<PublicKey>().unwrap_err();
        assert_eq!(parse("no key!"), PublicKeyError::NotBase64);
        assert_eq!(parse("AAAA"), PublicKeyError::WrongLength(3));
        assert_eq!(parse(&BASE64.encode([0; 32])), PublicKeyError::Zero);
        assert_eq!(parse(&format!("{SECRET_PREFIX}{}", BASE64.encode([1; 32]))), PublicKeyError::Secret);
    }

    #[test]
    fn rustls_accepts_the_pair() {
        let identity = Identity::from_seed([9; 32]);
        let certified = identity.certified_key().unwrap();
        assert_eq!(PublicKey::from_spki_der(&certified.cert[0]), Some(identity.public_key()));
        assert_eq!(identity.pkcs8_der().secret_der().len(), 48);
    }

    #[test]
    fn debugging_output_does_not_hold_the_secret() {
        let identity = Identity::from_seed([5; 32]);
        assert!(!format!("{identity:?}").contains(&BASE64.encode([5; 32])));
    }

    #[test]
    fn secrets_of_two_purposes_differ() {
        let identity = Identity::from_seed([5; 32]);
        assert_ne!(identity.derive_secret("a"), identity.derive_secret("b"));
        assert_eq!(identity.derive_secret("a"), identity.derive_secret("a"));
    }

    fn hex(text: &str) -> [u8; 32] {
        let bytes: Vec<u8> =
            (0..64).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }
}
