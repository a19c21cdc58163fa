//! `oncewire measure`: savings on files.
//!
//! The codec runs in this process: a sending and a receiving half with nothing between them, set up by the same keys
//! as the daemon's.

mod content;
mod report;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use oncewire_config::{CodecSettings, Config};
use oncewire_lab::measure::{self, Measurement};
use oncewire_lab::pair::PairConfig;

use crate::cli::source;
use crate::demo::corpus::files_below;
use crate::failure::Usage;
use crate::output::print;
use content::{Content, Looking};

/// Measure the savings on files: sends them in order through a real encoder and decoder, and compares every byte
///
/// Each file is a flow of its own; earlier content is remembered, so name a file twice for the savings of a repeat,
/// or two releases in order. Of a directory, all files below it are sent in the order of their names. WIRE counts all
/// frames of the codec both ways, without the overhead of a tunnel such as TLS. Speeds are those of one processor
/// core. Settings are those of a gateway without a chunk store, unless --like or --set says otherwise.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Sets a key as in the configuration, for example codec=auto (adds a chunk store) or entropy=zstd:1: codec, entropy,
    /// markers, matching, period, window, index_slots, sample_bytes, chunk_sizes, log_memory, max_in_flight or hint_memory;
    /// not as there, the default of hint_memory is 64MiB
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take the settings of this configuration's first peer, with a chunk store if store_disk is set
    #[arg(long, value_name = "CONFIG")]
    like: Option<PathBuf>,
    /// Print one JSON object, as docs/reference/json.md describes it
    #[arg(long)]
    json: bool,
    /// Files and directories, sent in this order; - is standard input
    #[arg(required = true, value_name = "PATH", value_parser = source())]
    files: Vec<PathBuf>,
}

/// The settings of the measurement.
#[derive(Debug)]
struct Setup {
    settings: CodecSettings,
    /// Whether the receiving half has a chunk store.
    chunk_store: bool,
}

/// Measures and prints the report.
///
/// # Errors
/// A bad setting, a case of wrong usage; an unreadable file; a changed byte.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let setup = Setup::new(args.like.as_deref(), &args.set)?;
    let files = expand(&args.files)?;
    // Before anything is sent: a misspelt last name should not cost the time of all others.
    let sizes = files.iter().map(|path| measure::size(path).map_err(blame)).collect::<Result<Vec<_>, _>>()?;
    let progress = progress_bar(sizes.iter().sum());
    let mut measurement = Measurement::new(setup.pair_config());
    let mut content = Content::default();
    for path in &files {
        progress.set_message(crate::table::printable(&path.display().to_string()));
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let looking = Looking::new(file, &mut content);
        measurement.send(path, looking, |bytes| progress.inc(bytes)).map_err(blame)?;
    }
    progress.finish_and_clear();
    let report = measurement.finish();
    let text = match args.json {
        true => report::json(&setup, &report, content)?,
        false => report::table(&setup, &report, content),
    };
    print(text)
}

/// Puts the files below a directory in its place, in the order of their names.
fn expand(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        files.extend(files_below(path).map(|(path, _)| path));
        if files.len() == before {
            return Err(Usage(format!("there are no files below {}", path.display())).into());
        }
    }
    Ok(files)
}

impl Setup {
    /// Takes the settings of a gateway, or those of a configuration, and changes them.
    fn new(like: Option<&Path>, assignments: &[String]) -> anyhow::Result<Self> {
        let mut setup = match like {
            None => Self { settings: CodecSettings::for_gateway(), chunk_store: false },
            Some(path) => {
                let config = Config::load(path)?;
                let Some(peer) = config.peers.first() else {
                    return Err(Usage(format!("{}: no [[peer]] to take settings of", path.display())).into());
                };
                Self { settings: peer.settings.clone(), chunk_store: config.store.is_some() }
            }
        };
        for assignment in assignments {
            setup.settings.set(assignment)?;
            setup.chunk_store |= assignment.trim_start().starts_with("codec");
        }
        setup.settings.check()?;
        let names = setup.settings.usual().coded && setup.settings.plan().layers.use_names();
        setup.chunk_store &= names;
        Ok(setup)
    }

    fn pair_config(&self) -> PairConfig {
        let settings = &self.settings;
        PairConfig {
            plan: settings.usual().coded.then(|| settings.plan()),
            log_memory: settings.log_memory,
            max_in_flight: settings.in_flight(),
            params: settings.params(),
            // As at a peer with one, large enough for all files.
            store: self.chunk_store.then_some(settings.chunk_sizes),
            hint_memory: settings.hints(),
        }
    }
}

/// Naming a directory is wrong usage; all else has failed.
pub(crate) fn blame(error: measure::MeasureError) -> anyhow::Error {
    match error {
        measure::MeasureError::Directory { .. } => Usage(error.to_string()).into(),
        other => other.into(),
    }
}

/// Shows progress on standard error, if it is a terminal.
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
    use oncewire_keys::Identity;

    use super::*;

    fn setup(set: &[&str]) -> Setup {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        Setup::new(None, &set).unwrap()
    }

    #[test]
    fn the_codec_is_set_up_as_the_settings_say() {
        let default = setup(&[]);
        assert_eq!(default.settings, CodecSettings::for_gateway());
        assert_eq!((default.pair_config().log_memory, default.pair_config().store), (64 << 20, None));
        let config = setup(&["period=32", "window=48", "log_memory=1MiB", "entropy=lz4"]).pair_config();
        assert_eq!(config.params, MatchParams { period: 32, window: 48, ..MatchParams::default() });
        assert_eq!((config.log_memory, config.max_in_flight), (1 << 20, 1 << 18));
        let plan = config.plan.unwrap();
        assert_eq!((plan.period, plan.entropy), (32, oncewire_codec::entropy::Entropy::Lz4));
        assert!(setup(&["codec=auto"]).pair_config().store.is_some());
        assert!(setup(&["codec=endre"]).pair_config().store.is_none());
        let none = setup(&["codec=none"]).pair_config();
        assert!(none.plan.is_none() && none.store.is_none());
    }

    #[test]
    fn settings_of_a_configuration_are_taken_from_its_first_peer() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        let path = dir.path().join("a.toml");
        let peer = Identity::from_seed([1; 32]).public_key();
        let text = format!(
            "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nstate = \"s\"\n[cache]\nstore_disk = \"1 GiB\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"{peer}\"\naddress = \"h:1\"\nentropy = \"lz4\"\nlog_memory = \"2 MiB\"\n"
        );
        std::fs::write(&path, text).unwrap();
        let like = Setup::new(Some(&path), &["period=32".to_owned()]).unwrap();
        assert_eq!((like.settings.log_memory, like.settings.period, like.chunk_store), (2 << 20, 32, true));
        assert_eq!(like.settings.entropy, oncewire_codec::entropy::Entropy::Lz4);
    }

    #[test]
    fn directories_are_walked_in_order_of_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a/z", "a/y", "c"] {
            std::fs::create_dir_all(dir.path().join("f").join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join("f").join(name), name).unwrap();
        }
        let directory = dir.path().join("f");
        let files = expand(&[directory.join("c"), directory.clone()]).unwrap();
        assert_eq!(files, ["c", "a/y", "a/z", "b", "c"].map(|name| directory.join(name)));
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        assert!(expand(&[dir.path().join("empty")]).unwrap_err().is::<Usage>());
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
    fn contradicting_settings_are_wrong_usage() {
        let set = ["log_memory=1MiB", "max_in_flight=1MiB"].map(str::to_owned);
        assert!(Setup::new(None, &set).unwrap_err().is::<oncewire_config::SetError>());
    }
}
