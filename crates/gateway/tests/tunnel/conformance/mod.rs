//! The conformance list: what two applications see of each other, direct and through a pair of gateways.
//!
//! Each scenario is one script for both ends. It is run on a direct connection, through `forward` and through
//! `socks5`, and what the two ends saw must be the same, or be the difference that is written beside it. The table in
//! `docs/conformance.md` is what this prints; `ONCEWIRE_UPDATE=1` writes it there.

mod scenarios;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use oncewire_gateway::daemon::Gateway;
use oncewire_gateway::telemetry::LinkState;

use crate::common::{Pair, forward, nobody, proxy, until, within};
use scenarios::SCENARIOS;

/// How the client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    /// Through `forward`; without a peer, the gateway connects by itself.
    Forward,
    Socks5,
}

/// Where the client wants to go.
#[derive(Clone, Copy)]
enum Target {
    /// A server that accepts.
    Server,
    /// A port where nobody listens.
    Nobody,
    /// A server that answers no connection for as long as its queue is full.
    Filtered,
}

/// One script for both ends, which returns what they saw.
type Script = for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = String> + 'a>>;

/// A line of the table.
struct Scenario {
    name: &'static str,
    script: Script,
    /// What is seen instead through `forward`, whose connects succeed before the server is asked.
    through_forward: Option<&'static str>,
}

/// A server, a way to it, and the pair of gateways on the way.
struct Bench {
    way: Way,
    branch: Gateway,
    hub: Option<Gateway>,
    targets: [SocketAddr; 3],
    listener: TcpListener,
    filtered: TcpListener,
}

impl Bench {
    /// Starts a pair, with more keys for the `forward` interceptions.
    async fn start(more: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let filtered = tokio::net::TcpSocket::new_v4().unwrap();
        filtered.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Room for one connection, the one that fills it.
        let filtered = filtered.listen(0).unwrap();
        let targets = [listener.local_addr().unwrap(), nobody().await, filtered.local_addr().unwrap()];
        let intercepts = targets.map(|target| forward(target) + more).concat();
        let Pair { branch, hub, .. } = Pair::start(&(intercepts + &proxy("socks5", ""))).await;
        Self { way: Way::Direct, branch, hub: Some(hub), targets, listener, filtered }
    }

    /// Connects to a target; what a proxy says is the error that it stands for.
    async fn connect(&self, target: Target) -> io::Result<TcpStream> {
        let intercepts = &self.branch.local_addrs().intercepts;
        let address = self.targets[target as usize];
        match self.way {
            Way::Direct => TcpStream::connect(address).await,
            Way::Forward => TcpStream::connect(intercepts[target as usize]).await,
            Way::Socks5 => socks5(intercepts[3], address).await,
        }
    }

    /// Connects to the server, and accepts there.
    async fn both(&self) -> (TcpStream, TcpStream) {
        let (client, server) = tokio::join!(self.connect(Target::Server), self.listener.accept());
        (client.unwrap(), server.unwrap().0)
    }
}

/// Connects by way of a proxy [RFC 1928].
async fn socks5(proxy: SocketAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy).await?;
    stream.write_all(&[5, 1, 0]).await?;
    stream.read_exact(&mut [0; 2]).await?;
    let SocketAddr::V4(address) = address else { unreachable!("scenarios use IPv4") };
    let mut request = vec![5, 1, 0, 1];
    request.extend(address.ip().octets());
    request.extend(address.port().to_be_bytes());
    stream.write_all(&request).await?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await?;
    match reply[1] {
        0 => Ok(stream),
        3 | 4 => Err(io::ErrorKind::HostUnreachable.into()),
        5 => Err(io::ErrorKind::ConnectionRefused.into()),
        other => Err(io::Error::other(format!("reply {other}"))),
    }
}

/// Reads to the end and says what came and how it ended.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).await;
    let bytes = match std::str::from_utf8(&bytes) {
        Ok("") => "nothing".to_owned(),
        Ok(text) if text.len() < 40 => format!("\"{text}\""),
        _ => format!("{} bytes", bytes.len()),
    };
    format!("{bytes}, {}", end(&ended))
}

/// Names the end of a stream.
fn end<T>(ended: &io::Result<T>) -> &'static str {
    match ended {
        Ok(_) => "end",
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => "reset",
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => "broken pipe",
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => "refused",
        Err(error) => panic!("an error that no scenario expects: {error}"),
    }
}

/// How long something that must not happen is watched.
const WAIT: Duration = Duration::from_millis(200);

/// Says whether something has still not happened after a while.
async fn waits(what: impl Future) -> &'static str {
    if tokio::time::timeout(WAIT, what).await.is_err() { "waits" } else { "is there" }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_see_through_a_pair_what_they_see_direct() {
    let mut bench = Bench::start("").await;
    let mut table = String::from("| scenario | both ends see | `forward` | `socks5` |\n|---|---|---|---|\n");
    for Scenario { name, script, through_forward } in SCENARIOS {
        let mut seen = Vec::new();
        for way in [Way::Direct, Way::Forward, Way::Socks5] {
            bench.way = way;
            println!("{name}, {way:?}");
            seen.push(within(script(&bench)).await);
        }
        assert_eq!(seen[1], through_forward.unwrap_or(&seen[0]), "{name}: forward");
        assert_eq!(seen[2], seen[0], "{name}: socks5");
        let forward = through_forward.unwrap_or("same");
        table += &format!("| {name} | {} | {forward} | same |\n", seen[0]);
    }
    print!("{table}");
    check_docs(&table);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_see_through_a_gateway_without_a_peer_what_they_see_direct() {
    let mut bench = Bench::start("on_peer_loss = \"direct\"\n").await;
    bench.hub.take().unwrap().shutdown(Duration::ZERO).await;
    within(until(|| bench.branch.status().peers[0].state != LinkState::Up)).await;
    for Scenario { name, script, through_forward } in SCENARIOS {
        println!("{name}");
        bench.way = Way::Direct;
        let direct = within(script(&bench)).await;
        bench.way = Way::Forward;
        assert_eq!(within(script(&bench)).await, through_forward.unwrap_or(&direct), "{name}");
    }
}

/// Compares the table with the one in the documentation, or writes it there.
fn check_docs(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("ONCEWIRE_UPDATE").is_some() {
        std::fs::write(path, format!("{before}{START}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, table, "docs/conformance.md is out of date: run with ONCEWIRE_UPDATE=1");
    }
}

const START: &str = "<!-- table: written by the test -->\n";
const END: &str = "<!-- end of table -->";
