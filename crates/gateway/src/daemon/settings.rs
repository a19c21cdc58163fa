//! Translation of the configuration into settings of links and sockets.

use std::collections::BTreeSet;
use std::fmt::Display;

use parking_lot::Mutex;

use oncewire_config::{Config, ContextMemory, Peer};
use oncewire_link::LinkConfig;
use oncewire_tunnel::dialer;
use oncewire_tunnel::lane::options::{LaneOptions, kernel_patience};

/// Makes the settings of one peer's link; `instance` is new with every link.
pub(super) fn link_config(config: &Config, peer: &Peer, instance: u64) -> LinkConfig {
    let ours = config.gateway.identity.public_key();
    LinkConfig {
        instance,
        secret: dialer::random(),
        first: peer.public_keys.iter().all(|theirs| ours < *theirs),
        dialer: peer.address.is_some(),
        log_capacity: peer.settings.log_memory,
        max_in_flight: peer.settings.max_in_flight,
        plan: peer.settings.plan(),
        other_plans: config.policies.plans(&peer.name, peer.settings.plan()).map(|(_, plan)| plan).collect(),
        adapt: peer.adapt,
        contexts: contexts(config, peer),
        initial_credit: LinkConfig::initial_credit_of(peer.memory.flows),
        params: peer.settings.params(),
        keeps_bytes: config.policies.matchings(&peer.name, peer.settings.plan()).max,
        rate_limit: peer.link.rate_limit,
        bulk_after: peer.link.bulk_after,
        max_lanes: peer.link.max_lanes,
        shed: peer.link.shed,
        flow_memory: peer.memory.flows,
        resume_window: peer.link.resume_window,
        dead_after: peer.link.dead_after,
        ..LinkConfig::default()
    }
}

/// Lines logged about this machine: neither a reload nor a discovered gateway repeats them.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<BTreeSet<String>>);

impl Said {
    /// Whether a line is to be logged. Their number is bounded by the settings the machine cannot meet.
    fn is_new(&self, line: &impl Display) -> bool {
        self.0.lock().insert(line.to_string())
    }
}

/// Makes the options of each peer's lanes, and logs features missing in the kernel, each line once.
pub(super) fn lane_options(config: &Config, said: &Said) -> Vec<LaneOptions> {
    let options = config.peers.iter().map(|peer| {
        let mut options =
            LaneOptions { congestion: Some(peer.link.congestion.clone()), ..LaneOptions::default() };
        options.user_timeout = peer.link.dead_after.map_or(options.user_timeout, kernel_patience);
        if let Some(rate) = peer.link.rate_limit {
            options.fit(rate);
            if let Err(refused) = options.probe_buffers()
                && said.is_new(&refused)
            {
                tracing::warn!(peer = peer.name, "{refused}");
            }
        }
        if let Err(refused) = options.probe()
            && said.is_new(&refused)
        {
            match peer.link.congestion_chosen {
                true => tracing::warn!("{refused}"),
                false => tracing::info!("{refused}"),
            }
        }
        options
    });
    options.collect()
}

/// Number of streaming contexts in their memory, beside the one for blocks alone.
fn contexts(config: &Config, peer: &Peer) -> u32 {
    if peer.found {
        // No flow takes it.
        return 0;
    }
    let plans = config.policies.plans(&peer.name, peer.settings.plan());
    let contexts = ContextMemory::of(plans.map(|(_, plan)| plan.entropy));
    u32::try_from(contexts.streams_in(peer.memory.contexts)).unwrap_or(u32::MAX).min(MOST_CONTEXTS)
}

/// More contexts than active flows with a lane of their own are of no use.
const MOST_CONTEXTS: u32 = 256;

#[cfg(test)]
mod tests {
    use oncewire_codec::entropy::Entropy;

    use super::*;
    use oncewire_keys::GroupKey;
    use oncewire_keys::Identity;

    #[test]
    fn missing_kernel_features_are_logged_once() {
        let said = Said::default();
        assert!(said.is_new(&"no bbr") && !said.is_new(&"no bbr") && said.is_new(&"no cubic"));
    }

    #[test]
    fn discovered_peers_stay_within_their_memory() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        GroupKey::create(&dir.path().join("group.key")).unwrap();
        // The flow memory of configured peers is of no concern.
        let text = "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nlisten = \"127.0.0.1:1\"\nsite = \"s\"\n\
                    state = \"state\"\n[codec]\nentropy = \"zstd:19\"\n[cache]\nstore_disk = \"64 MiB\"\n\
                    [[group]]\nname = \"all\"\nkey_file = \"group.key\"\ndiscover = []\n";
        let config = Config::parse(text, &dir.path().join("a.toml")).unwrap();
        let found = config.discovery.as_ref().unwrap().found.clone();
        assert_eq!(link_config(&config, &found, 1).contexts, 0);
        assert_eq!(found.memory.contexts, Entropy::DECODING_ALONE);
    }

    /// A gateway with a dialled peer, and more.
    fn config(more: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("a.key")).unwrap();
        let peer = Identity::from_seed([1; 32]).public_key();
        let text = format!(
            "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"{peer}\"\naddress = \"h:1\"\n{more}"
        );
        Config::parse(&text, &dir.path().join("a.toml")).unwrap()
    }

    #[test]
    fn in_flight_limit_follows_the_agreed_log_size() {
        for (more, max_in_flight) in [("", None), ("max_in_flight = \"1 MiB\"", Some(1 << 20))] {
            let config = config(&format!("[link]\n{more}"));
            assert_eq!(link_config(&config, &config.peers[0], 1).max_in_flight, max_in_flight);
        }
    }

    #[test]
    fn kernel_outlasts_the_patience_of_the_link() {
        for dead_after in ["", "dead_after = \"1 s\"", "dead_after = \"1 h\""] {
            let config = config(&format!("[link]\n{dead_after}"));
            let silence = link_config(&config, &config.peers[0], 1).dead_after;
            let lanes = lane_options(&config, &Said::default());
            assert!(lanes[0].user_timeout > silence.unwrap_or(LinkConfig::LONGEST_SILENCE), "{dead_after}");
        }
    }
}
