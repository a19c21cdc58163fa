//! Joins two sockets when no link is used, with the same truths as over one.
//!
//! Bytes stay in the kernel where it can move them from socket to socket, and are copied where it can not.

use std::io;

use bytes::Bytes;
use tokio::net::TcpStream;

use super::pipes::{PIPES, Pipes};
use crate::flows::ends::End;
use crate::flows::pump::{self, Read};
use crate::ledger::direct::{Direct, Towards};
use crate::sockets;

/// Carries a connection between two prepared application sockets until both directions ended, or one broke.
pub(super) async fn carry(
    client: TcpStream,
    server: TcpStream,
    early: Bytes,
    direct: &Direct,
) -> pump::Ended {
    carry_by(&PIPES, client, server, early, direct).await
}

async fn carry_by(
    pipes: &Pipes,
    client: TcpStream,
    server: TcpStream,
    early: Bytes,
    direct: &Direct,
) -> pump::Ended {
    let (of_client, of_server) = (End::default(), End::default());
    let (near, far) = ((&client, &of_client), (&server, &of_server));
    let sent = Course { pipes, from: near.0, to: far, towards: Towards::Server, direct };
    let received = Course { pipes, from: far.0, to: near, towards: Towards::Client, direct };
    let both = async { tokio::try_join!(sent.carry(early), received.carry(Bytes::new())) };
    let broken = tokio::select! {
        ended = both => ended.err(),
        error = of_client.reset(&client) => Some(error),
        error = of_server.reset(&server) => Some(error),
    };
    match broken {
        None => pump::Ended::InOrder,
        Some(_) => {
            sockets::end_with_reset(&client);
            sockets::end_with_reset(&server);
            pump::Ended::Reset
        }
    }
}

/// One direction of a connection.
struct Course<'a> {
    pipes: &'a Pipes,
    from: &'a TcpStream,
    to: (&'a TcpStream, &'a End),
    towards: Towards,
    direct: &'a Direct,
}

impl Course<'_> {
    async fn carry(&self, early: Bytes) -> io::Result<()> {
        self.copy(&early).await?;
        loop {
            self.from.readable().await?;
            self.splice().await?;
            // What is left is what cannot be spliced: the end, urgent data, or everything where there is no pipe.
            match pump::read_block(self.from)? {
                Read::Nothing => {}
                Read::Bytes(block) => self.copy(&block).await?,
                Read::End(rest) => {
                    self.copy(&rest).await?;
                    break;
                }
            }
        }
        sockets::keep_half_open(self.from);
        let (to, end) = self.to;
        end.end_ours(to).await
    }

    /// Moves what is there, and what comes meanwhile, without looking at it.
    async fn splice(&self) -> io::Result<()> {
        let Some(mut pipe) = self.pipes.lend() else { return Ok(()) };
        while pipe.fill(self.from)? > 0 {
            while pipe.held() > 0 {
                match pipe.drain(self.to.0)? {
                    0 => self.to.0.writable().await?,
                    moved => self.direct.add_bytes(self.towards, moved),
                }
            }
            // Neither side of this need ever wait, and other connections share the thread.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn copy(&self, bytes: &[u8]) -> io::Result<()> {
        pump::write_all(self.to.0, bytes).await?;
        self.direct.add_bytes(self.towards, bytes.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ledger::Ledger;
    use crate::telemetry::Reason;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Sends as much both ways at once as no buffer holds, through a pool of so many pipes.
    async fn exchange(most: usize) {
        let ledger = Ledger::default();
        let counted = ledger.direct(None, &"somewhere", SocketAddr::from(([0; 4], 0)), Reason::Policy);
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
            carry_by(&pipes, taken_in, onward, Bytes::from_static(b""), &counted),
            talk(&mut client),
            talk(&mut server)
        );
        assert_eq!(ended.0, pump::Ended::InOrder);
        let flows = ledger.connections.flows();
        assert_eq!((flows[0].sent, flows[0].received), (12 << 20, 12 << 20));
    }

    #[tokio::test]
    async fn a_connection_for_which_no_pipe_is_left_is_copied() {
        exchange(0).await;
    }

    #[tokio::test]
    async fn the_directions_of_a_connection_can_share_one_pipe() {
        exchange(1).await;
    }
}
