//! Choice of a flow's peer, by networks and health.
//!
//! The rules stand in `docs/internals/peering.md`.

mod health;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use oncewire_codec::wire::{Destination, Host, Network};
use oncewire_config::{Config, Intercept, PeerChoice};
use oncewire_host::clock::Clock;
use oncewire_report::NetworkReport;

use crate::peer::Peer;

use health::Watch;
use table::{Choice, Claim, Table, Unused};

/// All peers, in the configuration's order, with the known networks behind them.
pub struct Peering {
    peers: Vec<Arc<Peer>>,
    own: Vec<Network>,
    /// Whether servers see clients' addresses: their answers must then find back to the asking peer.
    exclusive: bool,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    claims: Vec<Claim>,
    /// Each peer's announcements, to be checked for changes.
    announced: Vec<watch::Receiver<Option<Vec<Network>>>>,
    table: Table,
    watch: Watch,
}

/// A flow's peer.
pub struct Chosen {
    /// The peer.
    pub peer: Arc<Peer>,
    /// Whether it takes flows, and is known to front the destination.
    pub ready: bool,
}

impl Peering {
    /// Begins with the configuration; `peers` are its peers.
    pub fn new(config: &Config, peers: &[Arc<Peer>]) -> Arc<Self> {
        let by_name: BTreeMap<&str, &Arc<Peer>> = peers.iter().map(|peer| (peer.name(), peer)).collect();
        let (mut claims, mut known) = (Vec::new(), Vec::new());
        // Discovered peers serve neighbours, and carry no flows.
        for settings in config.peers.iter().filter(|peer| !peer.found) {
            let Some(peer) = by_name.get(settings.name.as_str()) else { continue };
            known.push(Arc::clone(peer));
            claims.push(Claim {
                configured: settings.networks.clone(),
                accepted: settings.accept_networks.clone(),
                announced: None,
            });
        }
        let mut announced: Vec<_> = known.iter().map(|peer| peer.reach.announced()).collect();
        announced.iter_mut().for_each(watch::Receiver::mark_changed);
        let (table, watch) = (Table::default(), Watch::new(known.len()));
        let state = Mutex::new(State { claims, announced, table, watch });
        let own = config.gateway.announce.clone();
        let as_client =
            |intercept: &Intercept| intercept.mode.capture().is_some_and(|capture| capture.as_client);
        let auto = |intercept: &&Intercept| intercept.peer == PeerChoice::Auto;
        let exclusive = config.intercepts.iter().filter(auto).any(as_client);
        Arc::new(Self { peers: known, own, exclusive, clock: Clock::start(), state })
    }

    /// Checks availability and nearness; once a second.
    pub fn look(&self) {
        let stats = |peer: &Arc<Peer>| (peer.reach.takes_flows(), peer.status().link.round_trip);
        let seen: Vec<_> = self.peers.iter().map(stats).collect();
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        state.watch.look(seen.into_iter(), self.clock.now());
    }

    /// Whether a destination is a peer's dialled address.
    pub fn is_tunnel(&self, destination: &Destination) -> bool {
        self.peers.iter().any(|peer| peer.is_dialled_at(destination))
    }

    /// Chooses a peer for a flow; none if no peer fronts its destination.
    pub fn choose(&self, choice: &PeerChoice, destination: &Destination) -> Option<Chosen> {
        if let PeerChoice::Named(name) = choice {
            let peer = self.peers.iter().find(|peer| peer.name() == name)?;
            return Some(Chosen { peer: Arc::clone(peer), ready: peer.reach.takes_flows() });
        }
        let ip = match &destination.host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(_) => None,
        };
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        let (up, now) = (self.peers.iter().map(|peer| peer.reach.takes_flows()), self.clock.now());
        // Otherwise an outage between two looks would count for nothing, though flows avoided it.
        state.watch.look(up.clone().map(|up| (up, None)), now);
        let standings = state.watch.standings(up, now);
        let Choice { peer, ready } = state.table.choose(ip, &standings)?;
        Some(Chosen { peer: Arc::clone(self.peers.get(peer)?), ready })
    }

    /// Takes in peers' new announcements.
    fn catch_up(&self, state: &mut State) {
        let mut changed = Vec::new();
        for (at, receiver) in state.announced.iter_mut().enumerate() {
            // An error means that the peer has ended.
            if receiver.has_changed().unwrap_or(false)
                && let Some(claim) = state.claims.get_mut(at)
            {
                claim.announced.clone_from(&receiver.borrow_and_update());
                changed.push(at);
            }
        }
        if changed.is_empty() {
            return;
        }
        let before =
            std::mem::replace(&mut state.table, Table::new(&state.claims, &self.own, self.exclusive));
        for (at, peer) in self.peers.iter().enumerate() {
            let verdicts = state.table.verdicts(at);
            if before.verdicts(at) != verdicts {
                self.tell(peer, verdicts);
            }
        }
    }

    /// Logs the fate of a peer's announcements.
    fn tell(&self, peer: &Peer, verdicts: &[(Network, Option<Unused>)]) {
        let used = verdicts.iter().filter(|(_, unused)| unused.is_none()).count();
        tracing::info!(peer = peer.name(), announced = verdicts.len(), used, "the peer says what it fronts");
        let refused = verdicts.iter().filter_map(|(network, unused)| Some((network, (*unused)?)));
        for (network, unused) in refused.take(MOST_LINES) {
            let why = self.reason(unused);
            tracing::warn!(peer = peer.name(), %network, "an announced network is not used: {why}");
        }
    }

    fn reason(&self, unused: Unused) -> String {
        match unused {
            Unused::NotAccepted => "accept_networks does not hold it".to_owned(),
            Unused::Ours => "this gateway announces it itself".to_owned(),
            Unused::Overlaps(other) => {
                let other = self.peers.get(other).map_or("another peer", |peer| peer.name());
                format!("{other} fronts a part of it, and servers see clients' addresses")
            }
        }
    }

    /// Lists each peer's networks, in the configuration's order.
    pub fn networks(&self) -> Vec<Vec<NetworkReport>> {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        let state = &*state;
        let of = |(at, claim): (usize, &Claim)| {
            let report = |network: &Network, announced, unused: Option<String>| NetworkReport {
                network: network.to_string(),
                announced,
                used: unused.is_none(),
                reason: unused,
            };
            let configured = claim.configured.iter().map(|network| report(network, false, None));
            let announced = state.table.verdicts(at).iter();
            let announced = announced
                .map(|(network, unused)| report(network, true, unused.map(|unused| self.reason(unused))));
            configured.chain(announced).collect()
        };
        state.claims.iter().enumerate().map(of).collect()
    }
}

/// The most refused networks of one announcement named in the log; `status` has them all.
const MOST_LINES: usize = 5;
