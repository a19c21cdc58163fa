//! A flow as a byte stream, for protocols spoken here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use oncewire_codec::wire::ResetReason;
use oncewire_host::tasks::Tasks;
use oncewire_link::Received;

use super::Flow;
use super::pump::Backlog;

/// A flow with the reading and writing of a socket: an end of stream only if the far application ended its own,
/// and an error for everything else.
pub struct FlowStream {
    /// Taken when dropped.
    flow: Option<Flow>,
    tasks: Arc<Tasks>,
    /// Received and not yet read.
    rest: Bytes,
    /// Read and not yet reported to the link.
    consumed: usize,
    /// How the reading direction ended.
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Finished,
    Reset(ResetReason),
}

impl FlowStream {
    /// Wraps a flow with an established far connection.
    pub fn new(flow: Flow, tasks: Arc<Tasks>) -> Self {
        Self { flow: Some(flow), tasks, rest: Bytes::new(), consumed: 0, end: None }
    }

    /// Gives the flow back to be carried; `unread` was read last, and is for its application. None if the far side has
    /// ended already.
    pub fn into_flow(mut self, unread: Bytes) -> Option<(Flow, Backlog)> {
        let backlog = Backlog::new(unread, std::mem::take(&mut self.rest), self.consumed);
        self.flow.take().filter(|_| self.end.is_none()).map(|flow| (flow, backlog))
    }
}

impl AsyncRead for FlowStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(flow) = &this.flow else { return Poll::Ready(Ok(())) };
        while this.rest.is_empty() {
            match this.end {
                Some(End::Finished) => return Poll::Ready(Ok(())),
                Some(End::Reset(reason)) => return Poll::Ready(Err(reset(reason))),
                None => {}
            }
            match ready!(flow.poll_received(cx, &mut this.consumed)) {
                Received::Data(bytes) => this.rest = bytes,
                Received::Finished => this.end = Some(End::Finished),
                Received::Reset(reason) => this.end = Some(End::Reset(reason)),
                Received::Opened(Ok(_)) => {}
                Received::Opened(Err(_)) => this.end = Some(End::Reset(ResetReason::OpenFailed)),
            }
        }
        let taken = this.rest.len().min(buf.remaining());
        buf.put_slice(this.rest.get(..taken).unwrap_or_default());
        this.rest.advance(taken);
        this.consumed += taken;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FlowStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(flow) = &this.flow else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(flow.poll_writable(cx));
        let taken = buf.get(..buf.len().min(flow.read_size())).unwrap_or_default();
        match flow.send(Bytes::copy_from_slice(taken), false) {
            Ok(_) => Poll::Ready(Ok(taken.len())),
            // A reader still gets the bytes before the reset, and then the reset.
            Err(_) if this.end.is_none() => Poll::Pending,
            Err(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(flow) = &self.flow {
            flow.finish();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for FlowStream {
    fn drop(&mut self) {
        let Some(flow) = self.flow.take() else { return };
        if flow.waits_for_far_end() {
            // We ended in order and are done, as after the close of a socket: the far application gets a
            // moment to end too, and only then a reset.
            let consumed = self.consumed + self.rest.len();
            self.tasks.spawn(async move {
                let _ = tokio::time::timeout(FAR_END_LIMIT, drain(flow, consumed)).await;
            });
        }
    }
}

async fn drain(flow: Flow, mut consumed: usize) {
    while let Received::Data(bytes) = flow.received(consumed).await {
        consumed = bytes.len();
    }
}

fn reset(reason: ResetReason) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, format!("the flow was reset: {reason}"))
}

/// How long a far application may take to end after we did.
const FAR_END_LIMIT: Duration = Duration::from_secs(5);
