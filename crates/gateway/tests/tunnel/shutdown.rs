//! The end of a gateway, orderly and otherwise.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use oncewire_gateway::daemon::{Gateway, StartError};
use oncewire_keys::Identity;
use oncewire_report::LinkState;

use crate::common::{
    LIMIT, Origin, Pair, UNCHANGING, branch_config, exchange, expect_reset, forward, hub_config, noise,
    proxy, start, until, within,
};

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
async fn slow_client_of_a_stopping_proxy_gets_its_answer() {
    within(async {
        let body = noise(31, 16 << 20);
        let sent = body.clone();
        let origin = Origin::start(move |mut stream| {
            let body = sent.clone();
            async move {
                let _ = stream.read(&mut [0; 512]).await;
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&body).await;
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let intercept = pair.branch.local_addrs().intercepts[0];
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut client = socket.connect(intercept).await.unwrap();
        let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut got = vec![0; 1 << 16];
        client.read_exact(&mut got).await.unwrap();
        // Takes only the time of the last byte's crossing.
        while pair.branch.status().peers[0].flows_open > 0 {
            let mut piece = [0; 4096];
            let len = client.read(&mut piece).await.unwrap();
            got.extend_from_slice(&piece[..len]);
        }
        let stopping = tokio::spawn(pair.branch.shutdown(LIMIT));
        while TcpStream::connect(intercept).await.is_ok() {
            tokio::task::yield_now().await;
        }
        // Without waiting it would have ended by then.
        let _ = tokio::time::timeout(Duration::from_secs(1), async {
            while !stopping.is_finished() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        client.read_to_end(&mut got).await.unwrap();
        assert!(got.ends_with(&body), "{} bytes came", got.len());
        stopping.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_http_proxy_answers_and_closes_all_clients() {
    within(async {
        let (answer, answering) = tokio::sync::watch::channel(false);
        let origin = Origin::start(move |mut stream| {
            let mut answering = answering.clone();
            async move {
                let mut request = [0; 512];
                while stream.read(&mut request).await.is_ok_and(|len| len > 0) {
                    if request.starts_with(b"GET /late") {
                        // An error means the end of the test.
                        let _ = answering.wait_for(|answering| *answering).await;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                }
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let intercept = pair.branch.local_addrs().intercepts[0];
        let request = |path| format!("GET http://{0}{path} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
        let (mut idle, mut waiting) = (pair.connect().await, pair.connect().await);
        idle.write_all(request("/").as_bytes()).await.unwrap();
        let mut answered = Vec::new();
        while !answered.ends_with(b"ok") {
            assert_ne!(idle.read_buf(&mut answered).await.unwrap(), 0);
        }
        waiting.write_all(request("/late").as_bytes()).await.unwrap();
        until(|| pair.branch.status().peers[0].flows_open == 2).await;
        let stopping = tokio::spawn(pair.branch.shutdown(LIMIT));
        while TcpStream::connect(intercept).await.is_ok() {
            tokio::task::yield_now().await;
        }
        // An idle connection is ended, in order.
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
        answer.send_replace(true);
        let mut answered = String::new();
        waiting.read_to_string(&mut answered).await.unwrap();
        assert!(answered.ends_with("ok"), "{answered}");
        stopping.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_flows_are_reset_at_both_ends() {
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
        // Resets have a second to leave; on a busy machine the hub gives up by itself.
        let impatient = "[link]\nresume_window = \"5 s\"\n";
        let pair = Pair::with(&forward(origin.address), impatient, async |hub| hub).await;
        let mut client = pair.connect().await;
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        pair.branch.shutdown(Duration::from_millis(50)).await;
        expect_reset(&mut client).await;
        told.recv().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_resets_its_clients() {
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
async fn address_in_use_is_named_with_its_key() {
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

/// Starts a gateway as soon as its predecessor has released the port.
async fn start_again(dir: &Path, config: &str) -> Gateway {
    loop {
        match start(dir, config).await {
            Ok(gateway) => return gateway,
            Err(StartError::Listen { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_connection_survives_its_hub() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let address = hub.local_addrs().tunnel[0];
        let hub_again = hub_config(branch_key, "").replace("127.0.0.1:0", &address.to_string());
        let intercept = proxy("http", "on_peer_loss = \"direct\"\n");
        let branch = start(dir.path(), &branch_config(hub_key, address, &intercept)).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await);
        // Its system answers no client until one is accepted.
        let origin = TcpSocket::new_v4().unwrap();
        origin.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let origin = origin.listen(0).unwrap();
        let busy = origin.local_addr().unwrap();
        let _first = TcpStream::connect(busy).await.unwrap();
        let mut client = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
        let ask = format!("CONNECT {busy} HTTP/1.1\r\nHost: {busy}\r\n\r\n");
        client.write_all(ask.as_bytes()).await.unwrap();
        until(|| hub.status().peers[0].flows_open == 1).await;
        drop(hub);
        let _hub = start_again(dir.path(), &hub_again).await;
        let serving = async {
            let mut accepted = Vec::new();
            loop {
                accepted.push(origin.accept().await.unwrap());
            }
        };
        let mut status = [0; 12];
        tokio::select! {
            read = client.read_exact(&mut status) => read.unwrap(),
            never = serving => never,
        };
        assert_eq!(&status, b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_gateway_comes_back_warm() {
    within(async {
        let origin = Origin::echo().await;
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let with_state = |config: String, name| {
            config.replace("key_file", &format!("state = \"{name}\"\nkey_file")) + UNCHANGING
        };
        let hub_config = with_state(hub_config(branch_key, ""), "hub-state");
        let hub = start(dir.path(), &hub_config).await.unwrap();
        let address = hub.local_addrs().tunnel[0];
        let branch_config =
            with_state(branch_config(hub_key, address, &forward(origin.address)), "branch-state");
        let hub_again = hub_config.replace("127.0.0.1:0", &address.to_string());
        let (mut hub, mut branch) = (hub, start(dir.path(), &branch_config).await.unwrap());
        let data = noise(11, 1 << 20);
        let cross = async |branch: &Gateway| {
            assert!(branch.wait_up("hub", LIMIT).await);
            let stream = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
            let before = branch.status().peers[0].wire;
            assert!(exchange(stream, &data).await.unwrap() == data);
            branch.status().peers[0].wire - before
        };
        let cold = cross(&branch).await;
        assert!(cold > 1 << 20, "{cold} bytes");
        drop(branch);
        branch = start(dir.path(), &branch_config).await.unwrap();
        let warm = cross(&branch).await;
        assert!(warm < 1 << 17, "{warm} bytes after the branch came back");
        drop(hub);
        hub = start_again(dir.path(), &hub_again).await;
        until(|| hub.status().peers[0].state == LinkState::Up).await;
        let warm = cross(&branch).await;
        assert!(warm < 1 << 17, "{warm} bytes after the hub came back");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_connection_may_finish_too() {
    within(async {
        let origin = Origin::echo().await;
        let intercept = format!("{}on_peer_loss = \"direct\"\n", forward(origin.address));
        let (pair, _relay) = Pair::parted(&intercept).await;
        let address = pair.branch.local_addrs().intercepts[0];
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"a").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'a');
        let stopping = pair.branch.shutdown(LIMIT);
        let finishing = async {
            while TcpStream::connect(address).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // Longer than anything else in a stop.
            for round in 0..30 {
                client.write_all(&[round]).await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), round);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(exchange(client, b"the end").await.unwrap(), b"the end");
        };
        tokio::join!(stopping, finishing);
    })
    .await;
}
