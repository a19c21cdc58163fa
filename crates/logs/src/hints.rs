//! A link's knowledge of its peer's chunk store, saved beside its logs.
//!
//! The file `hints` begins with 8 bytes, `owhints1`, or `owhints2` if it is encrypted. In clear text the
//! sending half's output follows, with a check of its own. Else there follow 16 bytes of salt, drawn at
//! random for each saving, a tag of 16 bytes, and that output sealed with AES-256-GCM like the records of
//! [logs](super), with the first 8 bytes of the file as additional authenticated data.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncewire_store::Opening;
use parking_lot::Mutex;

use super::disk::{Disk as _, OsDirectory, open_private};
use super::seal::Seal;

/// The file of one peer's hints.
#[derive(Clone, Debug)]
pub struct HintFile {
    directory: OsDirectory,
    seal: Seal,
    /// Held while the file changes: older knowledge must not overwrite newer.
    turn: Arc<Mutex<()>>,
}

/// Write locks of the hints, by directory. A reload may begin a peer anew and open its file again while its
/// predecessor's save still waits for the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>>>);

impl HintFile {
    pub(super) fn new(directory: OsDirectory, seal: Seal, turns: &Turns) -> Self {
        let turn = Arc::clone(turns.0.lock().entry(directory.path().to_owned()).or_default());
        Self { directory, seal, turn }
    }

    /// Reads the saved hints, at most `most` bytes before sealing; none if there is nothing usable.
    ///
    /// # Errors
    /// If there is something else in its place, with a remedy.
    pub(super) fn read(&self, most: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.directory.path().join(NAME);
        let bytes = match read_file(&path, most.saturating_add(SEALING)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => {
                read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?
            }
        };
        Ok(self.seal.open_whole(MAGIC, bytes))
    }

    /// Saves the output of `take`, called under the file's write lock; empty output empties the file, none
    /// leaves it. Returns the number of bytes written. Takes the disk's time.
    ///
    /// # Errors
    /// The disk's error; the file is then unchanged.
    pub fn write(&self, take: impl FnOnce() -> Option<Vec<u8>>) -> io::Result<usize> {
        let _turn = self.turn.lock();
        let Some(plain) = take() else { return Ok(0) };
        let bytes = if plain.is_empty() { Vec::new() } else { self.seal.close_whole(MAGIC, plain)? };
        self.directory.replace(NAME, &bytes)?;
        Ok(bytes.len())
    }
}

/// Reads a regular file of at most `most` bytes.
fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_private(path, Opening::AsItIs)?;
    let len = file.metadata()?.len();
    if len > most {
        let why = format!("its {len} bytes are more than the {most} that it can have; remove it");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Name of the file.
pub(super) const NAME: &str = "hints";

/// First bytes of the file, in clear text and encrypted.
const MAGIC: [&[u8; 8]; 2] = [b"owhints1", b"owhints2"];

/// Overhead of sealing: the first bytes of the file, salt and tag.
const SEALING: u64 = 64;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use oncewire_keys::StorageKey;

    fn file(dir: &std::path::Path, key: Option<u8>) -> HintFile {
        let key = key.map(|byte| StorageKey::from_bytes([byte; 32]));
        HintFile::new(
            OsDirectory::create(dir.to_owned()).unwrap(),
            Seal::new(key.as_ref()),
            &Turns::default(),
        )
    }

    /// The content of a file limited to 4 KiB.
    fn read(file: &HintFile) -> Option<Vec<u8>> {
        file.read(4096).unwrap()
    }

    #[test]
    fn only_files_of_possible_size_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let refused = || file(dir.path(), None).read(4096).unwrap_err().to_string();
        let sparse = File::create(&path).unwrap();
        sparse.set_len(3 << 30).unwrap();
        assert!(refused().contains("hints: its 3221225472 bytes are more than the 4160"), "{}", refused());
        std::fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(refused().ends_with("not a regular file; remove it"), "{}", refused());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(refused().ends_with("not a regular file; remove it"), "{}", refused());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(refused().contains("hints"), "{}", refused());
    }

    const HINTS: &[u8] = b"what is known of a peer's store, long enough to be recognised";

    #[test]
    fn saved_hints_need_the_same_key() {
        for key in [None, Some(1)] {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(read(&file(dir.path(), key)), None, "nothing yet");
            file(dir.path(), key).write(|| Some(HINTS.to_vec())).unwrap();
            assert_eq!(read(&file(dir.path(), key)).as_deref(), Some(HINTS));
            for other in [None, Some(1), Some(2)].into_iter().filter(|other| *other != key) {
                assert_eq!(read(&file(dir.path(), other)), None, "{key:?} {other:?}");
            }
            let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
            let shown = bytes.windows(8).any(|part| part == &HINTS[..8]);
            assert_eq!(shown, key.is_none());
            assert_eq!(file(dir.path(), key).write(|| None).unwrap(), 0);
            assert_eq!(read(&file(dir.path(), key)).as_deref(), Some(HINTS), "nobody had anything better");
            file(dir.path(), key).write(|| Some(Vec::new())).unwrap();
            assert_eq!(read(&file(dir.path(), key)), None, "cleared");
        }
    }

    #[test]
    fn reopened_file_is_written_after_its_former_owner() {
        let dir = tempfile::tempdir().unwrap();
        let turns = Turns::default();
        let open = || HintFile::new(OsDirectory::create(dir.path().to_owned()).unwrap(), Seal::Clear, &turns);
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
        assert_eq!(read(&after).as_deref(), Some(&b"after"[..]));
    }

    #[test]
    fn changed_or_cut_encrypted_file_reads_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        file(dir.path(), Some(1)).write(|| Some(HINTS.to_vec())).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&file(dir.path(), Some(1))), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&file(dir.path(), Some(1))), None, "cut at {at}");
        }
    }
}
