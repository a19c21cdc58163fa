//! `oncewire measure`: what files would save.

use std::path::PathBuf;

/// Arguments of `measure`.
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The files, sent in this order
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Fails: this build has no `measure` yet.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("measure is not in this build yet; {} file(s) were not looked at", args.files.len())
}
