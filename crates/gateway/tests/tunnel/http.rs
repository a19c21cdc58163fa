//! The HTTP proxy, seen by its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::common::{Origin, Pair, exchange, is_reset, nobody, proxy, reset, until, within};

/// Reads a head; its lines.
pub(crate) async fn head<S: tokio::io::AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap() == 0 || line == "\r\n" {
            return lines;
        }
        lines.push(line.trim_end().to_owned());
    }
}

/// An origin answering each request with its head, and counting connections.
async fn mirror(connections: Arc<AtomicUsize>) -> Origin {
    Origin::start(move |stream| {
        connections.fetch_add(1, Relaxed);
        async move {
            let mut stream = BufReader::new(stream);
            loop {
                let lines = head(&mut stream).await;
                if lines.is_empty() {
                    return;
                }
                let body = lines.join("\n");
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await
}

/// How an origin ends a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Reset,
}

/// An origin answering the first request of each connection and ending it at the second; requests not to
/// `/first` are counted, and answered on no connection unless `answers_next`.
async fn answers_once(end: End, answers_next: bool, counted: Arc<AtomicUsize>) -> Origin {
    Origin::start(move |stream| {
        let counted = Arc::clone(&counted);
        async move {
            let mut stream = BufReader::new(stream);
            for turn in 0.. {
                let lines = head(&mut stream).await;
                let Some(first) = lines.first() else { return };
                let is_first = first.contains("/first");
                counted.fetch_add(usize::from(!is_first), Relaxed);
                if turn == 1 || !is_first && !answers_next {
                    break;
                }
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
            match end {
                End::Close => drop(stream),
                End::Reset => reset(stream.into_inner()),
            }
        }
    })
    .await
}

/// Sends a request over a kept connection; status line and body.
async fn get(client: &mut BufReader<TcpStream>, request: &str) -> (String, String) {
    client.get_mut().write_all(request.as_bytes()).await.unwrap();
    let lines = head(client).await;
    let length = lines
        .iter()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.unwrap();
    (lines[0].clone(), String::from_utf8(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_client_share_one_origin_connection() {
    within(async {
        let connections = Arc::new(AtomicUsize::new(0));
        let origin = mirror(Arc::clone(&connections)).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        for path in ["/a", "/b?c=d", "/e"] {
            let request = format!(
                "GET http://{0}{path} HTTP/1.1\r\nHost: {0}\r\nProxy-Connection: keep-alive\r\nX-Kept: 1\r\n\r\n",
                origin.address
            );
            let (status, body) = get(&mut client, &request).await;
            assert_eq!(status, "HTTP/1.1 200 OK");
            let lines: Vec<_> = body.lines().collect();
            assert_eq!(lines[0], format!("GET {path} HTTP/1.1"));
            assert!(lines.contains(&format!("Host: {}", origin.address).as_str()), "{body}");
            assert!(lines.contains(&"X-Kept: 1"), "{body}");
            assert!(!body.to_ascii_lowercase().contains("proxy-connection"), "{body}");
        }
        assert_eq!(connections.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safe_request_is_retried_after_a_kept_connection_ends() {
    within(async {
        let pair = Pair::start(&proxy("http", "")).await;
        let body = "Content-Length: 1\r\n\r\nx";
        for (method, rest, answers_next, expected) in [
            ("GET", "\r\n", true, ("200", 2)),
            ("HEAD", "\r\n", true, ("200", 2)),
            ("OPTIONS", "\r\n", true, ("200", 2)),
            // An origin not answering it at all gets it no third time.
            ("GET", "\r\n", false, ("502", 2)),
            ("GET", body, true, ("502", 1)),
            ("POST", body, true, ("502", 1)),
            ("POST", "Content-Length: 0\r\n\r\n", true, ("502", 1)),
            ("DELETE", "\r\n", true, ("502", 1)),
        ] {
            for end in [End::Close, End::Reset] {
                let sent = Arc::new(AtomicUsize::new(0));
                let origin = answers_once(end, answers_next, Arc::clone(&sent)).await;
                let mut client = BufReader::new(pair.connect().await);
                let request = |method, path, rest| {
                    format!("{method} http://{0}{path} HTTP/1.1\r\nHost: {0}\r\n{rest}", origin.address)
                };
                let (status, _) = get(&mut client, &request("GET", "/first", "\r\n")).await;
                assert_eq!(status, "HTTP/1.1 200 OK");
                let (status, said) = get(&mut client, &request(method, "/next", rest)).await;
                let got = (status.split(' ').nth(1).unwrap(), sent.load(Relaxed));
                assert_eq!(got, expected, "{method} with {rest:?}, {end:?}: {said}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunked_content_reaches_the_origin_with_any_method() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            let lines = head(&mut stream).await;
            assert!(lines.iter().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked")), "{lines:?}");
            let mut content = Vec::new();
            while !content.ends_with(b"\r\n0\r\n\r\n") {
                stream.read_buf(&mut content).await.unwrap();
            }
            assert!(content.windows(5).any(|part| part == b"query"));
            stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST", "REPORT"] {
            let request = format!(
                "{method} http://{0}/ HTTP/1.1\r\nHost: {0}\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nquery\r\n0\r\n\r\n",
                origin.address
            );
            let mut client = BufReader::new(pair.connect().await);
            assert_eq!(get(&mut client, &request).await.0, "HTTP/1.1 204 No Content", "{method}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_tunnels_bytes_even_those_sent_early() {
    within(async {
        let pair = Pair::start(&proxy("http", "")).await;
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let origin = Origin::echo_on(address).await;
            let mut client = pair.connect().await;
            let request = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\neager", origin.address);
            client.write_all(request.as_bytes()).await.unwrap();
            let mut client = BufReader::with_capacity(1, client);
            assert_eq!(head(&mut client).await[0], "HTTP/1.1 200 OK");
            assert_eq!(exchange(client.into_inner(), b" beaver").await.unwrap(), b"eager beaver");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_old_servers_reach_clients_in_todays_form() {
    within(async {
        let pair = Pair::start(&proxy("http", "")).await;
        for (field, expected) in [
            ("X-Allowed : true", Some("x-allowed: true")),
            ("X-Tab\t: true", Some("x-tab: true")),
            ("X-Long: a\r\n b", Some("x-long: a b")),
            ("Secured by somebody : x", None),
            ("HTTP 1/1 302:", None),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length : 2\r\nX-Last: 1\r\n\r\nok");
            let origin = Origin::start(move |stream| {
                let answer = answer.clone();
                async move {
                    let mut stream = BufReader::new(stream);
                    head(&mut stream).await;
                    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
                    // Its length ends the answer, not its connection.
                    head(&mut stream).await;
                }
            })
            .await;
            let mut client = BufReader::new(pair.connect().await);
            let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
            client.get_mut().write_all(request.as_bytes()).await.unwrap();
            let lines: Vec<_> =
                head(&mut client).await.iter().map(|line| line.to_ascii_lowercase()).collect();
            let mut body = [0; 2];
            client.read_exact(&mut body).await.unwrap();
            assert_eq!((lines[0].as_str(), &body), ("http/1.1 200 ok", b"ok"), "{field}");
            let sent: Vec<_> = ["content-length: 2", "x-last: 1"].into_iter().chain(expected).collect();
            assert!(sent.iter().all(|line| lines.iter().any(|got| got == line)), "{field}: {lines:?}");
            assert_eq!(lines.len(), sent.len() + 2, "status line and Via besides: {lines:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_their_maximum_of_proxies() {
    within(async {
        let connections = Arc::new(AtomicUsize::new(0));
        let origin = mirror(Arc::clone(&connections)).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        for (method, number, expected) in [
            ("OPTIONS", 0, "HTTP/1.1 200 OK"),
            ("TRACE", 0, "HTTP/1.1 501 Not Implemented"),
            ("OPTIONS", 3, "HTTP/1.1 200 OK"),
        ] {
            assert_eq!(connections.load(Relaxed), 0, "sent on");
            let request = format!(
                "{method} http://{0}/ HTTP/1.1\r\nHost: {0}\r\nMax-Forwards: {number}\r\n\r\n",
                origin.address
            );
            let (status, body) = get(&mut client, &request).await;
            assert_eq!(status, expected, "{method} {number}");
            assert_eq!(body.contains("Max-Forwards: 2"), number == 3, "{body}");
        }
        assert_eq!(connections.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_have_a_status() {
    within(async {
        let pair = Pair::with(&proxy("http", ""), "deny = [\"127.9.0.0/16\"]", async |hub| hub).await;
        let kept = nobody();
        let nobody = kept.address;
        for (request, expected) in [
            (format!("GET http://{nobody}/ HTTP/1.1\r\nHost: x\r\n\r\n"), "502"),
            (format!("CONNECT {nobody} HTTP/1.1\r\nHost: x\r\n\r\n"), "502"),
            ("CONNECT 127.9.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "403"),
            ("CONNECT no-such-host.invalid:80 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "502"),
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
            (format!("CONNECT {nobody} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"), "400"),
            ("GET http://127.0.0.1:65616/ HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
            ("GET https://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
            ("\u{1}\u{2}\u{3} nonsense\r\n\r\n".to_owned(), "400"),
        ] {
            let mut client = BufReader::new(pair.connect().await);
            let (status, _) = get(&mut client, &request).await;
            assert_eq!(status.split(' ').nth(1), Some(expected), "{request:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_need_their_password() {
    within(async {
        let origin = mirror(Arc::default()).await;
        let pair = Pair::start(&proxy("http", "users = [\"anna:secret\"]")).await;
        // "anna:secret" and "anna:guess" in base64.
        for (credentials, expected) in [("YW5uYTpzZWNyZXQ=", "200"), ("YW5uYTpndWVzcw==", "407"), ("", "407")]
        {
            let mut client = BufReader::new(pair.connect().await);
            let request = format!(
                "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n",
                origin.address
            );
            let (status, body) = get(&mut client, &request).await;
            assert_eq!(status.split(' ').nth(1), Some(expected), "{body}");
            assert!(!body.contains("Basic"), "credentials went to the origin: {body}");
        }
    })
    .await;
}

/// Fields of so many bytes in all.
fn fields(bytes: usize) -> String {
    (0..bytes / 256).map(|number| format!("X-{number:04}: {}\r\n", "a".repeat(246))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_heads_are_for_authorised_clients() {
    within(async {
        let origin = mirror(Arc::default()).await;
        let pair = Pair::start(&proxy("http", "users = [\"anna:secret\"]")).await;
        let request = |path: &str, more: &str| {
            format!(
                "GET http://{0}{path} HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n{more}\r\n",
                origin.address
            )
        };
        let mut stranger = BufReader::new(pair.connect().await);
        let (status, body) = get(&mut stranger, &request("/", &fields(20 << 10))).await;
        assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
        assert!(body.contains("larger than 16384 bytes"), "{body}");
        assert_eq!(stranger.read(&mut [0]).await.unwrap(), 0, "an end in order");

        let mut known = BufReader::new(pair.connect().await);
        for (path, more) in [("/small", String::new()), ("/large", fields(100 << 10))] {
            let (status, body) = get(&mut known, &request(path, &more)).await;
            assert_eq!(status, "HTTP/1.1 200 OK");
            assert!(body.starts_with(&format!("GET {path} ")), "{body}");
            assert_eq!(body.matches("X-").count(), more.matches("X-").count(), "{path}");
        }
        let (status, body) = get(&mut known, &request("/", &fields(140 << 10))).await;
        assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
        assert!(body.contains("larger than 131072 bytes"), "{body}");
        let refused = pair.branch.status().gateway.refused;
        assert!(refused.iter().any(|row| row.reason == "bad_request" && row.count == 2), "{refused:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_behind_a_head_is_not_counted_as_one() {
    within(async {
        let origin = mirror(Arc::default()).await;
        let pair = Pair::start(&proxy("http", "users = [\"anna:secret\"]")).await;
        let mut client = BufReader::new(pair.connect().await);
        let request = format!(
            "PUT http://{0}/ HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n\
             Content-Length: 1000000\r\n\r\n",
            origin.address
        );
        client.get_mut().write_all(request.as_bytes()).await.unwrap();
        // The origin answers behind the head; the rest of the upload follows later.
        let lines = head(&mut client).await;
        assert_eq!(lines[0], "HTTP/1.1 200 OK");
        let (mut from, mut to) = client.into_inner().into_split();
        let sent = async {
            let sent = to.write_all(&vec![b'a'; 1_000_000]).await;
            drop(to);
            sent
        };
        let mut rest = Vec::new();
        let (sent, read) = tokio::join!(sent, from.read_to_end(&mut rest));
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains(" 431 "), "{text} {sent:?} {read:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_without_end_give_way_to_the_next() {
    within(async {
        let origin = mirror(Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n", origin.address);
        // More than the heads' share of the pair's memory.
        let room = pair.branch.status().gateway.memory_limit.max(32 << 20) / 16;
        let heads = usize::try_from(room).unwrap() / (200 << 10) + 8;
        let mut clients = Vec::new();
        for _ in 0..heads {
            let mut client = pair.connect().await;
            client.write_all((request.clone() + &fields(100 << 10)).as_bytes()).await.unwrap();
            clients.push(client);
        }
        let mut answer = String::new();
        let mut oldest = clients.remove(0);
        oldest.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable"), "{answer}");
        let mut next = BufReader::new(pair.connect().await);
        let (status, _) = get(&mut next, &format!("{request}\r\n")).await;
        assert_eq!(status, "HTTP/1.1 200 OK");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_answer_never_looks_whole() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            // Delimited by the close alone, and then cut.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf").await;
            let _ = stream.read_u8().await;
            reset(stream);
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = pair.connect().await;
        let request =
            format!("POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: 1\r\n\r\n", origin.address);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"half") && !answer.ends_with(b"half\r\n") {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
        }
        client.write_all(b"x").await.unwrap();
        let ended = client.read_to_end(&mut answer).await;
        assert!(
            ended.as_ref().is_err_and(is_reset),
            "{ended:?} after {:?}",
            String::from_utf8_lossy(&answer)
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orderly_answer_ends_in_order_for_the_client() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it").await;
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let client = pair.connect().await;
        let request = format!("GET http://{0}/ HTTP/1.0\r\nHost: {0}\r\n\r\n", origin.address);
        let answer = String::from_utf8(exchange(client, request.as_bytes()).await.unwrap()).unwrap();
        assert!(answer.ends_with("all of it"), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_with_two_lengths_arrives_whole() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head).await;
            let _ = stream.write_all(b"9\r\nall of it\r\n0\r\n\r\n").await;
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let client = pair.connect().await;
        let request =
            format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", origin.address);
        let answer = String::from_utf8(exchange(client, request.as_bytes()).await.unwrap()).unwrap();
        assert!(answer.contains("all of it") && !answer.contains("ontent-"), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_transfer_coding_is_refused() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            loop {
                let lines = head(&mut stream).await;
                let Some(first) = lines.first() else { return };
                let coding = if first.contains("/gzip") { "gzip, Chunked" } else { "Chunked" };
                let answer =
                    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
                if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        for (path, fields, expected) in [
            ("/", "Transfer-Encoding: chunked\r\n", "HTTP/1.1 200 OK"),
            ("/gzip", "Transfer-Encoding: chunked\r\n", "HTTP/1.1 502 Bad Gateway"),
            ("/", "Transfer-Encoding: gzip, chunked\r\n", "HTTP/1.1 501 Not Implemented"),
            (
                "/",
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                "HTTP/1.1 501 Not Implemented",
            ),
        ] {
            let client = pair.connect().await;
            let request = format!(
                "POST http://{0}{path} HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n{fields}\r\n0\r\n\r\n",
                origin.address
            );
            let answer = String::from_utf8(exchange(client, request.as_bytes()).await.unwrap()).unwrap();
            assert_eq!(answer.lines().next(), Some(expected), "{path} with {fields:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_of_many_fields_pass_both_ways() {
    within(async {
        let many = |name: &str| (0..500).map(|n| format!("{name}-{n}: {n}\r\n")).collect::<String>();
        let fields = many("X-Answer");
        let origin = Origin::start(move |stream| {
            let fields = fields.clone();
            async move {
                let mut stream = BufReader::new(stream);
                let asked = head(&mut stream).await.iter().filter(|line| line.starts_with("X-Ask-")).count();
                let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 3\r\n\r\n{asked}");
                stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let request = format!(
            "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}Connection: close\r\n\r\n",
            origin.address,
            many("X-Ask")
        );
        let answer =
            String::from_utf8(exchange(pair.connect().await, request.as_bytes()).await.unwrap()).unwrap();
        assert!(answer.ends_with("\r\n\r\n500"), "{answer}");
        assert_eq!(answer.lines().filter(|line| line.starts_with("X-Answer-")).count(), 500);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrequested_switch_is_a_bad_gateway() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            let lines = head(&mut stream).await;
            assert!(!lines.iter().any(|line| line.to_ascii_lowercase().starts_with("upgrade")), "{lines:?}");
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n";
            stream.get_mut().write_all(answer).await.unwrap();
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let request = format!(
            "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            origin.address
        );
        assert_eq!(get(&mut client, &request).await.0, "HTTP/1.1 502 Bad Gateway");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_reset_ends_a_request_and_half_close_does_not() {
    within(async {
        let (answer, answering) = tokio::sync::watch::channel(false);
        let origin = Origin::start(move |mut stream| {
            let mut answering = answering.clone();
            async move {
                let _ = stream.read(&mut [0; 512]).await;
                // An error means the end of the test.
                let _ = answering.wait_for(|answering| *answering).await;
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nlate").await;
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let flows = || pair.branch.status().peers[0].flows_open;
        let request = format!("GET http://{0}/ HTTP/1.0\r\nHost: {0}\r\n\r\n", origin.address);
        let mut waiting = pair.connect().await;
        waiting.write_all(request.as_bytes()).await.unwrap();
        waiting.shutdown().await.unwrap();
        until(|| flows() == 1).await;
        let mut gone = Vec::new();
        for open in 2..5 {
            let mut client = pair.connect().await;
            client.write_all(request.as_bytes()).await.unwrap();
            until(|| flows() == open).await;
            gone.push(client);
        }
        gone.into_iter().for_each(reset);
        until(|| flows() == 1).await;
        answer.send_replace(true);
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("late"), "{answer}");
    })
    .await;
}
