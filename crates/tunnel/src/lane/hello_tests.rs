//! Lane joins: peers with logs on disk only, rotated keys, waiting flows.

use oncewire_codec::wanax::NameKey;
use oncewire_keys::ProofKey;
use oncewire_link::{LaneRefused, LinkConfig};
use oncewire_mesh::MemberId;
use parking_lot::RwLock;

use super::testing::{GREATER, Other, SMALLER, config, key, peer, peer_with, request};
use super::*;
use crate::neighbours::{Member, Neighbours};

/// Brings the link up and down again, and then leaves the logs on disk only.
async fn idle() -> Arc<Peer> {
    let peer = peer();
    let joined = Other::new(2, SMALLER).dial(&peer).await.unwrap();
    peer.lane_lost(&joined.signal, false, false);
    peer.only_on_disk();
    peer
}

#[tokio::test]
async fn dialler_gets_hello_once_logs_are_back() {
    let peer = idle().await;
    let mut other = Other::new(3, SMALLER);
    let begun = other.begin(&peer).await;
    assert!(!peer.logs.is_on_disk_only(), "it would take the link for up");
    other.finish(begun).await.unwrap();
}

#[tokio::test]
async fn dialled_peer_gets_hello_once_logs_are_back() {
    let peer = idle().await;
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let mut bytes = Vec::new();
    Other::new(3, SMALLER).link.hello(LaneId(0), LaneRole::Control).encode(&mut bytes);
    near.write_all(&bytes).await.unwrap();
    let joining = {
        let peer = Arc::clone(&peer);
        async move {
            let heard = hear_hello(key(SMALLER), far).await?;
            answer_hello(&peer, heard, LaneId(7), LaneRole::Control).await.map(drop)
        }
    };
    let joining = tokio::spawn(joining);
    read_hello(&mut near).await.unwrap();
    assert!(!peer.logs.is_on_disk_only(), "it would take the link for up");
    joining.await.unwrap().unwrap();
}

#[tokio::test]
async fn rotated_key_ends_only_flows_of_the_old_key() {
    let peer = peer();
    let mut before = Other::new(2, SMALLER);
    let joined = before.dial(&peer).await.unwrap();
    let flow = crate::flows::open(&peer, request()).unwrap();
    assert_eq!(flow.id().0 & 1, 1);
    peer.lane_lost(&joined.signal, false, false);
    let mut after = Other::new(3, GREATER);
    after.dial(&peer).await.unwrap();
    assert_eq!(crate::flows::open(&peer, request()).unwrap().id().0 & 1, 0, "our key is the smaller one now");
    assert!(matches!(flow.received(0).await, oncewire_link::Received::Reset(_)));
    // A holder of both keys at once would number flows both ways.
    let refused = Other { key: key(SMALLER), ..after }.dial(&peer).await;
    assert!(matches!(refused, Err(HelloFailure::Join(JoinError::KeyChanged))));
}

#[tokio::test]
async fn group_member_is_known_by_its_current_key() {
    let (neighbours, _inbox) = Neighbours::new();
    let id = |text| MemberId::of_key(key(text).as_bytes());
    let mut peer = peer();
    Arc::get_mut(&mut peer).unwrap().settings.group = Some(Member {
        group: Arc::new(RwLock::new("all".to_owned())),
        key: NameKey::new([7; 32]),
        proofs: ProofKey::of_bytes(&[7; 32]),
        id: Arc::new(RwLock::new(id(SMALLER))),
        site: None,
        is_near: true,
        neighbours,
    });
    let known = || peer.settings.group.as_ref().unwrap().id();
    for (instance, text) in [(2, GREATER), (3, SMALLER)] {
        let joined = Other::new(instance, text).dial(&peer).await.unwrap();
        assert_eq!(known(), id(text));
        peer.lane_lost(&joined.signal, false, false);
    }
}

#[tokio::test]
async fn peer_is_dialled_at_its_last_lane_address() {
    let (peer, at) = (peer(), |text: &str| text.parse::<std::net::SocketAddr>().unwrap());
    let is_there = |text: &str| peer.is_dialled_at(&at(text).into());
    assert!(!is_there("192.0.2.7:7400"));
    peer.dials.note_address(Some(at("[::ffff:192.0.2.7]:7400")));
    peer.dials.note_address(None);
    assert!(is_there("192.0.2.7:7400") && !is_there("192.0.2.7:7401") && !is_there("192.0.2.8:7400"));
}

#[tokio::test]
async fn hello_of_an_older_instance_changes_nothing() {
    let peer = peer();
    let (mut before, mut after) = (Other::new(2, SMALLER), Other::new(3, SMALLER));
    before.dial(&peer).await.unwrap();
    // Either exchange may begin first.
    let early = before.begin(&peer).await;
    let begun = after.begin(&peer).await;
    let late = before.begin(&peer).await;
    after.finish(begun).await.unwrap();
    for exchange in [early, late] {
        let refused = before.finish(exchange).await;
        assert!(matches!(refused, Err(HelloFailure::Join(JoinError::Late))));
    }
    assert_eq!((peer.status().link.peer_restarts, peer.lane_count()), (1, 1));
    // It lives, so the two ends begin anew.
    let refused = before.dial(&peer).await;
    let is_superseded = |why: &JoinError| matches!(why, JoinError::Refused(LaneRefused::Superseded));
    assert!(matches!(&refused, Err(HelloFailure::Join(why)) if is_superseded(why)));
    before.dial(&peer).await.unwrap();
}

#[tokio::test]
async fn short_lived_lane_differs_from_stable_lane() {
    let (peer, mut other) = (peer(), Other::new(2, SMALLER));
    let ended = other.dial(&peer).await.unwrap();
    run(Arc::clone(&peer), ended).await;
    assert_eq!((peer.dials.take_short_lived(), peer.dials.take_stable()), (1, false));
    let begun = other.begin(&peer).await;
    let (joined, _near) = other.join(begun).await.unwrap();
    let running = tokio::spawn(run(Arc::clone(&peer), joined));
    while !peer.dials.take_stable() {
        peer.dials.wanted().await;
    }
    assert_eq!((peer.dials.take_short_lived(), peer.lane_count()), (0, 1));
    running.abort();
}

/// Has a flow lane dialled by the peer join; the other end is this instance.
fn join(peer: &Arc<Peer>, instance: u64, lane: u64) -> Arc<LaneSignal> {
    let hello = Other::new(instance, SMALLER).link.hello(LaneId(0), LaneRole::Control);
    let exchange = Exchange { began: Instant::now(), said: 1, dialled: true, binding: None };
    peer.lane_up(key(SMALLER), &hello, (LaneId(lane), LaneRole::Flow), exchange).unwrap()
}

#[tokio::test]
async fn lane_taking_a_flow_leaves_lane_demand_unchanged() {
    let peer = peer_with(LinkConfig { dialer: true, spare_lanes: 1, ..config(1) });
    let first = join(&peer, 2, 1);
    assert_eq!(peer.lanes_wanted(), ([1, 1, 0], 1));
    let _flow = crate::flows::open(&peer, request()).unwrap();
    assert_eq!(peer.lanes_wanted(), ([1, 1, 1], 1), "the spare one is being dialled");
    peer.lane_lost(&first, false, false);
    join(&peer, 2, 2);
    assert_eq!(peer.lanes_wanted(), ([1, 1, 1], 1), "it is the flow's, and none is to spare");
}

#[tokio::test]
async fn lane_ending_all_others_leaves_lane_demand_unchanged() {
    let peer = peer_with(LinkConfig { dialer: true, spare_lanes: 2, ..config(1) });
    join(&peer, 2, 1);
    assert_eq!(peer.lanes_wanted(), ([1, 1, 1], 1), "another one is being dialled");
    join(&peer, 3, 2);
    assert_eq!(peer.lanes_wanted(), ([1, 1, 1], 1), "it is of a new instance, and alone");
}
