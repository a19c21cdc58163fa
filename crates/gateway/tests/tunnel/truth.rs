//! What must survive of TCP, over a link.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::common::{
    Origin, Pair, exchange, expect_refused, expect_reset, forward, is_reset, nobody, noise, reset, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_bytes_are_forwarded_at_once() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        for byte in 0..100 {
            client.write_all(&[byte]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transfers_both_ways_at_once_arrive_whole() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        for seed in [1, 2, 1] {
            let sent = noise(seed, 6 << 20);
            let received = exchange(pair.connect().await, &sent).await.unwrap();
            assert!(received == sent, "seed {seed}: what came back differs");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_flows_at_once_keep_their_bytes_apart() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Arc::new(Pair::start(&forward(origin.address)).await);
        let mut flows = tokio::task::JoinSet::new();
        for seed in 0..100 {
            let pair = Arc::clone(&pair);
            flows.spawn(async move {
                let sent = noise(seed, 50_000);
                assert!(exchange(pair.connect().await, &sent).await.unwrap() == sent, "seed {seed}");
            });
        }
        while let Some(done) = flows.join_next().await {
            done.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ends_its_stream_still_receives() {
    within(async {
        let origin = Origin::answer().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let answer = exchange(pair.connect().await, b"all of it").await.unwrap();
        assert_eq!(answer, b"got all of it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_its_stream_still_receives() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                stream.write_all(b"bye").await.unwrap();
                stream.shutdown().await.unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                tell.send(rest).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        let mut greeting = Vec::new();
        client.read_to_end(&mut greeting).await.unwrap();
        assert_eq!(greeting, b"bye");
        client.write_all(b"not yet").await.unwrap();
        drop(client);
        assert_eq!(told.recv().await.unwrap(), b"not yet");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_reset_reaches_the_server() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                stream.write_all(b"!").await.unwrap();
                let mut rest = Vec::new();
                let ended = stream.read_to_end(&mut rest).await;
                tell.send(ended.map_err(|error| is_reset(&error))).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        reset(client);
        assert_eq!(told.recv().await.unwrap(), Err(true));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_servers_reset_reaches_the_client() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let _ = stream.read_u8().await;
            reset(stream);
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        client.write_all(b"?").await.unwrap();
        expect_reset(&mut client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_ended_arrives_whole_although_its_server_is_gone() {
    within(async {
        let data = noise(8, 16 << 20);
        let served = data.clone();
        let (tell, mut gone) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let (data, tell) = (served.clone(), tell.clone());
            async move {
                stream.write_all(&data).await.unwrap();
                stream.shutdown().await.unwrap();
                acknowledged_to_the_end(&stream).await;
                // As a system answers that has forgotten the connection.
                reset(stream);
                tell.send(()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        for ends_first in [false, true, false, true] {
            let mut client = pair.connect().await;
            let mut got = Vec::new();
            // No more than lets the server end, so that as much is under way then as has room.
            while gone.try_recv().is_err() {
                let mut part = [0; 4096];
                let read = client.read(&mut part).await.unwrap();
                got.extend_from_slice(&part[..read]);
            }
            if ends_first {
                client.shutdown().await.unwrap();
            }
            client.read_to_end(&mut got).await.unwrap();
            assert!(got == data, "{} bytes", got.len());
        }
    })
    .await;
}

/// Waits until the other side's system has all that was sent, and its end.
async fn acknowledged_to_the_end(stream: &TcpStream) {
    const FIN_WAIT2: &str = "05";
    let ports =
        [stream.local_addr(), stream.peer_addr()].map(|address| format!(":{:04X}", address.unwrap().port()));
    loop {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_there = sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields.get(1..4), Some([from, to, FIN_WAIT2])
                if from.ends_with(&ports[0]) && to.ends_with(&ports[1]))
        });
        if is_there {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_noticed_while_nobody_reads() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let looked = Arc::new(Notify::new());
        let look = Arc::clone(&looked);
        let origin = Origin::start(move |stream| {
            let (tell, look) = (tell.clone(), Arc::clone(&look));
            async move {
                // Reads nothing at all: the client's bytes fill every buffer on the way.
                look.notified().await;
                let error = stream.ready(tokio::io::Interest::ERROR).await;
                tell.send(error.is_ok()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let client = pair.connect().await;
        // Full means that a write would wait although readiness was just asked for, for a while.
        let full = noise(7, 1 << 20);
        let fill = async {
            loop {
                client.writable().await.unwrap();
                let _ = client.try_write(&full);
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), fill).await;
        reset(client);
        looked.notify_one();
        assert!(told.recv().await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connect_is_a_reset_before_any_byte() {
    within(async {
        let pair = Pair::start(&forward(nobody().await)).await;
        expect_refused(pair.branch.local_addrs().intercepts[0]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_holds_back_nobody() {
    within(async {
        let data = noise(9, 8 << 20);
        let origin = Origin::serve(data.as_slice()).await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut stopped = pair.connect().await;
        assert_eq!(stopped.read_u8().await.unwrap(), data[0]);
        for _ in 0..3 {
            let received = exchange(pair.connect().await, b"").await.unwrap();
            assert!(received == data);
        }
        let mut rest = Vec::new();
        stopped.read_to_end(&mut rest).await.unwrap();
        assert!(rest == data[1..]);
    })
    .await;
}
