//! What a link knows of its peer's chunk store, kept beside its logs.
//!
//! The file `hints` begins with 8 bytes, `owhints1`, or `owhints2` if it is encrypted. In clear text there follows what
//! the sending half gave out, which has a check of its own. Else there follow 16 bytes of salt, drawn at random for each
//! saving, a tag of 16 bytes, and those bytes sealed with AES-256-GCM as the records of [logs](super) are, with the first
//! 8 bytes of the file as what is authenticated beside them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk as _, OsFolder};
use super::seal::Seal;

/// The file of one peer's hints.
#[derive(Clone, Debug)]
pub(crate) struct HintFile {
    folder: OsFolder,
    seal: Seal,
    /// Held while the file changes, so that what was known earlier is never written over what is known later.
    turn: Arc<Mutex<()>>,
}

/// Whose turn it is to write the hints of each folder. A peer that a reload begins anew has its file opened again, and
/// what saves its predecessor's may still wait for the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>>>);

impl HintFile {
    pub(super) fn new(folder: OsFolder, seal: Seal, turns: &Turns) -> Self {
        let turn = Arc::clone(turns.0.lock().entry(folder.path().to_owned()).or_default());
        Self { folder, seal, turn }
    }

    /// Reads what was saved; none if there is nothing that can be used.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let file = File::open(self.folder.path().join(NAME)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes).ok().filter(|len| *len as u64 <= MOST)?;
        self.seal.open_whole(MAGIC, bytes)
    }

    /// Saves what `take` returns, which is called when nobody else writes the file any more; if that has no bytes, the
    /// file is emptied, and if it is none, the file stays as it is. Returns the number of bytes written. Takes as long
    /// as the disk does.
    ///
    /// # Errors
    /// What the disk says; the file is as it was then.
    pub(crate) fn write(&self, take: impl FnOnce() -> Option<Vec<u8>>) -> io::Result<usize> {
        let _turn = self.turn.lock();
        let Some(plain) = take() else { return Ok(0) };
        let bytes = if plain.is_empty() { Vec::new() } else { self.seal.close_whole(MAGIC, plain)? };
        self.folder.replace(NAME, &bytes)?;
        Ok(bytes.len())
    }
}

/// What the file is called.
pub(super) const NAME: &str = "hints";

/// What the file begins with, in clear text and encrypted.
const MAGIC: [&[u8; 8]; 2] = [b"owhints1", b"owhints2"];

/// No hints take more than can be set.
const MOST: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage_key::StorageKey;

    fn file(dir: &std::path::Path, key: Option<u8>) -> HintFile {
        let key = key.map(|byte| StorageKey::from_bytes([byte; 32]));
        HintFile::new(OsFolder::create(dir.to_owned()).unwrap(), Seal::new(key.as_ref()), &Turns::default())
    }

    const HINTS: &[u8] = b"what is known of a peer's store, long enough to be recognised";

    #[test]
    fn what_was_saved_is_read_again_with_the_same_key_only() {
        for key in [None, Some(1)] {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(file(dir.path(), key).read(), None, "nothing yet");
            file(dir.path(), key).write(|| Some(HINTS.to_vec())).unwrap();
            assert_eq!(file(dir.path(), key).read().as_deref(), Some(HINTS));
            for other in [None, Some(1), Some(2)].into_iter().filter(|other| *other != key) {
                assert_eq!(file(dir.path(), other).read(), None, "{key:?} {other:?}");
            }
            let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
            let shown = bytes.windows(8).any(|part| part == &HINTS[..8]);
            assert_eq!(shown, key.is_none());
            assert_eq!(file(dir.path(), key).write(|| None).unwrap(), 0);
            assert_eq!(file(dir.path(), key).read().as_deref(), Some(HINTS), "nobody had anything better");
            file(dir.path(), key).write(|| Some(Vec::new())).unwrap();
            assert_eq!(file(dir.path(), key).read(), None, "cleared");
        }
    }

    #[test]
    fn who_opens_a_file_again_writes_it_after_who_had_it_before() {
        let dir = tempfile::tempdir().unwrap();
        let turns = Turns::default();
        let open = || HintFile::new(OsFolder::create(dir.path().to_owned()).unwrap(), Seal::Clear, &turns);
        let (before, after) = (open(), open());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        let saving = std::thread::spawn(move || {
            before.write(|| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                Some(b"before".to_vec())
            })
        });
        has_begun.recv().unwrap();
        assert!(after.turn.is_locked(), "it would write at the same time");
        go_on.send(()).unwrap();
        after.write(|| Some(b"after".to_vec())).unwrap();
        saving.join().unwrap().unwrap();
        assert_eq!(after.read().as_deref(), Some(&b"after"[..]));
    }

    #[test]
    fn a_changed_or_cut_file_that_is_encrypted_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        file(dir.path(), Some(1)).write(|| Some(HINTS.to_vec())).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(file(dir.path(), Some(1)).read(), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(file(dir.path(), Some(1)).read(), None, "cut at {at}");
        }
    }
}
