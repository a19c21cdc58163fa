//! The files that the demonstration moves.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};

/// Files to move, and where they come from in words.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    /// The files, in the order in which they are moved.
    pub(crate) files: Vec<File>,
    /// What they are, for people.
    pub(crate) origin: String,
}

/// One file, which may be a bundle of many.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// What it is called in the report.
    pub(crate) path: String,
    /// Its content.
    pub(crate) bytes: Arc<[u8]>,
}

impl Corpus {
    /// Returns the bytes of all files.
    pub(crate) fn total(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }
}

/// Loads the files that the user names, or what this machine has.
///
/// # Errors
///
/// A path that cannot be read, nothing to move, or more than [`MAX_TOTAL`] bytes.
pub(crate) fn load(paths: &[PathBuf]) -> anyhow::Result<Corpus> {
    let corpus = if paths.is_empty() { from_machine(&cargo_home())? } else { from_paths(paths)? };
    if corpus.total() == 0 {
        bail!("there is nothing to move: there are no bytes in {}", corpus.origin);
    }
    Ok(corpus)
}

fn from_paths(paths: &[PathBuf]) -> anyhow::Result<Corpus> {
    let mut files = Vec::new();
    let mut total = 0;
    for path in paths {
        let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let bytes = if metadata.is_dir() { bundle(path, |_| true)? } else { read(path)? };
        total += bytes.len() as u64;
        if total > MAX_TOTAL {
            bail!("the files are too large together: the demonstration holds at most {MAX_TOTAL} bytes");
        }
        files.push(File { path: path.display().to_string(), bytes: bytes.into() });
    }
    Ok(Corpus { files, origin: String::from("the files named") })
}

/// Takes sources of crates, else packed crates, else this executable.
fn from_machine(cargo_home: &Path) -> anyhow::Result<Corpus> {
    let registry = cargo_home.join("registry");
    let files = crate_sources(&registry.join("src"))?;
    if !files.is_empty() {
        return Ok(Corpus { files, origin: format!("sources of crates in {}", registry.display()) });
    }
    let files = packed_crates(&registry.join("cache"))?;
    if !files.is_empty() {
        return Ok(Corpus { files, origin: format!("packed crates in {}", registry.display()) });
    }
    let path = std::env::current_exe().context("cannot find this executable")?;
    let file = fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(DEFAULT_TOTAL)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let origin = format!("the first {DEFAULT_TOTAL} bytes of this executable");
    Ok(Corpus { files: vec![File { path: path.display().to_string(), bytes: bytes.into() }], origin })
}

/// Bundles each crate's sources: the largest crates that are not huge, so that transfers outlast their start.
fn crate_sources(src: &Path) -> anyhow::Result<Vec<File>> {
    let crates = folder(src).into_iter().flat_map(|index| folder(&index)).filter(|path| path.is_dir());
    let mut sized: Vec<(u64, PathBuf)> = crates.map(|path| (sources_size(&path), path)).collect();
    sized.retain(|(size, _)| (SMALLEST_BUNDLE..=LARGEST_BUNDLE).contains(size));
    sized.sort_by(|one, other| (other.0, &one.1).cmp(&(one.0, &other.1)));
    let (mut total, mut chosen) = (0, Vec::new());
    for (size, path) in sized {
        if total < DEFAULT_TOTAL {
            total += size;
            chosen.push(path);
        }
    }
    chosen.sort();
    let load = |path: PathBuf| Ok(File { path: name(&path), bytes: bundle(&path, is_source)?.into() });
    chosen.into_iter().map(load).collect()
}

fn sources_size(root: &Path) -> u64 {
    files_below(root).filter(|(path, _)| is_source(path)).map(|(_, size)| size).sum()
}

fn packed_crates(cache: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut total = 0;
    for index in folder(cache) {
        for path in folder(&index) {
            let size = fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
            if total < DEFAULT_TOTAL && is(&path, &["crate"]) && (1..=LARGEST_BUNDLE).contains(&size) {
                total += size;
                files.push(File { path: name(&path), bytes: read(&path)?.into() });
            }
        }
    }
    Ok(files)
}

/// Puts the files of a folder behind each other, by name, each with a line that names it.
fn bundle(root: &Path, wanted: fn(&Path) -> bool) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for (path, _) in files_below(root).filter(|(path, _)| wanted(path)) {
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        out.extend_from_slice(format!("==> {shown} <==\n").as_bytes());
        out.extend_from_slice(&read(&path)?);
        if out.len() as u64 > MAX_TOTAL {
            bail!("{} is too large: the demonstration holds at most {MAX_TOTAL} bytes", root.display());
        }
    }
    Ok(out)
}

/// Walks a folder by name, folders where their name puts them; gives files and their sizes.
fn files_below(root: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    // The last is taken first, hence the reversals.
    let mut open: Vec<PathBuf> = folder(root).into_iter().rev().collect();
    std::iter::from_fn(move || {
        while let Some(path) = open.pop() {
            // Links are left out: they may lead in circles, or out of the folder.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                open.extend(folder(&path).into_iter().rev());
            } else if metadata.is_file() {
                return Some((path, metadata.len()));
            }
        }
        None
    })
}

/// Returns what is in a folder, by name; nothing if it cannot be read.
fn folder(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = fs::File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    if file.metadata().with_context(cannot)?.len() <= MAX_TOTAL {
        // Devices do not say how much they have, and some never end.
        file.take(MAX_TOTAL + 1).read_to_end(&mut bytes).with_context(cannot)?;
        if bytes.len() as u64 <= MAX_TOTAL {
            return Ok(bytes);
        }
    }
    bail!("{} is too large: the demonstration holds at most {MAX_TOTAL} bytes", path.display());
}

fn is_source(path: &Path) -> bool {
    is(path, &["rs", "toml", "md", "c", "h", "txt"])
}

fn is(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known))
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn cargo_home() -> PathBuf {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
    }
}

/// Bytes that are moved unless the user names files: seconds, not minutes, on the default link.
const DEFAULT_TOTAL: u64 = 9_000_000;
const SMALLEST_BUNDLE: u64 = 100_000;
const LARGEST_BUNDLE: u64 = 2_500_000;
/// Bytes that the demonstration holds in memory at most; an edited copy of each file comes on top.
const MAX_TOTAL: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn crates_are_bundled_by_name_and_only_their_sources() {
        let home = tempfile::tempdir().unwrap();
        let source = vec![b'x'; 400_000];
        write(home.path(), "registry/src/index/b-1.0.0/src/lib.rs", &source);
        write(home.path(), "registry/src/index/a-1.0.0/src/lib.rs", &source);
        write(home.path(), "registry/src/index/a-1.0.0/lib.a", &source);
        write(home.path(), "registry/src/index/tiny-1.0.0/src/lib.rs", b"x");
        let corpus = from_machine(home.path()).unwrap();
        let names: Vec<_> = corpus.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["a-1.0.0", "b-1.0.0"]);
        let header = b"==> src/lib.rs <==\n";
        assert!(corpus.files[0].bytes.starts_with(header));
        assert_eq!(corpus.files[0].bytes.len(), header.len() + source.len());
    }

    #[test]
    fn without_sources_packed_crates_serve_and_then_this_executable() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "registry/cache/index/a-1.0.0.crate", b"packed");
        let corpus = from_machine(home.path()).unwrap();
        assert_eq!(corpus.files[0].path, "a-1.0.0.crate");
        let empty = tempfile::tempdir().unwrap();
        let corpus = from_machine(empty.path()).unwrap();
        assert!(corpus.total() > 100_000 && corpus.total() <= DEFAULT_TOTAL);
    }

    #[test]
    fn named_files_and_folders_are_taken_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "one.bin", &[1, 2, 3]);
        write(root.path(), "two/b", b"B");
        write(root.path(), "two/a/x", b"X");
        let corpus = load(&[root.path().join("one.bin"), root.path().join("two")]).unwrap();
        assert_eq!(&*corpus.files[0].bytes, [1, 2, 3]);
        assert_eq!(&*corpus.files[1].bytes, b"==> a/x <==\nX==> b <==\nB");
    }

    #[test]
    fn what_cannot_be_moved_is_named() {
        let error = load(&[PathBuf::from("no-such-file")]).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-file"));
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "empty", b"");
        let error = load(&[root.path().join("empty")]).unwrap_err();
        assert!(error.to_string().contains("nothing to move"), "{error}");
        let huge = root.path().join("huge");
        fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        let error = load(&[huge]).unwrap_err();
        assert!(error.to_string().contains("huge is too large"), "{error}");
    }
}
