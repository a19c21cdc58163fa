//! Uploads through the HTTP proxy that their origin refuses before it has them.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::common::{Origin, Pair, noise, proxy, within};
use crate::http::head;

/// What a client says that it sends; far more than fits between it and an origin that takes nothing.
const LENGTH: usize = 1 << 30;

/// What it sends after it was refused.
const GOES_ON: usize = 64 << 20;

/// An upload of which nothing moved for so long is held up. On a slow machine that may be said too early, which weakens
/// a test and fails none.
const STILL: Duration = Duration::from_millis(300);

/// Sends until nothing moves any more.
async fn send_until_held_up(client: &mut OwnedWriteHalf, sent: &mut usize) {
    let piece = noise(1, 64 << 10);
    while let Ok(moved) = timeout(STILL, client.write(&piece)).await {
        *sent += moved.unwrap();
        assert!(*sent < LENGTH / 4, "the upload was not held up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_upload_is_refused_early_can_go_on_sending_and_reads_the_answer() {
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
        // The answer is there, with its end, and not read yet.
        while !client.ready(Interest::READABLE).await.unwrap().is_read_closed() {
            tokio::task::yield_now().await;
        }
        // More than all buffers between take: somebody has to.
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
async fn the_answer_to_an_upload_that_is_held_up_arrives() {
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
        // It is as before: the answer has not come because somebody took it after all.
        send_until_held_up(&mut write, &mut sent).await;
    })
    .await;
}
