//! The command line.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use oncewire_config::units::Size;

use crate::logs;
use crate::{demo, measure, train};

/// WAN optimizer that sends every byte once: gateways at both ends of a slow link remember its traffic.
#[derive(Debug, Parser)]
#[command(name = "oncewire", version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,

    /// How much to log on standard error: off, error, warn, info, debug or trace [default: `log_level` for run, else info;
    /// error for demo]
    #[arg(long, global = true, value_name = "LEVEL", hide_possible_values = true)]
    pub(crate) log_level: Option<logs::Level>,

    /// How to write the log: text, or json with one object a line
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(crate) log_format: logs::Format,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show oncewire's savings on this machine, over an emulated link
    Demo(demo::Args),
    /// Make a gateway's key pair and print its public key
    Keygen(Keygen),
    /// Check a configuration and describe the gateway it would run
    Check(WithConfig),
    /// Run a gateway until SIGTERM or SIGINT; flows may finish, a second signal stops it at once; SIGHUP reloads
    Run(WithConfig),
    /// Print a running gateway's links and savings
    #[command(after_long_help = STATUS_LEGEND, after_help = "With --help: what the columns mean.")]
    Status(Status),
    /// Print a running gateway's open flows
    Flows(Ask),
    /// Print the rules for leading connections to a gateway, for a shell to load
    ///
    /// They are the rules of nftables and routing for `mode = "tproxy"`, `mode = "redirect"` and `allow_sources`.
    Rules(Rules),
    /// Clear gateways' logs and chunk stores
    #[command(subcommand)]
    Cache(Cache),
    /// Look at the chunk store, check it, or make it smaller
    #[command(subcommand)]
    Store(Store),
    /// Measure the savings on files, with every byte checked
    Measure(measure::Args),
    /// Train SAMPLEBYTE's bytes on files
    Train(train::Args),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print a manual page
    Man {
        /// The page: oncewire(1), or oncewire.toml(5) on the configuration
        #[arg(value_name = "PAGE", default_value = "oncewire")]
        page: Manual,
    },
}

/// Arguments of `keygen`.
#[derive(Args, Debug)]
pub(crate) struct Keygen {
    /// The key file to write, readable by its owner alone; an existing file is never overwritten
    #[arg(long, value_name = "FILE", value_parser = unless_dash(NO_KEY))]
    pub(crate) out: PathBuf,

    /// Write nothing, and print the public key of an existing FILE
    #[arg(long)]
    pub(crate) show: bool,

    /// Make a key for `encrypt_key_file` instead, and print nothing
    #[arg(long, conflicts_with = "show")]
    pub(crate) encrypt_key: bool,

    /// Make a key for a `[[group]]` instead, to be copied to all its members, and print nothing
    #[arg(long, conflicts_with_all = ["show", "encrypt_key"])]
    pub(crate) group: bool,
}

/// The meaning of the columns of `status`.
const STATUS_LEGEND: &str = "\
Columns, of bytes and flows since the gateway started:
  ROUND TRIP       to the peer and back, smoothed
  LANES            2+3: two TLS connections carry flows, three are spare
  FLOWS            1 of 20: one is open, twenty were opened
  DELIVERED        what applications sent, both ways
  WIRE             what crossed the link, both ways, with TLS and all that
                   gateways tell each other
  SAVINGS          1 - WIRE / DELIVERED; below zero where it cost more
  LOG OUT, LOG IN  how full the logs are: what is remembered of bytes to the
                   peer, and of bytes from it
  FLOWS NOT CODED  where flows went that were not coded, and why; OUTCOME is
                   uncoded (copied through a lane), direct (connected from
                   here), bypassed (never taken in) or refused
  TURNED AWAY      what was refused before it became a flow

Columns of --destinations, of flows on links, ended or open:
  DESTINATION      address or name as the application asked for it, and port;
                   the 1,000 with the most bytes delivered, the others together
  FLOWS            how many, those that are open included
  DELIVERED        what applications sent, both ways
  WIRE             frames of these flows, both ways, without TLS and without
                   what gateways tell each other beside them
  SAVINGS          1 - WIRE / DELIVERED
  NOT CODED        the share of DELIVERED that was copied as it is, and why
A row lacks what its destination moved before it had one: no more than a
thousandth of all that was delivered. No byte is in two rows or in none.
docs/reference/json.md explains each key of --json.";

/// A manual page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Manual {
    /// oncewire(1): commands and options
    Oncewire,
    /// oncewire.toml(5): the configuration
    #[value(name = "oncewire.toml")]
    Configuration,
}

/// Arguments of commands with a configuration.
#[derive(Args, Debug)]
pub(crate) struct WithConfig {
    /// The configuration
    #[arg(short, long, value_name = "FILE", value_parser = unless_dash(NO_CONFIG))]
    pub(crate) config: PathBuf,
}

/// Arguments of `rules`.
#[derive(Args, Debug)]
pub(crate) struct Rules {
    /// The configuration
    #[arg(short, long, value_name = "FILE", value_parser = unless_dash(NO_CONFIG))]
    pub(crate) config: PathBuf,

    /// Print the loaded rules instead
    #[arg(long)]
    pub(crate) installed: bool,

    /// Remove the loaded rules; a killed gateway leaves them behind without effect
    #[arg(long, conflicts_with = "installed")]
    pub(crate) remove: bool,
}

/// The subcommands for logs.
#[derive(Debug, Subcommand)]
pub(crate) enum Cache {
    /// Forget all traffic with a peer, or with all peers, in memory and on disk, with the chunk store
    ///
    /// A running gateway clears its logs itself; flows go on. With -c FILE and no running gateway the files are
    /// removed, also those of peers no longer configured. The other gateway keeps its own: clear there too.
    Clear(Clear),
}

/// Arguments of `cache clear`.
#[derive(Args, Debug)]
pub(crate) struct Clear {
    /// Only this peer's logs, and the knowledge of its chunk store; chunks stay, since they are not sorted by peers
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// The subcommands for a chunk store.
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Print the store's content and state
    ///
    /// A running gateway is asked, if its configuration has an admin interface.
    Stat(StoreAt),
    /// Read everything in the store and compare it with its checks
    ///
    /// Ends with exit code 1 if anything is damaged, gone or unreadable: containers, or whole files. The index and
    /// other files rebuilt from those are not checked. Possible remains of a crash or power cut are a note. Damaged
    /// content is never used, known or not; compact drops it. No gateway may be using the store.
    Verify(StoreWork),
    /// Write all sound and live content again, and drop the rest
    ///
    /// Takes the room of two more segments meanwhile. Content damaged or refused by the disk is left behind and
    /// listed; files without any readable content stay as they are, as do other things with a store file's name, and
    /// the exit code is 1. No gateway may be using the store.
    Compact(Compact),
}

/// The place of a chunk store.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("store").required(true))]
pub(crate) struct StoreAt {
    /// The configuration of the store's gateway
    #[arg(short, long, value_name = "FILE", group = "store", value_parser = unless_dash(NO_CONFIG))]
    pub(crate) config: Option<PathBuf>,

    /// The store's directory, without a configuration
    #[arg(long, value_name = "DIR", group = "store")]
    pub(crate) path: Option<PathBuf>,

    /// The encryption key of the store in DIR; a configuration names its own
    // `requires` alone would be content with anything else of the group.
    #[arg(long, value_name = "FILE", requires = "path", conflicts_with = "config")]
    pub(crate) encrypt_key_file: Option<PathBuf>,

    /// Print one JSON object, as docs/reference/json.md describes it
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of commands on a whole chunk store.
#[derive(Args, Debug)]
pub(crate) struct StoreWork {
    #[command(flatten)]
    pub(crate) at: StoreAt,

    /// Print progress on standard error every five seconds; a terminal always shows it
    #[arg(long)]
    pub(crate) progress: bool,
}

/// Arguments of `store compact`.
#[derive(Args, Debug)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) work: StoreWork,

    /// Drop the oldest first, unread, until the store takes no more than so many bytes of disk, such as 10GB
    #[arg(long, value_name = "SIZE")]
    pub(crate) to: Option<Size>,
}

/// Arguments of queries to a running gateway.
#[derive(Args, Debug)]
pub(crate) struct Ask {
    /// The gateway's configuration, for the address of its admin interface
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["admin", "token_file"],
          value_parser = unless_dash(NO_CONFIG))]
    pub(crate) config: Option<PathBuf>,

    /// The address of the gateway's admin interface
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN)]
    pub(crate) admin: String,

    /// A file with the admin interface's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Print one JSON object, as docs/reference/json.md describes it
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `status`.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Print the flows' bytes and their wire bytes by destination and port instead, the costliest first; --json
    /// always has them
    #[arg(long)]
    pub(crate) destinations: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Reads the name of an input file, with `-` as standard input.
pub(crate) fn source() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| match path.as_os_str() == "-" {
        true => PathBuf::from("/dev/stdin"),
        false => path,
    })
}

/// Reads the name of a file, and says why `-` is none.
fn unless_dash(why: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| match path.as_os_str() == "-" {
        true => Err(why),
        false => Ok(path),
    })
}

const NO_CONFIG: &str =
    "paths in a configuration are relative to its file, so name one (./- if that is its name)";
const NO_KEY: &str = "a secret key is not printed; name a file (./- if that is to be its name)";
const DEFAULT_ADMIN: &str = "127.0.0.1:7411";
const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";
