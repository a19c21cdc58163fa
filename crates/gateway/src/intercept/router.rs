//! Which way a flow goes: through which peer, coded or not, or direct.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use oncewire_codec::wire::{Destination, OpenFailure};
use oncewire_link::{Coding, OpenRequest};

use crate::config::{Codec, Config, Intercept, OnPeerLoss};
use crate::flows::Flow;
use crate::tunnel::onward;
use crate::tunnel::peer::Peer;

/// Decides by the configuration.
pub(crate) struct Router {
    config: Arc<Config>,
    peers: BTreeMap<String, Arc<Peer>>,
}

/// The way that a flow took.
pub(crate) enum Way {
    /// Over a link; the far connect is under way.
    Link(Flow),
    /// Connected by this gateway itself.
    Direct(TcpStream),
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
    /// The link takes no more flows.
    #[error("the link carries as many flows as it can")]
    Full,
    /// The connect failed, at the far side or directly.
    #[error("{0}")]
    Failed(OpenFailure),
}

impl Router {
    pub(crate) fn new(config: Arc<Config>, peers: BTreeMap<String, Arc<Peer>>) -> Arc<Self> {
        Arc::new(Self { config, peers })
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
        let peer = peer.and_then(|peer| self.peers.get(&peer.name)).ok_or(NoWay::NoPeer)?;
        // A link that is being repaired gets a moment, or each outage of a second would show.
        if !peer.is_up() && !peer.wait_up(GRACE).await {
            return self.without_peer(intercept, peer, destination).await;
        }
        let decided = self.config.policies.decide(destination, peer.name());
        let coding = match decided.codec {
            Codec::None => Coding::None,
            Codec::Endre => Coding::Coded,
        };
        let request = OpenRequest { destination: destination.clone(), source: Some(source), coding };
        match peer.open(request) {
            Ok(flow) => Ok(Way::Link(flow)),
            Err(oncewire_link::OpenRefused::TooManyFlows) => Err(NoWay::Full),
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
            Way::Direct(stream) => {
                let local = stream.local_addr().ok();
                Ok((Way::Direct(stream), local))
            }
        }
    }

    async fn without_peer(
        &self,
        intercept: &Intercept,
        peer: &Peer,
        destination: &Destination,
    ) -> Result<Way, NoWay> {
        match intercept.on_peer_loss {
            OnPeerLoss::Refuse => Err(NoWay::PeerGone),
            OnPeerLoss::Direct => {
                tracing::debug!(peer = peer.name(), %destination, "the peer is gone; connecting directly");
                onward::connect(destination, None).await.map(Way::Direct).map_err(NoWay::Failed)
            }
        }
    }
}

/// How long a new flow waits for a link that is down.
const GRACE: Duration = Duration::from_secs(1);
