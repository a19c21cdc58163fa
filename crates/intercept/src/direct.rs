//! Relay between two sockets without a link, true to TCP.
//!
//! Ends and resets pass as over a link. Bytes stay in the kernel if it can move them from socket to socket,
//! and are copied otherwise.

use std::borrow::Borrow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use oncewire_host::sockets;
use oncewire_tunnel::accounts::direct::{Direct, Towards};
use oncewire_tunnel::flows::ends::{self, End};
use oncewire_tunnel::flows::pump::{self, REST_LIMIT, Read};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pipes::{PIPES, Pipes};

/// Carries a connection between two prepared application sockets until both directions ended, or one broke.
pub(super) async fn carry(
    client: impl Borrow<TcpStream>,
    server: TcpStream,
    early: Bytes,
    direct: &Direct,
) -> pump::Ended {
    carry_begun(client, server, (early, Bytes::new()), direct).await
}

/// As [`carry`]; of the bytes already read, the first are the client's, and the others the server's, already
/// counted.
pub(super) async fn carry_begun(
    client: impl Borrow<TcpStream>,
    server: impl Borrow<TcpStream>,
    early: (Bytes, Bytes),
    direct: &Direct,
) -> pump::Ended {
    carry_by(&PIPES, client.borrow(), server.borrow(), early, direct).await
}

async fn carry_by(
    pipes: &Pipes,
    client: &TcpStream,
    server: &TcpStream,
    (early, early_of_server): (Bytes, Bytes),
    direct: &Direct,
) -> pump::Ended {
    let (of_client, of_server) = (End::default(), End::default());
    let (near, far) = ((client, &of_client), (server, &of_server));
    let sent = Course::new(pipes, near, far, Towards::Server, direct);
    let received = Course::new(pipes, far, near, Towards::Client, direct);
    let receive = async {
        pump::write_all(client, &early_of_server).await.map_err(|_| SpliceError::To)?;
        received.carry(Bytes::new()).await
    };
    let (mut sending, mut receiving) = (pin!(sent.carry(early)), pin!(receive));
    let ended = {
        let there = async { sending.as_mut().await.map_err(|broken| broken.of(Towards::Server)) };
        let back = async { receiving.as_mut().await.map_err(|broken| broken.of(Towards::Client)) };
        let both = async { tokio::try_join!(there, back).map(drop) };
        tokio::select! {
            ended = both => ended,
            _ = of_client.reset(client) => Err(Towards::Client),
            _ = of_server.reset(server) => Err(Towards::Server),
            never = ends::keep_half_open(client) => match never {},
            never = ends::keep_half_open(server) => match never {},
        }
    };
    let Err(broken) = ended else { return pump::Ended::InOrder };
    // Its earlier bytes are on their way to the other.
    match broken {
        Towards::Client if !sent.is_over() => {
            of_client.broke();
            _ = timeout(REST_LIMIT, sending).await;
        }
        Towards::Server if !received.is_over() => {
            of_server.broke();
            _ = timeout(REST_LIMIT, receiving).await;
        }
        _ => {}
    }
    sockets::end_with_reset(client);
    sockets::end_with_reset(server);
    pump::Ended::Reset
}

/// One direction of a connection.
struct Course<'a> {
    pipes: &'a Pipes,
    from: (&'a TcpStream, &'a End),
    to: (&'a TcpStream, &'a End),
    towards: Towards,
    direct: &'a Direct,
    is_over: AtomicBool,
}

/// The broken one of its two connections.
enum SpliceError {
    From,
    To,
}

impl SpliceError {
    /// Returns the connection's owner, for a course towards this one.
    fn of(self, towards: Towards) -> Towards {
        match (self, towards) {
            (Self::To, towards) => towards,
            (Self::From, Towards::Server) => Towards::Client,
            (Self::From, Towards::Client) => Towards::Server,
        }
    }
}

impl<'a> Course<'a> {
    fn new(
        pipes: &'a Pipes,
        from: (&'a TcpStream, &'a End),
        to: (&'a TcpStream, &'a End),
        towards: Towards,
        direct: &'a Direct,
    ) -> Self {
        Self { pipes, from, to, towards, direct, is_over: AtomicBool::new(false) }
    }

    /// Whether it has ended, in any way.
    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    async fn carry(&self, early: Bytes) -> Result<(), SpliceError> {
        let ended = self.carry_all(&early).await;
        self.is_over.store(true, Relaxed);
        ended
    }

    async fn carry_all(&self, early: &[u8]) -> Result<(), SpliceError> {
        let ((from, end), (to, our_end)) = (self.from, self.to);
        self.copy(early).await?;
        loop {
            from.readable().await.map_err(|_| SpliceError::From)?;
            self.splice().await?;
            // The rest cannot be spliced: the end, urgent data, or everything without a pipe.
            match pump::read_block(from, pump::BLOCK) {
                Read::Nothing => {}
                Read::Bytes(block) => {
                    self.copy(&block).await?;
                    // As in `splice`: to find sockets ready takes no turn.
                    tokio::task::consume_budget().await;
                }
                Read::Failed(rest, _) => {
                    self.copy(&rest).await?;
                    return Err(SpliceError::From);
                }
                Read::End(rest) => {
                    self.copy(&rest).await?;
                    break;
                }
            }
        }
        if end.is_broken() {
            return Err(SpliceError::From);
        }
        our_end.end_ours(to).await.map_err(|_| SpliceError::To)
    }

    /// Splices present and later bytes unseen.
    async fn splice(&self) -> Result<(), SpliceError> {
        let Some(mut pipe) = self.pipes.lend() else { return Ok(()) };
        while pipe.fill(self.from.0).map_err(|_| SpliceError::From)? > 0 {
            while pipe.held() > 0 {
                match pipe.drain(self.to.0).map_err(|_| SpliceError::To)? {
                    0 => self.to.0.writable().await.map_err(|_| SpliceError::To)?,
                    moved => self.direct.add_bytes(self.towards, moved),
                }
            }
            // Neither side of this need ever wait, and other connections share the thread.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn copy(&self, bytes: &[u8]) -> Result<(), SpliceError> {
        pump::write_all(self.to.0, bytes).await.map_err(|_| SpliceError::To)?;
        self.direct.add_bytes(self.towards, bytes.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::task::Poll;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::coop;

    use super::*;
    use oncewire_report::Reason;
    use oncewire_tunnel::accounts::TrafficAccounts;

    /// Size of one copy.
    const BLOCK: usize = 64 << 10;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Sends more than all buffers both ways at once, through a pool of so many pipes.
    async fn exchange(most: usize) {
        let accounts = TrafficAccounts::default();
        let counted = accounts.direct(None, &"somewhere", SocketAddr::from(([0; 4], 0)), Reason::Policy);
        let ((mut client, taken_in), (onward, mut server)) = (connected().await, connected().await);
        let data: Arc<Vec<u8>> =
            Arc::new((0..12_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect());
        let talk = async |stream: &mut TcpStream| {
            let (mut read, mut write) = stream.split();
            let mut received = Vec::new();
            let sent = async {
                write.write_all(&data).await.unwrap();
                write.shutdown().await.unwrap();
            };
            tokio::join!(sent, async { read.read_to_end(&mut received).await.unwrap() });
            assert!(received == *data);
        };
        let pipes = Pipes::new(most);
        let ended = tokio::join!(
            carry_by(&pipes, &taken_in, &onward, Default::default(), &counted),
            talk(&mut client),
            talk(&mut server)
        );
        assert_eq!(ended.0, pump::Ended::InOrder);
        let flows = accounts.connections.flows();
        assert_eq!((flows[0].sent, flows[0].received), (12 << 20, 12 << 20));
    }

    #[tokio::test]
    async fn connection_without_a_pipe_is_copied() {
        exchange(0).await;
    }

    #[tokio::test]
    async fn copied_connection_yields_to_others() {
        let accounts = TrafficAccounts::default();
        let counted = accounts.direct(None, &"somewhere", SocketAddr::from(([0; 4], 0)), Reason::Policy);
        let ((client, taken_in), (onward, _server)) = (connected().await, connected().await);
        client.writable().await.unwrap();
        let waiting = client.try_write(&[7; 512 << 10]).unwrap();
        assert!(waiting > 4 * BLOCK, "the system takes {waiting} bytes");
        let (pipes, of_client, of_server) = (Pipes::new(0), End::default(), End::default());
        let (near, far) = ((&taken_in, &of_client), (&onward, &of_server));
        let course = Course::new(&pipes, near, far, Towards::Server, &counted);
        let mut carried = pin!(course.carry(Bytes::new()));
        let moved = || accounts.connections.flows()[0].sent as usize;
        poll_fn(|context| {
            // One block may go; then it is the others' turn.
            while let Poll::Ready(spent) = coop::poll_proceed(context)
                && coop::has_budget_remaining()
            {
                spent.made_progress();
            }
            let before = moved();
            assert!(carried.as_mut().poll(context).is_pending());
            assert!(moved() - before <= 2 * BLOCK, "{} bytes at once", moved() - before);
            if moved() == waiting { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    #[tokio::test]
    async fn both_directions_can_share_one_pipe() {
        exchange(1).await;
    }
}
