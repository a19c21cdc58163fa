use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use oncewire_codec::wire::{LaneId, LaneRole};
use oncewire_keys::Identity;

use super::super::testing::{Other, SMALLER};
use super::*;
use crate::happy_eyeballs::tests::silent;

async fn joined() -> (TlsTcp, TlsTcp) {
    let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
    let client = tls::client_config(&branch, PinnedKeys::new([hub.public_key()])).unwrap();
    let server = tls::server_config(&hub, PinnedKeys::new([branch.public_key()])).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let connected = TlsConnector::from(client).connect(tls::server_name(), buffered(dialled, Arc::default()));
    let (near, far) = tokio::join!(connected, accept(accepted, Arc::default(), &server));
    (TlsTcp::new(near.unwrap().into()), far.unwrap().0)
}

#[tokio::test]
async fn each_write_is_a_record_and_leaves_with_the_flush() {
    let (mut near, mut far) = joined().await;
    let counter = Arc::new(WireCounter::default());
    near.count_for(&counter);
    let before = counter.sent();
    near.write_all(&[1; 3_000]).await.unwrap();
    near.write_all(&[2; 200]).await.unwrap();
    assert_eq!(counter.sent(), before, "nothing was flushed");
    near.flush().await.unwrap();
    assert_eq!(counter.sent() - before, 3_000 + 200 + 2 * RECORD_BYTES);
    let mut got = [0; 3_200];
    far.read_exact(&mut got).await.unwrap();
    assert_eq!(got, [[1; 3_000].as_slice(), &[2; 200]].concat()[..]);
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut got).await.unwrap(), 0);
}

fn dialling(branch: &Identity, hub: &Identity) -> Arc<Dialling> {
    let pinned = PinnedKeys::new([hub.public_key()]);
    Arc::new(Dialling {
        name: "hub".to_owned(),
        address: "hub.example:7400".to_owned(),
        options: LaneOptions::default(),
        tls: tls::client_config(branch, Arc::clone(&pinned)).unwrap(),
        pinned,
        ours: branch.public_key(),
        own: OwnSockets::default(),
        shortage: Arc::default(),
        known: Mutex::default(),
    })
}

impl Dialling {
    /// Dials these addresses as if they were the peer's.
    async fn try_at(self: &Arc<Self>, addresses: &[SocketAddr]) -> Result<Heard<TlsTcp>, DialError> {
        self.dial_each(addresses.to_vec(), &Arc::default(), Instant::now() + DIAL_LIMIT).await
    }
}

/// A gateway that admits this one and says hello.
async fn gateway(identity: Identity, guest: PublicKey) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tls::server_config(&identity, PinnedKeys::new([guest])).unwrap();
    let mut hello = Vec::new();
    Other::new(1, SMALLER).link.hello(LaneId(0), LaneRole::Control).encode(&mut hello);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok((mut stream, _)) = accept(tcp, Arc::default(), &server).await {
                stream.write_all(&hello).await.unwrap();
                stream.flush().await.unwrap();
                kept.push(stream);
            }
        }
    });
    address
}

/// A captive portal: takes and answers every connection.
async fn portal() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut request = [0; 16];
            tcp.read_exact(&mut request).await.unwrap();
            tcp.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\n\r\n").await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn peer_is_reached_past_silent_addresses() {
    let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
    let dialling = dialling(&branch, &hub);
    let silent = [silent().await, silent().await, silent().await];
    let hub = gateway(hub, branch.public_key()).await;
    let mut addresses: Vec<_> = silent.iter().map(|(silent, _)| silent.local_addr().unwrap()).collect();
    addresses.push(hub);
    dialling.try_at(&addresses).await.map(drop).expect("before the attempt is over");
    assert_eq!(*dialling.known.lock(), Some(hub));
}

#[tokio::test]
async fn peer_is_reached_past_wrong_identities() {
    let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
    let dialling = dialling(&branch, &hub);
    let stranger = gateway(Identity::from_seed([3; 32]), branch.public_key()).await;
    let refuses = gateway(Identity::from_seed([2; 32]), stranger_key()).await;
    let others = [portal().await, stranger, refuses];
    let hub = gateway(hub, branch.public_key()).await;
    dialling.try_at(&[others.as_slice(), &[hub]].concat()).await.map(drop).unwrap();
    assert_eq!(*dialling.known.lock(), Some(hub));
    // The last address is tried first, and alone if the peer is there.
    let silent = silent().await;
    dialling.try_at(&[silent.0.local_addr().unwrap(), hub]).await.map(drop).unwrap();
    let failed = dialling.try_at(&others).await.map(drop).unwrap_err();
    let DialError::Each(each) = &failed else { panic!("{failed}") };
    let mut said = [false; 3];
    for error in each {
        match error {
            DialError::Tls { address, .. } => said[0] = address.ends_with(&format!("({})", others[0])),
            DialError::WrongKey { address, .. } => said[1] = address.contains(&others[1].to_string()),
            DialError::NotAccepted { address, .. } => said[2] = address.contains(&others[2].to_string()),
            other => panic!("{other}"),
        }
    }
    assert_eq!(said, [true; 3], "{failed}");
    assert!(failed.is_refusal() && !failed.is_lasting(), "the portal may go");
    assert_eq!(*dialling.known.lock(), None);
    let alone = dialling.try_at(&others[1..2]).await.map(drop).unwrap_err();
    assert!(matches!(&alone, DialError::WrongKey { address, .. } if address == "hub.example:7400"));
    assert!(alone.is_lasting());
}

#[test]
fn last_known_address_has_the_longest_turn() {
    let all: Vec<SocketAddr> = (1..=8).map(|last| SocketAddr::from(([192, 0, 2, last], 7400))).collect();
    assert_eq!(delays(&all[..2], Some(all[0])).first, PROOF_DELAY);
    assert_eq!(delays(&all[..2], None).first, ATTEMPT_DELAY);
    assert_eq!(delays(&all[..2], Some(all[7])).first, ATTEMPT_DELAY, "the name has moved");
    let each = delays(&all, None);
    assert!(each.proof * 7 + each.first < DIAL_LIMIT, "the last is tried too");
}

fn stranger_key() -> PublicKey {
    Identity::from_seed([4; 32]).public_key()
}

/// Header, type and tag of a record of TLS 1.3.
const RECORD_BYTES: u64 = 22;
