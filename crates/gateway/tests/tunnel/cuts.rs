//! Flows outlive their lanes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Origin, Pair, forward, noise, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_survives_five_cuts_of_every_lane() {
    within(async {
        let origin = Origin::echo().await;
        let (pair, relay) = Pair::behind_relay(&forward(origin.address)).await;
        let sent = noise(5, 6 << 20);
        let mut client = pair.connect().await;
        let (mut read, mut write) = client.split();
        let send = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let receive = async {
            let mut received = Vec::new();
            for _ in 0..5 {
                // A sixth of it crosses both ways between one cut and the next.
                let mut part = vec![0; 1 << 20];
                read.read_exact(&mut part).await.unwrap();
                received.extend(part);
                relay.cut();
            }
            read.read_to_end(&mut received).await.unwrap();
            received
        };
        let ((), received) = tokio::join!(send, receive);
        assert!(received == sent);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_flow_survives_a_cut() {
    within(async {
        let origin = Origin::echo().await;
        let (pair, relay) = Pair::behind_relay(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        for byte in 0..3 {
            client.write_all(&[byte]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte);
            relay.cut();
        }
    })
    .await;
}
