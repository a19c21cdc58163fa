//! Interim answers, 1xx, on their way to a client.
//!
//! See RFC 9110 §15.2. hyper hands them out as a client and sends none as a server. So they go out between
//! hyper's writes: it flushes a socket only when nothing of an answer waits, and the final answer is held
//! back until they have gone. hyper sends one interim answer by itself, 100, at the first look at the
//! request's body, regardless of the origin; it is taken out of hyper's output.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, BytesMut};
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::headers;
use super::heads::{Excess, Head};
use super::position::{Position, Reach};
use super::socket::ClientStream;
use super::target::RawTarget;

/// One client's output beside hyper's, and its input not yet requested by hyper.
pub(super) struct Interim {
    stream: Arc<TcpStream>,
    /// The client's head.
    head: Arc<Head>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BytesMut,
    /// A part of the waiting bytes was sent.
    is_begun: bool,
    /// Waker of the socket's flusher.
    flusher: Option<Waker>,
    /// Waker of the waiter for an empty queue.
    follower: Option<Waker>,
    position: Position,
    /// Whether hyper has an unfinished write.
    is_writing: bool,
    /// Whether hyper's next write may be its own 100.
    may_say: bool,
}

impl Interim {
    pub(super) fn new(stream: Arc<TcpStream>, head: Arc<Head>) -> Self {
        Self { stream, head, state: Mutex::default() }
    }

    /// Returns the client's head.
    pub(super) fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Whether the client has all begun answers completely.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && !state.is_writing
    }

    /// A head was read, with so much content, or content in chunks; returns its target if hyper has seen another.
    pub(super) fn end_head(&self, content: Option<u64>) -> Option<RawTarget> {
        self.state.lock().position.end_head(content)
    }

    /// Returns the number of the last request read.
    pub(super) fn request(&self) -> u64 {
        self.state.lock().position.request()
    }

    /// The content of a request was read to its end.
    pub(super) fn end_content(&self, request: u64) {
        self.state.lock().position.end_content(request);
    }

    /// Queues an interim answer; without room it is dropped, unless it is awaited.
    pub(super) fn push(&self, status: StatusCode, fields: &HeaderMap, is_awaited: bool) {
        let mut head = Response::new(());
        *head.status_mut() = status;
        fields.clone_into(head.headers_mut());
        headers::to_client(&mut head);
        let reason = status.canonical_reason().unwrap_or_default();
        let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
        for (name, value) in head.headers() {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        let mut state = self.state.lock();
        if !is_awaited && state.waiting.len() + bytes.len() > MAX_WAITING {
            return;
        }
        state.waiting.extend_from_slice(&bytes);
        let flusher = state.flusher.take();
        drop(state);
        flusher.into_iter().for_each(Waker::wake);
    }

    /// Waits until all queued answers have gone to the socket.
    pub(super) async fn gone(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.waiting.is_empty() {
                return Poll::Ready(());
            }
            state.follower = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until everything has gone to the socket, hyper's unfinished write included: its next write
    /// belongs to the present request.
    pub(super) async fn settled(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && !state.is_writing {
                return Poll::Ready(());
            }
            state.follower = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Removes hyper's own 100 if that is its next write; call it ahead of the first look at the request's
    /// body, once all has [`settled`](Self::settled).
    pub(super) fn silence(&self) {
        self.state.lock().may_say = true;
    }

    /// Waits until the client sends more than the head of its request, or will send nothing more.
    pub(super) async fn more(&self) {
        // Otherwise hyper has read them.
        if !self.state.lock().position.went_on() {
            // An end and an error are for hyper to find.
            let _ = self.stream.peek(&mut [0]).await;
        }
    }

    fn poll_send(&self, cx: &mut Context<'_>, may_begin: bool) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        let mut client = ClientStream(Arc::clone(&self.stream));
        while !state.waiting.is_empty() && (may_begin || state.is_begun) {
            let sent = ready!(Pin::new(&mut client).poll_write(cx, &state.waiting))?;
            state.waiting.advance(sent);
            state.is_begun = !state.waiting.is_empty();
        }
        if may_begin {
            state.flusher = Some(cx.waker().clone());
            state.is_writing = false;
        }
        let follower = if state.waiting.is_empty() { state.follower.take() } else { None };
        drop(state);
        follower.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    /// Notes hyper's write; returns how much of it is to be suppressed.
    fn unsaid(&self, written: &[u8]) -> Option<usize> {
        let mut state = self.state.lock();
        state.is_writing = true;
        let may_say = std::mem::take(&mut state.may_say);
        (may_say && written.starts_with(OWN_WORD)).then_some(OWN_WORD.len())
    }
}

/// A client's socket as hyper serves it.
pub(super) struct ClientIo {
    stream: ClientStream,
    interim: Arc<Interim>,
}

impl ClientIo {
    pub(super) fn new(interim: Arc<Interim>) -> Self {
        Self { stream: ClientStream(Arc::clone(&interim.stream)), interim }
    }

    /// Returns the socket.
    pub(super) fn into_stream(self) -> Arc<TcpStream> {
        self.stream.0
    }
}

impl ClientIo {
    /// Finds how much may be read at once; of a head, that is known once its bytes are there. None if no more
    /// of a head may be read: it is about to be given up, by [`Head::excess`].
    fn poll_reach(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Option<usize>>> {
        let room = self.interim.head.room().unwrap_or(usize::MAX).min(buf.remaining());
        if room == 0 {
            return Poll::Ready(Ok(None));
        }
        let reach = self.interim.state.lock().position.reach();
        match reach {
            Reach::Bytes(most) => Poll::Ready(Ok(Some(most.min(room)))),
            Reach::ToBlankLine => {
                let mut there = ReadBuf::new(buf.initialize_unfilled_to(room));
                ready!(self.stream.0.poll_peek(cx, &mut there))?;
                let len = match there.filled() {
                    // The end of the stream; to be read.
                    [] => Some(room),
                    there => self.interim.state.lock().position.of_head(there),
                };
                if len.is_none() {
                    self.interim.head.give_up(Excess::Empty);
                }
                Poll::Ready(Ok(len))
            }
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(len) = ready!(this.poll_reach(cx, buf))? else { return Poll::Pending };
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(len));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let read = part.filled_mut();
        let kept = this.interim.state.lock().position.go_through(read);
        let read = read.len();
        buf.advance(read);
        this.interim.head.read(read, kept);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(len) = this.interim.unsaid(buf) {
            return Poll::Ready(Ok(len));
        }
        ready!(this.interim.poll_send(cx, false))?;
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(len) = this.interim.unsaid(bufs.first().map_or(&[], |first| first)) {
            return Poll::Ready(Ok(len));
        }
        ready!(this.interim.poll_send(cx, false))?;
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.interim.poll_send(cx, true))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// hyper's output at the first look at a request's body.
const OWN_WORD: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The most waiting bytes of interim answers for one client, beside an awaited one.
const MAX_WAITING: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::super::heads::Heads;
    use super::*;

    #[tokio::test]
    async fn waiting_interim_answers_are_limited() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let interim = Interim::new(Arc::new(stream), Heads::default().expect(0));
        for _ in 0..10_000 {
            interim.push(StatusCode::EARLY_HINTS, &HeaderMap::new(), false);
        }
        let waiting = interim.state.lock().waiting.len();
        assert!((MAX_WAITING - 100..=MAX_WAITING).contains(&waiting), "{waiting}");
        // An awaited one finds room all the same.
        interim.push(StatusCode::CONTINUE, &HeaderMap::new(), true);
        assert!(interim.state.lock().waiting.len() > waiting);
    }
}
