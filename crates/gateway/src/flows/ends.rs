//! How connections of applications end: what is a reset, and what only looks like one.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::sockets;

/// What is known of the end of an application's stream.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The application had ended its stream before we ended ours.
    is_whole: AtomicBool,
    /// The application has reset its connection, or it broke otherwise.
    is_broken: AtomicBool,
}

impl End {
    /// Waits until the application has reset its connection, unless it had ended its stream before.
    ///
    /// Who has sent all and closed is forgotten by its system after a minute, and a probe is then answered with a reset.
    /// What it sent is whole and may still be under way; that nothing can be sent to it any more is found out by sending.
    pub(crate) async fn reset(&self, stream: &TcpStream) -> io::Error {
        loop {
            let error = socket_error(stream).await;
            match error.kind() {
                // So Linux calls a reset behind the end of a stream,
                io::ErrorKind::BrokenPipe => {}
                // but not once we have ended ours too.
                io::ErrorKind::ConnectionReset if self.is_whole.load(Relaxed) => {}
                _ => {
                    self.broke();
                    return error;
                }
            }
        }
    }

    /// Remembers that the connection broke. The system tells of that once, and whoever reads afterwards finds what came
    /// before, and then what looks like an end of the stream.
    pub(crate) fn broke(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Says whether what is read as an end of the stream is none.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Ends our stream to the application, to which everything was written; from now on a close is no reset.
    ///
    /// # Errors
    /// If the application has reset the connection.
    pub(crate) async fn end_ours(&self, stream: &TcpStream) -> io::Result<()> {
        self.is_whole.store(has_ended(stream).await?, Relaxed);
        sockets::end_cleanly(stream);
        match socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write) {
            // The application had ended its stream, and its system has forgotten it; what it sent is still to be read.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            ended => ended?,
        }
        sockets::keep_half_open(stream);
        Ok(())
    }
}

/// Says whether our application has ended its stream, whether or not all of it was read.
///
/// # Errors
/// If it was reset: a stream that ended so is not whole.
async fn has_ended(stream: &TcpStream) -> io::Result<bool> {
    let ended = tokio::select! {
        biased;
        ready = stream.ready(Interest::READABLE) => ready?.is_read_closed(),
        () = std::future::ready(()) => false,
    };
    // A reset closes both ways. One that came before we looked shows here, and one that comes now was not seen above.
    match stream.take_error()? {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ended),
    }
}

/// Has an application probed more often once it has ended its stream, whether or not all of that was read: who reads may
/// be held up for longer than half a connection is remembered on the way, and so may the connect onward.
pub(crate) async fn keep_half_open(stream: &TcpStream) -> Infallible {
    // Sockets are not registered for urgent data, so that this is ready with the end alone.
    if stream.ready(Interest::PRIORITY).await.is_ok() {
        sockets::keep_half_open(stream);
    }
    pending().await
}

/// Waits until a socket has failed, whether or not anybody reads it.
pub(crate) async fn socket_error(stream: &TcpStream) -> io::Error {
    loop {
        if let Err(error) = stream.ready(Interest::ERROR).await {
            return error;
        }
        match stream.take_error() {
            Ok(Some(error)) | Err(error) => return error,
            Ok(None) => {
                // Not an error after all; clear the readiness, or this loop would spin.
                let _ = stream.try_io(Interest::ERROR, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            }
        }
    }
}
