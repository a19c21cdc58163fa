//! The end of a gateway, in order and otherwise.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use oncewire_gateway::daemon::StartError;
use oncewire_gateway::identity::Identity;

use crate::common::{LIMIT, Origin, Pair, expect_reset, forward, hub_config, start, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_may_finish_while_a_gateway_stops() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let intercept = pair.branch.local_addrs().intercepts[0];
        let mut client = pair.connect().await;
        client.write_all(b"1").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'1');
        let stopping = tokio::spawn(pair.branch.shutdown(LIMIT));
        // No new connections from now on; the open one goes on.
        while TcpStream::connect(intercept).await.is_ok() {
            tokio::task::yield_now().await;
        }
        client.write_all(b"2").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'2');
        assert!(!stopping.is_finished());
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        stopping.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_that_do_not_finish_in_time_are_reset_at_both_ends() {
    within(async {
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                stream.write_all(b"!").await.unwrap();
                expect_reset(&mut stream).await;
                tell.send(()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        pair.branch.shutdown(Duration::from_millis(50)).await;
        expect_reset(&mut client).await;
        told.recv().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_dies_leaves_its_clients_a_reset_and_no_end() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let _ = stream.write_all(b"!").await;
            let _ = stream.read_u8().await;
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        drop(pair.branch);
        expect_reset(&mut client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_named_with_its_key() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("hub.key")).unwrap();
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let config = hub_config(Identity::from_seed([1; 32]).public_key(), "")
            .replace("127.0.0.1:0", &address.to_string());
        let Err(error) = start(dir.path(), &config).await else { panic!("it started") };
        assert!(matches!(error, StartError::Listen { .. }));
        let error = error.to_string();
        assert!(error.contains(&address.to_string()) && error.contains("[gateway] listen"), "{error}");
    })
    .await;
}
