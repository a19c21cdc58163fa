//! Uploads through the HTTP proxy, refused early by their origin.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::common::{Origin, Pair, noise, proxy, within};
use crate::http::head;

/// A client's claimed length; far beyond the buffers between it and an origin taking nothing.
const LENGTH: usize = 1 << 30;

/// Bytes sent after the refusal.
const GOES_ON: usize = 64 << 20;

/// An upload without progress for so long is held up. On a slow machine that may be reported too early; it
/// weakens a test and fails none.
const STILL: Duration = Duration::from_millis(300);

/// Sends until nothing moves.
async fn send_until_held_up(client: &mut OwnedWriteHalf, sent: &mut usize) {
    let piece = noise(1, 64 << 10);
    while let Ok(moved) = timeout(STILL, client.write(&piece)).await {
        *sent += moved.unwrap();
        assert!(*sent < LENGTH / 4, "the upload was not held up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_refused_upload_still_gets_its_answer() {
    within(async {
        let origin = Origin::start(|stream| async move {
            let mut stream = BufReader::new(stream);
            head(&mut stream).await;
            let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).await.unwrap();
            stream.get_mut().shutdown().await.unwrap();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let mut client = pair.connect().await;
        let piece = noise(1, 64 << 10);
        let request = format!(
            "PUT http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: {LENGTH}\r\n\r\n",
            origin.address
        );
        client.write_all(request.as_bytes()).await.unwrap();
        client.write_all(&piece).await.unwrap();
        // The answer is there, with its end, and still unread.
        while !client.ready(Interest::READABLE).await.unwrap().is_read_closed() {
            tokio::task::yield_now().await;
        }
        // More than all buffers between: it needs a reader.
        for _ in 0..GOES_ON / piece.len() {
            client.write_all(&piece).await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_stalled_upload_arrives() {
    within(async {
        let (refuse, refused) = watch::channel(false);
        let origin = Origin::start(move |stream| {
            let mut refused = refused.clone();
            async move {
                let mut stream = BufReader::new(stream);
                head(&mut stream).await;
                refused.wait_for(|refused| *refused).await.unwrap();
                let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
                stream.get_mut().write_all(answer).await.unwrap();
                // It neither reads nor closes.
                let _ = refused.wait_for(|refused| !*refused).await;
            }
        })
        .await;
        let pair = Pair::start(&proxy("http", "")).await;
        let (read, mut write) = pair.connect().await.into_split();
        let request = format!(
            "PUT http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: {LENGTH}\r\n\r\n",
            origin.address
        );
        write.write_all(request.as_bytes()).await.unwrap();
        let mut sent = 0;
        send_until_held_up(&mut write, &mut sent).await;
        refuse.send_replace(true);
        let lines = head(&mut BufReader::new(read)).await;
        assert_eq!(lines[0], "HTTP/1.1 413 Content Too Large");
        // Still stalled: no reader has caused the answer.
        send_until_held_up(&mut write, &mut sent).await;
    })
    .await;
}
