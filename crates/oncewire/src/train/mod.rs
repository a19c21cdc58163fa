//! `oncewire train`: SAMPLEBYTE's table from files.

mod report;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use oncewire_config::CodecSettings;
use oncewire_config::units::Size;
use oncewire_lab::measure;
use oncewire_lab::train::{TrainConfig, train};

use crate::cli::source;
use crate::failure::Usage;
use crate::measure::blame;
use crate::output::print;

/// Train SAMPLEBYTE's bytes on files, and print the configuration line for them
///
/// Redundant content is looked for in the files, in order: two releases of something, or a day's traffic. Byte values
/// are ranked by their presence in it and added one at a time while savings with `markers = "samplebyte"` grow by a
/// tenth of a point. Of files larger than the sample, taken together, the starts are used, in proportion; a pipe,
/// with its unknown length, gets an equal part of the sample.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The mean distance between markers for these bytes
    #[arg(long, value_name = "P", default_value = "64")]
    period: String,
    /// Bytes of the log for these bytes: repeats at a larger distance are not seen
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    log_memory: String,
    /// The most bytes of the files to train on, at least 64 KiB; they are kept in memory
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    sample: Size,
    /// Print one JSON object, as docs/reference/json.md describes it
    #[arg(long)]
    json: bool,
    /// The files, in this order; - is standard input
    #[arg(required = true, value_name = "FILE", value_parser = source())]
    files: Vec<PathBuf>,
}

/// Trains and prints the line, or the report.
///
/// # Errors
/// A bad setting or a directory, a case of wrong usage; an unreadable file; files without repeats.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let config = config(args)?;
    check_sample(args.sample)?;
    let flows = read_all(&args.files, args.sample.0)?;
    let progress = progress_bar();
    let mut passes = 0;
    let trained = train(&flows, config, || {
        passes += 1;
        progress.set_message(format!(
            "{passes} passes over {}",
            Size(flows.iter().map(|flow| flow.len() as u64).sum())
        ));
        progress.tick();
    });
    progress.finish_and_clear();
    let trained =
        trained.context("there is nothing to learn; name two releases of something, or one file twice")?;
    let text = match args.json {
        true => report::json(&config, &trained)?,
        false => report::line(&config, &trained),
    };
    print(text)
}

/// Holds the settings to the bounds of a gateway's configuration.
fn config(args: &Args) -> anyhow::Result<TrainConfig> {
    let mut settings = CodecSettings::for_lab();
    settings.set(&format!("period={}", args.period))?;
    settings.set(&format!("log_memory={}", args.log_memory))?;
    settings.check()?;
    Ok(TrainConfig { period: settings.period, log_memory: settings.log_memory })
}

/// Holds the sample to a size with room for repeats.
fn check_sample(sample: Size) -> Result<(), Usage> {
    match sample.0 {
        LEAST_SAMPLE.. => Ok(()),
        _ => Err(Usage(format!(
            "--sample: {sample} is too little to learn from; the least is {}",
            Size(LEAST_SAMPLE)
        ))),
    }
}

/// Reads the files, or of each the start, in proportion, if they have more than `limit` bytes together.
fn read_all(paths: &[PathBuf], limit: u64) -> anyhow::Result<Vec<Bytes>> {
    let sizes = paths.iter().map(|path| measure::size(path).map_err(blame)).collect::<Result<Vec<_>, _>>()?;
    let read = |path: &PathBuf, len| {
        read_start(path, len).with_context(|| format!("cannot read {}", path.display()))
    };
    // Input of unknown size, such as a pipe, is read first: the unused rest of its share is for the others.
    let known: u64 = sizes.iter().sum();
    let mut unsized_left = sizes.iter().filter(|size| **size == 0).count() as u64;
    let fair = part(limit, paths.len() as u64 - unsized_left, paths.len() as u64);
    let mut for_unsized = limit - known.min(fair);
    let mut left = limit;
    let mut flows = vec![Bytes::new(); paths.len()];
    for ((path, _), flow) in paths.iter().zip(&sizes).zip(&mut flows).filter(|((_, size), _)| **size == 0) {
        *flow = read(path, for_unsized / unsized_left)?;
        unsized_left -= 1;
        for_unsized -= flow.len() as u64;
        left -= flow.len() as u64;
    }
    for ((path, size), flow) in paths.iter().zip(&sizes).zip(&mut flows).filter(|((_, size), _)| **size > 0) {
        *flow = read(path, if known > left { part(left, *size, known) } else { *size })?;
    }
    Ok(flows)
}

/// Returns `of * share / whole` without overflow; `share` is at most `whole`.
fn part(of: u64, share: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(share) / u128::from(whole)) as u64
}

fn read_start(path: &Path, len: u64) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    File::open(path)?.take(len).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Shows progress on standard error, if it is a terminal; the number of values is unknown in advance.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:>4}") {
        bar.set_style(style);
    }
    bar
}

/// One block.
const LEAST_SAMPLE: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_sample_give_their_starts_in_proportion() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [("a", 3000), ("b", 1000)].map(|(name, len)| {
            let path = dir.path().join(name);
            std::fs::write(&path, vec![name.as_bytes()[0]; len]).unwrap();
            path
        });
        let lens = |limit| read_all(&paths, limit).unwrap().iter().map(Bytes::len).collect::<Vec<_>>();
        assert_eq!(lens(4000), [3000, 1000]);
        assert_eq!(lens(400), [300, 100]);
        let empty = dir.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        let lens = |paths: &[&Path], limit| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
            read_all(&paths, limit).unwrap().iter().map(Bytes::len).collect::<Vec<_>>()
        };
        let [a, b] = [paths[0].as_path(), paths[1].as_path()];
        assert_eq!(lens(&[a, &empty, b], 400), [300, 0, 100], "what is empty takes nothing from the others");
        // It says no size, as a pipe, and never ends.
        let endless = Path::new("/dev/zero");
        assert_eq!(lens(&[endless, endless], 1000), [500, 500]);
        assert_eq!(lens(&[a, endless], 400), [200, 200]);
        assert_eq!(
            lens(&[endless, b, endless], 4000),
            [1500, 1000, 1500],
            "what one leaves is for the others"
        );
        assert!(read_all(&[dir.path().join("none")], 1).unwrap_err().to_string().contains("none"));
    }
}
