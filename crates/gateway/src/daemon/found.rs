//! Discovered gateways of the site, as peers by way of reloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use oncewire_codec::wire::{Destination, Host};
use oncewire_config::{self as config, Config};
use oncewire_discovery::{NoteSocketError, NoteSockets, Ports, Talk};
use oncewire_keys::PublicKey;

use super::StartError;
use super::reload::{Changing, Reloaded};
use super::report::Report;
use super::settings;
use super::start::Site;
use super::state::State;

/// Opens the sockets of discovery, if configured.
pub(super) fn open(config: &Config) -> Result<Option<NoteSockets>, NoteSocketError> {
    let Some(discovery) = &config.discovery else { return Ok(None) };
    let mut interfaces: Vec<String> =
        discovery.groups.iter().flat_map(|looked| looked.interfaces.clone()).collect();
    interfaces.sort();
    interfaces.dedup();
    NoteSockets::open(discovery.port, &interfaces).map(Some)
}

/// Runs discovery, and adopts and drops gateways, until the gateway is told to stop.
pub(super) async fn run(site: Arc<Site>, report: Arc<Report>, mut talk: Talk) {
    let mut stopped = site.stopped.clone();
    loop {
        talk.handle_configured(&configured(&report.state().config));
        tokio::select! {
            () = talk.step(|| Ports::of(report.state().ports.iter().map(|port| port.address))) => {}
            // An error means the end of the gateway.
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let state = report.state();
        talk.handle_links(&links(&state));
        let wanted = wanted(&state.config, &talk);
        let known: Vec<&config::Peer> = state.config.peers.iter().filter(|peer| peer.found).collect();
        if !wanted.iter().eq(known)
            && let Err(error) = adopt(&site, &report, wanted).await
        {
            tracing::error!(%error, "a gateway that was found cannot be taken in");
        }
    }
}

/// Returns the links of discovered peers, up or down.
fn links(state: &State) -> BTreeMap<PublicKey, bool> {
    let of = |peer: &Arc<oncewire_tunnel::peer::Peer>| {
        peer.settings.keys.iter().map(|key| (*key, peer.reach.is_up())).collect::<Vec<_>>()
    };
    state.peers.iter().flat_map(of).collect()
}

/// Returns the keys of the peers of the file.
fn configured(config: &Config) -> BTreeSet<PublicKey> {
    let peers = config.peers.iter().filter(|peer| !peer.found);
    peers.flat_map(|peer| &peer.public_keys).copied().collect()
}

/// Returns the wanted peers beyond the file's, in the order of their keys.
fn wanted(config: &Config, talk: &Talk) -> Vec<config::Peer> {
    let Some(discovery) = &config.discovery else { return Vec::new() };
    let ours = config.gateway.identity.public_key();
    let mut peers: Vec<config::Peer> = Vec::new();
    for (key, (group, found)) in talk.found() {
        let known = config.peer_of_key(&key);
        if known.is_some_and(|peer| !peer.found) {
            continue;
        }
        let taken = |name: &String| peers.iter().chain(&config.peers).any(|peer| peer.name == *name);
        let name = match known {
            // While it is there.
            Some(peer) => peer.name.clone(),
            None => {
                let plain = format!("{FOUND}{}", found.name);
                if taken(&plain) { format!("{plain}:{key}") } else { plain }
            }
        };
        peers.push(config::Peer {
            name,
            public_keys: vec![key],
            // One of the two dials.
            address: (ours < key).then(|| destination(found.tunnel)),
            group: Some(config.called_now(group)),
            site: config.gateway.site.clone(),
            ..discovery.found.clone()
        });
    }
    peers
}

fn destination(address: SocketAddr) -> Destination {
    let ip: IpAddr = address.ip();
    Destination { host: Host::Ip(ip), port: address.port() }
}

/// Replaces the discovered peers by these.
async fn adopt(site: &Site, report: &Report, found: Vec<config::Peer>) -> Result<(), StartError> {
    let _changing = report.changing.lock().await;
    let old = report.state();
    let mut config = Config::clone(&old.config);
    config.peers.retain(|peer| !peer.found);
    let known = |peer: &config::Peer| peer.public_keys.iter().any(|key| config.peer_of_key(key).is_some());
    let found: Vec<_> = found.into_iter().filter(|peer| !known(peer)).collect();
    config.peers.extend(found);
    let config = Arc::new(config);
    let (lanes, mut done) = (settings::lane_options(&config, &site.said), Reloaded::default());
    let changing = Changing { site, report, logs: None };
    let peers = changing.change_peers(&old, &config, &lanes, &mut done).await?;
    done.changes.iter().for_each(|change| tracing::info!("discovery: {change}"));
    // No flow takes them, so nothing else changes.
    let state = State {
        config,
        peers,
        peering: Arc::clone(&old.peering),
        entrances: old.entrances.clone(),
        ports: old.ports.clone(),
        admin: old.admin,
    };
    report.state.send_replace(Arc::new(state));
    Ok(())
}

/// Prefix of discovered peers' names; no name in the file has a colon.
const FOUND: &str = "found:";
