//! The admin interface's connections: few, and none idle.
//!
//! A client without a token must not use up the files needed for flows, be it by silence or by not taking
//! answers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A listener with a bounded number of connections.
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        // Errors are retried there.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let idle = Box::pin(tokio::time::sleep(IDLE_LIMIT));
        (Connection { stream, idle, is_full: false, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with a timeout of silence and of unread output.
pub(super) struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    /// Whether it has not taken its output: its input meanwhile is no progress.
    is_full: bool,
    /// The semaphore is never closed, so there is one.
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.unless_idle(cx, read, !this.is_full)
    }
}

impl Connection {
    /// Returns the outcome of an attempt, or fails after too long without progress.
    fn unless_idle<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Poll<io::Result<T>>,
        counts: bool,
    ) -> Poll<io::Result<T>> {
        match attempt {
            Poll::Ready(done) => {
                if counts {
                    self.idle.as_mut().reset(Instant::now() + IDLE_LIMIT);
                }
                Poll::Ready(done)
            }
            Poll::Pending => self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }

    fn written(&mut self, cx: &mut Context<'_>, attempt: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.is_full = attempt.is_pending();
        self.unless_idle(cx, attempt, true)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Connections at once; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 256;

/// The longest silence between requests, and the longest time without taking anything of an answer; scrapers ask every
/// minute or more often.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn client_not_reading_answers_is_disconnected() {
        let mut bounded = Bounded::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = bounded.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (connection, _) = bounded.accept().await;
        let (mut read, mut write) = tokio::io::split(connection);
        let asks = async {
            while client.write_all(&[1]).await.is_ok() {
                tokio::time::sleep(IDLE_LIMIT / 4).await;
            }
            std::future::pending().await
        };
        // Either of the two is notified.
        let reads = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await.unwrap_err().kind() };
        let answers = async {
            loop {
                if let Err(error) = write.write_all(&[0; 1 << 16]).await {
                    return error.kind();
                }
            }
        };
        let ended = timeout(IDLE_LIMIT * 4, async {
            tokio::select! {
                kind = answers => kind,
                () = asks => unreachable!(),
                kind = reads => kind,
            }
        });
        assert_eq!(ended.await, Ok(io::ErrorKind::TimedOut));
    }
}
