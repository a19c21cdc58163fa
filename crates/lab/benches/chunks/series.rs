//! Input streams in their order, from files or generated.

use std::io;
use std::path::{Path, PathBuf};

use oncewire_codec::wanax::Shape;
use oncewire_lab::chunks::{Analysis, Tally};
use oncewire_lab::corpus::Corpus;

/// Streams in the order of sending.
pub(crate) struct Series {
    pub(crate) name: String,
    streams: Vec<Vec<u8>>,
    /// How many of them are sent before anything counts.
    before: usize,
}

impl Series {
    /// Sends everything, cut into `shape`.
    pub(crate) fn analyse(&self, shape: Shape) -> Tally {
        let mut analysis = Analysis::new(shape);
        for (number, stream) in self.streams.iter().enumerate() {
            if number == self.before {
                analysis.recount();
            }
            analysis.stream(stream);
        }
        analysis.finish()
    }

    /// Returns up to `len` of the counted bytes.
    pub(crate) fn sample(&self, len: usize) -> Vec<u8> {
        let counted = self.streams.iter().skip(self.before).flatten();
        counted.copied().take(len).collect()
    }

    /// Describes the series in a line.
    pub(crate) fn describe(&self) -> String {
        let count = |streams: &[Vec<u8>]| {
            let bytes: usize = streams.iter().map(Vec::len).sum();
            format!("{} of {:.1} MB together", streams.len(), bytes as f64 / 1e6)
        };
        let (before, counted) = self.streams.split_at(self.before.min(self.streams.len()));
        format!("Streams: {}, after {}.", count(counted), count(before))
    }
}

/// Reads the series named.
///
/// # Errors
/// An unreadable file, or an empty directory.
pub(crate) fn load(paths: &[&String]) -> io::Result<Vec<Series>> {
    if paths.is_empty() {
        return Ok(generated());
    }
    paths
        .iter()
        .map(|path| if Path::new(path).is_dir() { directory(Path::new(path)) } else { files(path) })
        .collect()
}

fn directory(path: &Path) -> io::Result<Series> {
    let mut files =
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.is_file());
    files.sort();
    if files.is_empty() {
        return Err(io::Error::other(format!("{} has no files", path.display())));
    }
    Ok(Series { name: name(path), streams: read(&files)?, before: 0 })
}

fn files(list: &str) -> io::Result<Series> {
    let files: Vec<PathBuf> = list.split(',').map(PathBuf::from).collect();
    let last = files.last().map(|file| name(file)).unwrap_or_default();
    Ok(Series { name: last, streams: read(&files)?, before: files.len() - 1 })
}

fn read(files: &[PathBuf]) -> io::Result<Vec<Vec<u8>>> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
    };
    files.iter().map(read).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn generated() -> Vec<Series> {
    let mut corpus = Corpus::new(1);
    let first = corpus.text(2_000_000);
    let second = corpus.reworked(&first);
    let pages = (0..20).scan(first[..200_000].to_vec(), |page, _| {
        *page = corpus.edited(page, 10);
        Some(page.clone())
    });
    vec![
        Series { name: "pages".to_owned(), streams: pages.collect(), before: 0 },
        Series { name: "releases".to_owned(), streams: vec![first, second], before: 1 },
    ]
}
