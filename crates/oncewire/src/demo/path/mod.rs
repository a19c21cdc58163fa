//! The emulated path between the two sides of the demonstration.
//!
//! One task, the [`driver`], owns one model of two links and the TCP connections across them
//! ([`oncewire_netem::tcp::Network`]). Relays accept real connections on loopback at the near side, carry each over
//! the model and connect on to a real server at the far side. All of them share the rate of the same links.

mod driver;
mod ends;

use std::io;
use std::net::SocketAddr;

use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::tcp::{Account, Network, Side, Traffic};
use oncewire_netem::{LinkCounters, LinkParams, ParamsError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use driver::{Command, Driver};

/// A running emulated path; on drop it ends, and resets its connections.
#[derive(Debug)]
pub(crate) struct EmulatedLink {
    commands: mpsc::UnboundedSender<Command>,
    driver: JoinHandle<()>,
}

/// A listener at the near side, with its connections led across the path; it stops accepting when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
}

/// The traffic of one account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathTraffic {
    /// Sent by the near side.
    pub(crate) up: Traffic,
    /// Sent by the far side.
    pub(crate) down: Traffic,
}

impl EmulatedLink {
    /// Starts a path: `up` leads from the relays' listeners to their targets, `down` back.
    ///
    /// # Errors
    ///
    /// A link's settings out of range.
    pub(crate) fn start(up: LinkParams, down: LinkParams) -> Result<Self, ParamsError> {
        let network = Network::new(up, down)?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let driver = Driver::new(network, commands.clone());
        Ok(Self { commands, driver: tokio::spawn(driver.run(inbox)) })
    }

    /// Listens on `listen` and carries each connection over the path to `target`.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub(crate) fn relay(
        &self,
        listen: SocketAddr,
        target: SocketAddr,
        policy: Policy,
        account: Account,
    ) -> io::Result<Relay> {
        let socket = socket_for(listen)?;
        socket.set_reuseaddr(true)?;
        socket.bind(listen)?;
        let listener = socket.listen(1024)?;
        let local_addr = listener.local_addr()?;
        let commands = self.commands.clone();
        let accepting = tokio::spawn(accept(listener, commands, target, policy, account));
        Ok(Relay { local_addr, accepting })
    }

    /// Returns the traffic of an account so far.
    pub(crate) async fn traffic(&self, account: Account) -> PathTraffic {
        let (reply, answer) = oneshot::channel();
        // An ended driver counts nothing more.
        let _ = self.commands.send(Command::Traffic { account, reply });
        answer.await.unwrap_or_default()
    }

    /// Returns the counters of a side's outgoing link.
    pub(crate) async fn link_counters(&self, side: Side) -> LinkCounters {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::LinkCounters { side, reply });
        answer.await.unwrap_or_default()
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Relay {
    /// Returns the address to connect to.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl PathTraffic {
    /// Returns payload bytes both ways, each counted once, as at the tunnel's sockets.
    pub(crate) fn payload(&self) -> u64 {
        self.up.payload + self.down.payload
    }

    /// Returns all bytes both ways, headers, acknowledgements and repetitions included.
    pub(crate) fn packets_bytes(&self) -> u64 {
        self.up.packets_bytes + self.down.packets_bytes
    }
}

async fn accept(
    listener: TcpListener,
    commands: mpsc::UnboundedSender<Command>,
    target: SocketAddr,
    policy: Policy,
    account: Account,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if commands.send(Command::Open { stream, target, policy, account }).is_err() {
                    return;
                }
            }
            // Out of descriptors, or a connection already gone: others may still come.
            Err(error) => {
                tracing::debug!(%error, "emulated path: accept failed");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

/// Makes a socket with a small receive buffer: the model's buffers are the ones to fill.
fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    Ok(socket)
}

const SOCKET_BUFFER: u32 = 64 << 10;

#[cfg(test)]
mod tests;
