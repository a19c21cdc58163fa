//! From the configuration's terms to those of links and sockets.

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_link::LinkConfig;

use crate::config::{Config, Peer};
use crate::sockets::LaneOptions;
use crate::tunnel::dialer;

/// Makes the settings of one peer's link; `instance` is this process's.
pub(super) fn link_config(config: &Config, peer: &Peer, instance: u64) -> LinkConfig {
    let ours = config.gateway.identity.public_key();
    LinkConfig {
        instance,
        secret: dialer::random(),
        first: peer.public_keys.iter().all(|theirs| ours < *theirs),
        dialer: peer.address.is_some(),
        log_capacity: peer.settings.log_memory,
        max_in_flight: Some(peer.settings.in_flight()),
        entropy: peer.settings.entropy,
        contexts: u32::try_from(peer.memory.contexts / CONTEXT_PAIR).unwrap_or(u32::MAX).max(1),
        params: MatchParams { period: peer.settings.period as usize, window: peer.settings.window as usize },
        max_lanes: peer.link.max_lanes,
        flow_memory: peer.memory.flows,
        resume_window: peer.link.resume_window,
        dead_after: peer.link.dead_after,
        ..LinkConfig::default()
    }
}

/// Makes the options of each peer's lanes, and says once which congestion controls the kernel lacks.
pub(super) fn lane_options(config: &Config) -> Vec<LaneOptions> {
    let mut missing = Vec::new();
    let options = config.peers.iter().map(|peer| {
        let mut options =
            LaneOptions { congestion: Some(peer.link.congestion.clone()), ..LaneOptions::default() };
        options.user_timeout = peer.link.dead_after.unwrap_or(options.user_timeout);
        if let Err(refused) = options.probe()
            && !missing.contains(&peer.link.congestion)
        {
            match peer.link.congestion_chosen {
                true => tracing::warn!("{refused}"),
                false => tracing::info!("{refused}"),
            }
            missing.push(peer.link.congestion.clone());
        }
        options
    });
    options.collect()
}

/// What one streaming context takes, for encoding and for decoding.
const CONTEXT_PAIR: u64 = 2 << 20;
