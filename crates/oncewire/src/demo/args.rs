//! Arguments of the demonstration.

use std::path::PathBuf;
use std::time::Duration;

use oncewire_config::units::{Rate, Time, UnitError};
use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::{LinkParams, Queue};

use crate::cli::source;

/// Show oncewire's savings: moves files over an emulated link without and with a pair of gateways
///
/// Everything runs in this process on loopback. The files are fetched for the first time, again, after an edit, and
/// after a restart of the near gateway, then packed, and over HTTPS. Every byte is compared. It takes about half a
/// minute unless flags or files make it longer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Rate of the link, each way
    #[arg(long, value_name = "RATE", default_value = "20 Mbit/s", value_parser = rate)]
    pub(crate) rate: Rate,
    /// Round-trip time of the link, at most 2 s
    #[arg(long, value_name = "TIME", default_value = "80 ms", value_parser = rtt)]
    pub(crate) rtt: Time,
    /// Share of packets lost by the link, each way: 0.001 or 0.1%
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = loss)]
    pub(crate) loss: f64,
    /// Seed of packet losses and of edits
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = seed)]
    pub(crate) seed: u64,
    /// Congestion control of the transfers without oncewire: cubic or bbr
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: Policy,
    /// Keep the gateways and a SOCKS proxy running afterwards, to try other traffic; Ctrl-C ends them, and prints the
    /// savings. The proxy is at 127.0.0.1:11080, the near gateway's admin interface at 127.0.0.1:17411, unless taken
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Files and directories to move, a directory bundled into one file; - is standard input [default: sources of
    /// crates fetched by Cargo, else packed crates, else this executable]
    #[arg(value_name = "PATHS", value_parser = source())]
    pub(crate) paths: Vec<PathBuf>,
}

impl Args {
    /// Returns the settings of both directions of the link.
    pub(crate) fn links(&self) -> (LinkParams, LinkParams) {
        let up = LinkParams {
            rate_bits_per_s: Some(self.rate.0),
            delay: self.rtt.0 / 2,
            loss: self.loss,
            queue: Queue::Time(QUEUE),
            seed: self.seed,
            ..LinkParams::default()
        };
        // Losses of the two directions are independent.
        let down = LinkParams { seed: self.seed ^ u64::from_be_bytes(*b"downlink"), ..up.clone() };
        (up, down)
    }
}

/// How long a packet waits at most before the link takes it: a usual buffer at a slow link.
pub(crate) const QUEUE: Duration = Duration::from_millis(100);

fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error: UnitError| error.to_string())?;
    match rate.0 {
        0 => Err("nothing would ever cross the link".to_owned()),
        _ => Ok(rate),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

fn rtt(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: UnitError| error.to_string())?;
    match time.0 <= MAX_RTT {
        true => Ok(time),
        false => Err(format!("must be at most {}, or the gateways give up connecting", Time(MAX_RTT))),
    }
}

fn loss(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let share =
        number.parse::<f64>().map_err(|_| String::from("write a share such as 0.001 or 0.1%"))? / scale;
    // Beyond this a TCP stream does not get anywhere in reasonable time.
    match (0.0..=MAX_LOSS).contains(&share) {
        true => Ok(share),
        false => Err(format!("must lie between 0 and {}%", MAX_LOSS * 100.0)),
    }
}

const MAX_LOSS: f64 = 0.2;
/// A gateway gives up dialling after 15 s, enough for the three round trips without loss, and a flow resets at 4 s.
const MAX_RTT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Demo {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Result<Args, String> {
        let flags = std::iter::once("demo").chain(flags.iter().copied());
        Demo::try_parse_from(flags).map(|demo| demo.args).map_err(|error| error.to_string())
    }

    #[test]
    fn default_link_equals_the_readme() {
        let args = parse(&[]).unwrap();
        let (up, down) = args.links();
        assert_eq!(
            (up.rate_bits_per_s, up.delay, up.loss),
            (Some(20_000_000), Duration::from_millis(40), 0.001)
        );
        assert_eq!(args.congestion, Policy::Cubic);
        assert_ne!(up.seed, down.seed);
        assert_eq!((up.validate(), down.validate()), (Ok(()), Ok(())));
    }

    #[test]
    fn flags_change_the_link() {
        let args =
            parse(&["--rate", "2 Mbit/s", "--rtt", "600ms", "--loss", "1 %", "--congestion", "bbr"]).unwrap();
        let (up, _) = args.links();
        assert_eq!((up.rate_bits_per_s, up.delay), (Some(2_000_000), Duration::from_millis(300)));
        assert!((up.loss - 0.01).abs() < 1e-12);
        assert_eq!(args.congestion, Policy::Bbr);
    }

    #[test]
    fn wrong_values_are_explained() {
        assert!(parse(&["--loss", "2"]).unwrap_err().contains("between 0 and 20%"));
        assert!(parse(&["--loss", "NaN"]).unwrap_err().contains("between 0 and 20%"));
        assert!(parse(&["--seed", "x"]).unwrap_err().contains("must be a whole number from 0"));
        assert!(parse(&["--loss", "some"]).unwrap_err().contains("0.1%"));
        assert!(parse(&["--congestion", "vegas"]).unwrap_err().contains("cubic and bbr"));
        assert!(parse(&["--rate", "20"]).is_err());
        assert!(parse(&["--rate", "0 bit/s"]).unwrap_err().contains("nothing would ever cross"));
        assert!(parse(&["--rtt", "2001 ms"]).unwrap_err().contains("at most 2 s"));
        assert!(
            parse(&["--rtt", "500us"]).unwrap_err().contains("units are ms"),
            "milliseconds are the least"
        );
        assert!(parse(&["--rtt", "2 s"]).is_ok());
    }
}
