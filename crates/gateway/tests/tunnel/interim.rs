//! Interim answers through the HTTP proxy, and clients expecting 100.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;

use crate::common::{Origin, Pair, exchange, noise, proxy, within};
use crate::http::head;

const BODY: &[u8] = b"all that was asked for\r\n\r\nand more";

/// A request with `Expect: 100-continue`.
fn asking(origin: &Origin, version: &str) -> String {
    let address = origin.address;
    format!(
        "PUT http://{address}/ {version}\r\nHost: {address}\r\nExpect: 100-Continue\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    )
}

/// An origin sending `first`, then, on a signal, `second`, and answering with its later input.
async fn says(first: &'static str, second: &'static str) -> (Origin, watch::Sender<bool>) {
    let (tell, told) = watch::channel(false);
    let origin = Origin::start(move |stream| {
        let mut told = told.clone();
        async move {
            let mut stream = BufReader::new(stream);
            let lines = head(&mut stream).await;
            assert!(lines.contains(&"Expect: 100-Continue".to_owned()), "{lines:?}");
            stream.get_mut().write_all(first.as_bytes()).await.unwrap();
            told.wait_for(|told| *told).await.unwrap();
            stream.get_mut().write_all(second.as_bytes()).await.unwrap();
            let mut body = vec![0; BODY.len()];
            stream.read_exact(&mut body).await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all(&[answer.as_bytes(), &body].concat()).await.unwrap();
        }
    })
    .await;
    (origin, tell)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expecting_client_gets_interim_answers_in_time() {
    within(async {
        let hints = "HTTP/1.1 103 Early Hints\r\nConnection: x-hop\r\nX-Hop: 1\r\nLink: </a.css>; rel=preload\r\n\r\n";
        let (origin, tell) = says(hints, "HTTP/1.1 100 Continue\r\n\r\n").await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        client.get_mut().write_all(asking(&origin, "HTTP/1.1").as_bytes()).await.unwrap();
        // A 100 sent on connecting would come first.
        let lines = head(&mut client).await;
        assert_eq!(lines, ["HTTP/1.1 103 Early Hints", "link: </a.css>; rel=preload", "via: 1.1 oncewire"]);
        tell.send_replace(true);
        assert_eq!(head(&mut client).await, ["HTTP/1.1 100 Continue", "via: 1.1 oncewire"]);
        client.get_mut().write_all(BODY).await.unwrap();
        let lines = head(&mut client).await;
        assert_eq!(lines[0], "HTTP/1.1 200 OK");
        let mut body = vec![0; BODY.len()];
        client.read_exact(&mut body).await.unwrap();
        assert_eq!(body, BODY);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_interim_answers_arrive_unchanged_in_order() {
    within(async {
        let hints = |turn: usize| format!("HTTP/1.1 103 Early Hints\r\nLink: </{turn}>\r\n\r\n");
        let go_on = "HTTP/1.1 100 Continue\r\nX-Note: go on\r\n\r\n";
        // The 100 is before, between and behind the others.
        let said = [
            [go_on, &hints(1)].concat(),
            [&hints(1), go_on, &hints(2)].concat(),
            [&hints(1).repeat(500), go_on].concat(),
        ];
        for said in said {
            let (origin, tell) = says(said.clone().leak(), "").await;
            tell.send_replace(true);
            let pair = Pair::start(&proxy("http", "")).await;
            let mut client = BufReader::new(pair.connect().await);
            client.get_mut().write_all(asking(&origin, "HTTP/1.1").as_bytes()).await.unwrap();
            for wanted in said.split("\r\n\r\n").filter(|wanted| !wanted.is_empty()) {
                let [status, field] = wanted.split("\r\n").collect::<Vec<_>>()[..] else {
                    panic!("{wanted}")
                };
                let got = head(&mut client).await;
                assert!(got[0] == status && got[1].eq_ignore_ascii_case(field), "{wanted}: {got:?}");
            }
            client.get_mut().write_all(BODY).await.unwrap();
            assert_eq!(head(&mut client).await[0], "HTTP/1.1 200 OK");
            let mut body = vec![0; BODY.len()];
            client.read_exact(&mut body).await.unwrap();
            assert_eq!(body, BODY);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_joined_to_a_continue_follows_it() {
    within(async {
        let (origin, tell) =
            says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "").await;
        tell.send_replace(true);
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        client.get_mut().write_all(asking(&origin, "HTTP/1.1").as_bytes()).await.unwrap();
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 100 Continue");
        let lines = head(&mut client).await;
        assert_eq!(lines[0], "HTTP/1.1 200 OK");
        let mut body = [0; 2];
        client.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"ok");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_unexpected_body_disturbs_no_answer() {
    within(async {
        let large = noise(5, 8 << 20);
        let answer = large.clone();
        let origin = Origin::start(move |stream| {
            let answer = answer.clone();
            async move {
                let mut stream = BufReader::new(stream);
                head(&mut stream).await;
                let lines = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                stream.get_mut().write_all(lines.as_bytes()).await.unwrap();
                stream.get_mut().write_all(&answer).await.unwrap();
                head(&mut stream).await;
                let mut body = vec![0; BODY.len()];
                stream.read_exact(&mut body).await.unwrap();
                let lines = "HTTP/1.1 204 No Content\r\n\r\n";
                stream.get_mut().write_all(lines.as_bytes()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let first = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
        let requests = [first.as_bytes(), asking(&origin, "HTTP/1.1").as_bytes(), BODY].concat();
        client.get_mut().write_all(&requests).await.unwrap();
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 200 OK");
        let mut body = vec![0; large.len()];
        client.read_exact(&mut body).await.unwrap();
        assert!(body == large);
        assert_eq!(head(&mut client).await[0], "HTTP/1.1 204 No Content");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_without_a_continue_reaches_the_origin() {
    within(async {
        let (origin, tell) = says("", "").await;
        tell.send_replace(true);
        let pair = Pair::start(&proxy("http", "")).await;
        let request = asking(&origin, "HTTP/1.1");
        // With its head, behind it, and cut in between.
        for at in [0, 1, BODY.len()] {
            let mut client = BufReader::new(pair.connect().await);
            let (early, late) = BODY.split_at(at);
            client.get_mut().write_all(&[request.as_bytes(), early].concat()).await.unwrap();
            if !late.is_empty() {
                // The head is with the origin by then, or not: both must do.
                tokio::task::yield_now().await;
                client.get_mut().write_all(late).await.unwrap();
            }
            assert_eq!(head(&mut client).await[0], "HTTP/1.1 200 OK", "{at}: nobody has said to go on");
            let mut body = vec![0; BODY.len()];
            client.read_exact(&mut body).await.unwrap();
            assert_eq!(body, BODY);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_without_the_body_ends_both_connections() {
    within(async {
        let (ended, mut has_ended) = watch::channel(false);
        let origin = Origin::start(move |stream| {
            let ended = ended.clone();
            async move {
                let mut stream = BufReader::new(stream);
                head(&mut stream).await;
                // It would take the body, or another request: the connection stays open.
                let answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
                stream.get_mut().write_all(answer).await.unwrap();
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                assert_eq!(rest, b"", "nobody was to send that");
                ended.send_replace(true);
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = pair.connect().await;
        client.write_all(asking(&origin, "HTTP/1.1").as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("\r\n\r\nno"), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
        has_ended.wait_for(|ended| *ended).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_http_clients_get_no_interim_answers() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            let lines = head(&mut stream).await;
            assert!(!lines.iter().any(|line| line.starts_with("Expect")), "{lines:?}");
            let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
            stream.get_mut().write_all(hints).await.unwrap();
            let mut body = vec![0; BODY.len()];
            stream.read_exact(&mut body).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.get_mut().write_all(answer).await.unwrap();
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let request = [asking(&origin, "HTTP/1.0").as_bytes(), BODY].concat();
        let answer = String::from_utf8(exchange(pair.connect().await, &request).await.unwrap()).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 ") || answer.starts_with("HTTP/1.1 200 "), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_answers_come_between_the_answers_of_pipelined_requests() {
    within(async {
        let large = noise(4, 8 << 20);
        let answer = large.clone();
        let origin = Origin::start(move |stream| {
            let answer = answer.clone();
            async move {
                let mut stream = BufReader::new(stream);
                while !head(&mut stream).await.is_empty() {
                    let lines = format!(
                        "HTTP/1.1 103 Early Hints\r\nLink: </{}>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                        "a".repeat(10_000),
                        answer.len()
                    );
                    stream.get_mut().write_all(lines.as_bytes()).await.unwrap();
                    stream.get_mut().write_all(&answer).await.unwrap();
                }
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = BufReader::new(pair.connect().await);
        let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address);
        client.get_mut().write_all(request.repeat(3).as_bytes()).await.unwrap();
        let mut body = vec![0; large.len()];
        for turn in 0..3 {
            assert_eq!(head(&mut client).await[0], "HTTP/1.1 103 Early Hints", "{turn}");
            assert_eq!(head(&mut client).await[0], "HTTP/1.1 200 OK", "{turn}");
            client.read_exact(&mut body).await.unwrap();
            assert!(body == large, "{turn}");
        }
    })
    .await;
}
