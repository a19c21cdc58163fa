//! A gateway from its configuration to its end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oncewire_config::{Config, ConfigError};
use oncewire_discovery::{NoteSocketError, Talk};
use oncewire_host::clock::Clock;
use oncewire_host::slow_disk::{self, DISK_LIMIT};
use oncewire_host::tasks::Tasks;
use oncewire_intercept::{Current, Heads, rules};
use oncewire_link::{CodecFactory, LinkConfig};
use oncewire_logs::{Logs, Patience, PeerLogs};
use oncewire_report::{DiscoveryReport, FlowsReport, StatusReport};
use oncewire_tunnel::accounts::TrafficAccounts;
use oncewire_tunnel::chunks;
use oncewire_tunnel::listener::TunnelDoor;
use oncewire_tunnel::neighbours::Neighbours;
use oncewire_tunnel::onward::OwnSockets;
use oncewire_tunnel::peer::Peer;
use oncewire_tunnel::peering::Peering;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::listeners::{Bound, Listeners};
pub use self::reload::Reloaded;
use self::report::Report;
use self::settings::Said;
use self::start::{Site, open_logs, open_store, take_state};
use self::state::State;
use crate::admin::{self, Source as _};
use crate::lifecycle::limits::raise_open_files;

mod clearing;
mod found;
mod heap;
mod late_logs;
mod lending;
mod listeners;
mod log_sizes;
mod places;
mod reload;
mod report;
mod settings;
mod start;
mod state;
mod upkeep;

/// A running gateway. Dropping it stops it at once, as a crash would: applications see resets.
pub struct Gateway {
    report: Arc<Report>,
    site: Arc<Site>,
    /// Dropped after the tasks ended, with nothing left to log.
    logs: Option<Logs>,
    rules: Option<rules::Loaded>,
    stop: watch::Sender<bool>,
}

/// A gateway's addresses, with a configured port 0 replaced by the system's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    /// `[gateway] listen`, in order.
    pub tunnel: Vec<SocketAddr>,
    /// `[[intercept]] listen`, in order.
    pub intercepts: Vec<SocketAddr>,
    /// `[gateway] admin`.
    pub admin: Option<SocketAddr>,
    /// The UDP port of discovery; none without it.
    pub discovery: Option<u16>,
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} (`{key}`): {source}{}", hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The key in the configuration.
        key: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An address cannot be listened on, since this gateway itself listens there.
    #[error(
        "cannot listen on {address} (`{key}`): this gateway itself listens on {other} (`{other_key}`); choose another \
         port, or restart the gateway if `{other_key}` no longer says so"
    )]
    ListensItself {
        /// The address.
        address: SocketAddr,
        /// The key in the configuration.
        key: &'static str,
        /// The present listener.
        other: SocketAddr,
        /// Its key in the configuration.
        other_key: &'static str,
    },
    /// The rules of interception cannot be loaded.
    #[error("cannot take connections in (`[[intercept]] rules`): {0}")]
    Rules(#[from] rules::LoadError),
    /// Transparent interception is not allowed.
    #[error(
        "cannot listen on {address} for connections to others (`tproxy`), which takes CAP_NET_ADMIN: {source}"
    )]
    Transparent {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// SYNs cannot be held.
    #[error(
        "cannot hold SYNs (`[[intercept]] hold_syn`), which takes CAP_NET_ADMIN, a kernel with NFQUEUE and no other \
         gateway of this name: {0}"
    )]
    Hold(io::Error),
    /// Another process keeps its logs in the state directory.
    #[error("another oncewire uses {path} (`[gateway] state`); give each gateway a directory of its own",
            path = .0.display())]
    StateInUse(PathBuf),
    /// Other gateways cannot be looked for.
    #[error(transparent)]
    Discovery(#[from] NoteSocketError),
    /// The configuration contradicts the state on disk.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The chunk store is unusable in its present state.
    #[error(transparent)]
    Store(#[from] chunks::OpenError),
    /// The chunk store has no thread to be opened on.
    #[error("cannot open the chunk store: {0}")]
    Thread(io::Error),
    /// A list of codecs that links cannot have.
    #[error(transparent)]
    Codecs(oncewire_link::ConfigError),
    /// The key pair cannot be used for TLS.
    #[error("the key pair cannot be used: {0}")]
    Tls(rustls::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program, or another oncewire, listens there",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

impl Gateway {
    /// Binds every address and starts to work; returns once all of them are listened on.
    ///
    /// # Errors
    /// If an address cannot be listened on or the state directory is in use, with its key; nothing is left
    /// running then, nor if this is dropped before it has an answer.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with_codecs(config, LinkConfig::default().codecs).await
    }

    /// As [`Gateway::start`], with these codecs for all links, the preferred one first. A program that embeds a gateway
    /// runs a codec of its own so.
    ///
    /// # Errors
    /// As [`Gateway::start`], and if a link cannot have such a list of codecs.
    pub async fn start_with_codecs(
        config: Config,
        codecs: Vec<Arc<dyn CodecFactory>>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, codecs, Patience::default()).await
    }

    /// As [`Gateway::start_with_codecs`], with so much patience with the disk of logs.
    async fn start_with(
        config: Config,
        codecs: Vec<Arc<dyn CodecFactory>>,
        patience: Patience,
    ) -> Result<Self, StartError> {
        LinkConfig { codecs: codecs.clone(), ..LinkConfig::default() }.check().map_err(StartError::Codecs)?;
        raise_open_files();
        let listeners = Listeners::bind(&config)?;
        let mut started = Started { tasks: Arc::new(Tasks::new()), report: None, is_whole: false };
        let (stop, stopped) = watch::channel(false);
        let accounts: Arc<TrafficAccounts> = Arc::default();
        let heads = Heads::default();
        heads.set_memory(config.memory);
        let (own, clock) = (OwnSockets::default(), Clock::start());
        own.mark(config.is_transparent());
        let held = Arc::default();
        let state = take_state(&config, patience).await?;
        let (neighbours, inbox) = Neighbours::new();
        let store = open_store(&config, &neighbours).await?;
        // Last: logs of another key begin anew, and a store of another key keeps the gateway from starting.
        let (logs, peer_logs) = open_logs(&config, state).await;
        let (router, said, tasks) = (Current::default(), Said::default(), Arc::clone(&started.tasks));
        let place = config.gateway.site.clone();
        let site = Site {
            accounts,
            heads,
            tasks,
            stopped,
            own,
            held,
            router,
            clock,
            said,
            store,
            neighbours,
            place,
            codecs,
        };
        let site = Arc::new(site);
        let notes = found::open(&config)?;
        let talk = notes.and_then(|notes| site.look_for_others(&config, notes));
        let (config, told) = (Arc::new(config), talk.as_ref().map(Talk::reports));
        let report = Self::start_all(&site, config, listeners, (peer_logs, logs.clone()), told)?;
        started.report = Some(Arc::clone(&report));
        site.talk(inbox, &report);
        if let Some(logs) = &logs {
            site.tasks.spawn(late_logs::run(Arc::clone(&report), logs.clone()));
        }
        if let Some(talk) = talk {
            site.tasks.spawn(found::run(Arc::clone(&site), Arc::clone(&report), talk));
        }
        let state = report.state();
        site.held.set_entrances(state.weak_entrances());
        site.hold(&state.config)?;
        let rules = start_rules(&state, &site).await?;
        started.is_whole = true;
        let gateway = &state.config.gateway;
        tracing::info!(name = gateway.name, public_key = %gateway.identity.public_key(), "gateway started");
        Ok(Self { report, site, stop, logs, rules })
    }

    /// Starts peers, then the listeners leading to them.
    fn start_all(
        site: &Site,
        config: Arc<Config>,
        listeners: Listeners,
        (peer_logs, logs): (Vec<PeerLogs>, Option<Logs>),
        discovery: Option<Arc<watch::Sender<DiscoveryReport>>>,
    ) -> Result<Arc<Report>, StartError> {
        let lanes = settings::lane_options(&config, &site.said);
        listeners.all().flat_map(Bound::addresses).for_each(|address| site.own.add(address));
        let mut peer_logs = peer_logs.into_iter();
        let each = config.peers.iter().zip(&lanes);
        let peers = each
            .map(|(peer, lanes)| {
                site.peer(&config, peer, lanes.clone(), peer_logs.next().unwrap_or_default())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let guests = site.guests(&config, peers.iter())?;
        let tunnel = TunnelDoor::new(guests, Arc::clone(&site.accounts), Arc::clone(&site.tasks));
        let peering = Peering::new(&config, &peers);
        let router = site.router(&config, &peering);
        let ports = listeners.tunnel.into_iter().map(|bound| site.open_port(&tunnel, bound)).collect();
        let entrances = config.intercepts.iter().zip(listeners.intercepts);
        let entrances =
            entrances.map(|(intercept, bound)| site.open_entrance(intercept, &router, bound)).collect();
        let admin = listeners.admin.as_ref().map(|bound| bound.address);
        let token = config.gateway.admin.as_ref().and_then(|admin| admin.token.clone());
        let state = State { config, peers, peering, entrances, ports, admin };
        let report = Arc::new(Report {
            state: watch::Sender::new(Arc::new(state)),
            tunnel,
            accounts: Arc::clone(&site.accounts),
            stopped: site.stopped.clone(),
            started: Instant::now(),
            store: site.store.clone(),
            neighbours: site.neighbours.clone(),
            logs,
            discovery,
            changing: Arc::default(),
        });
        site.tasks.spawn(log_sizes::run(report.state.subscribe()));
        site.tasks.spawn(heap::run(report.state.subscribe()));
        site.tasks.spawn(upkeep::run(report.state.subscribe(), site.store.clone()));
        if let Some(Bound { listener, .. }) = listeners.admin {
            let source = Arc::clone(&report);
            site.tasks.spawn(async move {
                // It answers to the last: a stopping gateway is asked about its progress.
                if let Err(error) = admin::serve(listener, token, source, std::future::pending()).await {
                    tracing::error!(%error, "the admin interface ended");
                }
            });
        }
        Ok(report)
    }

    /// Returns the gateway's addresses.
    pub fn local_addrs(&self) -> LocalAddresses {
        let discovery = self.report.discovery();
        LocalAddresses { discovery: discovery.map(|told| told.port), ..self.report.state().addresses() }
    }

    /// Returns a check of this gateway's work: it returns only after one turn through every peer, past any
    /// holder of its lock.
    pub fn pulse(&self) -> impl Fn(&dyn Fn(&str)) + Send + 'static {
        let report = Arc::clone(&self.report);
        move |enter| {
            for peer in &report.state().peers {
                enter(peer.name());
                peer.touch();
            }
        }
    }

    /// Returns the output of `oncewire status`.
    pub fn status(&self) -> StatusReport {
        self.report.status()
    }

    /// Returns the output of `oncewire flows`.
    pub fn flows(&self) -> FlowsReport {
        self.report.flows()
    }

    /// Waits until the link to a peer is up and the peer takes flows, for at most `limit`; false if it is not by then,
    /// or no such peer is configured.
    pub async fn wait_up(&self, peer: &str, limit: Duration) -> bool {
        match self.report.state().peers.iter().find(|known| known.name() == peer) {
            Some(peer) => peer.reach.wait_up(limit).await,
            None => false,
        }
    }

    /// Stops in order: takes no new connections, lets flows finish within `deadline`, resets the rest, and
    /// notifies the peers.
    pub async fn shutdown(mut self, deadline: Duration) {
        let end = Instant::now() + deadline;
        if let Some(rules) = &self.rules {
            // While connections are still accepted: new ones go direct from now on.
            rules.quiesce().await;
        }
        self.site.held.stop();
        let peers = &self.report.state().peers;
        self.stop.send_replace(true);
        peers.iter().for_each(|peer| peer.drain_flows(true));
        let on_links: u64 = peers.iter().map(|peer| peer.status().link.flows_open).sum();
        let open = on_links + self.report.accounts.connections.open();
        tracing::info!(open_flows = open, "shutting down; flows may finish within {deadline:?}");
        let accounts = &self.report.accounts;
        until(end, || {
            all(peers, Peer::is_idle) && accounts.connections.open() == 0 && accounts.served() == 0
        })
        .await;
        // New dials must find no listener.
        self.report.state().ports.iter().for_each(|port| port.close());
        end_links(peers).await;
        save_hints(peers).await;
        if let Some(store) = &self.site.store {
            store.close().await;
        }
        if let Some(logs) = self.logs.take() {
            // A panic there was reported by its thread; there is nothing left to stop.
            let _ = slow_disk::run("logs-end", move || logs.finish()).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        end_tasks(&self.site.tasks, Some(&self.report));
        // A task stopped just now may still have a clone.
        self.logs.iter().for_each(Logs::end);
    }
}

/// The parts of a starting gateway; dropped incomplete, it ends them.
struct Started {
    tasks: Arc<Tasks>,
    report: Option<Arc<Report>>,
    is_whole: bool,
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_whole {
            end_tasks(&self.tasks, self.report.as_deref());
        }
    }
}

fn end_tasks(tasks: &Tasks, report: Option<&Report>) {
    let state = report.map(Report::state);
    let peers = || state.iter().flat_map(|state| &state.peers);
    // A lane in the middle of a write may still carry the fate of a flow.
    peers().for_each(|peer| peer.note_gone());
    tasks.end();
    peers().for_each(|peer| peer.tasks.end());
}

/// Loads the rules of a configuration, if it needs any.
async fn start_rules(state: &State, site: &Site) -> Result<Option<rules::Loaded>, rules::LoadError> {
    let config = &state.config;
    if !config.is_transparent() {
        return Ok(None);
    }
    let (rules, entrances) = (rules::RuleSet::of(config), state.weak_entrances());
    let (accounts, held) = (Arc::clone(&site.accounts), Arc::clone(&site.held));
    rules::load(&config.gateway.name, rules, entrances, accounts, held).await.map(Some)
}

/// Resets all open flows over links, and ends their lanes.
async fn end_links(peers: &[Arc<Peer>]) {
    // Resets are frames too, and frames need a moment to leave.
    peers.iter().for_each(|peer| peer.reset_flows());
    until(Instant::now() + LAST_WORDS, || all(peers, Peer::is_idle)).await;
    peers.iter().for_each(|peer| peer.close_lanes());
    until(Instant::now() + LAST_WORDS, || all(peers, |peer| peer.lane_count() == 0)).await;
}

/// Saves the knowledge of peers' chunk stores, unless the disk hangs.
async fn save_hints(peers: &[Arc<Peer>]) {
    if !each_in_turn(DISK_LIMIT, peers.iter().filter_map(|peer| peer.save_hints())).await {
        tracing::warn!("the disk takes too long to save what is known of the chunk stores of peers");
    }
}

/// Starts the pieces one by one, each after the end of the one before; false on a time-out of the whole.
async fn each_in_turn(limit: Duration, work: impl Iterator<Item = impl Future>) -> bool {
    let all = async {
        for piece in work {
            piece.await;
        }
    };
    timeout(limit, all).await.is_ok()
}

/// Whether a condition holds for every peer.
fn all(peers: &[Arc<Peer>], holds: impl Fn(&Peer) -> bool) -> bool {
    peers.iter().all(|peer| holds(peer))
}

/// Waits until a condition holds, or a deadline has passed.
async fn until(end: Instant, holds: impl Fn() -> bool) {
    while Instant::now() < end && !holds() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How long resets and the ends of lanes may take on their way out.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Maximum time of a stop beyond its flows' time: rules, links, and then a hanging disk at hints, at the
/// chunk store and at the logs.
pub(crate) const STOP_LIMIT: Duration = rules::STOP_LIMIT
    .saturating_add(LAST_WORDS.saturating_mul(2))
    .saturating_add(DISK_LIMIT.saturating_mul(3));

/// Interval of checks for open flows while the gateway stops.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[tokio::test]
    async fn slow_pieces_share_one_limit() {
        let slow = || tokio::time::sleep(Duration::from_millis(1));
        let without_end = each_in_turn(Duration::from_millis(50), iter::repeat_with(slow));
        assert_eq!(timeout(Duration::from_secs(60), without_end).await, Ok(false));
        assert!(each_in_turn(Duration::from_secs(60), (0..3).map(|_| slow())).await);
    }
}
