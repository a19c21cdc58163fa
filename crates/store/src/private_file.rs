//! Private files for users' content.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The treatment of an opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It is there, and stays as it is.
    AsItIs,
    /// It is made if it is not there.
    Made,
    /// It is made if it is not there, and emptied if it is.
    Emptied,
}

/// Opens a regular file to read and write; a link in its place is not followed. Only its owner can read it if it is
/// made or emptied here, or was [`close_to_others`] before. A file made by root in another's directory belongs to the
/// directory's owner, its usual user.
///
/// # Errors
/// An error of the system; and for a link, a device, a pipe or anything else than a file. These are left as they are,
/// and so is a link's target: a process of root would take `/dev/null` from all others, or empty any file for
/// everybody with the right to make links in the directory.
pub fn open_private(path: &Path, opening: Opening) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // Or to open it could take until somebody is at the other end.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    options.custom_flags(flags.bits() as i32);
    let made = match opening {
        Opening::AsItIs => None,
        Opening::Made | Opening::Emptied => {
            let made = options.clone().create_new(true).open(path);
            made.map(Some).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(None),
                _ => Err(error),
            })?
        }
    };
    if let Some(made) = made {
        leave_to_owner(&made, path);
        return Ok(made);
    }
    // It may have gone meanwhile.
    let opened = options.create(opening != Opening::AsItIs).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => no_file(),
        _ => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(no_file());
    }
    if opening == Opening::Emptied {
        close_to_others(&file)?;
        file.set_len(0)?;
    }
    Ok(file)
}

fn no_file() -> io::Error {
    io::Error::other("is a link, a device, a pipe or the like, not a regular file; remove it")
}

/// Gives a file made by root to the owner of its directory; on refusal it stays root's.
fn leave_to_owner(made: &File, path: &Path) {
    let directory =
        path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(own), Ok(directory)) = (made.metadata(), fs::metadata(directory))
        && own.uid() == 0
        && directory.uid() != 0
    {
        let _ = fchown(made, Some(directory.uid()), Some(directory.gid()));
    }
}

/// Takes all rights to a regular file from everybody but its owner.
///
/// # Errors
/// An error of the system, and for anything else than a regular file.
pub fn close_to_others(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file, of which no rights are changed"));
    }
    let mut permissions = metadata.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o600);
        file.set_permissions(permissions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt, chown, symlink};

    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

    use super::*;
    use crate::{Backend as _, Directory};

    /// Makes a pipe and, as root, a null device, both open to all.
    fn nodes(directory: &Path) -> Vec<std::path::PathBuf> {
        let kinds = [("pipe", FileType::Fifo, 0), ("device", FileType::CharacterDevice, makedev(1, 3))];
        let mut made = Vec::new();
        for (name, kind, device) in kinds {
            let path = directory.join(name);
            if mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device).is_ok() {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
                made.push(path);
            }
        }
        assert!(!made.is_empty());
        made
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn is_untouched(node: &Path) -> bool {
        let kind = fs::metadata(node).unwrap().file_type();
        mode(node) == 0o666 && (kind.is_fifo() || kind.is_char_device())
    }

    #[test]
    fn devices_and_pipes_are_refused_and_keep_their_rights() {
        let dir = tempfile::tempdir().unwrap();
        for (i, node) in nodes(dir.path()).into_iter().enumerate() {
            let link = dir.path().join(format!("link{i}"));
            symlink(&node, &link).unwrap();
            for path in [&node, &link] {
                for opening in [Opening::AsItIs, Opening::Made, Opening::Emptied] {
                    let error = open_private(path, opening).unwrap_err().to_string();
                    assert!(error.contains("not a regular file"), "{error}");
                }
            }
            let opened = OpenOptions::new().read(true).write(true).open(&link);
            // Files opened by others keep their rights, too.
            if let Ok(opened) = opened {
                close_to_others(&opened).unwrap_err();
            }
            assert!(is_untouched(&node), "{}", node.display());
        }
    }

    #[test]
    fn links_are_refused_and_their_targets_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "somebody else's").unwrap();
        fs::set_permissions(path("file"), PermissionsExt::from_mode(0o644)).unwrap();
        for (link, target) in [("to-file", "file"), ("to-nothing", "nothing")] {
            symlink(path(target), path(link)).unwrap();
            for opening in [Opening::AsItIs, Opening::Made, Opening::Emptied] {
                let error = open_private(&path(link), opening).unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{error}");
            }
        }
        assert_eq!(fs::read(path("file")).unwrap(), b"somebody else's");
        assert_eq!((mode(&path("file")), path("nothing").exists()), (0o644, false));
        // A directory may be a link's target.
        fs::create_dir(path("directory")).unwrap();
        symlink(path("directory"), path("to-directory")).unwrap();
        open_private(&path("to-directory").join("lock"), Opening::Made).unwrap();
    }

    #[test]
    fn files_created_by_root_inherit_the_directory_owner() {
        let dir = tempfile::tempdir().unwrap();
        let [old, made, emptied] = ["old", "made", "emptied"].map(|name| dir.path().join(name));
        open_private(&old, Opening::Made).unwrap();
        let own = fs::metadata(&old).unwrap().uid();
        // Others than root make files of their own.
        let theirs = chown(dir.path(), Some(65_534), Some(65_534)).map_or(own, |()| 65_534);
        for (path, opening, owner) in [
            (&made, Opening::Made, theirs),
            (&emptied, Opening::Emptied, theirs),
            (&old, Opening::Made, own),
            (&old, Opening::Emptied, own),
        ] {
            open_private(path, opening).unwrap();
            assert_eq!((fs::metadata(path).unwrap().uid(), mode(path)), (owner, 0o600), "{}", path.display());
        }
    }

    #[test]
    fn device_and_pipe_become_no_segments() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(&dir.path().join("store")).unwrap();
        for (i, node) in nodes(dir.path()).into_iter().enumerate() {
            let name = format!("{i:016x}.seg");
            let link = dir.path().join("store").join(&name);
            symlink(&node, &link).unwrap();
            let error = directory.create(&name, 4096).unwrap_err().to_string();
            assert!(error.contains(&name) && error.contains("not a regular file"), "{error}");
            directory.write(&name, 0, b"content").unwrap_err();
            directory.read(&name, 0, &mut [0]).unwrap_err();
            assert!(is_untouched(&node) && link.is_symlink(), "{}", node.display());
        }
        assert_eq!(directory.list().unwrap(), []);
    }

    #[test]
    fn readable_files_are_closed_to_others_when_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let file = open_private(&path, Opening::Made).unwrap();
        assert_eq!((mode(&path), file.metadata().unwrap().len()), (0o644, 7));
        close_to_others(&file).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o604)).unwrap();
        open_private(&path, Opening::Emptied).unwrap();
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().len()), (0o600, 0));
        open_private(&dir.path().join("none"), Opening::AsItIs).unwrap_err();
    }
}
