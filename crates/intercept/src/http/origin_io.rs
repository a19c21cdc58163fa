//! Connections to origins under the library, by link or direct.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use oncewire_host::tasks::Tasks;
use oncewire_tunnel::accounts::direct::{Direct, Towards};
use oncewire_tunnel::flows::Flow;
use oncewire_tunnel::flows::pump::Backlog;
use oncewire_tunnel::flows::stream::FlowStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::super::router::Way;
use super::socket::ClientStream;
use super::target::RawLine;

/// A connection to an origin.
pub(super) struct OriginIo {
    stream: Stream,
    written: Written,
}

enum Stream {
    Link(FlowStream),
    Direct(DirectStream),
}

/// The library's past and next output to an origin.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The library has an unfinished write.
    is_writing: bool,
    /// The expected beginning of the next bytes, and its replacement.
    line: Option<RawLine>,
}

/// A connection to an origin beyond HTTP, with bytes already received.
pub(super) enum Carried {
    Link(Flow, Backlog),
    Direct(Arc<TcpStream>, Bytes, Direct),
}

impl Written {
    /// Has the beginning of the next request replaced by `line`; call it ahead of the library's request.
    /// False if other bytes are still to be written.
    pub(super) fn expect(&self, line: RawLine) -> bool {
        let mut state = self.0.lock();
        if !state.is_writing {
            state.line = Some(line);
        }
        !state.is_writing
    }
}

impl OriginIo {
    pub(super) fn new(way: Way, tasks: &Arc<Tasks>) -> Self {
        let stream = match way {
            Way::Link(flow) => Stream::Link(FlowStream::new(flow, Arc::clone(tasks))),
            Way::Direct(stream, direct) => {
                Stream::Direct(DirectStream { stream: ClientStream(Arc::new(stream)), direct })
            }
        };
        Self { stream, written: Written::default() }
    }

    pub(super) fn written(&self) -> Written {
        self.written.clone()
    }

    /// Gives the connection back to be carried; `unread` was read last. None if it has ended, or lacks a part
    /// of the request: the origin has switched early.
    pub(super) fn into_carried(self, unread: Bytes) -> Option<Carried> {
        if self.written.0.lock().is_writing {
            return None;
        }
        match self.stream {
            Stream::Link(stream) => {
                stream.into_flow(unread).map(|(flow, backlog)| Carried::Link(flow, backlog))
            }
            Stream::Direct(DirectStream { stream, direct }) => {
                Some(Carried::Direct(stream.0, unread, direct))
            }
        }
    }
}

impl AsyncRead for OriginIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Link(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OriginIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, written } = self.get_mut();
        let mut state = written.0.lock();
        state.is_writing = true;
        let Some(line) = &mut state.line else {
            drop(state);
            return stream.poll_write(cx, buf);
        };
        let Some(raw) = line.next(buf) else {
            return Poll::Ready(Err(io::Error::other("another request was expected")));
        };
        let sent = ready!(stream.poll_write(cx, raw))?;
        if line.sent(sent) {
            state.line = None;
        }
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.written.0.lock().is_writing = false;
        match &mut this.stream {
            Stream::Link(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Direct(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Link(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Stream {
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Link(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Direct(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }
}

/// A connection of our own to an origin, with byte counts.
struct DirectStream {
    stream: ClientStream,
    direct: Direct,
}

impl AsyncRead for DirectStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.direct.add_bytes(Towards::Client, buf.filled().len().saturating_sub(before));
        polled
    }
}

impl AsyncWrite for DirectStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &polled {
            this.direct.add_bytes(Towards::Server, *written);
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
