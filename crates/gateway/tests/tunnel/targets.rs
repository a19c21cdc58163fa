//! Unencoded targets through the HTTP proxy, and their surroundings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::common::{Origin, Pair, noise, proxy, within};

/// Bytes sent unencoded by browsers and old programs.
const TAILS: [&[u8]; 13] = [
    b"/caf\xe9.txt",
    b"/\xb2\xe2\xca\xd4",
    b"/q?name=\xe9",
    b"/a<b>",
    b"/q?x=<b>&y=\"z\"",
    b"/a`b?`",
    b"/caf\xc3\xa9.txt?\xc3\xa9",
    b"/a|b",
    b"/a{b}^\\[]",
    b"/\"a\"",
    b"/%e9%<%%41%zz\xff",
    b"/plain",
    b"?\xe9",
];

/// Reads to the end of a head; nothing at the end of the stream.
pub(crate) async fn raw_head(stream: &mut (impl AsyncBufRead + Unpin)) -> Vec<u8> {
    let mut head = Vec::new();
    while stream.read_until(b'\n', &mut head).await.unwrap() > 0 && !head.ends_with(b"\r\n\r\n") {}
    head
}

fn line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\r').next().unwrap()
}

pub(crate) fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.strip_prefix(b": "))?
    })
}

/// Reads the content behind a head, without the marks of chunks.
pub(crate) async fn content(head: &[u8], stream: &mut (impl AsyncBufRead + Unpin)) -> Vec<u8> {
    let mut content = Vec::new();
    if let Some(len) = field(head, "content-length") {
        content.resize(std::str::from_utf8(len).unwrap().parse().unwrap(), 0);
        stream.read_exact(&mut content).await.unwrap();
    } else if field(head, "transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).await.unwrap();
            let len = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; len + 2];
            stream.read_exact(&mut chunk).await.unwrap();
            if len == 0 {
                break;
            }
            content.extend_from_slice(&chunk[..len]);
        }
    }
    content
}

/// An origin answering with the request line and the content of each request, and ending each connection
/// after so many.
async fn mirror(most: usize, connections: Arc<AtomicUsize>) -> Origin {
    Origin::start(move |stream| {
        connections.fetch_add(1, Relaxed);
        async move {
            let mut stream = BufReader::new(stream);
            for _ in 0..most {
                let head = raw_head(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                let body = [line(&head), b"\n", &content(&head, &mut stream).await].concat();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.get_mut().write_all(&[answer.as_bytes(), &body].concat()).await.unwrap();
            }
            // A request is under way by then, or none comes.
            raw_head(&mut stream).await;
        }
    })
    .await
}

/// A request with content; self-delimiting content is sent in chunks.
fn request(method: &str, origin: &Origin, tail: &[u8], content: &[u8]) -> Vec<u8> {
    let address = origin.address;
    let length = match content {
        [] => String::new(),
        content if content.ends_with(b"\r\n0\r\n\r\n") => "Transfer-Encoding: chunked\r\n".to_owned(),
        content => format!("Content-Length: {}\r\n", content.len()),
    };
    let begin = format!("{method} http://{address}");
    let fields = format!(" HTTP/1.1\r\nHost: {address}\r\nReferer: http://{address}/<\r\n{length}\r\n");
    [begin.as_bytes(), tail, fields.as_bytes(), content].concat()
}

/// The origin's expected view.
fn seen(method: &str, tail: &[u8], content: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if tail.starts_with(b"/") { b"" } else { b"/" };
    [method.as_bytes(), b" ", slash, tail, b" HTTP/1.1\n", content].concat()
}

pub(crate) async fn answer(client: &mut BufReader<TcpStream>) -> (Vec<u8>, Vec<u8>) {
    let head = raw_head(client).await;
    let body = content(&head, client).await;
    (head, body)
}

#[track_caller]
fn assert_bytes(got: &[u8], expected: &[u8]) {
    assert_eq!(got.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_targets_reach_origins_unchanged_over_link_and_direct() {
    within(async {
        let connections = Arc::new(AtomicUsize::new(0));
        let origin = mirror(1000, Arc::clone(&connections)).await;
        let direct =
            format!("[[policy]]\nmatch = {{ ports = [{}] }}\npath = \"direct\"\n", origin.address.port());
        for rules in ["", &direct] {
            let pair = Pair::start(&(proxy("http", "") + rules)).await;
            let mut client = BufReader::new(pair.connect().await);
            connections.store(0, Relaxed);
            for tail in TAILS {
                client.get_mut().write_all(&request("GET", &origin, tail, b"")).await.unwrap();
                let (head, body) = answer(&mut client).await;
                assert_bytes(line(&head), b"HTTP/1.1 200 OK");
                assert_bytes(&body, &seen("GET", tail, b""));
            }
            assert_eq!(connections.load(Relaxed), 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn request_like_content_is_unchanged_at_any_cut() {
    within(async {
        let origin = mirror(1000, Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let decoy = request("GET", &origin, b"/\xe9<decoy>", b"");
        let requests = [
            ("POST", &b"/<1>"[..], decoy.as_slice()),
            ("GET", b"/<2>", b""),
            ("PUT", b"/3", b"<"),
            ("GET", b"/\xe94", b""),
            ("DELETE", b"/5?\"", b"\r\n\r\nGET http://a/< HTTP/1.1"),
            ("GET", b"/\xe96", b""),
        ];
        let all: Vec<u8> = requests
            .iter()
            .flat_map(|(method, tail, content)| request(method, &origin, tail, content))
            .collect();
        // All at once, and each cut a little further on.
        for cut in (0..all.len()).step_by(7) {
            let mut client = BufReader::new(pair.connect().await);
            client.get_mut().set_nodelay(true).unwrap();
            for piece in [&all[..cut], &all[cut..]] {
                client.get_mut().write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            for (method, tail, content) in requests {
                let (head, body) = answer(&mut client).await;
                assert_bytes(line(&head), b"HTTP/1.1 200 OK");
                assert_bytes(&body, &seen(method, tail, content));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_target_behind_chunks_leaves_them_unchanged() {
    within(async {
        let origin = mirror(1000, Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let chunk = b"GET http://a/<\xe9> HTTP/1.1\r\n\r\n";
        let chunks = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n0\r\n\r\n"].concat();
        for _ in 0..20 {
            client.get_mut().write_all(&request("POST", &origin, b"/<", &chunks)).await.unwrap();
            let (head, body) = answer(&mut client).await;
            assert_bytes(line(&head), b"HTTP/1.1 200 OK");
            assert_bytes(&body, &seen("POST", b"/<", chunk));
            client.get_mut().write_all(&request("GET", &origin, b"/\xe9", b"")).await.unwrap();
            let (head, body) = answer(&mut client).await;
            assert_bytes(line(&head), b"HTTP/1.1 200 OK");
            assert_bytes(&body, &seen("GET", b"/\xe9", b""));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_target_is_retried_after_a_kept_connection_ends() {
    within(async {
        let connections = Arc::new(AtomicUsize::new(0));
        let origin = mirror(1, Arc::clone(&connections)).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        for turn in 1..5 {
            client.get_mut().write_all(&request("GET", &origin, b"/<\xe9>", b"")).await.unwrap();
            assert_bytes(&answer(&mut client).await.1, &seen("GET", b"/<\xe9>", b""));
            assert_eq!(connections.load(Relaxed), turn);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_bytes_outside_of_path_and_query_are_refused() {
    within(async {
        let origin = mirror(1, Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let address = origin.address;
        for target in [
            &b"http://127.0.0.1<:1/"[..],
            b"http://caf\xe9/<",
            b"http://[::1<lo]/",
            b"http://[fe80::1\xe9lo]:1/<",
            b"ht<tp://a/",
            b"/<",
            b"<",
            b"https://127.0.0.1/<",
            b"http:/<",
        ] {
            let request = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            let mut client = BufReader::new(pair.connect().await);
            client.get_mut().write_all(&request).await.unwrap();
            assert_bytes(line(&raw_head(&mut client).await), b"HTTP/1.1 400 Bad Request");
        }
        let long = [&b"/"[..], &[b'<'; 70_000]].concat();
        for (request, status) in [
            (b"CONNECT 127.0.0.1<:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), &b"400 Bad Request"[..]),
            (b"CONNECT [::1<lo]:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), b"400 Bad Request"),
            (request("GET", &origin, &long, b""), b"414 URI Too Long"),
            (format!("GET http://{address}/ a<b HTTP/1.1\r\n\r\n").into(), b"400 Bad Request"),
        ] {
            let mut client = BufReader::new(pair.connect().await);
            client.get_mut().write_all(&request).await.unwrap();
            assert_bytes(line(&raw_head(&mut client).await), &[b"HTTP/1.1 ", status].concat());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_zone_leads_to_the_origin_and_is_removed() {
    within(async {
        let origin = Origin::start_on("[::1]:0", |stream| async move {
            let mut stream = BufReader::new(stream);
            let head = raw_head(&mut stream).await;
            let host = field(&head, "host").unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", host.len());
            stream.get_mut().write_all(&[answer.as_bytes(), host].concat()).await.unwrap();
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let port = origin.address.port();
        for host in ["[::1]", "[::1%25lo]", "[::1%lo]"] {
            let mut client = BufReader::new(pair.connect().await);
            let asked = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n");
            client.get_mut().write_all(asked.as_bytes()).await.unwrap();
            let (head, got) = answer(&mut client).await;
            assert_bytes(line(&head), b"HTTP/1.1 200 OK");
            assert_bytes(&got, format!("[::1]:{port}").as_bytes());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_lines_lead_requests_and_too_many_are_refused() {
    within(async {
        let origin = mirror(1000, Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let asked = request("GET", &origin, b"/<", b"");
        let mut client = BufReader::new(pair.connect().await);
        for lines in [&b"\r\n"[..], b"", b"\r\n\r\n", b"\n", &[b'\n'; 200]] {
            client.get_mut().write_all(&[lines, &asked].concat()).await.unwrap();
            assert_bytes(&answer(&mut client).await.1, &seen("GET", b"/<", b""));
        }
        // All at once.
        let all = [b"\r\n", asked.as_slice()].concat().repeat(20);
        client.get_mut().write_all(&all).await.unwrap();
        for _ in 0..20 {
            assert_bytes(&answer(&mut client).await.1, &seen("GET", b"/<", b""));
        }
        for mut client in [client, BufReader::new(pair.connect().await)] {
            client.get_mut().write_all(&vec![b'\n'; 64 << 10]).await.unwrap();
            assert_bytes(line(&raw_head(&mut client).await), b"HTTP/1.1 400 Bad Request");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_in_a_raw_address_are_not_sent_on() {
    within(async {
        let origin = mirror(1, Arc::default()).await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let address = origin.address;
        let asked = [
            b"GET http://anna:w<\xe9@",
            address.to_string().as_bytes(),
            b"/@<\xe9#<part> HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
        .concat();
        client.get_mut().write_all(&asked).await.unwrap();
        assert_bytes(&answer(&mut client).await.1, &seen("GET", b"/@<\xe9", b""));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_bytes_in_answers_reach_clients_unchanged() {
    within(async {
        let location = [b"Location: http://a/\xe9<`\"\xc3\xa9>?".as_slice(), b"{|}^\\"].concat();
        let body = noise(61, 10_000);
        let sent =
            [b"HTTP/1.1 302 Found\r\n".as_slice(), &location, b"\r\nContent-Length: 10000\r\n\r\n", &body]
                .concat();
        let origin = Origin::start(move |stream| {
            let sent = sent.clone();
            async move {
                let mut stream = BufReader::new(stream);
                raw_head(&mut stream).await;
                stream.get_mut().write_all(&sent).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        client.get_mut().write_all(&request("GET", &origin, b"/<", b"")).await.unwrap();
        let (head, got) = answer(&mut client).await;
        assert_bytes(field(&head, "location").unwrap(), &location["Location: ".len()..]);
        assert!(got == body);
    })
    .await;
}
