//! `oncewire measure`: what files would save.
//!
//! The codec runs in this process: a sending and a receiving half with nothing between them, set up by the same keys
//! as the daemon's.

mod report;

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use oncewire_gateway::config::CodecSettings;
use oncewire_lab::measure::{self, Measurement};
use oncewire_lab::pair::PairConfig;

use crate::cli::source;
use crate::failure::Usage;
use crate::output::print;

/// Measure what files would save: sends them in order through a real encoder and decoder, and compares every byte
///
/// Each file is a flow of its own; what came before it is remembered, so name a file twice to see what a repeat
/// saves, or two releases in order. WIRE counts all frames of the codec both ways; what a tunnel adds, such as TLS,
/// is not in it. Speeds are those of one processor core.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Sets a key as in the configuration, for example codec=auto (adds a chunk store) or entropy=zstd:3: codec, entropy,
    /// markers, matching, period, window, index_slots, sample_bytes, chunk_sizes, log_memory, max_in_flight or hint_memory;
    /// not as there, the defaults are codec=endre, entropy=zstd:1, log_memory=256MiB and hint_memory=64MiB
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object, as docs/json.md describes it
    #[arg(long)]
    json: bool,
    /// The files, sent in this order; - is standard input
    #[arg(required = true, value_name = "FILE", value_parser = source())]
    files: Vec<PathBuf>,
}

/// Measures and prints the report.
///
/// # Errors
/// A bad setting or a folder, which is wrong usage; a file that cannot be read; a byte that came out differently.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let settings = settings(&args.set)?;
    // Before anything is sent: a misspelt last name should not cost the time of all others.
    let sizes =
        args.files.iter().map(|path| measure::size(path).map_err(blame)).collect::<Result<Vec<_>, _>>()?;
    let progress = progress_bar(sizes.iter().sum());
    let mut measurement = Measurement::new(pair_config(&settings));
    for path in &args.files {
        progress.set_message(crate::table::printable(&path.display().to_string()));
        measurement.send_file(path, |bytes| progress.inc(bytes)).map_err(blame)?;
    }
    progress.finish_and_clear();
    let report = measurement.finish();
    let text = match args.json {
        true => report::json(&settings, &report)?,
        false => report::table(&settings, &report),
    };
    print(text)
}

fn settings(assignments: &[String]) -> anyhow::Result<CodecSettings> {
    let mut settings = CodecSettings::for_measure();
    for assignment in assignments {
        settings.set(assignment)?;
    }
    settings.check()?;
    Ok(settings)
}

fn pair_config(settings: &CodecSettings) -> PairConfig {
    let plan = settings.usual().coded.then(|| settings.plan());
    PairConfig {
        plan,
        log_memory: settings.log_memory,
        max_in_flight: settings.in_flight(),
        params: settings.params(),
        // As at a peer that has one, large enough for all files.
        store: plan.filter(|plan| plan.layers.use_names()).map(|_| settings.chunk_sizes),
        hint_memory: settings.hints(),
    }
}

/// Naming a folder is wrong usage; all else has failed.
pub(crate) fn blame(error: measure::MeasureError) -> anyhow::Error {
    match error {
        measure::MeasureError::Folder { .. } => Usage(error.to_string()).into(),
        other => other.into(),
    }
}

/// Shows progress on standard error, if that is a terminal.
fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let template = "{msg:<36!} {wide_bar} {bytes:>10} of {total_bytes} {elapsed:>4}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use oncewire_codec::endre::matcher::MatchParams;

    use super::*;

    #[test]
    fn the_codec_is_set_up_as_the_settings_say() {
        assert_eq!(
            pair_config(&settings(&[]).unwrap()),
            PairConfig::default(),
            "both know the same defaults"
        );
        let set = ["period=32", "window=48", "log_memory=1MiB", "entropy=lz4"];
        let config = pair_config(&settings(&set.map(str::to_owned)).unwrap());
        assert_eq!(config.params, MatchParams { period: 32, window: 48, ..MatchParams::default() });
        assert_eq!((config.log_memory, config.max_in_flight), (1 << 20, 1 << 18));
        let plan = config.plan.unwrap();
        assert_eq!((plan.period, plan.entropy), (32, oncewire_codec::entropy::Entropy::Lz4));
        let config = pair_config(&settings(&["codec=none".to_owned()]).unwrap());
        assert_eq!(config.plan, None);
    }

    #[test]
    fn the_help_names_all_keys() {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("measure"));
        let set = command.get_arguments().find(|argument| argument.get_id() == "set").unwrap();
        let help = set.get_help().unwrap().to_string();
        let named: Vec<&str> =
            help.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').collect();
        for key in CodecSettings::KEYS {
            assert!(named.contains(&key), "{key} is not in {help}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_wrong_usage() {
        let set = ["log_memory=1MiB", "max_in_flight=1MiB"].map(str::to_owned);
        assert!(settings(&set).unwrap_err().is::<oncewire_gateway::config::SetError>());
    }
}
