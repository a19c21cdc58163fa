//! The sockets at both ends of the path.

use std::io;
use std::sync::Arc;

use oncewire_netem::tcp::{ConnectionId, Side};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc};

use super::driver::Command;

/// The path's output to a socket.
#[derive(Debug)]
pub(super) enum Delivery {
    Bytes(Vec<u8>),
    /// The other side's application ended its stream.
    Finish,
    /// The other side reset.
    Reset,
}

/// One end of one connection: moves bytes between its socket and the driver.
pub(super) struct EndOfPath {
    pub(super) connection: ConnectionId,
    pub(super) side: Side,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    /// How many bytes may be read from the socket.
    pub(super) permits: Arc<Semaphore>,
}

/// Why an end stops before both directions have ended.
enum Stop {
    /// The far application reset; the socket is to be reset too.
    ResetByPath,
    /// The socket failed; the path is to be told.
    Socket,
}

impl EndOfPath {
    /// Runs until both directions ended or either was reset.
    pub(super) async fn run(self, mut stream: TcpStream, deliveries: mpsc::UnboundedReceiver<Delivery>) {
        // Without this the kernel would hold back small writes already timed by the model.
        let _ = stream.set_nodelay(true);
        // Borrowed halves: an owned writing half ends the stream in order when it is dropped.
        let (reader, writer) = stream.split();
        match tokio::try_join!(self.read(reader), self.write(writer, deliveries)) {
            Ok(_) => {}
            Err(Stop::ResetByPath) => reset(&stream),
            Err(Stop::Socket) => {
                self.tell(Command::Reset { connection: self.connection, side: self.side });
            }
        }
    }

    async fn read(&self, reader: ReadHalf<'_>) -> Result<(), Stop> {
        let (connection, side) = (self.connection, self.side);
        loop {
            // The semaphore is never closed; the permit itself is the first byte's.
            let Ok(permit) = self.permits.acquire().await else { return Ok(()) };
            let bytes = read_some(&reader, self.permits.available_permits() + 1).await?;
            if bytes.is_empty() {
                self.tell(Command::Finish { connection, side });
                return Ok(());
            }
            permit.forget();
            self.permits.forget_permits(bytes.len() - 1);
            self.tell(Command::Written { connection, side, bytes });
        }
    }

    async fn write(
        &self,
        mut writer: WriteHalf<'_>,
        mut deliveries: mpsc::UnboundedReceiver<Delivery>,
    ) -> Result<(), Stop> {
        let (connection, side) = (self.connection, self.side);
        loop {
            match deliveries.recv().await {
                Some(Delivery::Bytes(bytes)) => {
                    writer.write_all(&bytes).await.map_err(|_| Stop::Socket)?;
                    self.tell(Command::Consumed { connection, side, bytes: bytes.len() as u64 });
                }
                Some(Delivery::Finish) => {
                    writer.shutdown().await.map_err(|_| Stop::Socket)?;
                    // A half-closed connection may still be reset; its end closes the channel.
                    return match deliveries.recv().await {
                        Some(Delivery::Reset) => Err(Stop::ResetByPath),
                        _ => Ok(()),
                    };
                }
                // A path's end without an end of stream must not look like one.
                Some(Delivery::Reset) | None => return Err(Stop::ResetByPath),
            }
        }
    }

    fn tell(&self, command: Command) {
        // The driver ends before its sockets only when the path is torn down.
        let _ = self.commands.send(command);
    }
}

/// Reads available bytes, at most `most`; none at the end of the stream.
async fn read_some(reader: &ReadHalf<'_>, most: usize) -> Result<Vec<u8>, Stop> {
    loop {
        // Memory is taken only once there is something to read: most connections are idle.
        reader.readable().await.map_err(|_| Stop::Socket)?;
        let mut bytes = Vec::with_capacity(most.min(READ_BYTES));
        match reader.try_read_buf(&mut bytes) {
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Stop::Socket),
        }
    }
}

/// Makes the coming close of a socket a reset.
pub(super) fn reset(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "emulated path: a socket will close in order instead of being reset");
    }
}

/// Most bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;
