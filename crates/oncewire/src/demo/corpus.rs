//! The files of the demonstration.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use oncewire_config::units::Rate;

use super::edit;
use super::origin::Edition;

/// Files to move, and their origin in words.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    /// The files, in the order of transfers.
    pub(crate) files: Vec<File>,
    /// Their description, for people.
    pub(crate) origin: String,
    /// Whether the user named them.
    pub(crate) named: bool,
}

/// Every edition of the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Editions {
    /// The files.
    pub(crate) original: Vec<File>,
    /// The files with small edits.
    pub(crate) edited: Vec<File>,
    /// One archive of them.
    pub(crate) packed: Vec<File>,
    /// The first of them, or its beginning, for HTTPS.
    pub(crate) encrypted: Vec<File>,
}

/// One file, perhaps a bundle of many.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Its name in the report.
    pub(crate) path: String,
    /// Its content.
    pub(crate) bytes: Arc<[u8]>,
}

impl Corpus {
    /// Returns the bytes of all files.
    pub(crate) fn total(&self) -> u64 {
        sizes(&self.files)
    }

    /// Returns the releases of one package among the files, by names such as `serde-1.0.1`: the first such package.
    pub(crate) fn releases(&self) -> Vec<&str> {
        let names = || self.files.iter().map(|file| file.path.as_str());
        let siblings = |stem| names().filter(|name| package(name) == Some(stem)).collect::<Vec<_>>();
        names().filter_map(package).map(siblings).find(|siblings| siblings.len() > 1).unwrap_or_default()
    }
}

impl Editions {
    /// Makes the other editions of the corpus's files, in sizes for the link's rate.
    ///
    /// # Errors
    ///
    /// A failing compressor.
    pub(crate) fn of_corpus(corpus: &Corpus, seed: u64, rate: Rate) -> anyhow::Result<Self> {
        let most = usize::try_from(default_total(rate) / 4).unwrap_or(usize::MAX);
        let encrypted = corpus.files.iter().find(|file| !file.bytes.is_empty()).map(|file| File {
            path: file.path.clone(),
            bytes: file.bytes.get(..most).unwrap_or(&file.bytes).into(),
        });
        Ok(Self {
            edited: edit::edit_all(&corpus.files, seed),
            packed: vec![pack(&corpus.files, most)?],
            encrypted: encrypted.into_iter().collect(),
            original: corpus.files.clone(),
        })
    }

    /// Returns the files of one edition.
    pub(crate) fn of(&self, edition: Edition) -> &[File] {
        match edition {
            Edition::Original => &self.original,
            Edition::Edited => &self.edited,
            Edition::Packed => &self.packed,
            Edition::Encrypted => &self.encrypted,
        }
    }
}

/// Adds up the bytes of files.
pub(crate) fn sizes(files: &[File]) -> u64 {
    files.iter().map(|file| file.bytes.len() as u64).sum()
}

/// Packs the files into one, or as many of their bytes as make a file of about `most` bytes.
fn pack(files: &[File], most: usize) -> anyhow::Result<File> {
    // Sources shrink to a fifth or so; other content is cut off below.
    let room = most.saturating_mul(5);
    let mut plain = Vec::new();
    for file in files {
        let left = room - plain.len().min(room);
        plain.extend_from_slice(file.bytes.get(..left).unwrap_or(&file.bytes));
    }
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    zstd_safe::compress(&mut packed, &plain, PACK_LEVEL)
        .map_err(|code| anyhow::anyhow!("cannot pack: {}", zstd_safe::get_error_name(code)))?;
    packed.truncate(most.max(1));
    Ok(File { path: String::from("packed.zst"), bytes: packed.into() })
}

/// Returns the name of the package in a name such as `serde-1.0.1.crate`; nothing if there is no version.
fn package(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let version = name.match_indices('-').find(|(at, _)| {
        let digits = name.get(at + 1..).unwrap_or_default().trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() + at + 1 < name.len() && digits.starts_with('.')
    });
    version.and_then(|(at, _)| name.get(..at))
}

/// Returns how many bytes are moved by default: seconds on a link of this rate, not minutes.
fn default_total(rate: Rate) -> u64 {
    (rate.0 / 1000).saturating_mul(DEFAULT_TIME_MS / 8).clamp(LEAST_TOTAL, MOST_TOTAL)
}

/// Loads the user's files, or files of this machine within some seconds of a link of this rate.
///
/// # Errors
///
/// An unreadable path, nothing to move, or more than [`MAX_TOTAL`] bytes.
pub(crate) fn load(paths: &[PathBuf], rate: Rate) -> anyhow::Result<Corpus> {
    let corpus = match paths.is_empty() {
        true => from_machine(&cargo_home(), default_total(rate))?,
        false => from_paths(paths)?,
    };
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
    Ok(Corpus { files, origin: String::from("the files named"), named: true })
}

/// Takes sources of crates, else packed crates, else this executable.
fn from_machine(cargo_home: &Path, most: u64) -> anyhow::Result<Corpus> {
    let registry = cargo_home.join("registry");
    let files = crate_sources(&registry.join("src"), most)?;
    if !files.is_empty() {
        let origin = format!("sources of crates in {}", registry.display());
        return Ok(Corpus { files, origin, named: false });
    }
    let files = packed_crates(&registry.join("cache"), most)?;
    if !files.is_empty() {
        let origin = format!("packed crates in {}", registry.display());
        return Ok(Corpus { files, origin, named: false });
    }
    let path = std::env::current_exe().context("cannot find this executable")?;
    let file = fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    let origin = format!("the first {} bytes of this executable", bytes.len());
    let file = File { path: path.display().to_string(), bytes: bytes.into() };
    Ok(Corpus { files: vec![file], origin, named: false })
}

/// Bundles each crate's sources: the largest crates but the huge ones, so transfers outlast their start.
fn crate_sources(src: &Path, most: u64) -> anyhow::Result<Vec<File>> {
    let crates = directory(src).into_iter().flat_map(|index| directory(&index)).filter(|path| path.is_dir());
    let mut sized: Vec<(u64, PathBuf)> = crates.map(|path| (sources_size(&path), path)).collect();
    sized.retain(|(size, _)| (SMALLEST_BUNDLE..=most / 3).contains(size));
    sized.sort_by(|one, other| (other.0, &one.1).cmp(&(one.0, &other.1)));
    let (mut total, mut chosen) = (0, Vec::new());
    for (size, path) in sized {
        if total + size <= most {
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

fn packed_crates(cache: &Path, most: u64) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut total = 0;
    for index in directory(cache) {
        for path in directory(&index) {
            let size = fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
            if total + size <= most && is(&path, &["crate"]) && (1..=most / 3).contains(&size) {
                total += size;
                files.push(File { path: name(&path), bytes: read(&path)?.into() });
            }
        }
    }
    Ok(files)
}

/// Puts the files of a directory behind each other, by name, each with a line for its name.
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

/// Walks a directory by name, subdirectories at their names' places; gives files and their sizes.
pub(crate) fn files_below(root: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    // The last is taken first, hence the reversals.
    let mut open: Vec<PathBuf> = directory(root).into_iter().rev().collect();
    std::iter::from_fn(move || {
        while let Some(path) = open.pop() {
            // Links are left out: they may lead in circles, or out of the directory.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                open.extend(directory(&path).into_iter().rev());
            } else if metadata.is_file() {
                return Some((path, metadata.len()));
            }
        }
        None
    })
}

/// Returns the entries of a directory, by name; nothing if it cannot be read.
fn directory(path: &Path) -> Vec<PathBuf> {
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

/// Time of the link for the files, unless named by the user: they cross it five times as they are.
const DEFAULT_TIME_MS: u64 = 1000;
const LEAST_TOTAL: u64 = 1_000_000;
const MOST_TOTAL: u64 = 16_000_000;
const SMALLEST_BUNDLE: u64 = 50_000;
/// The usual effort of archives is about the same.
const PACK_LEVEL: i32 = 6;
/// The most bytes of the demonstration in memory; an edited copy of each file comes on top.
const MAX_TOTAL: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate(20_000_000);

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
        let corpus = from_machine(home.path(), 4_000_000).unwrap();
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
        let corpus = from_machine(home.path(), 4_000_000).unwrap();
        assert_eq!(corpus.files[0].path, "a-1.0.0.crate");
        let empty = tempfile::tempdir().unwrap();
        let corpus = from_machine(empty.path(), 4_000_000).unwrap();
        assert_eq!(corpus.total(), 4_000_000);
    }

    #[test]
    fn named_files_and_directories_are_taken_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "one.bin", &[1, 2, 3]);
        write(root.path(), "two/b", b"B");
        write(root.path(), "two/a/x", b"X");
        let corpus = load(&[root.path().join("one.bin"), root.path().join("two")], RATE).unwrap();
        assert_eq!(&*corpus.files[0].bytes, [1, 2, 3]);
        assert_eq!(&*corpus.files[1].bytes, b"==> a/x <==\nX==> b <==\nB");
    }

    #[test]
    fn unmovable_path_is_named() {
        let error = load(&[PathBuf::from("no-such-file")], RATE).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-file"));
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "empty", b"");
        let error = load(&[root.path().join("empty")], RATE).unwrap_err();
        assert!(error.to_string().contains("nothing to move"), "{error}");
        let huge = root.path().join("huge");
        fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        let error = load(&[huge], RATE).unwrap_err();
        assert!(error.to_string().contains("huge is too large"), "{error}");
    }

    #[test]
    fn default_corpus_fits_the_link_rate() {
        assert_eq!(default_total(RATE), 2_500_000);
        assert_eq!(default_total(Rate(1)), LEAST_TOTAL);
        assert_eq!(default_total(Rate(u64::MAX)), MOST_TOTAL);
        let home = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            write(home.path(), &format!("registry/src/index/{name}-1.0.0/lib.rs"), &vec![b'x'; 1_200_000]);
        }
        assert_eq!(from_machine(home.path(), 4_000_000).unwrap().files.len(), 3);
    }

    #[test]
    fn releases_of_one_package_are_found_by_name() {
        let corpus = |names: &[&str]| {
            let file = |name: &&str| File { path: String::from(*name), bytes: Arc::from(&b"x"[..]) };
            Corpus { files: names.iter().map(file).collect(), origin: String::new(), named: false }
        };
        let two = corpus(&["a-1.0.0", "linux-raw-sys-0.4.1", "b", "linux-raw-sys-0.12.1"]);
        assert_eq!(two.releases(), ["linux-raw-sys-0.4.1", "linux-raw-sys-0.12.1"]);
        assert_eq!(corpus(&["/x/a-1.0.0.tar", "/y/a-1.2.tar"]).releases().len(), 2);
        assert!(corpus(&["a-1.0.0", "a-b-1.0.0", "a", "a-x", "x-86"]).releases().is_empty());
    }

    #[test]
    fn packed_and_encrypted_editions_are_short() {
        let text: Vec<u8> =
            (0..500_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_string().into_bytes()).collect();
        let files = vec![File { path: String::from("f"), bytes: text.into() }];
        let corpus = Corpus { files, origin: String::new(), named: true };
        let editions = Editions::of_corpus(&corpus, 1, RATE).unwrap();
        assert_eq!(sizes(editions.of(Edition::Encrypted)), 625_000);
        assert!((1..=625_000).contains(&sizes(editions.of(Edition::Packed))));
        let mut again = Vec::with_capacity(2_000_000);
        zstd_safe::compress(&mut again, &editions.packed[0].bytes, PACK_LEVEL).unwrap();
        assert!(again.len() as u64 >= sizes(&editions.packed) * 99 / 100, "packed content packs no further");
    }
}
