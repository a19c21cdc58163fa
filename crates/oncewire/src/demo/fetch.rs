//! The client at the near side.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tls::Tls;

/// Bytes changed on the way: the one failure no stage may survive.
#[derive(Debug)]
pub(crate) struct WrongBytes(String);

impl WrongBytes {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for WrongBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongBytes {}

/// Fetches a resource over a connection of its own, encrypted if `tls` is given, and compares it with the expected
/// bytes.
///
/// Returns the time from connecting to the last byte.
///
/// # Errors
///
/// A failing or stalled connection, and as [`WrongBytes`] the first byte different, missing or surplus.
pub(crate) async fn fetch(
    address: SocketAddr,
    tls: Option<&Tls>,
    resource: &str,
    expected: &[u8],
    progress: &ProgressBar,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    match tls {
        None => exchange(stream, resource, expected, progress).await?,
        Some(tls) => {
            let shaken = tokio::time::timeout(PATIENCE, tls.connect(stream)).await;
            let stream =
                shaken.context("the TLS handshake stands still")?.context("the TLS handshake failed")?;
            exchange(stream, resource, expected, progress).await?;
        }
    }
    Ok(began.elapsed())
}

/// Sends the request and compares the response until its end.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    resource: &str,
    expected: &[u8],
    progress: &ProgressBar,
) -> anyhow::Result<()> {
    let request = format!("GET {resource} HTTP/1.1\r\nHost: origin.example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("cannot send the request")?;
    let mut comparison = Comparison { head: Vec::new(), expected, seen: 0, whole_head: false };
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
        let Ok(read) = read else {
            bail!("nothing came for {} s at byte {} of {resource}", PATIENCE.as_secs(), comparison.seen);
        };
        let count =
            read.with_context(|| format!("the connection broke at byte {} of {resource}", comparison.seen))?;
        if count == 0 {
            break;
        }
        let fresh = comparison.take(buffer.get(..count).unwrap_or_default(), resource)?;
        progress.inc(fresh as u64);
    }
    if comparison.seen != expected.len() {
        bail!(WrongBytes::new(format!("{resource} ended at byte {} of {}", comparison.seen, expected.len())));
    }
    Ok(())
}

/// The received part of a response.
struct Comparison<'a> {
    head: Vec<u8>,
    whole_head: bool,
    expected: &'a [u8],
    /// Bytes of the body received, all as expected.
    seen: usize,
}

impl Comparison<'_> {
    /// Takes arrived bytes; returns how many belong to the body.
    fn take(&mut self, bytes: &[u8], resource: &str) -> anyhow::Result<usize> {
        let mut body = bytes;
        while !self.whole_head {
            let Some((first, rest)) = body.split_first() else { return Ok(0) };
            self.head.push(*first);
            body = rest;
            ensure!(self.head.len() <= MAX_HEAD, "the response to {resource} has no end of its head");
            if self.head.ends_with(b"\r\n\r\n") {
                let status =
                    String::from_utf8_lossy(&self.head).lines().next().unwrap_or_default().to_owned();
                ensure!(status.starts_with("HTTP/1.1 200"), "{resource} was answered with {status:?}");
                self.whole_head = true;
            }
        }
        let rest = self.expected.get(self.seen..).unwrap_or_default();
        if !rest.starts_with(body) {
            let same = rest.iter().zip(body).take_while(|(wanted, got)| wanted == got).count();
            bail!(WrongBytes::new(format!("byte {} of {resource} arrived wrong", self.seen + same)));
        }
        self.seen += body.len();
        Ok(body.len())
    }
}

/// Silence before a transfer counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const MAX_HEAD: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn fetched(response: &'static [u8], expected: &[u8]) -> anyhow::Result<Duration> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 16];
            stream.read_exact(&mut request).await.unwrap();
            // In two parts, for a split head.
            let (first, second) = response.split_at(9);
            stream.write_all(first).await.unwrap();
            stream.write_all(second).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
        let progress = ProgressBar::hidden();
        fetch(address, None, "/x", expected, &progress).await
    }

    #[tokio::test]
    async fn only_the_expected_response_passes() {
        assert!(fetched(b"HTTP/1.1 200 OK\r\n\r\nbytes", b"bytes").await.is_ok());
        for (response, expected, said) in [
            (&b"HTTP/1.1 200 OK\r\n\r\nbyTes"[..], &b"bytes"[..], "byte 2 of /x arrived wrong"),
            (b"HTTP/1.1 200 OK\r\n\r\nbyt", b"bytes", "/x ended at byte 3 of 5"),
            (b"HTTP/1.1 200 OK\r\n\r\nbytes!", b"bytes", "byte 5 of /x arrived wrong"),
        ] {
            let error = fetched(response, expected).await.unwrap_err().context("a stage");
            assert!(error.is::<WrongBytes>(), "{error:#}");
            assert_eq!(format!("{error:#}"), format!("a stage: {said}"));
        }
        let missing = fetched(b"HTTP/1.1 404 Not Found\r\n\r\n", b"bytes").await.unwrap_err();
        assert!(missing.to_string().contains("404") && !missing.is::<WrongBytes>(), "{missing}");
    }
}
