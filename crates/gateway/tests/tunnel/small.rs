//! Wire costs of small exchanges, as counted by `status`.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Origin, Pair, forward, noise, until, within};

/// Wire bytes at the branch's tunnel sockets, both ways.
fn wire(pair: &Pair) -> u64 {
    let peer = &pair.branch.status().peers[0];
    peer.wire_in + peer.wire_out
}

/// A probe takes at most two records of 32 bytes, and there may be two if both ends ask at the same time.
const PROBE: u64 = 128;

#[tokio::test]
async fn idle_link_asks_seldom() {
    within(async {
        let pair = Pair::start("").await;
        let lanes = || pair.branch.status().peers[0].lanes.spare;
        until(|| lanes() >= 2).await;
        // The lanes' initial messages precede a later probe.
        let mut before = wire(&pair);
        loop {
            let began = Instant::now();
            until(|| wire(&pair) > before).await;
            before = wire(&pair);
            if began.elapsed() >= Duration::from_secs(4) {
                break;
            }
        }
        let began = Instant::now();
        until(|| wire(&pair) >= before + PROBE).await;
        assert!(began.elapsed() >= Duration::from_millis(4500), "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn twenty_bytes_there_and_back_cost_little() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut stream = pair.connect().await;
        let sent = noise(1, 20 * 500);
        let mut costs = Vec::new();
        for round in sent.chunks(20 * 20) {
            let before = wire(&pair);
            for bytes in round.chunks(20) {
                stream.write_all(bytes).await.unwrap();
                let mut back = [0; 20];
                stream.read_exact(&mut back).await.unwrap();
                assert_eq!(back, bytes);
            }
            costs.push((wire(&pair) - before) / 20);
        }
        // On a busy machine some acknowledgements wait for no answer.
        assert!(costs.iter().min() <= Some(&120), "{costs:?}");
    })
    .await;
}
