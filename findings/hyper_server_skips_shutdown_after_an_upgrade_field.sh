#!/usr/bin/env bash
# Expected: a connection of hyper's HTTP/1 server ends by shutting its stream down, unless a request became another
# protocol by an answer of 101. A request for an upgrade with the answer 200 changes nothing; and without
# `with_upgrades()` there is nothing to change.
# Observed: after one request with an `Upgrade` field, any plain requests behind it and answers of 200 to all, the end
# of the connection leaves `poll_shutdown` out and reports success. Without `with_upgrades()` it is the same. With it,
# `hyper::upgrade::on` hands the stream over at the end of the connection, as after a real upgrade.
# Relevance here: some clients offer HTTP/2 in their plain requests, and a WebSocket may be refused. TLS sends its
# close_notify in `poll_shutdown`, and a tunnel's stream may tell an end from an abort by it: behind such a request
# the client sees a whole answer and then a cut connection. For a clean end, the proxy takes the stream from
# `hyper::upgrade::on` and shuts it down; and before using the stream as a tunnel, it has to look at the status of its
# own answer.
set -euo pipefail
command -v cargo > /dev/null || { echo "needs cargo"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT; cd "$dir"
mkdir src
cat > Cargo.toml <<'T'
[package]
name = "farewell"
version = "0.0.0"
edition = "2021"
[dependencies]
http-body-util = "=0.1.5"
hyper = { version = "=1.12.0", features = ["http1", "server"] }
hyper-util = { version = "=0.1.21", features = ["tokio"] }
tokio = { version = "=1.54.1", features = ["io-util", "macros", "rt"] }
[profile.dev]
debug = false
[workspace]
T
cat > src/main.rs <<'R'
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{header::UPGRADE, server::conn::http1, service::service_fn, Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use tokio::io::{duplex, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

/// A stream with a farewell, as TLS has one: its shutdown writes a last byte.
struct Polite {
    inner: DuplexStream,
    said: bool,
}

impl AsyncRead for Polite {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Polite {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said {
            ready!(Pin::new(&mut self.inner).poll_write(cx, b"~"))?;
            self.said = true;
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Simple,
    Upgrades,
    Collects,
}

/// Answers 200 to everything; `Collects` also asks for the stream, and shuts it down if it comes.
async fn answer(request: Request<Incoming>, server: Server) -> Result<Response<Full<Bytes>>, hyper::Error> {
    if server == Server::Collects && request.headers().contains_key(UPGRADE) {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(hyper::upgrade::on(request).await.expect("the stream"));
            stream.shutdown().await.expect("a shutdown");
        });
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"page"))))
}

async fn case(server: Server, name: &str, requests: &str) {
    let (mut near, far) = duplex(4096);
    let served = tokio::spawn(async move {
        let stream = TokioIo::new(Polite { inner: far, said: false });
        let connection = http1::Builder::new().serve_connection(stream, service_fn(|request| answer(request, server)));
        if server == Server::Simple { connection.await } else { connection.with_upgrades().await }
    });
    near.write_all(requests.as_bytes()).await.unwrap();
    let mut answers = String::new();
    near.read_to_string(&mut answers).await.unwrap();
    served.await.unwrap().unwrap();
    let end = if answers.ends_with("page~") { "shut down" } else { "dropped" };
    println!("{server:?}, {name}: {} answers of 200, then {end}", answers.matches("HTTP/1.1 200 OK").count());
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let offer = "GET /1 HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    let plain = "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n";
    let last = "GET /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    for server in [Server::Simple, Server::Upgrades, Server::Collects] {
        case(server, "no offer", &format!("{plain}{plain}{last}")).await;
        case(server, "one offer", &format!("{offer}{plain}{last}")).await;
    }
}
R
export CARGO_TARGET_DIR="$PWD/target"
cargo build --quiet
cargo tree --quiet --depth 1 --prefix none | grep hyper
"$CARGO_TARGET_DIR/debug/farewell" | tee out
diff out - <<'O'
Simple, no offer: 3 answers of 200, then shut down
Simple, one offer: 3 answers of 200, then dropped
Upgrades, no offer: 3 answers of 200, then shut down
Upgrades, one offer: 3 answers of 200, then dropped
Collects, no offer: 3 answers of 200, then shut down
Collects, one offer: 3 answers of 200, then shut down
O
echo "as described: an offer that nobody took leaves the shutdown out"
