//! The encryption key of state on disk (`[gateway] encrypt_key_file`).

use std::fmt;
use std::path::Path;

use crate::secret::{Secret, SecretError, SecretKind};

/// A secret of 32 bytes for state on disk; never used itself, but as the root of derived keys for each
/// purpose.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageKey(Secret);

impl StorageKey {
    /// Takes 32 secret bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Secret(bytes))
    }

    /// Makes a new key and writes it to a new file at `path`, readable by its owner alone.
    ///
    /// # Errors
    /// [`SecretError::Exists`] if anything is at `path` already; it is left alone.
    pub fn create(path: &Path) -> Result<Self, SecretError> {
        Secret::create(path, &KIND).map(Self)
    }

    /// Reads a key file: the line written by [`Self::create`], or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no storage key.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        Secret::load(path, &KIND).map(Self)
    }

    /// Derives a secret for one purpose; two purposes give unrelated secrets, one purpose always the same.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        self.0.derive(purpose)
    }
}

impl fmt::Debug for StorageKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageKey(…)")
    }
}

const KIND: SecretKind = SecretKind {
    prefix: "oncewire-storage-v1:",
    name: "storage key",
    command: "oncewire keygen --encrypt-key --out",
};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;
    use crate::identity::Identity;

    fn written(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("storage.key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn written_key_is_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("storage.key");
        let made = StorageKey::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(StorageKey::load(&path).unwrap(), made);
        assert!(matches!(StorageKey::create(&path), Err(SecretError::Exists(_))));
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
    fn non_storage_keys_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let other = Identity::from_seed([7; 32]).public_key().to_string();
        let short = "ab".repeat(31);
        let zeros = "0".repeat(64);
        for text in ["", "key", &other, &short, &format!("{short}a"), &zeros, "oncewire-storage-v1:AAAA"] {
            let error = StorageKey::load(&written(dir.path(), text)).unwrap_err();
            assert!(matches!(error, SecretError::NotAKey(..)), "{text}: {error}");
        }
        let own = dir.path().join("own.key");
        Identity::create(&own).unwrap();
        assert!(matches!(StorageKey::load(&own), Err(SecretError::Identity(..))));
        let missing = StorageKey::load(&dir.path().join("nowhere")).unwrap_err();
        assert!(missing.to_string().contains("keygen --encrypt-key --out"), "{missing}");
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [dir.path(), &pipe] {
            let error = StorageKey::load(path).unwrap_err().to_string();
            assert!(error.ends_with("a directory, device or pipe, not a file"), "{error}");
        }
        let path = written(dir.path(), &"ab".repeat(32));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(StorageKey::load(&path), Err(SecretError::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn purposes_and_keys_have_secrets_of_their_own() {
        let (a, b) = (StorageKey::from_bytes([1; 32]), StorageKey::from_bytes([2; 32]));
        assert_eq!(a.derive("x"), a.derive("x"));
        assert_ne!(a.derive("x"), a.derive("y"));
        assert_ne!(a.derive("x"), b.derive("x"));
    }
}
