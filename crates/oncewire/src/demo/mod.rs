//! `oncewire demo`: what a slow link does to real files without and with a pair of gateways.
//!
//! Everything runs in this process and on loopback: an origin server and one gateway at the far side of an
//! emulated [`path`], a client and the other gateway at its near side. The client fetches each file over the
//! bare path and then through the gateways: for the first time, again, after an edit, and after a restart of the near
//! gateway, whose logs are gone then and whose chunk store is not. It compares every byte.
//! The path is a model of a link and of TCP across it, so no privileges are needed; see
//! [`oncewire_netem::tcp`] for what the model leaves out.

mod args;
mod corpus;
mod edit;
mod fetch;
mod gateways;
mod origin;
mod path;
mod report;
mod signals;
mod stage;
mod steps;

use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use corpus::{Corpus, File};
use report::{LinkFacts, Report};
use signals::Signals;
use stage::{Route, Stage};
use steps::{Show, Step};

use crate::output::print;

pub(crate) use args::Args;

/// Runs the demonstration and prints what it showed.
///
/// # Errors
///
/// Files that cannot be read, settings out of range, a gateway that does not start, any byte that arrives differently,
/// and a signal that ends it before all is shown.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let corpus = corpus::load(&args.paths)?;
    if !args.json {
        let mut setting = Vec::new();
        report::print_setting(&mut setting, args, &corpus)?;
        print(setting)?;
    }
    let edited = edit::edit_all(&corpus.files, args.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    // For keys and the chunk store, which are not to be left behind: signals are heard by now.
    let folder = tempfile::tempdir().context("cannot make a temporary folder for the gateways")?;
    let shown = runtime.block_on(show(args, &corpus, &edited, folder.path(), signals));
    // What still runs might write there.
    drop(runtime);
    let removed = folder.close().context("cannot remove the gateways' temporary folder");
    shown.and(removed)
}

/// Starts everything, shows it and stops it. Only what lies in between can be broken off: gateways that start or stop
/// write to their folder.
async fn show(
    args: &Args,
    corpus: &Corpus,
    edited: &[File],
    folder: &Path,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, &corpus.files, edited, folder).await?;
    let mut shown = perform(args, corpus, edited, &mut stage, &mut signals).await;
    if shown.is_ok() && args.keep {
        shown = stage.keep(args.json, &mut signals).await;
    }
    stage.stop().await;
    shown
}

/// Does the transfers and prints what they took.
async fn perform(
    args: &Args,
    corpus: &Corpus,
    edited: &[File],
    stage: &mut Stage,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let baseline = !args.json && args.congestion != stage::LANE_CONGESTION;
    let progress = progress_bar(corpus.total() * (8 + u64::from(baseline)));
    let show = Show { stage, files: &corpus.files, edited, progress: &progress };
    let at_once = async {
        stage.wait_linked().await?;
        show.steps(&Step::AT_ONCE).await
    };
    let mut rows = signals.unless_ended(at_once).await?;
    stage.restart_branch().await?;
    let show = Show { stage, files: &corpus.files, edited, progress: &progress };
    let restarted = async {
        stage.wait_linked().await?;
        let rows = show.steps(&[Step::Restart]).await?;
        let baseline_seconds = match baseline {
            true => Some(show.seconds_by(Route::Baseline).await?),
            false => None,
        };
        Ok((rows, baseline_seconds))
    };
    let (after_restart, baseline_seconds) = signals.unless_ended(restarted).await?;
    rows.extend(after_restart);
    progress.finish_and_clear();
    // Every fetch compares as it reads, and none came back with an error.
    let report = Report { link: LinkFacts::of(args), rows, verified: true };
    let path = stage.path_facts().await;
    let mut out = Vec::new();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        out.push(b'\n');
    } else {
        report::print_table(&mut out, &report)?;
        report::print_notes(&mut out, &report, baseline_seconds, &path)?;
    }
    print(out)
}

/// Makes a progress bar on standard error, which shows nothing if that is not a terminal.
fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let template = "{msg:<36} {wide_bar} {bytes:>10} of {total_bytes} {elapsed:>4}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
