//! Reload: another configuration for a running gateway.
//!
//! The decisions stand in `docs/internals/lifecycle.md`.

use std::sync::{Arc, Weak};

use oncewire_config::{self as config, CodecSettings, Config, ContextMemory, KeptLogs};
use oncewire_intercept::Entrance;
use oncewire_intercept::rules::{self, RuleSet};
use oncewire_logs::{Logs, PeerLogs};
use oncewire_tunnel::lane::options::LaneOptions;
use oncewire_tunnel::peer::Peer;
use oncewire_tunnel::peering::Peering;

use super::places::{Place, Places};
use super::report::Report;
use super::start::{Site, log_owner};
use super::state::State;
use super::{Gateway, StartError, end_links, save_hints, settings};

/// Result of a reload, in words for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Changes made, one line each; nothing else was touched.
    pub changes: Vec<String>,
    /// Changed keys without effect until the next start, with their tables.
    pub at_next_start: Vec<&'static str>,
}

/// Replacement of the present peers.
pub(super) struct Changing<'a> {
    pub(super) site: &'a Site,
    pub(super) report: &'a Report,
    /// The persisted logs, if any.
    pub(super) logs: Option<&'a Logs>,
}

impl Gateway {
    /// Applies another configuration. Common parts go on untouched, flows included.
    ///
    /// A peer with changes beyond its access is started anew, and its flows are reset; so are those of a
    /// removed peer. A changed or removed interception keeps its open connections.
    ///
    /// # Errors
    /// If a new address cannot be listened on. The gateway is then unchanged.
    ///
    /// Dropped before it has an answer, it leaves a gateway fit for a shutdown, and no more: links about to
    /// begin anew have ended.
    pub async fn reload(&mut self, wanted: Config) -> Result<Reloaded, StartError> {
        let report = Arc::clone(&self.report);
        let _changing = report.changing.lock().await;
        let old = self.report.state();
        let mut done = Reloaded::default();
        let config = Arc::new(settle(&old.config, wanted, &mut done));
        let mut places = Places::find(&old, &config, &mut done)?;
        // They take connections in from now on; peers must not make any to them.
        let listening = self.site.own.claim(places.new_addresses());
        if self.change_rules(&config, places.weak_entrances()).await? {
            done.changes.push("the rules that lead connections here changed".to_owned());
        }
        if let Err(error) = places.listen_late() {
            self.change_rules(&old.config, old.weak_entrances()).await?;
            return Err(error);
        }
        let lanes = settings::lane_options(&config, &self.site.said);
        let changing = Changing { site: &self.site, report: &self.report, logs: self.logs.as_ref() };
        let peers = match changing.change_peers(&old, &config, &lanes, &mut done).await {
            Ok(peers) => peers,
            Err(error) => {
                self.change_rules(&old.config, old.weak_entrances()).await?;
                return Err(error);
            }
        };
        note_settings(&old.config, &config, &mut done);
        let peering = Peering::new(&config, &peers);
        let state = self.open(places, Arc::clone(&config), peers, peering, old.admin);
        listening.keep();
        self.site.held.set_entrances(state.weak_entrances());
        self.site.hold_no_more(&config);
        self.report.state.send_replace(Arc::new(state));
        Ok(done)
    }

    /// Loads the rules of another configuration, and has connections held for these entrances with them;
    /// returns whether they have changed.
    ///
    /// # Errors
    /// As for a start; the rules are then unchanged.
    async fn change_rules(
        &mut self,
        config: &Config,
        entrances: Vec<Weak<Entrance>>,
    ) -> Result<bool, StartError> {
        let wanted = config.is_transparent();
        self.site.hold(config)?;
        // Ahead of rules for unmarked packets. Open connections are not new, so no rule takes them in.
        let marked = self.site.own.are_marked();
        self.site.own.mark(wanted || marked);
        let rules = RuleSet::of(config);
        let changed = match &mut self.rules {
            Some(loaded) => loaded.change(rules, entrances).await,
            None if wanted => {
                let (accounts, held) = (Arc::clone(&self.site.accounts), Arc::clone(&self.site.held));
                let loaded = rules::load(&config.gateway.name, rules, entrances, accounts, held).await;
                loaded.map(|loaded| {
                    self.rules = Some(loaded);
                    true
                })
            }
            None => Ok(false),
        };
        self.site.own.mark(if changed.is_ok() { wanted } else { marked });
        Ok(changed?)
    }

    /// Opens new listeners, gives every interception the present rules, and closes removed ones.
    fn open(
        &self,
        places: Places,
        config: Arc<Config>,
        peers: Vec<Arc<Peer>>,
        peering: Arc<Peering>,
        admin: Option<std::net::SocketAddr>,
    ) -> State {
        self.site.heads.set_memory(config.memory);
        let router = self.site.router(&config, &peering);
        let Places { ports, entrances, closed_ports, closed_entrances } = places;
        let open_port = |place| match place {
            Place::Kept(port) => port,
            Place::New(bound) => self.site.open_port(&self.report.tunnel, bound),
        };
        let open_entrance = |(intercept, place): (&config::Intercept, _)| match place {
            Place::Kept(entrance) => {
                let entrance: Arc<Entrance> = entrance;
                entrance.set_door(entrance.door().changed(intercept.clone(), Arc::clone(&router)));
                entrance
            }
            Place::New(bound) => self.site.open_entrance(intercept, &router, bound),
        };
        let ports = ports.into_iter().map(open_port).collect();
        let entrances = config.intercepts.iter().zip(entrances).map(open_entrance).collect();
        for port in closed_ports {
            port.close();
            self.site.own.remove(port.address);
        }
        for entrance in closed_entrances {
            entrance.close();
            entrance.addresses().for_each(|address| self.site.own.remove(address));
        }
        State { config, peers, peering, entrances, ports, admin }
    }
}

impl Changing<'_> {
    /// Ends removed or changed peers, and starts added or changed ones.
    pub(super) async fn change_peers(
        &self,
        old: &State,
        config: &Arc<Config>,
        lanes: &[LaneOptions],
        done: &mut Reloaded,
    ) -> Result<Vec<Arc<Peer>>, StartError> {
        let kept: Vec<Option<Arc<Peer>>> =
            config.peers.iter().map(|peer| still_there(old, config, peer, done)).collect();
        let stays = |peer: &Arc<Peer>| kept.iter().flatten().any(|kept| Arc::ptr_eq(kept, peer));
        let gone: Vec<_> = old.peers.iter().filter(|peer| !stays(peer)).cloned().collect();
        for peer in gone.iter().filter(|gone| config.peers.iter().all(|peer| peer.name != gone.name())) {
            done.changes.push(format!("peer {} removed", peer.name()));
        }
        if kept.iter().any(Option::is_none) || !gone.is_empty() {
            // First: no connection may reach an ending peer. Connections of a restarting peer wait for it.
            let comes_again = |peer: &&Arc<Peer>| {
                let mut wanted = config.peers.iter().flat_map(|wanted| &wanted.public_keys);
                wanted.any(|key| peer.settings.keys.contains(key))
            };
            let known = kept.iter().flatten().chain(gone.iter().filter(comes_again));
            self.report.tunnel.set_guests(self.site.guests(config, known)?);
        }
        self.end(&gone).await;
        let mut logs = self.logs_of_new(config, &kept).await.into_iter();
        let mut peers = Vec::new();
        for ((settings, lanes), kept) in config.peers.iter().zip(lanes).zip(&kept) {
            peers.push(match kept {
                Some(peer) => {
                    peer.set_onward(self.site.onward(config, settings));
                    peer.announce(settings.told.clone());
                    settings.group.iter().for_each(|group| peer.rename_group(&group.name));
                    Arc::clone(peer)
                }
                None => {
                    // Discovered peers have no persisted logs.
                    let logs = if settings.found { None } else { logs.next() };
                    self.site.peer(config, settings, lanes.clone(), logs.unwrap_or_default())?
                }
            });
        }
        self.report.tunnel.set_guests(self.site.guests(config, peers.iter())?);
        Ok(peers)
    }

    /// Ends peers as a shutdown does, with all their flows, and closes their logs.
    async fn end(&self, peers: &[Arc<Peer>]) {
        peers.iter().for_each(|peer| peer.drain_flows(false));
        end_links(peers).await;
        save_hints(peers).await;
        peers.iter().for_each(|peer| peer.end());
        let closing: Vec<_> = peers.iter().filter_map(|peer| peer.logs.close()).collect();
        if let Some(logs) = self.logs {
            logs.closed(closing).await;
        }
    }

    /// Opens the logs of starting peers, one entry for each.
    async fn logs_of_new(&self, config: &Config, kept: &[Option<Arc<Peer>>]) -> Vec<PeerLogs> {
        let new = config.peers.iter().zip(kept).filter(|(peer, kept)| kept.is_none() && !peer.found);
        let owners: Vec<_> = new.map(|(peer, _)| log_owner(peer)).collect();
        match self.logs {
            Some(logs) if !owners.is_empty() => logs.open_more(owners).await,
            _ => Vec::new(),
        }
    }
}

/// Lists the changed settings of the gateway as a whole.
fn note_settings(old: &Config, config: &Config, done: &mut Reloaded) {
    let (was, is) = (&old.gateway, &config.gateway);
    let changed = [
        (was.log_level != is.log_level, "the log level changed"),
        (old.policies != config.policies, "the policies changed"),
        (was.keepalive != is.keepalive, "`keepalive` changed"),
        (was.drain != is.drain, "`drain` changed"),
        (old.log_idle != config.log_idle, "`log_idle` changed"),
        (
            old.memory != config.memory,
            "`memory` changed: logs and flows have it at once; hints and contexts once their link starts anew",
        ),
    ];
    done.changes.extend(changed.iter().filter(|(changed, _)| *changed).map(|(_, line)| (*line).to_owned()));
}

/// Returns the running peer if its link can stay unchanged, and lists its changes.
fn still_there(
    old: &State,
    config: &Config,
    wanted: &config::Peer,
    done: &mut Reloaded,
) -> Option<Arc<Peer>> {
    let name = &wanted.name;
    let mut known = old.config.peers.iter().zip(&old.peers);
    let Some((before, peer)) = known.find(|(peer, _)| peer.name == *name) else {
        done.changes.push(format!("peer {name} added"));
        return None;
    };
    let key = |peer: &config::Peer| peer.group.as_ref().map(|group| group.key.clone());
    let same_group = key(before) == key(wanted);
    let same_link = config::Peer {
        // Its name is our word for it.
        group: if same_group { wanted.group.clone() } else { before.group.clone() },
        access: wanted.access.clone(),
        allow_sources: wanted.allow_sources.clone(),
        networks: wanted.networks.clone(),
        accept_networks: wanted.accept_networks.clone(),
        told: wanted.told.clone(),
        // Shares of the memory differ with the number of peers; logs get theirs every second, the rest stays.
        memory: wanted.memory,
        // Counts only if chunks are named.
        settings: CodecSettings { hint_memory: wanted.settings.hint_memory, ..before.settings.clone() },
        ..before.clone()
    } == *wanted;
    if !same_link || sets_other_memory(old, config, wanted, peer) {
        done.changes.push(format!("peer {name} changed; its link starts anew"));
        return None;
    }
    if asks_for_more(config, wanted, peer) {
        done.changes
            .push(format!("a policy asks for what the link to {name} was not made with; it starts anew"));
        return None;
    }
    let fronts = |peer: &config::Peer| (peer.networks.clone(), peer.accept_networks.clone());
    let sources = before.allow_sources != wanted.allow_sources;
    if sources || before.access != wanted.access || fronts(before) != fronts(wanted) {
        done.changes.push(format!("what peer {name} may reach, or stands for, changed"));
    }
    if before.group != wanted.group {
        done.changes.push(format!("the group of peer {name} has another name"));
    }
    if before.told != wanted.told {
        done.changes.push(format!("what peer {name} is told that we front changed"));
    }
    Some(Arc::clone(peer))
}

/// Whether the set memory of a peer's link differs from its creation. A discovered peer has its own.
fn sets_other_memory(old: &State, config: &Config, wanted: &config::Peer, running: &Peer) -> bool {
    let (was, is) = (old.config.set_memory, config.set_memory);
    let hints = was.hint_memory != is.hint_memory && running.settings.link.names.is_some();
    !wanted.found && (was.flow_memory != is.flow_memory || hints)
}

/// Whether policies need features missing in this link since its creation. It may have been made for policies
/// of the past.
fn asks_for_more(config: &Config, wanted: &config::Peer, running: &Peer) -> bool {
    let (policies, name, link) = (&config.policies, &wanted.name, &running.settings.link);
    let names = policies.name_chunks(name, wanted.settings.usual());
    let bytes_for_max_match = policies.matchings(name, wanted.settings.plan()).max;
    let plans = policies.plans(name, wanted.settings.plan()).map(|(_, plan)| plan);
    let contexts = ContextMemory::of(plans.map(|plan| plan.entropy));
    let made_for = [link.plan].into_iter().chain(link.other_plans.iter().copied());
    // Discovered peers have none.
    let fits = wanted.found || contexts.fits_in(ContextMemory::of(made_for.map(|plan| plan.entropy)));
    names && link.names.is_none() || bytes_for_max_match && !link.keeps_bytes || !fits
}

/// Returns the wanted configuration with all start-only settings unchanged.
fn settle(old: &Config, wanted: Config, done: &mut Reloaded) -> Config {
    let (was, is) = (&old.gateway, &wanted.gateway);
    let (had, has) = (old.store.as_ref(), wanted.store.as_ref());
    let stores = had.zip(has);
    let other_index =
        stores.is_some_and(|(had, has)| had.disk == has.disk && had.index_memory != has.index_memory);
    let discovery = old.discovery.clone().map(|looked| renamed(looked, &wanted));
    let (looked, looks) = (discovery.as_ref(), wanted.discovery.as_ref());
    let differ = [
        ("`name` in [gateway]", was.name != is.name),
        ("`key_file` in [gateway]", was.identity.public_key() != is.identity.public_key()),
        ("`state` in [gateway]", was.state != is.state),
        ("`encrypt_key_file` in [gateway]", was.encrypt_key != is.encrypt_key),
        ("`admin` in [gateway]", was.admin != is.admin),
        ("`user` in [gateway]", was.user != is.user),
        ("`watchdog` in [gateway]", was.watchdog != is.watchdog),
        ("`site` in [gateway]", was.site != is.site),
        ("`discover_port` in [gateway]", looked.map(|of| of.port) != looks.map(|of| of.port)),
        ("`discover` in [[group]]", looked.map(|of| &of.groups) != looks.map(|of| &of.groups)),
        ("`store_disk` in [cache]", had.map(|of| of.disk) != has.map(|of| of.disk)),
        ("`store_path` in [cache]", stores.is_some_and(|(had, has)| had.path != has.path)),
        ("`store_index_memory` in [cache]", other_index && old.memory == wanted.memory),
        // Easily overlooked on a change of `memory`.
        (
            "`store_index_memory` in [cache] (of `memory`, where it is not set)",
            other_index && old.memory != wanted.memory,
        ),
        (
            "`store_read_latency` in [cache]",
            stores.is_some_and(|(had, has)| had.read_latency != has.read_latency),
        ),
    ];
    done.at_next_start.extend(differ.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key));
    let gateway = config::Gateway {
        listen: is.listen.clone(),
        drain: is.drain,
        keepalive: is.keepalive,
        log_level: is.log_level,
        announce: is.announce.clone(),
        rule_priority: is.rule_priority,
        mark: is.mark,
        ..was.clone()
    };
    let logs = kept_log_sizes(old, &wanted);
    let is_kept =
        |peer: &config::Peer| logs.get(&peer.name).is_some_and(|&size| size != peer.settings.log_memory);
    if wanted.peers.iter().any(is_kept) {
        done.at_next_start.push("`log_memory` in [cache] (of `memory` and peers, where it is not set)");
    }
    // Start-only settings take their part of the memory until the next start.
    let wanted = Config { gateway, ..wanted }.keeping(old.store.clone(), discovery, &logs);
    // Discovered peers stay, unless the file names them.
    let named = |peer: &config::Peer| peer.public_keys.iter().any(|key| wanted.peer_of_key(key).is_some());
    let found = old.peers.iter().filter(|peer| peer.found && !named(peer)).cloned().map(|mut peer| {
        peer.group = peer.group.map(|group| wanted.called_now(&group));
        peer
    });
    let found: Vec<_> = found.collect();
    let peers = wanted.peers.iter().cloned().chain(found).collect();
    Config { peers, ..wanted }
}

/// Sizes of running logs without a set size: another number of peers would change them, and each link would
/// start anew.
fn kept_log_sizes(old: &Config, wanted: &Config) -> KeptLogs {
    if old.set_memory.logs || wanted.set_memory.logs {
        return KeptLogs::new();
    }
    let is_wanted = |peer: &&config::Peer| wanted.peers.iter().any(|wanted| wanted.name == peer.name);
    let kept = old.peers.iter().filter(is_wanted);
    kept.map(|peer| (peer.name.clone(), peer.settings.log_memory)).collect()
}

/// Renames discovery's groups after another configuration.
fn renamed(mut looked: config::Discovery, config: &Config) -> config::Discovery {
    for of in &mut looked.groups {
        of.group = config.called_now(&of.group);
    }
    looked
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_keys::Identity;

    #[test]
    fn index_of_a_staying_store_keeps_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        let peer = Identity::from_seed([1; 32]).public_key();
        let parse = |cache: &str| {
            let text = format!(
                "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nstate = \"state\"\n\
                 [[peer]]\nname = \"b\"\npublic_key = \"{peer}\"\naddress = \"h:1\"\n[cache]\n{cache}"
            );
            Config::parse(&text, &dir.path().join("a.toml")).unwrap()
        };
        // 8 MiB of it are for the index, and logs could use more than is left.
        let (plain, more) = ("memory = \"96 MiB\"\n", "memory = \"98 MiB\"\n");
        let store = "store_disk = \"1 GiB\"\nstore_index_memory = \"8 MiB\"\n";
        let stored = |memory: &str| parse(&format!("{memory}{store}"));
        let old = stored(plain);
        assert!(old.log_budget.contested && parse(plain).log_budget.bytes > old.log_budget.bytes);
        let mut done = Reloaded::default();
        for memory in [plain, more] {
            let settled = settle(&old, parse(memory), &mut done);
            assert_eq!(settled.log_budget, stored(memory).log_budget);
            assert_eq!(settled.peers[0].memory, stored(memory).peers[0].memory);
        }
        assert_eq!(done.at_next_start, ["`store_disk` in [cache]"; 2]);
        // By default the index has an eighth of the memory, and an existing one keeps its size.
        let by_default = |memory: &str| parse(&format!("memory = \"{memory}\"\nstore_disk = \"8 GiB\"\n"));
        let (old, wanted) = (by_default("512 MiB"), by_default("1 GiB"));
        let mut said = Reloaded::default();
        let settled = settle(&old, wanted, &mut said);
        assert_eq!(settled.store, old.store);
        let line = "`store_index_memory` in [cache] (of `memory`, where it is not set)";
        assert_eq!(said.at_next_start, [line]);
        // A configuration too small beside the index gets its minimum until the start.
        let least = parse("memory = \"32 MiB\"\nlog_memory = \"1 MiB\"\n");
        assert_eq!(settle(&old, least, &mut done).log_budget.bytes, 0);
    }

    #[test]
    fn links_keep_their_log_sizes_when_peers_are_added() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        let parse = |peers: u8, cache: &str| {
            let mut text = format!(
                "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nlisten = \"127.0.0.1:1\"\n\
                 [cache]\nmemory = \"256 MiB\"\n{cache}"
            );
            for peer in 1..=peers {
                let key = Identity::from_seed([peer; 32]).public_key();
                text += &format!("[[peer]]\nname = \"b{peer}\"\npublic_key = \"{key}\"\n");
            }
            Config::parse(&text, &dir.path().join("a.toml")).unwrap()
        };
        let sizes = |config: &Config| {
            config.peers.iter().map(|peer| peer.settings.log_memory >> 20).collect::<Vec<_>>()
        };
        let (few, many) = (parse(2, ""), parse(20, ""));
        let mut done = Reloaded::default();
        let settled = settle(&few, many.clone(), &mut done);
        assert_eq!(sizes(&settled)[..3], [64, 64, sizes(&many)[2]]);
        assert!(sizes(&many)[2] < 64, "{:?}", sizes(&many));
        let memory = settled.peers.iter().map(|peer| peer.memory.total()).sum::<u64>();
        assert!(memory <= 256 << 20, "tables of logs that stay have their part: {memory}");
        let table = |config: &Config| config.peers[0].memory.table;
        assert!(table(&settled) == table(&few) && table(&settled) > table(&many));
        let line = "`log_memory` in [cache] (of `memory` and peers, where it is not set)";
        assert_eq!(done.at_next_start, [line]);
        assert_eq!(sizes(&settle(&many, few.clone(), &mut done)), sizes(&many)[..2]);
        // Set sizes hold.
        let set = parse(2, "log_memory = \"8 MiB\"\n");
        assert_eq!(sizes(&settle(&few, set.clone(), &mut done)), [8, 8]);
        assert_eq!(sizes(&settle(&set, few, &mut done)), [64, 64]);
    }
}
