//! Ends of applications' connections: real resets and apparent ones.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oncewire_host::sockets;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Knowledge of the end of an application's stream.
#[derive(Debug, Default)]
pub struct End {
    /// The application had ended its stream before we ended ours.
    is_whole: AtomicBool,
    /// The application has reset its connection, or it broke otherwise.
    is_broken: AtomicBool,
}

impl End {
    /// Waits for a reset by the application, unless its stream had ended earlier.
    ///
    /// A closed application is forgotten by its system after a minute, and a probe is then answered with a
    /// reset. Its data is complete and may still be under way; a failed send reveals the loss of the other
    /// direction.
    pub async fn reset(&self, stream: &TcpStream) -> io::Error {
        loop {
            let error = socket_error(stream).await;
            match error.kind() {
                // Linux reports a reset behind the end of a stream so,
                io::ErrorKind::BrokenPipe => {}
                // but not after our own end.
                io::ErrorKind::ConnectionReset if self.is_whole.load(Relaxed) => {}
                _ => {
                    self.broke();
                    return error;
                }
            }
        }
    }

    /// Remembers a broken connection. The system reports that once; later reads find the earlier bytes, and
    /// then an apparent end of the stream.
    pub fn broke(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Whether an apparent end of the stream is none.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Ends our fully written stream to the application; from now on a close is no reset.
    ///
    /// # Errors
    /// If the application has reset the connection.
    pub async fn end_ours(&self, stream: &TcpStream) -> io::Result<()> {
        self.is_whole.store(has_ended(stream).await?, Relaxed);
        sockets::end_cleanly(stream);
        match socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write) {
            // The application had ended its stream, and its system has forgotten it; its last bytes are still
            // to be read.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            ended => ended?,
        }
        sockets::keep_half_open(stream);
        Ok(())
    }
}

/// Whether our application has ended its stream, read completely or not.
///
/// # Errors
/// If it was reset: a stream with such an end is not whole.
async fn has_ended(stream: &TcpStream) -> io::Result<bool> {
    let ended = tokio::select! {
        biased;
        ready = stream.ready(Interest::READABLE) => ready?.is_read_closed(),
        () = std::future::ready(()) => false,
    };
    // A reset closes both ways. An earlier one shows here, and a present one was not seen above.
    match stream.take_error()? {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ended),
    }
}

/// Has an application probed more often after the end of its stream, read completely or not: a reader may be
/// held up for longer than middleboxes remember a half-open connection, and so may the connect onward.
pub async fn keep_half_open(stream: &TcpStream) -> Infallible {
    // Sockets are not registered for urgent data: this is ready with the end alone.
    if stream.ready(Interest::PRIORITY).await.is_ok() {
        sockets::keep_half_open(stream);
    }
    pending().await
}

/// Waits until a socket has failed, read by somebody or not.
pub async fn socket_error(stream: &TcpStream) -> io::Error {
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
