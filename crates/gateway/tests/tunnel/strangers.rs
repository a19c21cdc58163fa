//! Refused strangers, and their costs.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use oncewire_keys::Identity;

use crate::common::{
    LIMIT, Origin, Pair, branch_config, exchange, forward, hub_config, noise, start, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_tunnel_port_disturbs_nobody() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        for seed in 0..50 {
            let mut stranger = TcpStream::connect(pair.hub.local_addrs().tunnel[0]).await.unwrap();
            let _ = stranger.write_all(&noise(seed, 5000)).await;
            let mut answer = Vec::new();
            let _ = stranger.read_to_end(&mut answer).await;
            assert!(answer.len() < 100, "seed {seed}: {} bytes", answer.len());
        }
        assert_eq!(exchange(pair.connect().await, b"still here").await.unwrap(), b"still here");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_silent_connections_keeps_no_peer_out() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let port = hub.local_addrs().tunnel[0];
        let mut flood = std::collections::VecDeque::new();
        for _ in 0..2_000 {
            flood.push_back(TcpStream::connect(port).await.unwrap());
        }
        // It goes on while the peer dials; this end keeps few, to save the test files.
        let flooding = tokio::spawn(async move {
            loop {
                if let Ok(stranger) = TcpStream::connect(port).await {
                    flood.push_back(stranger);
                    flood.pop_front();
                }
            }
        });
        let begun = Instant::now();
        let branch = start(dir.path(), &branch_config(hub_key, port, "")).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await);
        // Within a second on an idle machine; a test must not depend on that.
        println!("the peer was up after {:?}", begun.elapsed());
        flooding.abort();
    })
    .await;
}
