//! A flow's way: its peer, coded or not, or direct.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use oncewire_codec::wire::{Destination, OpenFailure};
use oncewire_config::{Access, Config, Intercept, Mode, Network, OnPeerLoss, PathChoice, PeerChoice};
use oncewire_link::{OpenRefused, OpenRequest};
use oncewire_report::{Outcome, Reason, Refusal};
use oncewire_tunnel::accounts::TrafficAccounts;
use oncewire_tunnel::accounts::direct::Direct;
use oncewire_tunnel::flows::{self, Flow, GRACE};
use oncewire_tunnel::onward::{self, Onward, OwnSockets};
use oncewire_tunnel::peer::Peer;
use oncewire_tunnel::peering::{Chosen, Peering};

/// Decides by the configuration.
pub struct Router {
    config: Arc<Config>,
    peering: Arc<Peering>,
    accounts: Arc<TrafficAccounts>,
    /// Destinations of this gateway's own connects.
    onward: Onward,
    /// The same for clients beyond its machine with a choice of destination: destinations reachable from here
    /// alone are not for them.
    onward_for_others: Onward,
    current: Current,
}

/// The router of the present configuration; held by doors.
#[derive(Clone, Debug, Default)]
pub struct Current(watch::Sender<Weak<Router>>);

/// A flow's way.
pub(crate) enum Way {
    /// Over a link; the far connect is under way.
    Link(Flow),
    /// Connected by this gateway itself, and counted there.
    Direct(TcpStream, Direct),
}

/// Why a flow has no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoWay {
    /// `peer = "auto"`, and no peer fronts the destination.
    #[error("no peer fronts this destination")]
    NoPeer,
    /// The peer is away or takes no new flows, and `on_peer_loss` is refuse.
    #[error("the peer is not connected, or takes no new connections")]
    PeerGone,
    /// This gateway was told to stop; a client with an open connection asked for another flow.
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
    /// Makes a new router in place of the one in `current`.
    pub fn new(
        config: Arc<Config>,
        peering: Arc<Peering>,
        accounts: Arc<TrafficAccounts>,
        own: OwnSockets,
        current: Current,
    ) -> Arc<Self> {
        let onward = Onward {
            own,
            keepalive: config.gateway.keepalive,
            shortage: Arc::clone(&accounts.connects),
            ..Onward::default()
        };
        let loopback = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
        let deny = loopback.map(|(ip, prefix)| Network::around(ip, prefix)).to_vec();
        let access = Access { allow: None, deny };
        let onward_for_others = Onward { access, ..onward.clone() };
        let router = Arc::new(Self { config, peering, accounts, onward, onward_for_others, current });
        router.current.0.send_replace(Arc::downgrade(&router));
        router
    }

    /// Returns the silence of applications until they are probed, if ever.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        self.onward.keepalive
    }

    /// Opens a flow; over a link without waiting for the far connect. Follows the present configuration if
    /// the interception is unchanged: a client taken in once may ask for more than one.
    ///
    /// # Errors
    /// If no peer takes it and this gateway may or can not connect by itself.
    pub(crate) async fn open(
        &self,
        intercept: &Intercept,
        destination: &Destination,
        source: SocketAddr,
    ) -> Result<Way, NoWay> {
        let current = self.current.0.borrow().upgrade();
        if let Some(next) = current.filter(|next| !ptr::eq(&raw const **next, self) && next.takes(intercept))
        {
            return Box::pin(next.open(intercept, destination, source)).await;
        }
        if intercept.mode.capture().is_some() && self.peering.is_tunnel(destination) {
            return self.direct(intercept, None, destination, source, Reason::Tunnel).await;
        }
        let mut chosen = self.peering.choose(&intercept.peer, destination);
        if self.is_excluded(destination, chosen.as_ref()) {
            return self.direct(intercept, None, destination, source, Reason::Policy).await;
        }
        if let Some(Chosen { peer, ready: false }) = &chosen
            // This one does not come back; its successor belongs to another door.
            && !peer.is_draining()
            && (intercept.on_peer_loss == OnPeerLoss::Refuse || !peer.reach.is_leaving())
        {
            // With a direct way at hand, no draining peer is waited for. Otherwise a link under repair gets a
            // moment, or each outage of a second would show. A longer outage delays nothing.
            match intercept.peer {
                PeerChoice::Named(_) => peer.reach.wait_repaired(GRACE).await,
                PeerChoice::Auto => peer.reach.wait_heard(GRACE).await,
            }
            chosen = self.peering.choose(&intercept.peer, destination);
            // Rules may differ for another peer.
            if self.is_excluded(destination, chosen.as_ref()) {
                return self.direct(intercept, None, destination, source, Reason::Policy).await;
            }
        }
        let Some(Chosen { peer, ready }) = &chosen else {
            return self.by_itself(intercept, None, destination, source).await;
        };
        if peer.is_stopping() {
            return Err(NoWay::Stopping);
        }
        if !ready {
            return self.by_itself(intercept, Some(peer), destination, source).await;
        }
        let plan = self.config.policies.plan(destination, peer.name(), peer.settings.usual);
        let request = OpenRequest {
            destination: destination.clone(),
            source: Some(source),
            as_client: as_client(intercept),
            plan,
        };
        match flows::open(peer, request) {
            Ok(flow) => {
                flow.prioritize(self.config.policies.priority(destination, peer.name()));
                Ok(Way::Link(flow))
            }
            Err(OpenRefused::TooManyFlows) => {
                let (name, reason) = (peer.name(), Reason::TooManyFlows);
                self.accounts.not_coded.count(Some(name), destination, Outcome::Refused, reason);
                Err(NoWay::Full)
            }
            Err(_) => self.by_itself(intercept, Some(peer), destination, source).await,
        }
    }

    /// Opens a flow and waits for its connect, as needed by proxies with a true answer.
    ///
    /// The address is the far socket's own, if known.
    ///
    /// # Errors
    /// As [`Router::open`], and if the far connect fails.
    pub(crate) async fn connect(
        &self,
        intercept: &Intercept,
        destination: &Destination,
        source: SocketAddr,
    ) -> Result<(Way, Option<SocketAddr>), NoWay> {
        loop {
            match self.open(intercept, destination, source).await? {
                Way::Link(flow) => {
                    let opened = tokio::select! {
                        opened = flow.opened() => opened,
                        () = flow.lost_untouched() => continue,
                    };
                    // Otherwise this peer has just refused flows; another way is chosen.
                    if !flow.is_turned_back() {
                        let local = Some(opened.map_err(NoWay::Failed)?);
                        return Ok((Way::Link(flow), local));
                    }
                }
                Way::Direct(stream, direct) => {
                    let local = stream.local_addr().ok();
                    return Ok((Way::Direct(stream, direct), local));
                }
            }
        }
    }

    /// Whether a rule keeps a flow off the link; not while the gateway stops, as it takes no flows then.
    fn is_excluded(&self, destination: &Destination, chosen: Option<&Chosen>) -> bool {
        let peer = chosen.map(|chosen| &chosen.peer);
        let stopping = peer.is_some_and(|peer| peer.is_stopping());
        let outcome = self.config.policies.decide(destination, peer.map(|peer| peer.name()));
        outcome.path == PathChoice::Direct && !stopping
    }

    /// Connects without a peer, if allowed: the chosen one is gone, or no peer fronts the destination.
    async fn by_itself(
        &self,
        intercept: &Intercept,
        peer: Option<&Arc<Peer>>,
        destination: &Destination,
        source: SocketAddr,
    ) -> Result<Way, NoWay> {
        let name = peer.map(|peer| peer.name());
        let (reason, refusal) = match name {
            Some(_) => (Reason::PeerLost, NoWay::PeerGone),
            None => (Reason::NoPeer, NoWay::NoPeer),
        };
        if intercept.on_peer_loss == OnPeerLoss::Refuse
            && peer.is_some_and(|peer| peer.is_draining() && !peer.is_stopping())
            && let Some(next) = self.successor(intercept).await
        {
            return Box::pin(next.open(intercept, destination, source)).await;
        }
        match intercept.on_peer_loss {
            // A transparent mode takes in connections without a wish for a tunnel: unclaimed ones go their
            // own way.
            OnPeerLoss::Refuse if peer.is_some() || intercept.mode.capture().is_none() => {
                self.accounts.not_coded.count(name, destination, Outcome::Refused, reason);
                Err(refusal)
            }
            OnPeerLoss::Refuse | OnPeerLoss::Direct => {
                self.direct(intercept, name, destination, source, reason).await
            }
        }
    }

    /// Waits for this router's successor from a reload that ends its links; none if that takes too long, or
    /// the interception has changed there.
    async fn successor(&self, intercept: &Intercept) -> Option<Arc<Self>> {
        let mut current = self.current.0.subscribe();
        let other = current.wait_for(|current| !ptr::eq(current.as_ptr(), self));
        let next = timeout(RELOAD_GRACE, other).await.ok()?.ok()?.upgrade()?;
        next.takes(intercept).then_some(next)
    }

    /// Waits until a configuration holds with another interception, or without it.
    pub(crate) async fn outlived(&self, intercept: &Intercept) {
        let mut current = self.current.0.subscribe();
        let another = |next: &Weak<Self>| next.upgrade().is_none_or(|next| !next.takes(intercept));
        // The sender is this router's own. A router without holders has no interceptions.
        let _ = current.wait_for(another).await;
    }

    fn takes(&self, intercept: &Intercept) -> bool {
        self.config.intercepts.contains(intercept)
    }

    /// Counts a connection forbidden to this gateway itself, and logs it at a limited rate.
    fn note_denied(&self, peer: Option<&str>, destination: &Destination, source: SocketAddr) {
        self.accounts.not_coded.count(peer, destination, Outcome::Refused, Reason::NotAllowed);
        if let Some(held_back) = self.onward.log.due() {
            let why = "no direct connection: it leads to this gateway itself, or to an address that no client reaches by it";
            tracing::warn!(%destination, %source, held_back, "{why}");
        }
    }

    /// Connects without a peer; `peer` is the missing one, if any.
    async fn direct(
        &self,
        intercept: &Intercept,
        peer: Option<&str>,
        destination: &Destination,
        source: SocketAddr,
        reason: Reason,
    ) -> Result<Way, NoWay> {
        tracing::debug!(peer, %destination, %reason, "connecting directly");
        let client = as_client(intercept).then_some(source);
        let is_ours = matches!(intercept.mode, Mode::Forward { .. }) || onward::is_of_this_machine(source);
        let onward = if is_ours { &self.onward } else { &self.onward_for_others };
        let stream = onward::connect(destination, onward, client).await.map_err(|failure| {
            if failure == OpenFailure::NotAllowed {
                self.accounts.refusals.count(Refusal::NotAllowedTo);
                self.note_denied(peer, destination, source);
            }
            NoWay::Failed(failure)
        })?;
        Ok(Way::Direct(stream, self.accounts.direct(peer, destination, source, reason)))
    }
}

/// Whether servers are to see the client's own address.
fn as_client(intercept: &Intercept) -> bool {
    intercept.mode.capture().is_some_and(|capture| capture.as_client)
}

/// How long new flows forbidden to go direct wait for a reload ending their link: its lanes have two seconds
/// to end.
const RELOAD_GRACE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use oncewire_codec::wire::Host;

    use super::*;
    use oncewire_keys::Identity;

    #[tokio::test]
    async fn local_destinations_are_denied_to_remote_clients() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        let peer = Identity::from_seed([1; 32]).public_key();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let text = format!(
            "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\n[[policy]]\npath = \"direct\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"{peer}\"\naddress = \"127.0.0.1:1\"\n\
             [[intercept]]\nmode = \"socks5\"\nlisten = \"0.0.0.0:1080\"\nallow_from = [\"192.0.2.0/24\"]\n\
             [[intercept]]\nmode = \"forward\"\nlisten = \"0.0.0.0:8080\"\ntarget = \"{here}\"\n"
        );
        let config = Arc::new(Config::parse(&text, &dir.path().join("a.toml")).unwrap());
        let peering = Peering::new(&config, &[]);
        let (accounts, own, current) = (Arc::default(), OwnSockets::default(), Current::default());
        let router = Router::new(Arc::clone(&config), peering, accounts, own, current);
        let open = async |at: usize, host: &str, source: &str| {
            let host = host.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Ip);
            let destination = Destination { host, port: here.port() };
            let source = SocketAddr::new(source.parse().unwrap(), 1);
            router.open(&config.intercepts[at], &destination, source).await.map(drop)
        };
        for host in ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1", "localhost"] {
            let refused = Err(NoWay::Failed(OpenFailure::NotAllowed));
            assert_eq!(open(0, host, "192.0.2.7").await, refused, "{host}");
        }
        for source in ["127.0.0.1", "::ffff:127.0.0.1", "::1"] {
            assert_eq!(open(0, "127.0.0.1", source).await, Ok(()), "{source}");
        }
        // A forward's destination was not the client's choice.
        assert_eq!(open(1, "127.0.0.1", "192.0.2.7").await, Ok(()));
    }
}
