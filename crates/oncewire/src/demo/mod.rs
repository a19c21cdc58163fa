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
mod stage;
mod steps;

use std::io::{self, Write};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use report::{LinkFacts, Report};
use stage::{Route, Stage};
use steps::{Show, Step};

pub(crate) use args::Args;

/// Runs the demonstration and prints what it showed.
///
/// # Errors
///
/// Files that cannot be read, settings out of range, a gateway that does not start, and any byte that arrives
/// differently.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let corpus = corpus::load(&args.paths)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(show(args, corpus))
}

async fn show(args: &Args, corpus: corpus::Corpus) -> anyhow::Result<()> {
    let facts = LinkFacts::of(args);
    if !args.json {
        report::print_setting(&mut io::stdout().lock(), args, &corpus)?;
    }
    let edited = edit::edit_all(&corpus.files, args.seed);
    let mut stage = Stage::start(args, &corpus.files, &edited).await?;
    let baseline = !args.json && args.congestion != stage::LANE_CONGESTION;
    let progress = progress_bar(corpus.total() * (8 + u64::from(baseline)));
    let show = Show { stage: &stage, files: &corpus.files, edited: &edited, progress: &progress };
    let mut rows = show.steps(&Step::AT_ONCE).await?;
    stage.restart_branch().await?;
    let show = Show { stage: &stage, files: &corpus.files, edited: &edited, progress: &progress };
    rows.extend(show.steps(&[Step::Restart]).await?);
    let baseline_seconds = match baseline {
        true => Some(show.seconds_by(Route::Baseline).await?),
        false => None,
    };
    progress.finish_and_clear();
    // Every fetch compares as it reads, and none came back with an error.
    let report = Report { link: facts, rows, verified: true };
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        report::print_table(&mut out, &report)?;
        report::print_notes(&mut out, &report, baseline_seconds, &stage.path_facts().await)?;
    }
    drop(out);
    if args.keep {
        stage.keep(args.json).await?;
    }
    stage.stop().await;
    Ok(())
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
