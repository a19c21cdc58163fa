//! The far side of a flow: policy, connection onward, and carrying.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use oncewire_codec::wire::OpenFailure;
use oncewire_link::OpenRequest;
use oncewire_report::Refusal;

use crate::flows::{Flow, pump};
use crate::onward::{Onward, connect};
use crate::peer::{Offer, Peer};

/// Serves an offered flow in a task of the peer.
pub fn offer(peer: Arc<Peer>, Offer { flow, serial, open }: Offer) {
    let flow = Flow::new(Arc::clone(&peer), flow, serial);
    let tasks = Arc::clone(&peer.tasks);
    tasks.spawn(serve(peer, flow, open));
}

/// Connects a flow opened by the peer, answers it, and carries it.
async fn serve(peer: Arc<Peer>, flow: Flow, open: OpenRequest) {
    let onward = peer.onward();
    let connected = match client(&peer, &onward, &open) {
        _ if peer.is_draining() => Err(OpenFailure::Draining),
        Err(failure) => Err(failure),
        Ok(client) => tokio::select! {
            connected = connect(&open.destination, &onward, client) => {
                if matches!(connected, Err(OpenFailure::NotAllowed)) {
                    peer.tell_denied(&open.destination, DENIED_HERE);
                }
                connected
            }
            // A flow given up by the far side needs no connection.
            () = flow.over() => return,
        },
    };
    let answer = match &connected {
        Ok(stream) => Ok(stream.local_addr().unwrap_or(UNKNOWN_ADDRESS)),
        Err(failure) => Err(*failure),
    };
    flow.plan(onward.policies.plan(&open.destination, peer.name(), peer.settings.usual));
    flow.prioritize(onward.policies.priority(&open.destination, peer.name()));
    flow.answer(answer);
    match connected {
        Ok(stream) => {
            pump::carry(stream, flow, Bytes::new()).await;
        }
        Err(failure) => {
            if failure == OpenFailure::NotAllowed {
                peer.accounts.refusals.count(Refusal::NotAllowedTo);
            }
            tracing::debug!(peer = peer.name(), destination = %open.destination, %failure, "onward connect failed");
        }
    }
}

/// Returns the client address for the peer's connection, if not our own.
///
/// # Errors
/// If it may not use it.
fn client(peer: &Peer, onward: &Onward, open: &OpenRequest) -> Result<Option<SocketAddr>, OpenFailure> {
    let Some(client) = open.source.filter(|_| open.as_client) else { return Ok(None) };
    if onward.sources.iter().any(|network| network.contains(client.ip())) {
        return Ok(Some(client));
    }
    if let Some(held_back) = onward.log.due() {
        let why = "no connection in a client's name, since `allow_sources` does not name its network";
        tracing::warn!(peer = peer.name(), %client, held_back, "{why}");
    }
    Err(OpenFailure::NotAllowed)
}

const DENIED_HERE: &str =
    "the peer asked for a destination that it may not reach; see `allow` and `deny` in its [[peer]] section";

const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
