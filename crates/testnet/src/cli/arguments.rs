//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use oncewire_testnet::{Gilbert, Line, LinkParams, Queue, Shell};

use super::units;

/// Builds client, branch gateway, line, hub gateway and server as network namespaces, and gives a shell in them.
///
/// Without a command it gives a shell in the client, with one program for each host on its PATH: `@server CMD`
/// runs CMD in the server, `@server` alone gives a shell there; `@wan` shows and changes the line. With the shell
/// all of it ends.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) settings: Settings,
    /// Branches.
    #[arg(long, default_value_t = 1)]
    pub(super) branches: u8,
    /// Hubs.
    #[arg(long, default_value_t = 1)]
    pub(super) hubs: u8,
    /// Clients at each branch.
    #[arg(long, default_value_t = 1)]
    pub(super) clients: u8,
    /// Servers at each hub.
    #[arg(long, default_value_t = 1)]
    pub(super) servers: u8,
    /// The kind of line.
    #[arg(long, value_enum, default_value = "emulator")]
    pub(super) medium: Medium,
    /// Seed of all decisions on loss, delay, reordering and duplication.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Congestion control of clients and servers; the system's default otherwise.
    #[arg(long)]
    pub(super) congestion: Option<String>,
    /// The host to run the command in.
    #[arg(long, default_value = "client")]
    pub(super) host: String,
    /// A command to run instead of a shell.
    #[arg(last = true)]
    pub(super) program: Vec<OsString>,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// The commands of the helpers on the shell's PATH.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Shows or changes the lines of a running network; `@wan` calls it.
    Wan {
        /// The socket of the network.
        #[arg(long)]
        control: PathBuf,
        /// `show`, `cut [up|down]`, `restore [up|down]`, or settings such as `loss=1% delay=20ms`, each for the
        /// branch's line or after `LINE:`, as in `branch2: cut`.
        request: Vec<String>,
    },
}

/// The effect of a line on packets.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Settings {
    /// Rate each way, such as 20mbit.
    #[arg(long, value_parser = units::rate)]
    rate: Option<u64>,
    /// Delay one way, such as 50ms: half the round trip.
    #[arg(long, value_parser = units::time)]
    delay: Option<Duration>,
    /// Largest deviation from the delay.
    #[arg(long, value_parser = units::time)]
    jitter: Option<Duration>,
    /// Share of packets lost, such as 1%.
    #[arg(long, value_parser = units::probability)]
    loss: Option<f64>,
    /// Losses in bursts: the probabilities to turn bad and good again, such as 0.5%,30%.
    #[arg(long, value_parser = units::gilbert)]
    gilbert: Option<Gilbert>,
    /// Share of reordered packets.
    #[arg(long, value_parser = units::probability)]
    reorder: Option<f64>,
    /// Share of duplicated packets.
    #[arg(long, value_parser = units::probability)]
    duplicate: Option<f64>,
    /// Limit of the queue before the rate, such as 100ms or 64kB.
    #[arg(long, value_parser = units::queue)]
    queue: Option<Queue>,
    /// Largest packet.
    #[arg(long)]
    mtu: Option<u32>,
}

/// The kind of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Medium {
    /// The emulator, on TUN if the machine has it.
    Emulator,
    /// The emulator on TUN.
    Tun,
    /// The emulator on packet sockets.
    Packet,
    /// The kernel's token bucket: a rate and no more.
    Bucket,
    /// As fast as the machine.
    Plain,
}

impl Settings {
    /// Returns `params` with the given values in place.
    pub(super) fn applied_to(&self, params: LinkParams) -> LinkParams {
        LinkParams {
            rate_bits_per_s: self.rate.or(params.rate_bits_per_s),
            delay: self.delay.unwrap_or(params.delay),
            jitter: self.jitter.unwrap_or(params.jitter),
            loss: self.loss.unwrap_or(params.loss),
            gilbert: self.gilbert.or(params.gilbert),
            reorder: self.reorder.unwrap_or(params.reorder),
            duplicate: self.duplicate.unwrap_or(params.duplicate),
            queue: self.queue.unwrap_or(params.queue),
            mtu: self.mtu.unwrap_or(params.mtu),
            seed: params.seed,
        }
    }

    /// Changes one setting, as in `loss=1%`.
    pub(super) fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| format!("{text} is no setting, as loss=1% is"))?;
        match name {
            "rate" => self.rate = Some(units::rate(value)?),
            "delay" => self.delay = Some(units::time(value)?),
            "jitter" => self.jitter = Some(units::time(value)?),
            "loss" => self.loss = Some(units::probability(value)?),
            "gilbert" => self.gilbert = Some(units::gilbert(value)?),
            "reorder" => self.reorder = Some(units::probability(value)?),
            "duplicate" => self.duplicate = Some(units::probability(value)?),
            "queue" => self.queue = Some(units::queue(value)?),
            _ => return Err(format!("{name} is no setting that can change while the line runs")),
        }
        Ok(())
    }
}

impl Arguments {
    /// Returns the line of each branch.
    pub(super) fn line(&self) -> Result<Line, String> {
        let params = self.settings.applied_to(LinkParams { seed: self.seed, ..LinkParams::default() });
        let shell = match self.medium {
            Medium::Emulator => Shell::Any,
            Medium::Tun => Shell::Tun,
            Medium::Packet => Shell::Packet,
            Medium::Plain if params == LinkParams { seed: self.seed, ..LinkParams::default() } => {
                return Ok(Line::Plain);
            }
            Medium::Plain => return Err("a plain line has no settings".into()),
            Medium::Bucket => {
                let rate_bits_per_s = params.rate_bits_per_s.ok_or("a token bucket needs --rate")?;
                let rate_alone = LinkParams {
                    rate_bits_per_s: params.rate_bits_per_s,
                    seed: self.seed,
                    ..LinkParams::default()
                };
                if params != rate_alone {
                    return Err("a token bucket has a rate and nothing else".into());
                }
                return Ok(Line::TokenBucket { rate_bits_per_s });
            }
        };
        Ok(Line::emulated(&params).through(shell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Arguments {
        Arguments::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn the_command_line_describes_the_line() {
        let arguments = parsed("testnet --rate 20mbit --delay 50ms --loss 1% --seed 3 -- true");
        let Line::Emulated { up, down, shell } = arguments.line().unwrap() else { panic!("it is emulated") };
        assert_eq!(
            (up.rate_bits_per_s, up.delay, up.loss),
            (Some(20_000_000), Duration::from_millis(50), 0.01)
        );
        assert_eq!((up.seed, shell), (3, Shell::Any));
        assert_ne!(up.seed, down.seed, "the two ways lose different packets");
    }

    #[test]
    fn settings_beyond_a_line_are_refused() {
        assert!(parsed("testnet --medium plain --loss 1%").line().is_err());
        assert!(parsed("testnet --medium bucket --rate 1mbit --delay 1ms").line().is_err());
        assert!(parsed("testnet --medium bucket").line().is_err());
        assert!(parsed("testnet --medium bucket --rate 1mbit").line().is_ok());
    }
}
