//! `forward`: every connection goes to one destination, which clients need not know of.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpStream;

use oncewire_codec::wire::Destination;

use super::router::Way;
use super::{Door, direct};
use crate::flows::pump;

/// Carries one connection. The client is connected before the far side is, so a failure there is a reset.
pub(super) async fn serve(door: &Door, stream: TcpStream, source: SocketAddr, target: Destination) {
    match door.router.open(&door.intercept, &target, source).await {
        Ok(Way::Link(flow)) => {
            pump::carry(stream, flow, Bytes::new()).await;
        }
        Ok(Way::Direct(server, counted)) => {
            direct::carry(stream, server, Bytes::new(), &counted).await;
        }
        Err(why) => door.no_way(source, &target, why),
    }
}
