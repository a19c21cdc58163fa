//! Silently failing paths, with real sockets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use oncewire_report::LinkState;

use crate::common::{Origin, Pair, forward, noise, proxy, within};

/// A path between two gateways, able to lose one direction and to change its address.
#[derive(Default)]
struct Path {
    /// Connections accepted so far; each is named by the count before it.
    count: AtomicU64,
    /// Connections below this name lose the dialling and the accepting side's bytes.
    deaf: [AtomicU64; 2],
    /// The last octet of its onward source address, 127.0.0.1 at first.
    source: AtomicU64,
    /// Connections below this name are reset with the next byte.
    cut: AtomicU64,
}

impl Path {
    async fn start(self: Arc<Self>, target: SocketAddr, tasks: &mut JoinSet<()>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            let mut relaying = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let path = Arc::clone(&self);
                relaying.spawn(async move { path.relay(near, target).await });
            }
        });
        address
    }

    async fn relay(&self, near: TcpStream, target: SocketAddr) {
        let name = self.count.fetch_add(1, SeqCst);
        let socket = TcpSocket::new_v4().unwrap();
        let source = Ipv4Addr::new(127, 0, 0, 1 + self.source.load(SeqCst) as u8);
        socket.bind((IpAddr::from(source), 0).into()).unwrap();
        let Ok(far) = socket.connect(target).await else { return };
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::select! {
            () = self.one_way(name, 0, near_in, &far_out) => {}
            () = self.one_way(name, 1, far_in, &near_out) => {}
        }
        if name < self.cut.load(SeqCst) {
            [near_out, far_out].into_iter().for_each(reset_half);
        }
    }

    async fn one_way(&self, name: u64, way: usize, from: OwnedReadHalf, to: &OwnedWriteHalf) {
        let mut block = vec![0; 64 << 10];
        loop {
            if from.readable().await.is_err() {
                return;
            }
            let len = match from.try_read(&mut block) {
                Ok(0) => return,
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => return,
            };
            if name < self.cut.load(SeqCst) {
                return;
            }
            if name >= self.deaf[way].load(SeqCst) && write_all(to, &block[..len]).await.is_err() {
                return;
            }
        }
    }

    fn all(&self) -> u64 {
        self.count.load(SeqCst)
    }
}

async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn reset_half(half: OwnedWriteHalf) {
    let _ = socket2::SockRef::from(half.as_ref()).set_linger(Some(std::time::Duration::ZERO));
    half.forget();
}

/// For silently failing paths: such a test waits for that time-out alone.
const IMPATIENT: &str = "[link]\ndead_after = \"1 s\"\n";

/// For paths with errors: a machine busy for a second is no lost peer.
const PATIENT: &str = "[link]\ndead_after = \"1 h\"\n";

/// A pair with `path` in between and so much patience, and an echo at the far end.
async fn pair_over(path: &Arc<Path>, tasks: &mut JoinSet<()>, patience: &str) -> (Pair, Origin) {
    let origin = Origin::echo().await;
    (with_intercepts(path, tasks, &forward(origin.address), patience).await, origin)
}

async fn with_intercepts(
    path: &Arc<Path>,
    tasks: &mut JoinSet<()>,
    intercepts: &str,
    patience: &str,
) -> Pair {
    let path = Arc::clone(path);
    Pair::with(&(intercepts.to_owned() + patience), patience, async |hub| path.start(hub, tasks).await).await
}

/// Sends bytes there and back at once.
async fn echo(client: &mut TcpStream, bytes: &[u8]) {
    let (mut read, mut write) = client.split();
    let mut back = vec![0; bytes.len()];
    let (sent, got) = tokio::join!(write.write_all(bytes), read.read_exact(&mut back));
    sent.unwrap();
    got.unwrap();
    assert!(back == bytes, "what came back differs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_one_way_loss_abandons_the_path_and_keeps_flows() {
    within(async {
        for way in [0, 1] {
            let (path, mut tasks) = (Arc::new(Path::default()), JoinSet::new());
            let (pair, _origin) = pair_over(&path, &mut tasks, IMPATIENT).await;
            let (mut idle, mut busy) = (pair.connect().await, pair.connect().await);
            echo(&mut idle, b"hello").await;
            path.deaf[way].store(path.all(), SeqCst);
            echo(&mut busy, &noise(31, 1 << 20)).await;
            echo(&mut idle, b"still here").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_with_a_new_address_keeps_its_flows() {
    within(async {
        let (path, mut tasks) = (Arc::new(Path::default()), JoinSet::new());
        let (pair, _origin) = pair_over(&path, &mut tasks, PATIENT).await;
        let mut client = pair.connect().await;
        // A connect in the moment of a path's death follows its rules.
        echo(&mut client, b"hello").await;
        for address in 0..3 {
            path.source.store(address, SeqCst);
            path.cut.store(path.all(), SeqCst);
            echo(&mut client, &noise(address, 300_000)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_at_path_death_follows_rules_unless_bytes_arrived() {
    within(async {
        for _ in 0..TRIES {
            if goes_by_the_rules().await {
                return;
            }
        }
        panic!("the link was given up before anybody connected, {TRIES} times");
    })
    .await;
}

/// A busy machine finds a dead path too early.
const TRIES: usize = 10;

/// Whether the link heard of all connections.
async fn goes_by_the_rules() -> bool {
    let greeting = Origin::start(|mut stream| async move {
        let _ = stream.write_all(b"hello").await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let echo_origin = Origin::echo().await;
    let direct = "on_peer_loss = \"direct\"\n";
    let intercepts = [
        forward(greeting.address) + direct,
        proxy("http", direct),
        proxy("http", ""),
        forward(echo_origin.address) + direct,
    ];
    let (path, mut tasks) = (Arc::new(Path::default()), JoinSet::new());
    let pair = with_intercepts(&path, &mut tasks, &intercepts.concat(), IMPATIENT).await;
    let addresses = pair.branch.local_addrs().intercepts;
    let is_hearing = |hears: bool| {
        path.deaf.iter().for_each(|below| below.store(if hears { 0 } else { u64::MAX }, SeqCst));
    };
    is_hearing(false);
    let connect = async |intercept: usize| TcpStream::connect(addresses[intercept]).await.unwrap();
    let mut early = connect(3).await;
    early.write_all(b"once").await.unwrap();
    let mut greeted = connect(0).await;
    let (mut tunnel, mut refused) = (connect(1).await, connect(2).await);
    let ask = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", greeting.address);
    tunnel.write_all(ask.as_bytes()).await.unwrap();
    refused.write_all(ask.as_bytes()).await.unwrap();
    if pair.branch.status().peers[0].state != LinkState::Up {
        return false;
    }
    let mut hello = [0; 5];
    greeted.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    let mut status = [0; 12];
    tunnel.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    refused.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 503");
    is_hearing(true);
    let mut back = [0; 4];
    early.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"once");
    true
}
