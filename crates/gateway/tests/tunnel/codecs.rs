//! Gateways with other codecs than EndRE's, as a program that embeds them starts them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use oncewire_config::Config;
use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;
use oncewire_link::{CodecFactory, Endre};
use tempfile::TempDir;

use crate::common::{LIMIT, Origin, branch_config, exchange, forward, hub_config, noise, until, within};
use crate::raw::raw;

type Codecs = Vec<Arc<dyn CodecFactory>>;

/// A branch in front of an origin, and a hub, each with its codecs.
async fn start(branch: Codecs, hub: Codecs, origin: SocketAddr) -> (Gateway, Gateway, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
    let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
    let hub = start_one(dir.path(), &hub_config(branch_key, ""), hub).await;
    let address = hub.local_addrs().tunnel[0];
    let branch = start_one(dir.path(), &branch_config(hub_key, address, &forward(origin)), branch).await;
    (branch, hub, dir)
}

async fn start_one(dir: &Path, config: &str, codecs: Codecs) -> Gateway {
    let config = Config::parse(config, &dir.join("oncewire.toml")).unwrap_or_else(|error| panic!("{error}"));
    Gateway::start_with_codecs(config, codecs).await.unwrap()
}

fn endre() -> Arc<dyn CodecFactory> {
    Arc::new(Endre)
}

/// Sends the same bytes twice through the pair; returns the bytes of lanes and of copies.
async fn send_twice(branch: &Gateway) -> (u64, u64) {
    assert!(branch.wait_up("hub", LIMIT).await, "no link");
    let bytes = noise(7, 1 << 20);
    for _ in 0..2 {
        let stream = tokio::net::TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
        assert!(exchange(stream, &bytes).await.unwrap() == bytes);
    }
    let peer = branch.status().peers.remove(0);
    (peer.wire, peer.delivered)
}

#[tokio::test]
async fn raw_codec_carries_flows_between_gateways() {
    within(async {
        let origin = Origin::echo().await;
        let (branch, _hub, _dir) = start(vec![raw()], vec![raw()], origin.address).await;
        let (wire, delivered) = send_twice(&branch).await;
        assert!(wire > delivered, "{wire} for {delivered}: raw blocks save nothing");
    })
    .await;
}

#[tokio::test]
async fn gateways_with_different_codecs_use_the_shared_one() {
    within(async {
        let origin = Origin::echo().await;
        let (branch, _hub, _dir) = start(vec![raw(), endre()], vec![endre()], origin.address).await;
        let (wire, delivered) = send_twice(&branch).await;
        assert!(wire < delivered, "{wire} for {delivered}: what repeats is copied");
    })
    .await;
}

#[tokio::test]
async fn gateways_without_shared_codec_say_so_at_both_ends() {
    within(async {
        let origin = Origin::echo().await;
        let (branch, hub, _dir) = start(vec![raw()], vec![endre()], origin.address).await;
        let reason = |gateway: &Gateway| gateway.status().peers.remove(0).state_reason;
        for (gateway, told) in [
            (&branch, "no codec in common: the peer has 1 (endre), this gateway 65280"),
            (&hub, "no codec in common: the peer has 65280, this gateway 1 (endre)"),
        ] {
            until(|| reason(gateway).is_some_and(|reason| reason.contains(told))).await;
        }
    })
    .await;
}

#[tokio::test]
async fn list_without_codec_keeps_a_gateway_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let [key, _] =
        ["branch.key", "hub.key"].map(|file| Identity::create(&dir.path().join(file)).unwrap().public_key());
    let config = Config::parse(&hub_config(key, ""), &dir.path().join("oncewire.toml")).unwrap();
    let failed = Gateway::start_with_codecs(config, Vec::new()).await.err().unwrap();
    assert!(failed.to_string().starts_with("a link needs 1 to 8 codecs"), "{failed}");
}
