//! Byte counters on a tunnel's sockets, TLS included.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes of one or more tunnel connections, both ways.
#[derive(Debug, Default)]
pub(crate) struct WireCounter {
    received: AtomicU64,
    sent: AtomicU64,
}

impl WireCounter {
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
}

/// A byte stream with counters.
#[derive(Debug)]
pub(crate) struct Counting<S> {
    inner: S,
    counter: Arc<WireCounter>,
}

impl<S> Counting<S> {
    pub(crate) fn new(inner: S, counter: Arc<WireCounter>) -> Self {
        Self { inner, counter }
    }

    /// Returns the stream beneath.
    pub(crate) fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Moves the bytes counted so far, and all later ones, to another counter: the peer's, once it is known.
    pub(crate) fn count_for(&mut self, counter: &Arc<WireCounter>) {
        counter.received.fetch_add(self.counter.received(), Relaxed);
        counter.sent.fetch_add(self.counter.sent(), Relaxed);
        self.counter = Arc::clone(counter);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counting<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let poll = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.counter.received.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &poll {
            this.counter.sent.fetch_add(*written as u64, Relaxed);
        }
        poll
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(written)) = &poll {
            this.counter.sent.fetch_add(*written as u64, Relaxed);
        }
        poll
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
