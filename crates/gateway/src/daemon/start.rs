//! The start of a gateway, piece by piece.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::report::Report;
use super::{Listeners, LocalAddresses, StartError, log_sizes, settings};
use crate::admin;
use crate::config::{self, Config};
use crate::identity::PublicKey;
use crate::intercept::{Door, Router};
use crate::ledger::Ledger;
use crate::logs::{LogOwner, Logs, PeerLogs, Place};
use crate::sockets::LaneOptions;
use crate::tunnel::clock::Clock;
use crate::tunnel::dialer;
use crate::tunnel::lane::tls_tcp::Dialling;
use crate::tunnel::listener::TunnelDoor;
use crate::tunnel::onward::{Onward, OwnSockets};
use crate::tunnel::peer::{Peer, PeerSettings};
use crate::tunnel::tasks::Tasks;
use crate::tunnel::tls::{self, PinnedKeys};

/// What every piece shares.
pub(super) struct Start {
    pub(super) config: Arc<Config>,
    pub(super) addresses: LocalAddresses,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) stopped: watch::Receiver<bool>,
}

impl Start {
    /// Reads the logs of an earlier process, if the configuration names a folder for them.
    /// One entry for each peer, in order, or none at all.
    pub(super) async fn open_logs(&self) -> Result<(Option<Logs>, Vec<PeerLogs>), StartError> {
        let gateway = &self.config.gateway;
        let Some(state) = gateway.state.clone() else { return Ok((None, Vec::new())) };
        let place = Place { state, key: gateway.encrypt_key.clone() };
        let owner = |peer: &config::Peer| LogOwner {
            name: peer.name.clone(),
            keys: peer.public_keys.clone(),
            capacity: peer.settings.log_memory,
            held: log_sizes::first_limits(peer),
        };
        let owners: Vec<_> = self.config.peers.iter().map(owner).collect();
        let opened = tokio::task::spawn_blocking(move || {
            Logs::open(&place, &owners).map_err(|_| StartError::StateInUse(place.state))
        });
        opened.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
    }

    /// Starts peers, then those who come to them.
    pub(super) fn all(self, listeners: Listeners, logs: Vec<PeerLogs>) -> Result<Arc<Report>, StartError> {
        let lanes = settings::lane_options(&self.config);
        let own = OwnSockets::default();
        self.addresses.all().for_each(|address| own.add(address));
        let peers = self.peers(&lanes, logs, &own)?;
        self.tasks.spawn(log_sizes::run(Arc::clone(&self.config), peers.clone()));
        let tunnel = self.tunnel(&peers, listeners.tunnel, &lanes)?;
        let doors = self.intercepts(&peers, listeners.intercepts, own);
        let report = Arc::new(Report {
            config: self.config,
            addresses: self.addresses,
            peers,
            tunnel,
            doors,
            ledger: self.ledger,
            stopped: self.stopped,
            started: Instant::now(),
        });
        if let Some(listener) = listeners.admin {
            let token = report.config.gateway.admin.as_ref().and_then(|admin| admin.token.clone());
            let source = Arc::clone(&report);
            self.tasks.spawn(async move {
                // It answers to the last: a gateway that stops is asked how far it is.
                if let Err(error) = admin::serve(listener, token, source, std::future::pending()).await {
                    tracing::error!(%error, "the admin interface ended");
                }
            });
        }
        Ok(report)
    }

    fn peers(
        &self,
        lanes: &[LaneOptions],
        logs: Vec<PeerLogs>,
        own: &OwnSockets,
    ) -> Result<Vec<Arc<Peer>>, StartError> {
        let (clock, instance) = (Clock::start(), dialer::random());
        let ours = self.config.gateway.identity.public_key();
        let mut peers = Vec::new();
        let mut logs = logs.into_iter();
        for (peer, lanes) in self.config.peers.iter().zip(lanes) {
            let settings = PeerSettings {
                name: peer.name.clone(),
                keys: peer.public_keys.clone(),
                address: peer.address.as_ref().map(ToString::to_string),
                lanes: lanes.clone(),
                link: settings::link_config(&self.config, peer, instance),
                first_limits: log_sizes::first_limits(peer),
                onward: Onward {
                    access: peer.access.clone(),
                    own: own.clone(),
                    policies: self.config.policies.clone(),
                },
            };
            let (ledger, tasks) = (Arc::clone(&self.ledger), Arc::clone(&self.tasks));
            let peer = Peer::new(settings, ours, clock, ledger, tasks, logs.next().unwrap_or_default());
            self.tasks.spawn(Arc::clone(&peer).run_timer());
            if peer.settings.link.adapt {
                self.tasks.spawn(Arc::clone(&peer).run_pacing());
            }
            if let Some(address) = peer.settings.address.clone() {
                let dialling = self.dialling(&peer, address).map_err(StartError::Tls)?;
                self.tasks.spawn(dialer::run(Arc::clone(&peer), dialling, Arc::clone(&self.tasks)));
            }
            peers.push(peer);
        }
        Ok(peers)
    }

    fn dialling(&self, peer: &Peer, address: String) -> Result<Dialling, rustls::Error> {
        let identity = &self.config.gateway.identity;
        let pinned = PinnedKeys::new(peer.settings.keys.iter().copied());
        Ok(Dialling {
            address,
            options: peer.settings.lanes.clone(),
            tls: tls::client_config(identity, Arc::clone(&pinned))?,
            pinned,
            ours: identity.public_key(),
        })
    }

    fn tunnel(
        &self,
        peers: &[Arc<Peer>],
        listeners: Vec<TcpListener>,
        lanes: &[LaneOptions],
    ) -> Result<Arc<TunnelDoor>, StartError> {
        let mut by_key: BTreeMap<PublicKey, Arc<Peer>> = BTreeMap::new();
        for peer in peers {
            by_key.extend(peer.settings.keys.iter().map(|key| (*key, Arc::clone(peer))));
        }
        let pinned = PinnedKeys::new(by_key.keys().copied());
        let identity = &self.config.gateway.identity;
        let tls = tls::server_config(identity, Arc::clone(&pinned)).map_err(StartError::Tls)?;
        // Who knocks is not known when the socket is prepared, so the first peer's options hold for all.
        let options = lanes.first().cloned().unwrap_or_default();
        let (ledger, tasks) = (Arc::clone(&self.ledger), Arc::clone(&self.tasks));
        let door = TunnelDoor::new(tls, pinned, by_key, options, ledger, tasks);
        for listener in listeners {
            self.tasks.spawn(Arc::clone(&door).run(listener));
        }
        Ok(door)
    }

    fn intercepts(
        &self,
        peers: &[Arc<Peer>],
        listeners: Vec<TcpListener>,
        own: OwnSockets,
    ) -> Vec<Arc<Door>> {
        let by_name = peers.iter().map(|peer| (peer.settings.name.clone(), Arc::clone(peer))).collect();
        let router = Router::new(Arc::clone(&self.config), by_name, Arc::clone(&self.ledger), own);
        let mut doors = Vec::new();
        for (intercept, listener) in self.config.intercepts.iter().zip(listeners) {
            let (router, ledger) = (Arc::clone(&router), Arc::clone(&self.ledger));
            let door = Door::new(intercept.clone(), router, ledger, Arc::clone(&self.tasks));
            self.tasks.spawn(Arc::clone(&door).run(listener, self.stopped.clone()));
            doors.push(door);
        }
        doors
    }
}
