//! A branch and two hubs: choice of the hub, and unclaimed flows.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use oncewire_gateway::daemon::Gateway;
use oncewire_keys::{Identity, PublicKey};
use oncewire_report::{NetworkReport, NotCoded, Outcome, PeerReport, Reason};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{LIMIT, Origin, exchange, expect_refused, start, until, within};

/// A branch with links to two hubs.
struct Star {
    hubs: Vec<Gateway>,
    branch: Gateway,
    branch_key: PublicKey,
    dir: TempDir,
}

/// Differences between the hubs: keys of `[gateway]` and of `[[peer]]` there, and of `[[peer]]` at the
/// branch.
struct Hub<'a> {
    gateway: &'a str,
    peer: &'a str,
    at_branch: &'a str,
}

/// A hub with announced networks, all accepted by the branch.
fn fronts(announce: &str) -> Hub<'_> {
    Hub { gateway: announce, peer: "", at_branch: "accept_networks = [\"0.0.0.0/0\"]" }
}

impl Star {
    async fn start(hubs: &[Hub<'_>], intercepts: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let mut config = "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n\
                          [cache]\nmemory = \"256 MiB\"\nlog_memory = \"1 MiB\"\n"
            .to_owned();
        let mut started = Vec::new();
        for (at, hub) in hubs.iter().enumerate() {
            let key = Identity::create(&dir.path().join(format!("hub{at}.key"))).unwrap().public_key();
            let listen = "127.0.0.1:0".parse().unwrap();
            let gateway = start_hub(dir.path(), at, listen, branch_key, hub).await;
            let address = gateway.local_addrs().tunnel[0];
            let _ = writeln!(
                config,
                "[[peer]]\nname = \"hub{at}\"\npublic_key = \"{key}\"\naddress = \"{address}\"\n{}",
                hub.at_branch
            );
            started.push(gateway);
        }
        let branch = start(dir.path(), &(config + intercepts)).await.unwrap();
        for at in 0..hubs.len() {
            assert!(branch.wait_up(&format!("hub{at}"), LIMIT).await, "no link");
        }
        until(|| branch.status().peers.iter().all(|peer| peer.networks.iter().any(|net| net.announced)))
            .await;
        Self { hubs: started, branch, branch_key, dir }
    }

    fn peer(&self, at: usize) -> PeerReport {
        self.branch.status().peers.remove(at)
    }

    /// Sends bytes through the branch's interception of this number, and returns each hub's number of flows
    /// for it.
    async fn flow(&self, intercept: usize) -> Vec<u64> {
        let flows =
            |star: &Self| star.branch.status().peers.iter().map(|peer| peer.flows_total).collect::<Vec<_>>();
        let before = flows(self);
        let stream = TcpStream::connect(self.branch.local_addrs().intercepts[intercept]).await.unwrap();
        assert_eq!(exchange(stream, b"hello").await.unwrap(), b"hello");
        flows(self).iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

async fn start_hub(dir: &Path, at: usize, listen: SocketAddr, branch: PublicKey, hub: &Hub<'_>) -> Gateway {
    let config = format!(
        "[gateway]\nname = \"hub{at}\"\nkey_file = \"hub{at}.key\"\nlisten = \"{listen}\"\n{}\n\
         [[peer]]\nname = \"branch\"\npublic_key = \"{branch}\"\n{}\n\
         [cache]\nmemory = \"256 MiB\"\nlog_memory = \"1 MiB\"\n",
        hub.gateway, hub.peer
    );
    start(dir, &config).await.unwrap()
}

fn auto(target: SocketAddr, more: &str) -> String {
    format!(
        "[[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\npeer = \"auto\"\n{more}\n"
    )
}

fn network(network: &str, announced: bool, reason: Option<&str>) -> NetworkReport {
    NetworkReport {
        network: network.to_owned(),
        announced,
        used: reason.is_none(),
        reason: reason.map(str::to_owned),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_moves_when_a_hub_takes_no_new_flows() {
    within(async {
        let origin = Origin::echo_on("127.1.0.1:0").await;
        let hubs = [fronts("announce = [\"127.0.0.0/8\"]"), fronts("announce = [\"127.1.0.0/16\"]")];
        let mut star = Star::start(&hubs, &auto(origin.address, "")).await;
        let mut open = TcpStream::connect(star.branch.local_addrs().intercepts[0]).await.unwrap();
        open.write_all(b"1").await.unwrap();
        assert_eq!(open.read_u8().await.unwrap(), b'1');
        assert_eq!(star.peer(1).flows_open, 1, "the longer prefix");
        let stopping = tokio::spawn(star.hubs.pop().unwrap().shutdown(LIMIT));
        until(|| star.peer(1).state.name() == "draining").await;
        for _ in 0..10 {
            assert_eq!(star.flow(0).await, [1, 0], "the other one fronts it too");
        }
        assert_eq!(star.peer(1).flows_open, 1);
        assert_eq!(exchange(open, b"the end").await.unwrap(), b"the end");
        stopping.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_leaves_a_dead_hub_and_returns_late() {
    within(async {
        let near = Origin::echo_on("127.1.0.1:0").await;
        let far = Origin::echo_on("127.2.0.1:0").await;
        let hubs = [fronts("announce = [\"127.0.0.0/8\"]"), fronts("announce = [\"127.1.0.0/16\"]")];
        let mut star = Star::start(&hubs, &(auto(near.address, "") + &auto(far.address, ""))).await;
        assert_eq!(star.flow(0).await, [0, 1], "the longer prefix");
        assert_eq!(star.flow(1).await, [1, 0], "the only one");
        assert_eq!(star.peer(1).networks, [network("127.1.0.0/16", true, None)]);

        let dead = star.hubs.pop().unwrap();
        let address = dead.local_addrs().tunnel[0];
        drop(dead);
        until(|| star.peer(1).state.name() != "up").await;
        assert_eq!(star.flow(0).await, [1, 0], "the other one fronts it too");

        let back = Instant::now();
        let again = start_hub(star.dir.path(), 1, address, star.branch_key, &hubs[1]).await;
        assert!(star.branch.wait_up("hub1", LIMIT).await);
        let flow = star.flow(0).await;
        // Ten seconds are a while; a machine standing still for them has seen it stay.
        assert!(flow == [1, 0] || back.elapsed() > Duration::from_secs(9), "{flow:?}: it must stay up first");
        drop(star.hubs.pop().unwrap());
        until(|| star.peer(0).state.name() != "up").await;
        assert_eq!(star.flow(0).await, [0, 1], "unless there is nobody else");
        drop(again);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unclaimed_destinations_go_direct_or_are_refused() {
    within(async {
        let origin = Origin::echo_on("127.3.0.1:0").await;
        let intercepts = auto(origin.address, "on_peer_loss = \"direct\"") + &auto(origin.address, "");
        let hub = fronts("announce = [\"127.1.0.0/16\"]");
        let star = Star::start(&[hub], &intercepts).await;
        assert_eq!(star.flow(0).await, [0]);
        expect_refused(star.branch.local_addrs().intercepts[1]).await;
        let mut rows = star.branch.status().flows_not_coded;
        rows.sort_by_key(|row| row.outcome);
        let told: Vec<_> =
            rows.iter().map(|row| (row.peer.clone(), row.outcome, row.reason, row.count)).collect();
        let expected =
            [(None, Outcome::Direct, Reason::NoPeer, 1), (None, Outcome::Refused, Reason::NoPeer, 1)];
        assert_eq!(told, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_draws_only_permitted_traffic() {
    within(async {
        let origin = Origin::echo_on("127.1.0.1:0").await;
        let greedy = "announce = [\"0.0.0.0/0\", \"127.1.0.1/32\", \"127.5.0.0/16\"]";
        let hubs = [
            Hub { gateway: greedy, peer: "", at_branch: "accept_networks = [\"127.5.0.0/16\"]" },
            Hub { gateway: greedy, peer: "", at_branch: "networks = [\"127.1.0.0/16\"]" },
        ];
        let star = Star::start(&hubs, &auto(origin.address, "")).await;
        assert_eq!(star.flow(0).await, [0, 1]);
        let not = Some("accept_networks does not hold it");
        let of_first = [
            network("0.0.0.0/0", true, not),
            network("127.1.0.1/32", true, not),
            network("127.5.0.0/16", true, None),
        ];
        assert_eq!(star.peer(0).networks, of_first);
        assert_eq!(star.peer(1).networks[0], network("127.1.0.0/16", false, None));
        assert!(star.peer(1).networks[1..].iter().all(|network| network.announced && !network.used));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_networks_are_neither_announced_nor_reached() {
    within(async {
        let origin = Origin::echo_on("127.1.0.1:0").await;
        let hub = Hub {
            gateway: "announce = [\"127.1.0.0/16\", \"127.0.0.0/8\"]",
            peer: "deny = [\"127.1.0.0/16\"]",
            at_branch: "accept_networks = [\"0.0.0.0/0\"]",
        };
        let star = Star::start(&[hub], &auto(origin.address, "")).await;
        assert_eq!(star.peer(0).networks, [network("127.0.0.0/8", true, None)]);
        expect_refused(star.branch.local_addrs().intercepts[0]).await;
        let refused = || star.hubs[0].status().gateway.refused;
        until(|| refused().iter().any(|row| row.reason == "not_allowed_to" && row.count == 1)).await;
        let denied = NotCoded {
            peer: Some(star.peer(0).name),
            destination: origin.address.to_string(),
            outcome: Outcome::Refused,
            reason: Reason::NotAllowed,
            count: 1,
            bytes: 0,
        };
        assert_eq!(star.branch.status().flows_not_coded, [denied]);
    })
    .await;
}
