//! Everything that runs for the demonstration.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::tcp::{Account, Side};

use super::args::Args;
use super::corpus::Editions;
use super::gateways::Pair;
use super::origin::Origin;
use super::path::{EmulatedLink, PathTraffic, Relay};
use super::signals::Signals;
use super::tls::Tls;
use crate::output::print;

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

/// What crossed the path by route, for the notes.
pub(crate) struct PathFacts {
    /// Without oncewire.
    pub(crate) direct: PathTraffic,
    /// Through the gateways.
    pub(crate) oncewire: PathTraffic,
    /// Packets lost both ways, whoever's they were.
    pub(crate) lost: u64,
    /// Packets dropped by full queues.
    pub(crate) dropped: u64,
}

impl Stage {
    /// Starts everything; `folder` is for the gateways' files.
    ///
    /// # Errors
    ///
    /// Settings out of range, loopback that cannot be listened on, gateways that do not start.
    pub(crate) async fn start(args: &Args, files: &Editions, folder: &Path) -> anyhow::Result<Self> {
        let (up, down) = args.links();
        let link = EmulatedLink::start(up, down).context("the link cannot be emulated")?;
        let tls = Tls::new()?;
        let origin = Origin::start(files, tls.clone()).await.context("cannot start the origin server")?;
        let relay = |target, policy, route: Route| {
            link.relay(ANY_PORT, target, policy, route.account()).context("cannot listen on loopback")
        };
        let direct = relay(origin.address(), args.congestion, Route::Direct)?;
        let baseline = relay(origin.address(), LANE_CONGESTION, Route::Baseline)?;
        let mut pair = Pair::start_hub(folder).await?;
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

    /// Restarts the gateway at the near side, so that only its disk remembers.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub(crate) async fn restart_branch(&mut self) -> anyhow::Result<()> {
        self.pair.restart_branch().await
    }

    /// Returns what the client needs for HTTPS.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns where the client connects for a route.
    pub(crate) fn address(&self, route: Route) -> SocketAddr {
        match route {
            Route::Direct => self.direct.local_addr(),
            Route::Baseline => self.baseline.local_addr(),
            Route::Oncewire => self.pair.forward_address(),
        }
    }

    /// Returns payload bytes that crossed the path by a route so far, both ways.
    pub(crate) async fn wire(&self, route: Route) -> u64 {
        self.link.traffic(route.account()).await.payload()
    }

    /// Waits until what was sent by a route has crossed, acknowledgements between the gateways included.
    pub(crate) async fn settle(&self, route: Route) {
        let quiet = (self.rtt * 2).clamp(Duration::from_millis(50), Duration::from_secs(2));
        let mut before = self.wire(route).await;
        // A link that never falls silent has keep-alives; a few bytes do not matter then.
        for _ in 0..MAX_SETTLE_ROUNDS {
            tokio::time::sleep(quiet).await;
            let now = self.wire(route).await;
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Returns what crossed the path so far.
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
        let text = format!(
            "\nThe gateways keep running. A SOCKS proxy at {socks} goes through them and the emulated link:\n\
             \n    curl -o /dev/null -x socks5h://{socks} http://{origin}/original/0\n\
             \n\
             Ctrl-C ends them.\n"
        );
        match json {
            true => io::stderr().write_all(text.as_bytes())?,
            false => print(text)?,
        }
        signals.next().await;
        Ok(())
    }

    /// Stops everything in order.
    pub(crate) async fn stop(self) {
        self.pair.shutdown().await;
    }
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
