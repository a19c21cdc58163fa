//! A pair of gateways, origins, and reproducible data.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use oncewire_config::Config;
use oncewire_gateway::daemon::{Gateway, StartError};
use oncewire_keys::{Identity, PublicKey};
use oncewire_report::LinkState;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// More than any test's duration, even on a busy machine; a hanging test fails with it.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Runs a test's body with a limit.
pub(crate) async fn within<R>(body: impl Future<Output = R>) -> R {
    tokio::time::timeout(LIMIT, body).await.expect("the test hangs")
}

/// Waits until a condition holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a gateway has failed to dial a lost peer. An earlier dial may still meet the peer's remains,
/// and a flow opened in that moment waits for the link to come back.
pub(crate) async fn alone(gateway: &Gateway) {
    until(|| {
        let peer = gateway.status().peers.remove(0);
        peer.state != LinkState::Up && peer.state_reason.is_some()
    })
    .await;
}

/// Two gateways with a link between them.
pub(crate) struct Pair {
    pub(crate) branch: Gateway,
    pub(crate) hub: Gateway,
    _dir: TempDir,
}

impl Pair {
    /// Starts both, with these `[[intercept]]` sections at the branch, and waits for the link.
    pub(crate) async fn start(intercepts: &str) -> Self {
        Self::with(intercepts, "", async |hub| hub).await
    }

    /// As [`Pair::start`], with more keys in the hub's `[[peer]]`, and with `between` standing between the two.
    pub(crate) async fn with(
        intercepts: &str,
        hub_peer: &str,
        between: impl AsyncFnOnce(SocketAddr) -> SocketAddr,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let hub = start(dir.path(), &hub_config(branch_key, hub_peer)).await.unwrap();
        let address = between(hub.local_addrs().tunnel[0]).await;
        let branch = start(dir.path(), &branch_config(hub_key, address, intercepts)).await.unwrap();
        assert!(branch.wait_up("hub", LIMIT).await, "no link");
        Self { branch, hub, _dir: dir }
    }

    /// Starts both with a relay between them.
    pub(crate) async fn behind_relay(intercepts: &str) -> (Self, CuttingRelay) {
        let mut relay = None;
        let pair = Self::with(intercepts, "", async |hub| {
            let started = CuttingRelay::start(hub).await;
            relay.insert(started).address
        })
        .await;
        (pair, relay.unwrap())
    }

    /// Starts both, and cuts the path between them for good. The relay keeps the hub's port from others.
    pub(crate) async fn parted(intercepts: &str) -> (Self, CuttingRelay) {
        let (pair, relay) = Self::behind_relay(intercepts).await;
        relay.close();
        // Failing dials follow one another: earlier ones have failed by the third.
        until(|| relay.turned_away() >= 3 && pair.branch.status().peers[0].state != LinkState::Up).await;
        (pair, relay)
    }

    /// Connects to the branch's first interception.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.branch.local_addrs().intercepts[0]).await.unwrap()
    }
}

/// The configuration of a dialled gateway, with its key in `hub.key`.
pub(crate) fn hub_config(branch: PublicKey, more: &str) -> String {
    format!(
        "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"127.0.0.1:0\"]\n\
         [[peer]]\nname = \"branch\"\npublic_key = \"{branch}\"\n{more}\n[cache]\nmemory = \"256 MiB\"\nlog_memory = \"4 MiB\"\n"
    )
}

/// The configuration of a dialling gateway, with its key in `branch.key`.
pub(crate) fn branch_config(hub: PublicKey, address: SocketAddr, intercepts: &str) -> String {
    format!(
        "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n\
         [[peer]]\nname = \"hub\"\npublic_key = \"{hub}\"\naddress = \"{address}\"\n\
         [cache]\nmemory = \"256 MiB\"\nlog_memory = \"4 MiB\"\n{intercepts}\n"
    )
}

pub(crate) async fn start(dir: &Path, config: &str) -> Result<Gateway, StartError> {
    let config = Config::parse(config, &dir.join("oncewire.toml")).unwrap_or_else(|error| panic!("{error}"));
    Gateway::start(config).await
}

/// Codes as configured, independent of the machine's load. By default new bytes get a cheaper entropy stage
/// while coding holds traffic up.
pub(crate) const UNCHANGING: &str = "[codec]\nadapt = false\n";

/// A `forward` to an origin.
pub(crate) fn forward(target: SocketAddr) -> String {
    format!(
        "[[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\npeer = \"hub\"\n"
    )
}

/// A proxy, with more keys.
pub(crate) fn proxy(mode: &str, more: &str) -> String {
    format!("[[intercept]]\nmode = \"{mode}\"\nlisten = \"127.0.0.1:0\"\npeer = \"hub\"\n{more}\n")
}

/// A server on loopback, running as long as it is kept.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Origin {
    /// Serves each connection with `serve`.
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_on("127.0.0.1:0", serve).await
    }

    /// Sends `data` to every client, and ends.
    pub(crate) async fn serve(data: impl Into<Arc<[u8]>>) -> Self {
        let data = data.into();
        Self::start(move |mut stream| {
            let data = Arc::clone(&data);
            async move {
                // Only the client can judge its arrival.
                let _ = stream.write_all(&data).await;
            }
        })
        .await
    }

    /// Reads to the end, and only then returns its input.
    pub(crate) async fn answer() -> Self {
        Self::start(|mut stream| async move {
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await.unwrap();
            stream.write_all(&[b"got ", request.as_slice()].concat()).await.unwrap();
        })
        .await
    }

    /// Reads to the end, and only then returns the number of bytes.
    pub(crate) async fn count() -> Self {
        Self::start(|mut stream| async move {
            let len = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
            stream.write_all(len.to_string().as_bytes()).await.unwrap();
        })
        .await
    }

    pub(crate) async fn start_on<F>(address: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serving.spawn(serve(stream));
            }
        });
        Self { address, _tasks: tasks }
    }

    /// Echoes its input, and ends when the client has ended.
    pub(crate) async fn echo() -> Self {
        Self::echo_on("127.0.0.1:0").await
    }

    /// [`Self::echo`] on an address of the test's choice.
    pub(crate) async fn echo_on(address: &str) -> Self {
        Self::start_on(address, |mut stream| async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
            let _ = write.shutdown().await;
        })
        .await
    }
}

/// An address without a listener, reserved as long as this is kept.
pub(crate) struct Nobody {
    pub(crate) address: SocketAddr,
    _socket: TcpSocket,
}

pub(crate) fn nobody() -> Nobody {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    Nobody { address: socket.local_addr().unwrap(), _socket: socket }
}

/// Random-looking bytes determined by the seed alone (SplitMix64).
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend((word ^ (word >> 31)).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Sends and receives at once, to the end both ways.
pub(crate) async fn exchange(mut stream: TcpStream, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut read, mut write) = stream.split();
    let send = async {
        write.write_all(sent).await?;
        write.shutdown().await
    };
    let mut received = Vec::new();
    let (sent, read) = tokio::join!(send, read.read_to_end(&mut received));
    sent?;
    read?;
    Ok(received)
}

/// Closes with a reset for the other side.
pub(crate) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
}

/// Whether an error means a reset.
pub(crate) fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
}

/// Expects a connection here to be reset ahead of any byte; the reset may come even ahead of the look at the
/// connect.
pub(crate) async fn expect_refused(address: SocketAddr) {
    match TcpStream::connect(address).await {
        Ok(mut stream) => expect_reset(&mut stream).await,
        Err(error) => assert!(is_reset(&error), "{error}"),
    }
}

/// Expects the stream to be reset before anything more arrives.
pub(crate) async fn expect_reset(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest).await;
    assert!(ended.as_ref().is_err_and(is_reset), "{ended:?} after {} bytes", rest.len());
    assert!(rest.is_empty(), "{} bytes before the reset", rest.len());
}

/// A TCP relay able to cut all its connections.
pub(crate) struct CuttingRelay {
    pub(crate) address: SocketAddr,
    cut: Arc<Notify>,
    closed: Arc<AtomicBool>,
    turned_away: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl CuttingRelay {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Notify::new());
        let (closed, turned_away) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (cuts, closing, turning) = (Arc::clone(&cut), Arc::clone(&closed), Arc::clone(&turned_away));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut relaying = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (cuts, closed, turned) = (Arc::clone(&cuts), Arc::clone(&closing), Arc::clone(&turning));
                relaying.spawn(async move {
                    let cut = cuts.notified();
                    if closed.load(Ordering::SeqCst) {
                        turned.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    let Ok(far) = TcpStream::connect(target).await else { return };
                    relay(near, far, cut).await;
                });
            }
        });
        Self { address, cut, closed, turned_away, _tasks: tasks }
    }

    /// Resets all open connections.
    pub(crate) fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Returns the number of connections since it was closed.
    pub(crate) fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::SeqCst)
    }

    /// Resets all connections, and ends new ones.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.cut();
    }
}

async fn relay(mut near: TcpStream, mut far: TcpStream, cut: impl Future<Output = ()>) {
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        () = cut => {
            reset(near);
            reset(far);
        }
    }
}
