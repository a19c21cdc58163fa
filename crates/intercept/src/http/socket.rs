//! Closing of clients' sockets.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use oncewire_host::sockets;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The client's socket: its close is a reset, until hyper shuts it down in order.
pub(super) struct ClientStream(pub(super) Arc<TcpStream>);

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf.initialize_unfilled()) {
                Ok(len) => {
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_by(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(end_in_order(&self.0))
    }
}

/// Ends our fully written stream to a client.
pub(super) fn end_in_order(stream: &TcpStream) -> io::Result<()> {
    sockets::end_cleanly(stream);
    match SockRef::from(stream).shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        ended => ended,
    }
}

impl ClientStream {
    fn poll_write_by(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if passes(&error) => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// Drains a client's rest after its answer, for example a refused upload: closing a socket with unread bytes
/// resets it, and a client meeting a reset while sending does not look for an answer (RFC 9112 §9.6).
pub(super) async fn hear_out(stream: &TcpStream, mut stopped: watch::Receiver<bool>) {
    let mut bytes = [0; 2 << 10];
    let ended = async {
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut bytes) {
                Ok(0) => return,
                Err(error) if !passes(&error) => return,
                Ok(_) | Err(_) => {}
            }
        }
    };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(HEARING_LIMIT) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

/// Whether to try again as soon as the socket is ready.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// How long a client may go on sending after its last answer.
const HEARING_LIMIT: Duration = Duration::from_secs(10);
