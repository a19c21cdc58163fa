//! Which way a flow goes: through which peer, coded or not, or direct.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use oncewire_codec::wire::{Destination, OpenFailure};
use oncewire_link::{OpenRefused, OpenRequest};

use crate::config::{Config, Intercept, OnPeerLoss};
use crate::flows::Flow;
use crate::ledger::{Direct, Ledger};
use crate::telemetry::{Outcome, Reason};
use crate::tunnel::onward::{self, Onward, OwnSockets};
use crate::tunnel::peer::Peer;

/// Decides by the configuration.
pub(crate) struct Router {
    config: Arc<Config>,
    peers: BTreeMap<String, Arc<Peer>>,
    ledger: Arc<Ledger>,
    /// What this gateway connects to by itself. Its clients need not be on its machine: what is reachable from here
    /// alone is not for them.
    onward: Onward,
}

/// The way that a flow took.
pub(crate) enum Way {
    /// Over a link; the far connect is under way.
    Link(Flow),
    /// Connected by this gateway itself, and counted there.
    Direct(TcpStream, Direct),
}

/// Why a flow takes no way at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoWay {
    /// `peer = "auto"`, and no peer's networks hold the destination.
    #[error("no peer is configured for this destination")]
    NoPeer,
    /// The peer is away, and `on_peer_loss` says refuse.
    #[error("the peer is not connected")]
    PeerGone,
    /// This gateway was told to stop; a client whose connection is still open asked for another flow.
    #[error("this gateway is shutting down")]
    Stopping,
    /// The link takes no more flows.
    #[error("the link carries as many flows as it can")]
    Full,
    /// The connect failed, at the far side or directly.
    #[error("{0}")]
    Failed(OpenFailure),
}

impl Router {
    pub(crate) fn new(
        config: Arc<Config>,
        peers: BTreeMap<String, Arc<Peer>>,
        ledger: Arc<Ledger>,
        own: OwnSockets,
    ) -> Arc<Self> {
        let onward = Onward { own, ..Onward::default() };
        Arc::new(Self { config, peers, ledger, onward })
    }

    /// Opens a flow; over a link without waiting for the far connect.
    ///
    /// # Errors
    /// If no peer takes it and this gateway may or can not connect by itself.
    pub(crate) async fn open(
        &self,
        intercept: &Intercept,
        destination: &Destination,
        source: SocketAddr,
    ) -> Result<Way, NoWay> {
        let peer = self.config.choose_peer(&intercept.peer, destination);
        let peer = peer.and_then(|peer| self.peers.get(&peer.name));
        let Some(peer) = peer else {
            self.ledger.not_coded.count(None, destination, Outcome::Refused, Reason::NoPeer);
            return Err(NoWay::NoPeer);
        };
        if peer.is_draining() {
            return Err(NoWay::Stopping);
        }
        // A link that is being repaired gets a moment, or each outage of a second would show.
        if !peer.is_up() && !peer.wait_up(GRACE).await {
            return self.without_peer(intercept, peer, destination).await;
        }
        let plan = self.config.policies.plan(destination, peer.name(), peer.settings.link.plan);
        let request = OpenRequest { destination: destination.clone(), source: Some(source), plan };
        match peer.open(request) {
            Ok(flow) => {
                flow.prioritize(self.config.policies.priority(destination, peer.name()));
                Ok(Way::Link(flow))
            }
            Err(OpenRefused::TooManyFlows) => {
                let (name, reason) = (peer.name(), Reason::TooManyFlows);
                self.ledger.not_coded.count(Some(name), destination, Outcome::Refused, reason);
                Err(NoWay::Full)
            }
            Err(_) => self.without_peer(intercept, peer, destination).await,
        }
    }

    /// Opens a flow and waits for its connect, as proxies need it whose answer tells the truth.
    ///
    /// The address is the far socket's own, where it is known.
    ///
    /// # Errors
    /// As [`Router::open`], and if the far connect fails.
    pub(crate) async fn connect(
        &self,
        intercept: &Intercept,
        destination: &Destination,
        source: SocketAddr,
    ) -> Result<(Way, Option<SocketAddr>), NoWay> {
        match self.open(intercept, destination, source).await? {
            Way::Link(flow) => {
                let local = Some(flow.opened().await.map_err(NoWay::Failed)?);
                Ok((Way::Link(flow), local))
            }
            Way::Direct(stream, direct) => {
                let local = stream.local_addr().ok();
                Ok((Way::Direct(stream, direct), local))
            }
        }
    }

    async fn without_peer(
        &self,
        intercept: &Intercept,
        peer: &Peer,
        destination: &Destination,
    ) -> Result<Way, NoWay> {
        let count =
            |outcome| self.ledger.not_coded.count(Some(peer.name()), destination, outcome, Reason::PeerLost);
        match intercept.on_peer_loss {
            OnPeerLoss::Refuse => {
                count(Outcome::Refused);
                Err(NoWay::PeerGone)
            }
            OnPeerLoss::Direct => {
                tracing::debug!(peer = peer.name(), %destination, "the peer is gone; connecting directly");
                let direct = Direct::new(&self.ledger, count(Outcome::Direct));
                let stream = onward::connect(destination, &self.onward).await.map_err(NoWay::Failed)?;
                Ok(Way::Direct(stream, direct))
            }
        }
    }
}

/// How long a new flow waits for a link that is down.
const GRACE: Duration = Duration::from_secs(1);
