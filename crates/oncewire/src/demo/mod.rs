//! `oncewire demo`: real files over a slow link, without and with gateways.
//!
//! Everything runs in this process and on loopback: an origin server and one gateway at the far side of an emulated
//! [`path`], a client and the other gateway at its near side. The client fetches each file over the bare path and
//! then through the gateways: for the first time, again, after an edit, and after a restart of the near gateway,
//! without its logs but with its chunk store. Compressed and encrypted content follows. It compares every byte. The
//! path is a model of a link and of TCP across it, so no privileges are needed; see [`oncewire_netem::tcp`] for the
//! limits of the model.

mod args;
pub(crate) mod corpus;
mod edit;
mod fetch;
mod gateways;
mod origin;
mod path;
mod report;
mod signals;
mod stage;
mod steps;
mod tls;

use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use corpus::Editions;
use fetch::WrongBytes;
use report::{Failed, LinkFacts, Report, Table};
use signals::Signals;
use stage::{Route, Stage};
use steps::{Show, Step};

use crate::output::print;

pub(crate) use args::Args;

/// Runs the demonstration and prints the results.
///
/// # Errors
///
/// Unreadable files, settings out of range, a gateway without a start, any changed byte, and a signal for an early
/// end.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let corpus = corpus::load(&args.paths, args.rate)?;
    if !args.json {
        let mut setting = Vec::new();
        report::print_setting(&mut setting, args, &corpus)?;
        print(setting)?;
    }
    let files = Editions::of_corpus(&corpus, args.seed, args.rate)?;
    let table = Table::new(&files, corpus.named);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    // For keys and the chunk store, not to be left behind: signals are heard by now.
    let directory = tempfile::tempdir().context("cannot make a temporary directory for the gateways")?;
    let shown = runtime.block_on(show(args, &files, table, directory.path(), signals));
    // Remaining tasks might write there.
    drop(runtime);
    let removed = directory.close().context("cannot remove the gateways' temporary directory");
    shown.and(removed)
}

/// Starts everything, shows it and stops it. Only the part in between can be broken off: starting and stopping
/// gateways write to their directory.
async fn show(
    args: &Args,
    files: &Editions,
    table: Table,
    directory: &Path,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let stage = Stage::start(args, files, directory).await?;
    let baseline = !args.json && args.congestion != stage::LANE_CONGESTION;
    let progress = progress_bar(steps::total(files, baseline));
    let report = Report {
        link: LinkFacts::of(args),
        rows: Vec::new(),
        verified: true,
        opaque: Vec::new(),
        failed: Vec::new(),
    };
    let mut run = Run { args, files, table, stage, progress, report };
    let mut shown = run.perform(baseline, &mut signals).await;
    run.progress.finish_and_clear();
    if shown.is_ok() && args.keep {
        shown = run.stage.keep(args.json, &mut signals).await;
    }
    run.stage.stop().await;
    shown
}

/// One run of the demonstration.
struct Run<'a> {
    args: &'a Args,
    files: &'a Editions,
    table: Table,
    stage: Stage,
    progress: ProgressBar,
    report: Report,
}

impl Run<'_> {
    /// Does the transfers and prints the cost of each at once.
    async fn perform(&mut self, baseline: bool, signals: &mut Signals) -> anyhow::Result<()> {
        self.say(&self.table.headings())?;
        for step in Step::MAIN {
            if step == Step::Restart {
                self.stage.restart_branch(self.args.keep).await?;
            }
            let work = async {
                self.stage.wait_linked().await?;
                self.show().step(step).await
            };
            let rows = signals.unless_ended(work).await?;
            self.say(&self.table.lines(&rows))?;
            self.report.rows.extend(rows);
        }
        for step in Step::OPAQUE {
            match optional(signals, self.show().step(step)).await? {
                Ok(rows) => {
                    self.say(&self.table.lines(&rows))?;
                    self.report.opaque.extend(rows);
                }
                Err(error) => {
                    self.say(&self.table.failed(step, &error))?;
                    self.report.failed.push(Failed { step, error });
                }
            }
        }
        let baseline = match baseline {
            true => Some(optional(signals, self.show().seconds_by(Route::Baseline)).await?),
            false => None,
        };
        self.progress.finish_and_clear();
        self.conclude(baseline.as_ref()).await
    }

    fn show(&self) -> Show<'_> {
        Show { stage: &self.stage, files: self.files, progress: &self.progress }
    }

    /// Prints the notes for the rows, or the whole report as JSON.
    async fn conclude(&self, baseline: Option<&Result<f64, String>>) -> anyhow::Result<()> {
        let mut out = Vec::new();
        if self.args.json {
            serde_json::to_writer(&mut out, &self.report)?;
            out.push(b'\n');
        } else {
            let path = self.stage.path_facts().await;
            report::print_notes(&mut out, &self.report, baseline, &path)?;
        }
        print(out)
    }

    /// Prints a part of the table, above the progress bar.
    fn say(&self, text: &str) -> anyhow::Result<()> {
        match self.args.json {
            true => Ok(()),
            false => self.progress.suspend(|| print(text)),
        }
    }
}

/// Does a step that may fail alone; returns its failure in words.
///
/// # Errors
///
/// Bytes changed on the way, and a signal.
async fn optional<T>(
    signals: &mut Signals,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Result<T, String>> {
    let done = async { Ok(work.await) };
    match signals.unless_ended(done).await? {
        Ok(done) => Ok(Ok(done)),
        Err(error) if error.is::<WrongBytes>() => Err(error),
        Err(error) => Ok(Err(format!("{error:#}"))),
    }
}

/// Makes a progress bar on standard error, without output unless this is a terminal.
fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let template = "{msg:<36} {wide_bar} {bytes:>10} of {total_bytes} {elapsed:>4}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn optional_work_fails_alone_unless_bytes_are_wrong() {
        let mut signals = Signals::listen().unwrap();
        let broken = async { Err::<(), _>(anyhow::anyhow!("it broke").context("a stage")) };
        assert_eq!(optional(&mut signals, broken).await.unwrap(), Err(String::from("a stage: it broke")));
        let wrong = async { Err::<(), _>(anyhow::Error::from(WrongBytes::new("byte 7")).context("a stage")) };
        assert!(optional(&mut signals, wrong).await.is_err());
        assert_eq!(optional(&mut signals, async { Ok(7) }).await.unwrap(), Ok(7));
    }
}
