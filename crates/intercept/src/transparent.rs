//! `tproxy` and `redirect`: connections to others, unaware of us.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use oncewire_config::Mode;
use oncewire_host::sockets;
use oncewire_report::Refusal;
use tokio::net::TcpStream;

use super::{Door, forward};

/// Carries one connection to its destination.
pub(super) async fn serve(door: &Door, stream: TcpStream, source: SocketAddr) {
    match destination(door, &stream) {
        Ok(destination) => match door.held.claim(source, destination) {
            Some(way) => forward::carry(stream, way, Bytes::new()).await,
            None => forward::serve(door, stream, source, destination.into(), false).await,
        },
        Err(error) => {
            let line = format!("refused, since it was made to this port itself: {error}");
            door.turn_away(source, Refusal::BadRequest, &line);
        }
    }
}

/// Returns a connection's destination.
fn destination(door: &Door, stream: &TcpStream) -> io::Result<SocketAddr> {
    let local = stream.local_addr()?;
    let (destination, ours) = match &door.intercept.mode {
        // The kernel gave the accepted socket the client's destination address.
        Mode::Tproxy(_) => (local, local.ip().is_loopback()),
        _ => {
            let destination = sockets::original_destination(stream)?;
            (destination, destination == local)
        }
    };
    if ours { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(destination) }
}
