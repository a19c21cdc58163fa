//! Late hellos of a peer's earlier instance.

use std::net::SocketAddr;
use std::path::Path;

use oncewire_config::Config;
use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::common::{LIMIT, Origin, branch_config, exchange, forward, hub_config, start, until, within};

/// Passes connections on, and can hold dialling hellos until a signal.
struct Relay {
    address: SocketAddr,
    keeps: watch::Sender<bool>,
    /// Number of held hellos, and of their connections ended by the other side since.
    kept: watch::Receiver<usize>,
    ended: watch::Receiver<usize>,
}

impl Relay {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (keeps, keeping) = watch::channel(false);
        let ((count, kept), (end, ended)) = (watch::channel(0), watch::channel(0));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(target).await.unwrap();
                let late = *keeping.borrow();
                tokio::spawn(pass(near, far, late, keeping.clone(), count.clone(), end.clone()));
            }
        });
        Self { address, keeps, kept, ended }
    }
}

/// A handshake is two turns of the dialling side; its hello comes third.
const HELLO: usize = 3;

async fn pass(
    near: TcpStream,
    far: TcpStream,
    late: bool,
    mut keeping: watch::Receiver<bool>,
    kept: watch::Sender<usize>,
    ended: watch::Sender<usize>,
) {
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let there = async move {
        let mut block = vec![0; 64 << 10];
        for turn in 1.. {
            let Ok(len @ 1..) = near_in.read(&mut block).await else { return };
            if late && turn == HELLO {
                kept.send_modify(|count| *count += 1);
                // An error means the end of the test.
                let _ = keeping.wait_for(|keeps| !keeps).await;
            }
            if far_out.write_all(&block[..len]).await.is_err() {
                return;
            }
        }
    };
    let back = async move {
        // There may be no reader.
        let mut block = vec![0; 64 << 10];
        while let Ok(len @ 1..) = far_in.read(&mut block).await {
            let _ = near_out.write_all(&block[..len]).await;
        }
        if late {
            ended.send_modify(|count| *count += 1);
        }
    };
    tokio::join!(there, back);
}

fn parse(dir: &Path, text: &str) -> Config {
    Config::parse(text, &dir.join("oncewire.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn restarts(gateway: &Gateway) -> u64 {
    gateway.status().peers[0].peer_restarts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hello_of_an_earlier_instance_is_refused() {
    within(async {
        let origin = Origin::echo().await;
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| Identity::create(&dir.path().join(name)).unwrap().public_key();
        let (branch_key, hub_key) = (key("branch.key"), key("hub.key"));
        let hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let mut relay = Relay::start(hub.local_addrs().tunnel[0]).await;
        let text = |hub: SocketAddr| branch_config(hub_key, hub, &forward(origin.address));
        let mut branch = start(dir.path(), &text(relay.address)).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await, "no link");
        let spare = || {
            let lanes = branch.status().peers[0].lanes;
            lanes.busy + lanes.spare >= 2
        };
        until(spare).await;
        // Connections want more lanes, with their hellos held.
        relay.keeps.send_replace(true);
        let address = branch.local_addrs().intercepts[0];
        let mut open = Vec::new();
        for _ in 0..5 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"more").await.unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            open.push(stream);
        }
        relay.kept.wait_for(|kept| *kept > 0).await.unwrap();
        let late = *relay.kept.borrow();
        // The next instance comes by another way.
        let direct = text(hub.local_addrs().tunnel[0]);
        branch.reload(parse(dir.path(), &direct)).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await, "no link");
        until(|| restarts(&hub) == 1).await;
        relay.keeps.send_replace(false);
        relay.ended.wait_for(|ended| *ended >= late).await.unwrap();
        for turn in 0..20 {
            let stream = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
            assert_eq!(exchange(stream, &[turn; 100]).await.unwrap(), [turn; 100]);
        }
        assert_eq!((restarts(&hub), restarts(&branch)), (1, 0));
    })
    .await;
}
