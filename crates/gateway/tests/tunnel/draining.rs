//! A draining gateway, seen from the other end.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use oncewire_config::Config;
use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;
use oncewire_report::{LinkState, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::common::{
    LIMIT, Origin, Pair, branch_config, exchange, expect_refused, forward, hub_config, noise, proxy, start,
    until, within,
};

/// Begins to stop a gateway; it takes no new flows once this returns, and goes on for as long as it is
/// polled.
fn begin(stopping: &mut Pin<&mut impl Future<Output = ()>>) {
    assert!(stopping.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

async fn echoes(stream: &mut TcpStream, byte: u8) {
    stream.write_all(&[byte]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), byte);
}

/// A `forward` with direct connections while the peer is gone.
fn or_direct(target: SocketAddr) -> String {
    format!("{}on_peer_loss = \"direct\"\n", forward(target))
}

/// Number of a gateway's direct connections for want of its peer.
fn by_itself(gateway: &Gateway) -> u64 {
    let rows = gateway.status().flows_not_coded;
    rows.iter().filter(|row| row.reason == Reason::PeerLost).map(|row| row.count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_hub_keeps_open_flows_and_sends_new_ones_direct() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&or_direct(origin.address)).await;
        let address = pair.branch.local_addrs().intercepts[0];
        let mut open = pair.connect().await;
        echoes(&mut open, 1).await;
        let mut stopping = pin!(pair.hub.shutdown(LIMIT));
        begin(&mut stopping);
        let clients = async {
            for round in 0..50 {
                let client = TcpStream::connect(address).await.unwrap();
                assert_eq!(exchange(client, &[round]).await.unwrap(), [round]);
                echoes(&mut open, round).await;
            }
            assert_eq!(by_itself(&pair.branch), 50);
            let peer = pair.branch.status().peers.remove(0);
            assert_eq!((peer.state, peer.flows_open), (LinkState::Draining, 1));
            assert!(peer.state_reason.unwrap().contains("takes no new flows"));
            assert_eq!(exchange(open, b"the end").await.unwrap(), b"the end");
        };
        tokio::join!(stopping, clients);
        // Gone for good by now, without a wait.
        let client = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(client, b"after").await.unwrap(), b"after");
        assert_eq!(by_itself(&pair.branch), 51);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_branch_sends_new_hub_connections_direct() {
    within(async {
        let origin = Origin::echo().await;
        let at_hub = or_direct(origin.address).replace("\"hub\"", "\"branch\"");
        let pair = Pair::with(&forward(origin.address), &at_hub, async |hub| hub).await;
        let address = pair.hub.local_addrs().intercepts[0];
        assert!(pair.hub.wait_up("branch", LIMIT).await);
        let mut open = TcpStream::connect(address).await.unwrap();
        echoes(&mut open, 1).await;
        let mut stopping = pin!(pair.branch.shutdown(LIMIT));
        begin(&mut stopping);
        let clients = async {
            for round in 0..20 {
                let client = TcpStream::connect(address).await.unwrap();
                assert_eq!(exchange(client, &[round]).await.unwrap(), [round]);
            }
            assert_eq!(by_itself(&pair.hub), 20);
            assert_eq!(exchange(open, b"the end").await.unwrap(), b"the end");
        };
        tokio::join!(stopping, clients);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_hub_refuses_link_only_clients_until_restart() {
    within(async {
        let origin = Origin::echo().await;
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let tunnel = hub.local_addrs().tunnel[0];
        let branch =
            start(dir.path(), &branch_config(hub_key, tunnel, &forward(origin.address))).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await);
        let address = branch.local_addrs().intercepts[0];
        let mut open = TcpStream::connect(address).await.unwrap();
        echoes(&mut open, 1).await;
        let mut stopping = pin!(hub.shutdown(LIMIT));
        begin(&mut stopping);
        let clients = async {
            expect_refused(address).await;
            echoes(&mut open, 2).await;
            drop(open);
        };
        tokio::join!(stopping, clients);
        let again = hub_config(branch_key, "").replace("127.0.0.1:0", &tunnel.to_string());
        let hub = start(dir.path(), &again).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await);
        let client = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(client, b"again").await.unwrap(), b"again");
        assert_eq!(hub.status().peers[0].flows_total, 1);
        assert_eq!(branch.status().peers[0].state, LinkState::Up);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_link_takes_flows_again() {
    within(async {
        let origin = Origin::echo().await;
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let mut hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let config = branch_config(hub_key, hub.local_addrs().tunnel[0], &or_direct(origin.address));
        let branch = start(dir.path(), &config).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await);
        let changed = hub_config(branch_key, "[link]\nresume_window = \"40 s\"\n");
        let changed = Config::parse(&changed, &dir.path().join("oncewire.toml")).unwrap();
        let reloaded = hub.reload(changed).await.unwrap();
        assert!(reloaded.changes[0].contains("starts anew"), "{reloaded:?}");
        until(|| branch.status().peers[0].peer_restarts == 1).await;
        assert!(branch.wait_up("hub", LIMIT).await);
        let client = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
        assert_eq!(exchange(client, b"again").await.unwrap(), b"again");
        assert_eq!((branch.status().peers[0].flows_total, by_itself(&branch)), (1, 0));
    })
    .await;
}

/// A relay able to hold back the accepting side's bytes.
struct Holding {
    address: SocketAddr,
    flows: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Holding {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (flows, flowing) = watch::channel(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(target).await else { continue };
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                let always = watch::channel(true);
                ways.spawn(async move {
                    carry(near_in, far_out, always.1).await;
                    drop(always.0);
                });
                ways.spawn(carry(far_in, near_out, flowing.clone()));
            }
        });
        Self { address, flows, _tasks: tasks }
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut flowing: watch::Receiver<bool>) {
    let mut block = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut block).await {
        // It ends with the relay.
        let _ = flowing.wait_for(|flowing| *flowing).await;
        if to.write_all(&block[..len]).await.is_err() {
            return;
        }
    }
}

/// A pair with a stopping hub, one open flow, and a branch not knowing yet.
async fn before_the_news<T>(intercepts: &str, meanwhile: impl AsyncFnOnce(&Gateway, &Holding) -> T) -> T {
    let mut relay = None;
    let pair = Pair::with(intercepts, "", async |hub| {
        let started = Holding::start(hub).await;
        relay.insert(started).address
    })
    .await;
    let relay = relay.unwrap();
    let mut open = pair.connect().await;
    echoes(&mut open, 1).await;
    relay.flows.send_replace(false);
    let mut stopping = pin!(pair.hub.shutdown(Duration::from_secs(60)));
    begin(&mut stopping);
    let both = async {
        let result = meanwhile(&pair.branch, &relay).await;
        echoes(&mut open, 2).await;
        drop(open);
        result
    };
    tokio::join!(stopping, both).1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_connection_goes_direct_with_all_its_bytes() {
    within(async {
        let origin = Origin::echo().await;
        before_the_news(&or_direct(origin.address), async |branch, relay| {
            let address = branch.local_addrs().intercepts[0];
            let (small, large) = (noise(1, 100), Arc::new(noise(2, 300_000)));
            let clients = async {
                let one = TcpStream::connect(address).await.unwrap();
                let two = TcpStream::connect(address).await.unwrap();
                tokio::join!(exchange(one, &small), exchange(two, &large))
            };
            let news = async {
                until(|| branch.status().peers[0].flows_open == 3).await;
                assert_eq!(branch.status().peers[0].state, LinkState::Up, "it is not known yet");
                relay.flows.send_replace(true);
            };
            let ((one, two), ()) = tokio::join!(clients, news);
            assert!(one.unwrap() == small && two.unwrap() == *large);
            assert_eq!(by_itself(branch), 2);
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rerouted_proxy_connect_goes_direct() {
    within(async {
        let origin = Origin::echo().await;
        let intercepts = forward(origin.address) + &proxy("http", "on_peer_loss = \"direct\"");
        before_the_news(&intercepts, async |branch, relay| {
            let address = branch.local_addrs().intercepts[1];
            let mut client = TcpStream::connect(address).await.unwrap();
            let request = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
            client.write_all(request.as_bytes()).await.unwrap();
            until(|| branch.status().peers[0].flows_open == 2).await;
            relay.flows.send_replace(true);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
            assert_eq!(exchange(client, b"hello").await.unwrap(), b"hello");
            assert_eq!(by_itself(branch), 1);
        })
        .await;
    })
    .await;
}
