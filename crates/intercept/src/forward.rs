//! `forward`: every connection goes to one destination, unknown to clients.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpStream;

use oncewire_codec::wire::Destination;
use oncewire_tunnel::flows::ends::{self, End};
use oncewire_tunnel::flows::pump::{self, Rerouted};

use super::router::Way;
use super::{Door, direct, proxy_protocol};

/// Carries one connection. The client is connected before the far side is, so a failure there is a reset.
///
/// With `with_client` the server first learns the client's address.
pub(super) async fn serve(
    door: &Door,
    stream: TcpStream,
    source: SocketAddr,
    target: Destination,
    with_client: bool,
) {
    let mut early = match with_client {
        true => Bytes::from(proxy_protocol::header(Some(source), stream.local_addr().ok())),
        false => Bytes::new(),
    };
    loop {
        let end = End::default();
        let opened = tokio::select! {
            opened = door.router.open(&door.intercept, &target, source) => opened,
            _ = end.reset(&stream) => return,
            never = ends::keep_half_open(&stream) => match never {},
        };
        early = match opened {
            Ok(Way::Link(flow)) => match pump::carry_unanswered(&stream, flow, early).await {
                Ok(_) => return,
                // This peer has just refused flows; another way is chosen.
                Err(Rerouted(early)) => early,
            },
            Ok(way) => return carry(stream, way, early).await,
            Err(why) => return door.no_way(source, &target, why),
        };
    }
}

/// Carries a connection by its way, with `early` ahead of the client's later bytes.
pub(super) async fn carry(stream: TcpStream, way: Way, early: Bytes) {
    match way {
        Way::Link(flow) => pump::carry(stream, flow, early).await,
        Way::Direct(server, counted) => direct::carry(stream, server, early, &counted).await,
    };
}
