//! The running parts of the demonstration.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::tcp::{Account, Side};

use super::args::Args;
use super::corpus::Editions;
use super::gateways::{Counted, Pair};
use super::origin::Origin;
use super::path::{EmulatedLink, PathTraffic, Relay};
use super::report;
use super::signals::Signals;
use super::tls::Tls;
use crate::output::print;
use crate::table::{counted, percent_of};

/// The path, the origin behind it, the gateways across it, and the ways to go.
pub(crate) struct Stage {
    link: EmulatedLink,
    origin: Origin,
    tls: Tls,
    direct: Relay,
    baseline: Relay,
    /// Carries the gateways' lanes.
    _lanes: Relay,
    pair: Pair,
    rtt: Duration,
}

/// A way from the client to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Over the path as it is.
    Direct,
    /// Over the path as it is, with the congestion control of the lanes.
    Baseline,
    /// Through the gateways.
    Oncewire,
}

/// The path's traffic by route, for the notes.
pub(crate) struct PathFacts {
    /// Without oncewire.
    pub(crate) direct: PathTraffic,
    /// Through the gateways.
    pub(crate) oncewire: PathTraffic,
    /// Packets lost both ways, on all routes.
    pub(crate) lost: u64,
    /// Packets dropped by full queues.
    pub(crate) dropped: u64,
}

impl Stage {
    /// Starts everything; `directory` is for the gateways' files.
    ///
    /// # Errors
    ///
    /// Settings out of range, no port on loopback, gateways without a start.
    pub(crate) async fn start(args: &Args, files: &Editions, directory: &Path) -> anyhow::Result<Self> {
        let (up, down) = args.links();
        let link = EmulatedLink::start(up, down).context("the link cannot be emulated")?;
        let tls = Tls::new()?;
        let origin =
            Origin::start(files, tls.clone(), args.keep).await.context("cannot start the origin server")?;
        let relay = |target, policy, route: Route| {
            link.relay(ANY_PORT, target, policy, route.account()).context("cannot listen on loopback")
        };
        let direct = relay(origin.address(), args.congestion, Route::Direct)?;
        let baseline = relay(origin.address(), LANE_CONGESTION, Route::Baseline)?;
        let mut pair = Pair::start_hub(directory).await?;
        let lanes = relay(pair.hub_address(), LANE_CONGESTION, Route::Oncewire)?;
        pair.start_branch(lanes.local_addr(), origin.address()).await?;
        Ok(Self { link, origin, tls, direct, baseline, _lanes: lanes, pair, rtt: args.rtt.0 })
    }

    /// Waits until the link between the gateways is up.
    ///
    /// # Errors
    ///
    /// As [`Pair::wait_linked`].
    pub(crate) async fn wait_linked(&self) -> anyhow::Result<()> {
        self.pair.wait_linked().await
    }

    /// Restarts the gateway at the near side, so only its disk remembers.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub(crate) async fn restart_branch(&mut self, kept: bool) -> anyhow::Result<()> {
        self.pair.restart_branch(kept).await
    }

    /// Returns the client's TLS.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns the client's address for a route.
    pub(crate) fn address(&self, route: Route) -> SocketAddr {
        match route {
            Route::Direct => self.direct.local_addr(),
            Route::Baseline => self.baseline.local_addr(),
            Route::Oncewire => self.pair.forward_address(),
        }
    }

    /// Returns a route's payload bytes on the path so far, both ways.
    pub(crate) async fn wire(&self, route: Route) -> u64 {
        self.link.traffic(route.account()).await.payload()
    }

    /// Waits until a route's bytes have crossed, acknowledgements between the gateways included.
    pub(crate) async fn settle(&self, route: Route) {
        let quiet = (self.rtt * 2).clamp(Duration::from_millis(50), Duration::from_secs(2));
        let mut before = self.wire(route).await;
        // Keep-alives on an idle link are a few bytes, without importance here.
        for _ in 0..MAX_SETTLE_ROUNDS {
            tokio::time::sleep(quiet).await;
            let now = self.wire(route).await;
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Returns the path's traffic so far.
    pub(crate) async fn path_facts(&self) -> PathFacts {
        let (up, down) =
            (self.link.link_counters(Side::Near).await, self.link.link_counters(Side::Far).await);
        PathFacts {
            direct: self.link.traffic(Route::Direct.account()).await,
            oncewire: self.link.traffic(Route::Oncewire.account()).await,
            lost: up.lost + down.lost,
            dropped: up.queue_full + down.queue_full,
        }
    }

    /// Tells how to use the running pair, on standard error if standard output is for JSON, and waits for a signal.
    pub(crate) async fn keep(&self, json: bool, signals: &mut Signals) -> anyhow::Result<()> {
        let (socks, origin) = (self.pair.socks_address(), self.origin.address());
        let admin = self.pair.admin_address().map(|admin| {
            format!("\nThe near gateway's figures, and its metrics at http://{admin}/metrics:\n\n    oncewire status --admin {admin}\n")
        });
        let before = self.pair.counted();
        tell(
            json,
            &format!(
                "\nThe gateways keep running. A SOCKS proxy at {socks} goes through them and the emulated link:\n\
                 \n    curl -o /dev/null -x socks5h://{socks} http://{origin}/original/0\n\
                 {}\n\
                 Ctrl-C ends them.\n",
                admin.unwrap_or_default()
            ),
        )?;
        signals.next().await;
        tell(json, &saved(before, self.pair.counted()))
    }

    /// Stops everything in order.
    pub(crate) async fn stop(self) {
        self.pair.shutdown().await;
    }
}

/// Prints on standard output, or on standard error if standard output is for JSON.
fn tell(json: bool, text: &str) -> anyhow::Result<()> {
    match json {
        true => Ok(io::stderr().write_all(text.as_bytes())?),
        false => print(text),
    }
}

/// Sums up the traffic of a kept pair.
fn saved(before: Counted, after: Counted) -> String {
    let flows = after.flows.saturating_sub(before.flows);
    let delivered = after.delivered.saturating_sub(before.delivered);
    let wire = after.wire.saturating_sub(before.wire);
    if delivered == 0 {
        return String::from("\nNothing crossed while the gateways were kept.\n");
    }
    format!(
        "\nWhile the gateways were kept: {}, {} delivered, {} on the link, {} saved.\n",
        counted(flows, "connection", "connections"),
        report::bytes(delivered),
        report::bytes(wire),
        percent_of(1.0 - wire as f64 / delivered as f64, 1)
    )
}

impl Route {
    fn account(self) -> Account {
        Account(match self {
            Self::Direct => 1,
            Self::Baseline => 2,
            Self::Oncewire => 3,
        })
    }
}

/// Congestion control of the gateways' lanes, the gateway's own default.
pub(crate) const LANE_CONGESTION: Policy = Policy::Bbr;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MAX_SETTLE_ROUNDS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_traffic_is_summed_up() {
        let before = Counted { flows: 7, delivered: 1_000, wire: 900 };
        assert!(saved(before, before).contains("Nothing crossed"));
        let after = Counted { flows: 8, delivered: 2_001_000, wire: 100_900 };
        assert_eq!(
            saved(before, after),
            "\nWhile the gateways were kept: 1 connection, 2.00 MB delivered, 100.0 kB on the link, 95.0 % saved.\n"
        );
    }
}
