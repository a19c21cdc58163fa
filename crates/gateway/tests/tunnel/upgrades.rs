//! HTTP proxy clients switching protocols, WebSocket for example.

use std::sync::Arc;

use oncewire_report::{Outcome, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::common::{Origin, Pair, exchange, expect_reset, is_reset, noise, proxy, reset, until, within};
use crate::http::head;

/// A request to switch, with more fields.
fn asking(scheme: &str, origin: &Origin, more: &str) -> String {
    let address = origin.address;
    format!(
        "GET {scheme}://{address}/chat?a=b HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade, X-Hop\r\nX-Hop: 1\r\n\
                        Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Routes traffic to an origin past the link.
fn direct_to(origin: &Origin) -> String {
    let port = origin.address.port();
    format!("[[policy]]\nmatch = {{ ports = [{port}] }}\npath = \"direct\"\n")
}

/// An origin that switches, sends a greeting at once, and then echoes.
async fn switches() -> Origin {
    Origin::start(|stream| async move {
        let mut stream = BufReader::new(stream);
        let lines = head(&mut stream).await;
        assert_eq!(lines[0], "GET /chat?a=b HTTP/1.1");
        for expected in ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:?}");
        }
        assert!(!lines.iter().any(|line| line.starts_with("X-Hop")), "{lines:?}");
        let said = [SWITCHES, "hello"].concat();
        stream.get_mut().write_all(said.as_bytes()).await.unwrap();
        let (mut read, mut write) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    })
    .await
}

/// Has the proxy switch, and returns the connection behind the answer's head.
async fn switched(pair: &Pair, request: &str) -> TcpStream {
    let mut client = BufReader::with_capacity(1, pair.connect().await);
    client.get_mut().write_all(request.as_bytes()).await.unwrap();
    let lines = head(&mut client).await;
    assert_eq!(lines[0], "HTTP/1.1 101 Switching Protocols");
    let lines: Vec<_> = lines.iter().map(|line| line.to_ascii_lowercase()).collect();
    for expected in ["connection: upgrade", "upgrade: websocket"] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("x-hop") || line.starts_with("content-length")));
    client.into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_by_get_carries_both_ways_over_link_and_direct() {
    within(async {
        let origin = switches().await;
        let data = noise(51, 8 << 20);
        for rules in ["", &direct_to(&origin)] {
            let pair = Pair::start(&(proxy("http", "") + rules)).await;
            for scheme in ["http", "ws", "WS"] {
                let mut client = switched(&pair, &asking(scheme, &origin, "")).await;
                let mut hello = [0; 5];
                client.read_exact(&mut hello).await.unwrap();
                assert_eq!(&hello, b"hello");
                client.write_all(b"one byte").await.unwrap();
                client.read_exact(&mut [0; 8]).await.unwrap();
                assert_eq!(pair.branch.flows().flows.len(), 1);
                let flow = pair.branch.flows().flows.remove(0);
                assert_eq!(flow.destination, origin.address.to_string());
                let expected = if rules.is_empty() { Outcome::Coded } else { Outcome::Direct };
                assert_eq!(flow.outcome, expected);
                // Ends, and then reads to the end.
                assert!(exchange(client, &data).await.unwrap() == data);
                until(|| pair.branch.flows().flows.is_empty()).await;
            }
            if !rules.is_empty() {
                let row = pair.branch.status().flows_not_coded.remove(0);
                assert_eq!((row.reason, row.count), (Reason::Policy, 3));
                assert!((row.bytes - 3 * 2 * data.len() as u64) < 3 * 2000, "heads besides: {row:?}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_sent_before_the_switch_arrive_behind_the_request() {
    within(async {
        let origin = switches().await;
        let pair = Pair::start(&proxy("http", "")).await;
        let client = switched(&pair, &(asking("http", &origin, "") + "eager")).await;
        assert_eq!(exchange(client, b" beaver").await.unwrap(), b"helloeager beaver");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_of_a_switching_request_precedes_the_rest() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            head(&mut stream).await;
            let mut content = vec![0; 100_000];
            stream.read_exact(&mut content).await.unwrap();
            stream.get_mut().write_all(SWITCHES.as_bytes()).await.unwrap();
            stream.read_to_end(&mut content).await.unwrap();
            stream.get_mut().write_all(&content).await.unwrap();
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let content = noise(52, 100_000);
        let request = asking("http", &origin, "Content-Length: 100000\r\n").replace("GET", "POST");
        let mut client = BufReader::with_capacity(1, pair.connect().await);
        client.get_mut().write_all(&[request.as_bytes(), &content].concat()).await.unwrap();
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 101 Switching Protocols");
        let received = exchange(client.into_inner(), b"and more").await.unwrap();
        assert!(received == [&content, &b"and more"[..]].concat());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_switch_is_an_answer_and_its_connection_goes_on() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            for status in ["200 OK", "426 Upgrade Required", "403 Forbidden", "200 OK"] {
                if head(&mut stream).await.is_empty() {
                    return;
                }
                let answer = format!("HTTP/1.1 {status}\r\nUpgrade: chat\r\nContent-Length: 2\r\n\r\nno");
                stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        for (status, named) in [("200 OK", false), ("426 Upgrade Required", true), ("403 Forbidden", false)] {
            client.get_mut().write_all(asking("http", &origin, "").as_bytes()).await.unwrap();
            let lines = head(&mut client).await;
            assert_eq!(lines[0], format!("HTTP/1.1 {status}"));
            let names_it = lines.iter().any(|line| line.eq_ignore_ascii_case("upgrade: chat"));
            assert_eq!(names_it, named, "{lines:?}");
            client.read_exact(&mut [0; 2]).await.unwrap();
        }
        // The last one ends it in order.
        let request = asking("http", &origin, "Connection: close\r\n");
        let answer = exchange(client.into_inner(), request.as_bytes()).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"\r\n\r\nno"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_refused_switch_ends_in_order() {
    within(async {
        let data = Arc::new(noise(53, 4 << 20));
        let served = Arc::clone(&data);
        let origin = Origin::start(move |stream| {
            let served = Arc::clone(&served);
            async move {
                let mut stream = BufReader::new(stream);
                head(&mut stream).await;
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await.unwrap();
                stream.get_mut().write_all(&served).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        for upgrade in ["websocket", "h2c"] {
            let request = asking("http", &origin, "Connection: close\r\n").replace("websocket", upgrade);
            let mut client = pair.connect().await;
            client.write_all(request.as_bytes()).await.unwrap();
            // It has not ended its own stream.
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"\r\n0\r\n\r\n"));
            assert!(answer.len() > data.len());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_behind_a_switch_reach_the_other_side() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let broken = Arc::new(Notify::new());
        let told_to = Arc::clone(&broken);
        let origin = Origin::start(move |stream| {
            let (tell, told_to) = (tell.clone(), Arc::clone(&told_to));
            async move {
                let mut stream = BufReader::new(stream);
                head(&mut stream).await;
                stream.get_mut().write_all(SWITCHES.as_bytes()).await.unwrap();
                let mut received = Vec::new();
                tokio::select! {
                    () = told_to.notified() => reset(stream.into_inner()),
                    ended = stream.read_to_end(&mut received) => {
                        assert!(ended.as_ref().is_err_and(is_reset), "{ended:?}");
                        tell.send(received).await.unwrap();
                    }
                }
            }
        })
        .await;
        for rules in ["", &direct_to(&origin)] {
            let pair = Pair::start(&(proxy("http", "") + rules)).await;
            let mut client = switched(&pair, &asking("http", &origin, "")).await;
            client.write_all(b"some").await.unwrap();
            // Until it has crossed: a reset does not wait for anything.
            until(|| pair.branch.flows().flows.iter().any(|flow| flow.sent > 4)).await;
            reset(client);
            assert!(b"some".starts_with(&told.recv().await.unwrap()));
            let mut client = switched(&pair, &asking("http", &origin, "")).await;
            broken.notify_one();
            expect_reset(&mut client).await;
            until(|| pair.branch.flows().flows.is_empty()).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_lost_peer_resets_switched_connections() {
    within(async {
        let origin = switches().await;
        let mut relay = None;
        let pair = Pair::with(&proxy("http", ""), "[link]\nresume_window = \"5 s\"\n", async |hub| {
            let started = crate::common::CuttingRelay::start(hub).await;
            relay.insert(started).address
        })
        .await;
        let relay = relay.unwrap();
        let mut client = switched(&pair, &asking("http", &origin, "")).await;
        client.read_exact(&mut [0; 5]).await.unwrap();
        relay.cut();
        client.write_all(b"still here").await.unwrap();
        let mut echo = [0; 10];
        client.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"still here");
        pair.hub.shutdown(std::time::Duration::ZERO).await;
        expect_reset(&mut client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_destination_is_refused_to_switching_clients() {
    within(async {
        let origin = switches().await;
        let pair = Pair::with(&proxy("http", ""), "deny = [\"127.0.0.0/8\"]", async |hub| hub).await;
        let mut client = BufReader::new(pair.connect().await);
        client.get_mut().write_all(asking("ws", &origin, "").as_bytes()).await.unwrap();
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 403 Forbidden");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switch_ahead_of_the_content_is_a_bad_gateway() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            head(&mut stream).await;
            stream.get_mut().write_all(SWITCHES.as_bytes()).await.unwrap();
            expect_reset(stream.get_mut()).await;
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let request = asking("http", &origin, "Expect: 100-continue\r\nContent-Length: 9\r\n");
        client.get_mut().write_all(request.as_bytes()).await.unwrap();
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 502 Bad Gateway");
    })
    .await;
}
