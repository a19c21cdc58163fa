//! Construction of a gateway's pieces, at its start and on reloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncewire_config::{self as config, Config};
use oncewire_discovery::{Looking, NoteSockets, Talk};
use oncewire_host::clock::Clock;
use oncewire_host::tasks::Tasks;
use oncewire_host::threads;
use oncewire_intercept::rules::RuleSet;
use oncewire_intercept::{self as intercept, Door, Entrance, Heads, Held, Router};
use oncewire_keys::PublicKey;
use oncewire_keys::tls::{self, PinnedKeys};
use oncewire_link::{Adapt, CodecFactory, LinkConfig};
use oncewire_logs::{LogOwner, Logs, Patience, PeerLogs, Place, Taken};
use oncewire_mesh::MemberId;
use oncewire_tunnel::accounts::TrafficAccounts;
use oncewire_tunnel::chunks::{self, ChunkStore, OpenError};
use oncewire_tunnel::dialer;
use oncewire_tunnel::lane::options::LaneOptions;
use oncewire_tunnel::lane::tls_tcp::Dialling;
use oncewire_tunnel::listener::{Guests, TunnelDoor, TunnelPort};
use oncewire_tunnel::neighbours::{self, Inbox, Member, Neighbours};
use oncewire_tunnel::onward::{Onward, OwnSockets};
use oncewire_tunnel::peer::times::{run_pacing, run_timer};
use oncewire_tunnel::peer::{Peer, PeerSettings};
use oncewire_tunnel::peering::Peering;
use oncewire_tunnel::serve;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::listeners::Bound;
use super::report::Report;
use super::settings::{self, Said};
use super::state::State;
use super::{StartError, log_sizes};

/// Parts shared by all pieces, for as long as the process runs.
pub(super) struct Site {
    pub(super) accounts: Arc<TrafficAccounts>,
    pub(super) heads: Heads,
    pub(super) tasks: Arc<Tasks>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) own: OwnSockets,
    pub(super) held: Arc<Held>,
    pub(super) router: intercept::Current,
    pub(super) clock: Clock,
    /// Lines logged about this machine.
    pub(super) said: Said,
    /// The chunk store, if there is to be one; it changes with the next start only.
    pub(super) store: Option<Arc<ChunkStore>>,
    /// Handle to the task of groups.
    pub(super) neighbours: Neighbours,
    /// This gateway's site, if configured; it changes with the next start only.
    pub(super) place: Option<String>,
    /// The codecs of all links, the preferred one first.
    pub(super) codecs: Vec<Arc<dyn CodecFactory>>,
}

/// Takes the state directory, if configured; a hanging disk is not waited for. Nothing in it changes.
pub(super) async fn take_state(config: &Config, patience: Patience) -> Result<Option<Taken>, StartError> {
    let Some(state) = config.gateway.state.clone() else { return Ok(None) };
    let place = Place { state: state.clone(), key: config.gateway.encrypt_key.clone() };
    let taken = Logs::take(place, patience).await;
    taken.map(Some).map_err(|_| StartError::StateInUse(state))
}

/// Reads the logs of an earlier process. One entry for each peer, in order, or none at all.
pub(super) async fn open_logs(config: &Config, state: Option<Taken>) -> (Option<Logs>, Vec<PeerLogs>) {
    let Some(state) = state else { return (None, Vec::new()) };
    let owners = config.peers.iter().map(log_owner).collect();
    let (logs, peers) = state.open(owners).await;
    (Some(logs), peers)
}

/// Opens the chunk store, if the configuration wants one.
pub(super) async fn open_store(
    config: &Config,
    neighbours: &Neighbours,
) -> Result<Option<Arc<ChunkStore>>, StartError> {
    let Some(settings) = config.store.clone() else { return Ok(None) };
    let key = config.gateway.encrypt_key.clone();
    let opened = threads::run("store-start", move || ChunkStore::open(&settings, key.as_ref())).await;
    let opened = opened.map_err(StartError::Thread)?;
    let store = opened.map_err(|why| match why {
        OpenError::OtherKey { .. } => StartError::Config(config.wrong_key(&why)),
        OpenError::InUse { .. } => StartError::Store(why),
    })?;
    Ok(Some(Arc::new(store.telling(neighbours.clone()))))
}

/// Returns the owner and the sizes of persisted logs.
pub(super) fn log_owner(peer: &config::Peer) -> LogOwner {
    LogOwner {
        name: peer.name.clone(),
        keys: peer.public_keys.clone(),
        capacity: peer.settings.log_memory,
        held: log_sizes::first_limits(peer),
        hints: peer.memory.hints,
        anew: false,
    }
}

impl Site {
    /// Starts a peer; nothing reaches it before it is among the [`Site::guests`] or a router's.
    pub(super) fn peer(
        &self,
        config: &Config,
        peer: &config::Peer,
        lanes: LaneOptions,
        logs: PeerLogs,
    ) -> Result<Arc<Peer>, StartError> {
        let ours = config.gateway.identity.public_key();
        let settings = PeerSettings {
            name: peer.name.clone(),
            keys: peer.public_keys.clone(),
            address: peer.address.as_ref().map(ToString::to_string),
            lanes,
            usual: peer.settings.usual(),
            // A peer changed by a reload is a new instance to the other end too; that end then resets
            // everything shared with it.
            link: LinkConfig {
                codecs: self.codecs.clone(),
                names: chunks::names::config(config, peer, self.clock),
                ..settings::link_config(config, peer, dialer::random())
            },
            store: self.store.clone(),
            first_limits: log_sizes::first_limits(peer),
            group: self.member(peer),
            found: peer.found,
            serve: serve::offer,
        };
        let dialling = self.dialling(config, &settings).map_err(StartError::Tls)?;
        let (accounts, tasks) = (Arc::clone(&self.accounts), Arc::new(Tasks::new()));
        let onward = self.onward(config, peer);
        let told = peer.told.clone();
        let peer = Peer::new(settings, onward, ours, self.clock, accounts, Arc::clone(&tasks), logs);
        peer.announce(told);
        tasks.spawn(run_timer(Arc::clone(&peer)));
        if peer.settings.link.adapt != Adapt::Off {
            tasks.spawn(run_pacing(Arc::clone(&peer)));
        }
        if let Some(dialling) = dialling {
            tasks.spawn(dialer::run(Arc::clone(&peer), dialling, Arc::clone(&tasks)));
        }
        Ok(peer)
    }

    /// Returns the configuration of a peer in a group.
    fn member(&self, peer: &config::Peer) -> Option<Member> {
        let group = peer.group.as_ref()?;
        Some(Member {
            group: Arc::new(RwLock::new(group.name.clone())),
            key: group.key.name_key(),
            proofs: group.key.proofs(),
            id: Arc::new(RwLock::new(MemberId::of_key(peer.public_keys.first()?.as_bytes()))),
            site: peer.site.clone(),
            is_near: peer.is_near(self.place.as_deref()),
            neighbours: self.neighbours.clone(),
        })
    }

    /// Returns a peer's access through this gateway.
    pub(super) fn onward(&self, config: &Config, peer: &config::Peer) -> Onward {
        Onward {
            access: peer.access.clone(),
            own: self.own.clone(),
            policies: config.policies.clone(),
            sources: peer.allow_sources.clone(),
            keepalive: config.gateway.keepalive,
            shortage: Arc::clone(&self.accounts.connects),
            ..Onward::default()
        }
    }

    fn dialling(&self, config: &Config, peer: &PeerSettings) -> Result<Option<Dialling>, rustls::Error> {
        let Some(address) = peer.address.clone() else { return Ok(None) };
        let identity = &config.gateway.identity;
        let pinned = PinnedKeys::new(peer.keys.iter().copied());
        Ok(Some(Dialling {
            name: peer.name.clone(),
            address,
            options: peer.lanes.clone(),
            tls: tls::client_config(identity, Arc::clone(&pinned))?,
            pinned,
            ours: identity.public_key(),
            own: self.own.clone(),
            shortage: Arc::clone(&self.accounts.connects),
            known: Mutex::default(),
        }))
    }

    /// Makes the list of admitted peers at the tunnel ports.
    pub(super) fn guests<'a>(
        &self,
        config: &Config,
        peers: impl Iterator<Item = &'a Arc<Peer>>,
    ) -> Result<Guests, StartError> {
        let mut by_key: BTreeMap<PublicKey, Arc<Peer>> = BTreeMap::new();
        for peer in peers {
            by_key.extend(peer.settings.keys.iter().map(|key| (*key, Arc::clone(peer))));
        }
        let pinned = PinnedKeys::new(by_key.keys().copied());
        let identity = &config.gateway.identity;
        let tls = tls::server_config(identity, Arc::clone(&pinned)).map_err(StartError::Tls)?;
        Ok(Guests { tls, pinned, ours: identity.public_key(), peers: by_key })
    }

    /// Starts to speak with members of groups.
    pub(super) fn talk(&self, inbox: Inbox, report: &Report) {
        let state = report.state.subscribe();
        let gateway = Arc::clone(&report.state().config);
        let own = MemberId::of_key(gateway.gateway.identity.public_key().as_bytes());
        let task = neighbours::Task::new(inbox, own, self.store.clone(), self.clock);
        self.tasks.spawn(
            task.run(state, |state: &State| state.peers.iter().map(|peer| Arc::clone(peer) as _).collect()),
        );
    }

    /// Begins discovery; none if no gateway could reach this one.
    pub(super) fn look_for_others(&self, config: &Config, notes: NoteSockets) -> Option<Talk> {
        let own = Looking {
            public_key: config.gateway.identity.public_key(),
            name: config.gateway.name.clone(),
            site: config.gateway.site.clone()?,
        };
        Some(Talk::new(config.discovery.as_ref()?, &own, notes, self.clock, &self.tasks))
    }

    /// Starts accepting lanes at a port.
    pub(super) fn open_port(&self, door: &Arc<TunnelDoor>, bound: Bound) -> Arc<TunnelPort> {
        let listener = Arc::new(bound.listener);
        let port = TunnelPort::new(bound.address, &listener);
        self.tasks.spawn(Arc::clone(door).run(listener, Arc::clone(&port)));
        port
    }

    /// Makes the router of flows.
    pub(super) fn router(&self, config: &Arc<Config>, peering: &Arc<Peering>) -> Arc<Router> {
        let (accounts, current) = (Arc::clone(&self.accounts), self.router.clone());
        Router::new(Arc::clone(config), Arc::clone(peering), accounts, self.own.clone(), current)
    }

    /// Starts holding SYNs if configured, unless already started; before the rules leading them here.
    pub(super) fn hold(&self, config: &Config) -> Result<(), StartError> {
        let numbers = RuleSet::of(config).and_then(|rules| rules.hold_numbers());
        if let Some(numbers) = numbers.filter(|_| !self.held.is_reading()) {
            self.tasks.spawn(self.held.start(numbers).map_err(StartError::Hold)?);
        }
        Ok(())
    }

    /// Stops holding SYNs unless configured; after the end of the rules leading them here.
    pub(super) fn hold_no_more(&self, config: &Config) {
        if RuleSet::of(config).is_none_or(|rules| rules.hold_numbers().is_none()) {
            self.held.stop();
        }
    }

    /// Starts to take connections in.
    pub(super) fn open_entrance(
        &self,
        intercept: &config::Intercept,
        router: &Arc<Router>,
        bound: Bound,
    ) -> Arc<Entrance> {
        let (accounts, tasks) = (Arc::clone(&self.accounts), Arc::clone(&self.tasks));
        let (heads, held, stopped) = (self.heads.clone(), Arc::clone(&self.held), self.stopped.clone());
        let door = Door::new(intercept.clone(), Arc::clone(router), accounts, heads, held, tasks, stopped);
        let listeners: Vec<_> = std::iter::once(bound.listener).chain(bound.twin).map(Arc::new).collect();
        let entrance = Entrance::new(bound.address, door, &listeners);
        for listener in listeners {
            self.tasks.spawn(Arc::clone(&entrance).run(listener, self.stopped.clone()));
        }
        entrance
    }
}
