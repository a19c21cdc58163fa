//! Obstacles to a directory with a lock in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::LOCK;

/// An object in the place of a directory, or of the lock in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The directory, or one above it, is something else.
    #[error("{path} is a file, not a directory; move it, or choose another path", path = .0.display())]
    File(PathBuf),
    /// The lock is a directory.
    #[error("{path} is a directory in the place of a lock file; remove it, or choose another path", path = .0.display())]
    Lock(PathBuf),
}

impl Obstacle {
    /// Finds an obstacle to a directory, perhaps still to be made, and to its lock; nothing is changed.
    pub fn at(directory: &Path) -> Option<Self> {
        let there = directory.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
        if let Some((path, _)) = there.filter(|(_, found)| !found.is_dir()) {
            return Some(Self::File(path.to_owned()));
        }
        let lock = directory.join(LOCK);
        lock.is_dir().then_some(Self::Lock(lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_are_found_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::create_dir_all(path("locked/lock")).unwrap();
        fs::create_dir(path("good")).unwrap();
        fs::write(path("good/lock"), "").unwrap();
        for good in ["good", "good/a", "none", "none/a", "locked/a"] {
            assert_eq!(Obstacle::at(&path(good)), None, "{good}");
        }
        for below in ["file", "file/a", "file/a/b"] {
            assert_eq!(Obstacle::at(&path(below)), Some(Obstacle::File(path("file"))), "{below}");
        }
        assert_eq!(Obstacle::at(&path("locked")), Some(Obstacle::Lock(path("locked/lock"))));
    }
}
