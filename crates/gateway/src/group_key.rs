//! The key that the members of a trust group share (`[[group]] key_file`).

use std::fmt;
use std::path::Path;

use oncewire_codec::wanax::NameKey;

use crate::secret::{Secret, SecretError, SecretKind};

/// A secret of 32 bytes that all members of a group hold.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey(Secret);

impl GroupKey {
    /// Makes a new key and writes it to `path`, which must not exist, readable by its owner alone.
    ///
    /// # Errors
    /// [`SecretError::Exists`] if anything is at `path` already; it is left alone.
    pub fn create(path: &Path) -> Result<Self, SecretError> {
        Secret::create(path, &KIND).map(Self)
    }

    /// Reads a key file: the line that [`Self::create`] writes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no group key.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        Secret::load(path, &KIND).map(Self)
    }

    /// Returns what chunks are named with between members, who show it to each other in their hellos.
    pub fn name_key(&self) -> NameKey {
        NameKey::new(self.0.derive("names of chunks"))
    }

    /// Returns what members seal with in which they say where they are.
    pub(crate) fn note_secret(&self) -> [u8; 32] {
        self.0.derive("notes of where members are")
    }
}

impl fmt::Debug for GroupKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(…)")
    }
}

const KIND: SecretKind =
    SecretKind { prefix: "oncewire-group-v1:", name: "group key", command: "oncewire keygen --group --out" };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage_key::StorageKey;

    #[test]
    fn a_group_key_is_no_other_key_and_names_alike_for_whoever_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branches.key");
        let made = GroupKey::create(&path).unwrap();
        let read = GroupKey::load(&path).unwrap();
        assert_eq!(made.name_key(), read.name_key());
        assert_ne!(read.name_key(), GroupKey(Secret([1; 32])).name_key());
        assert_eq!(format!("{made:?}"), "GroupKey(…)");
        let error = StorageKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("not a storage key"), "{error}");
        let no_folder = GroupKey::create(&dir.path().join("nowhere/x")).unwrap_err().to_string();
        assert!(no_folder.contains("there is no folder"), "{no_folder}");
        let missing = GroupKey::load(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(missing.contains("keygen --group --out"), "{missing}");
    }
}
