//! Limits and priorities between two gateways.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Origin, Pair, exchange, forward, noise, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_holds_and_all_bytes_arrive() {
    within(async {
        let data = noise(51, 2 << 20);
        let origin = Origin::serve(data.as_slice()).await;
        let pair = Pair::with(&forward(origin.address), "rate_limit = \"16 Mbit/s\"", async |hub| hub).await;
        let start = Instant::now();
        assert!(exchange(pair.connect().await, b"").await.unwrap() == data);
        // Two million bytes a second, headers included, and a few milliseconds of credit at the start.
        assert!(start.elapsed() > Duration::from_millis(1000), "{:?}", start.elapsed());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_class_gets_through_beside_the_others() {
    within(async {
        let origin = Origin::echo().await;
        for class in ["interactive", "normal", "bulk"] {
            let rule = format!("[[policy]]\ncodec = \"auto\"\npriority = \"{class}\"\n");
            let limits = format!("rate_limit = \"40 Mbit/s\"\n{rule}[link]\nmax_lanes = 2\n");
            let branch =
                forward(origin.address) + "[link]\nrate_limit = \"40 Mbit/s\"\nbulk_after = 0\n" + &rule;
            let pair = Pair::with(&branch, &limits, async |hub| hub).await;
            let (sent, beside) = (noise(52, 500_000), noise(53, 500_000));
            let mut small = pair.connect().await;
            let (first, second, ()) = tokio::join!(
                exchange(pair.connect().await, &sent),
                exchange(pair.connect().await, &beside),
                async {
                    for byte in 0..20 {
                        small.write_all(&[byte]).await.unwrap();
                        assert_eq!(small.read_u8().await.unwrap(), byte);
                    }
                }
            );
            assert!(first.unwrap() == sent && second.unwrap() == beside, "{class}");
        }
    })
    .await;
}
