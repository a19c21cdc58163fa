//! HTTP/1.0 origins with kept connections behind the HTTP proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncWriteExt as _, BufReader};

use crate::common::{Origin, Pair, proxy, within};
use crate::targets::{answer, content, field, raw_head};

/// An origin answering each request with its `Upgrade` field, and its content.
async fn old(connections: Arc<AtomicUsize>) -> Origin {
    Origin::start(move |stream| {
        connections.fetch_add(1, Relaxed);
        async move {
            let mut stream = BufReader::new(stream);
            loop {
                let head = raw_head(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                let asked = field(&head, "connection").filter(|_| field(&head, "upgrade").is_some());
                let body = [asked.unwrap_or_default(), &content(&head, &mut stream).await].concat();
                let answer = format!(
                    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.get_mut().write_all(&[answer.as_bytes(), &body].concat()).await.unwrap();
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_origins_get_all_content_and_keep_their_connections() {
    within(async {
        let pair = Pair::start(&proxy("http", "")).await;
        let sized = "Content-Length: 5\r\n\r\nsized";
        let chunked = "Transfer-Encoding: chunked\r\n\r\n6\r\nchunks\r\n0\r\n\r\n";
        let switch = "Connection: Upgrade\r\nUpgrade: chat\r\n\r\n";
        let asks = "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nchunks\r\n0\r\n\r\n";
        for (method, rest, expected, new_connections) in [
            ("POST", sized, "sized", 0),
            ("GET", "\r\n", "", 0),
            ("POST", chunked, "chunks", 1),
            ("GET", chunked, "chunks", 1),
            ("GET", switch, "Upgrade", 1),
            ("POST", asks, "chunks", 1),
        ] {
            let connections = Arc::new(AtomicUsize::new(0));
            let origin = old(Arc::clone(&connections)).await;
            let mut client = BufReader::new(pair.connect().await);
            let fields = format!("http://{0}/ HTTP/1.1\r\nHost: {0}\r\n", origin.address);
            for turn in 0..3 {
                let first = format!("GET {fields}\r\n");
                client.get_mut().write_all(first.as_bytes()).await.unwrap();
                assert_eq!(answer(&mut client).await.1, b"");
                let next = format!("{method} {fields}{rest}");
                client.get_mut().write_all(next.as_bytes()).await.unwrap();
                let (_, got) = answer(&mut client).await;
                assert_eq!(String::from_utf8(got).unwrap(), expected, "{method} with {rest:?}");
                assert_eq!(connections.load(Relaxed), 1 + (turn + 1) * new_connections, "{rest:?}");
            }
        }
    })
    .await;
}
