//! A peer without a gateway, and the other end of its link.

use std::net::SocketAddr;

use oncewire_config::Usual;
use oncewire_host::clock::Clock;
use oncewire_host::tasks::Tasks;
use oncewire_keys::{Claim, ProofKey};
use oncewire_link::{Link, LinkConfig, LogLimits, Now, OpenRequest};
use oncewire_logs::PeerLogs;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::accounts::TrafficAccounts;
use crate::lane::options::LaneOptions;
use crate::onward::Onward;
use crate::peer::PeerSettings;

const OURS: &str = "UFFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVE=";
pub(crate) const SMALLER: &str = "AVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVE=";
pub(crate) const GREATER: &str = "kFFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVE=";

impl LaneStream for DuplexStream {
    fn binding(&self) -> Option<Binding> {
        Some(BINDING)
    }
}

/// As if all streams in memory were one encrypted connection.
const BINDING: Binding = [0xb1; 32];

pub(crate) fn key(text: &str) -> PublicKey {
    text.parse().unwrap()
}

pub(crate) fn config(instance: u64) -> LinkConfig {
    LinkConfig { instance, log_capacity: LinkConfig::MIN_LOG, ..LinkConfig::default() }
}

pub(crate) fn peer() -> Arc<Peer> {
    peer_with(config(1))
}

pub(crate) fn peer_with(link: LinkConfig) -> Arc<Peer> {
    let limit = LinkConfig::MIN_LOG;
    let settings = PeerSettings {
        name: "peer".to_owned(),
        keys: vec![key(SMALLER), key(GREATER)],
        address: None,
        lanes: LaneOptions::default(),
        usual: Usual::default(),
        link: LinkConfig { first: key(OURS) < key(SMALLER), ..link },
        store: None,
        first_limits: LogLimits { out: limit, inbound: limit },
        group: None,
        found: false,
        serve: crate::serve::offer,
    };
    let (accounts, tasks, logs) =
        (Arc::new(TrafficAccounts::default()), Arc::new(Tasks::new()), PeerLogs::default());
    Peer::new(settings, Onward::default(), key(OURS), Clock::start(), accounts, tasks, logs)
}

pub(crate) fn request() -> OpenRequest {
    let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
    OpenRequest { destination, source: None, as_client: false, plan: None }
}

/// The other end, as this instance; lanes are named by it.
pub(crate) struct Other {
    pub(crate) link: Link,
    pub(crate) key: PublicKey,
    pub(crate) lanes: u64,
    /// Key of its claimed group, if any.
    pub(crate) proofs: Option<ProofKey>,
}

impl Other {
    pub(crate) fn new(instance: u64, presented: &str) -> Self {
        let first = key(presented) < key(OURS);
        let link = Link::new(LinkConfig { first, dialer: true, ..config(instance) }, Now::ZERO);
        Self { link, key: key(presented), lanes: 100 * instance, proofs: None }
    }

    /// The last dialled lane.
    pub(crate) fn lane(&self) -> LaneId {
        LaneId(self.lanes)
    }

    /// Dials, and waits for the peer's hello.
    pub(crate) async fn begin(&mut self, peer: &Arc<Peer>) -> Begun {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let (peer, theirs) = (Arc::clone(peer), self.key);
        let accepted = tokio::spawn(async move { accept_hello(&peer, theirs, far).await });
        let (hello, _) = read_hello(&mut near).await.unwrap();
        self.lanes += 1;
        Begun { near, hello, accepted, lane: LaneId(self.lanes) }
    }

    /// Says hello, and hangs up.
    pub(crate) async fn finish(&mut self, begun: Begun) -> Result<Joined<DuplexStream>, HelloFailure> {
        self.join(begun).await.map(|(joined, _)| joined)
    }

    /// Says hello; returns its own end of the lane, too.
    pub(crate) async fn join(
        &mut self,
        begun: Begun,
    ) -> Result<(Joined<DuplexStream>, DuplexStream), HelloFailure> {
        let Begun { mut near, hello, accepted, lane } = begun;
        let (mut ours, mut bytes) = (self.link.hello(lane, LaneRole::Control), Vec::new());
        let (verifier, instance) = (key(OURS), ours.instance);
        let claim = Claim { binding: &BINDING, prover: &self.key, verifier: &verifier, instance };
        ours.group_proof = self.proofs.as_ref().map(|proofs| proofs.prove(claim));
        ours.encode(&mut bytes);
        near.write_all(&bytes).await?;
        let joined = accepted.await.unwrap()?;
        self.link.handle_lane_up(ours.instance, &hello, lane, LaneRole::Control, true, Now::ZERO).unwrap();
        Ok((joined, near))
    }

    pub(crate) async fn dial(&mut self, peer: &Arc<Peer>) -> Result<Joined<DuplexStream>, HelloFailure> {
        let begun = self.begin(peer).await;
        self.finish(begun).await
    }
}

/// A dialled lane, with the accepting side's hello.
pub(crate) struct Begun {
    near: DuplexStream,
    hello: Hello,
    accepted: JoinHandle<Result<Joined<DuplexStream>, HelloFailure>>,
    lane: LaneId,
}
