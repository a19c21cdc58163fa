//! The conformance list: two applications, direct and through gateways.
//!
//! Each scenario is one script for both ends. It is run on direct connections and on every way through
//! gateways at once, and both ends must see the same everywhere, or the documented difference. The table in
//! `docs/reference/conformance.md` is this test's output; `ONCEWIRE_UPDATE=1` writes it there.

mod deployment;
mod gone;
mod scenarios;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use oncewire_testnet::{Family, isolated};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::common::within;
use deployment::{Deployment, Keys};
use scenarios::SCENARIOS;

/// How the client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Forward,
    Socks5,
    /// Taken in by the client's router.
    Tproxy(Family),
    /// The same with `hold_syn`.
    Held(Family),
    /// Taken in on the client's own host.
    Redirect(Family),
}

impl Way {
    /// Whether connects succeed before the server is asked.
    fn accepts_first(self) -> bool {
        !matches!(self, Self::Direct | Self::Socks5 | Self::Held(_))
    }
}

/// The client's destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// An accepting server.
    Server,
    /// A port without a listener.
    Nobody,
    /// A server silent to connects while its queue is full.
    Filtered,
    /// An address without a host, by a router's answer.
    Nowhere,
}

/// One script for both ends; it returns their observations.
type Script = for<'a> fn(&'a Bench<'a>) -> Pin<Box<dyn Future<Output = String> + 'a>>;

/// A line of the table.
struct Scenario {
    name: &'static str,
    script: Script,
    /// The different observation on ways with connects succeeding before the server is asked.
    accepted_first: Option<&'static str>,
    /// Whether it is about a connect taking the system's full time.
    takes_all_time: bool,
}

/// Observation of a failed connect on ways with connects succeeding before the server is asked.
const RESET: &str = "client: connected; nothing, reset";

impl Scenario {
    /// Whether it is run on a way. `hold_syn` is about failing connects; if one succeeds, a server may see
    /// another before it, when the gateway had to let that go for a late sign of life.
    fn is_for(&self, way: Way) -> bool {
        !matches!(way, Way::Held(_)) || self.accepted_first == Some(RESET)
    }
}

/// A way, and the server at its end.
struct Bench<'a> {
    way: Way,
    deployment: &'a Deployment,
    listener: TcpListener,
    filtered: TcpListener,
}

impl<'a> Bench<'a> {
    /// Starts the server of a way.
    fn new(way: Way, deployment: &'a Deployment) -> Self {
        let listen = |target, backlog| {
            let address = SocketAddr::from(([0; 8], deployment::first_port(way) + target as u16));
            let socket = deployment.network.host("server").enter(TcpSocket::new_v6).unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(address).unwrap();
            socket.listen(backlog).unwrap()
        };
        // The second one's queue has room for one connection, the filling one.
        let (listener, filtered) = (listen(Target::Server, 1024), listen(Target::Filtered, 0));
        Self { way, deployment, listener, filtered }
    }

    /// Connects to a target; a proxy's answer is turned into its error.
    async fn connect(&self, target: Target) -> io::Result<TcpStream> {
        let network = &self.deployment.network;
        let port = self.port(target);
        let address = deployment::address(self.way, target != Target::Nowhere, port);
        // A client giving up must not end its stream instead, as it may if a gateway has accepted it.
        let resets = target == Target::Filtered;
        match self.way {
            Way::Direct | Way::Tproxy(_) | Way::Held(_) | Way::Redirect(_) => {
                self.dial(address, resets).await
            }
            Way::Forward => self.dial(deployment::forward(network, port), resets).await,
            Way::Socks5 => {
                let proxy = self.dial(deployment::proxy(network), resets).await?;
                socks5(proxy, address).await
            }
        }
    }

    /// Connects the client to an address; with `resets` the connection is reset when it is dropped.
    async fn dial(&self, address: SocketAddr, resets: bool) -> io::Result<TcpStream> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4,
            SocketAddr::V6(_) => TcpSocket::new_v6,
        };
        let socket = self.deployment.network.host("client").enter(socket)?;
        if resets {
            socket.set_zero_linger()?;
        }
        socket.connect(address).await
    }

    /// Connects to the server, and accepts there.
    async fn both(&self) -> (TcpStream, TcpStream) {
        let (client, server) = tokio::join!(self.connect(Target::Server), self.listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    /// Fills the queue of a server accepting nothing: from now on it answers no connection.
    async fn fill(&self) -> TcpStream {
        let filler = deployment::address(Way::Direct, true, self.port(Target::Filtered));
        self.dial(filler, false).await.unwrap()
    }

    fn port(&self, target: Target) -> u16 {
        deployment::first_port(self.way) + target as u16
    }
}

/// Connects by way of a proxy [RFC 1928].
async fn socks5(mut stream: TcpStream, address: SocketAddr) -> io::Result<TcpStream> {
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
        4 => Err(io::ErrorKind::HostUnreachable.into()),
        5 => Err(io::ErrorKind::ConnectionRefused.into()),
        6 => Err(io::ErrorKind::TimedOut.into()),
        other => Err(io::Error::other(format!("reply {other}"))),
    }
}

/// Reads to the end and returns the bytes and the kind of end.
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
        Err(error) if error.kind() == io::ErrorKind::HostUnreachable => "unreachable",
        Err(error) if error.kind() == io::ErrorKind::TimedOut => "timed out",
        Err(error) => panic!("an error that no scenario expects: {error}"),
    }
}

/// How long a forbidden event is watched for.
const WAIT: Duration = Duration::from_millis(200);

/// How long a connection with an expected early answer is tried.
const TRY: Duration = Duration::from_secs(2);

/// Whether an event has still not happened after a while.
async fn waits(what: impl Future) -> &'static str {
    if tokio::time::timeout(WAIT, what).await.is_err() { "waits" } else { "is there" }
}

/// Runs a scenario on all ways at once, and returns each way's observations.
fn run<'a>(scenario: &'a Scenario, benches: &'a [Bench<'a>], runtime: &Runtime) -> Vec<String> {
    println!("{}", scenario.name);
    if scenario.takes_all_time {
        benches[0].deployment.set_hasty(true);
    }
    let one = |bench: &'a Bench<'a>| -> Pin<Box<dyn Future<Output = String> + 'a>> {
        Box::pin(async move {
            let seen = (scenario.script)(bench).await;
            println!("    {:?}: {seen}", bench.way);
            seen
        })
    };
    let scripts = benches.iter().filter(|bench| scenario.is_for(bench.way)).map(one).collect();
    let seen = runtime.block_on(within(all(scripts)));
    benches[0].deployment.set_hasty(false);
    seen
}

/// Waits for all of some futures.
async fn all<T>(mut waited_for: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = waited_for.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, result) in waited_for.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Starts the servers of some ways, and the runtime of both ends.
fn prepare<'a>(deployment: &'a Deployment, ways: &[Way]) -> (Runtime, Vec<Bench<'a>>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let inside = runtime.enter();
    let benches = ways.iter().map(|way| Bench::new(*way, deployment)).collect();
    drop(inside);
    (runtime, benches)
}

/// Runs the list on these ways; the first is the reference. Returns the table's lines.
fn compare(deployment: &Deployment, ways: &[Way]) -> String {
    let (runtime, benches) = prepare(deployment, ways);
    let mut table = String::new();
    for scenario in &SCENARIOS {
        let name = scenario.name;
        let seen = run(scenario, &benches, &runtime);
        let run = ways.iter().filter(|way| scenario.is_for(**way));
        for (way, seen_there) in run.zip(&seen) {
            let other = scenario.accepted_first.filter(|_| way.accepts_first());
            assert_eq!(seen_there, other.unwrap_or(&seen[0]), "{name}: {way:?}");
        }
        let [first, others] = match scenario.accepted_first {
            None => ["same"; 2],
            Some(seen) => [seen, "as `forward`"],
        };
        let held = if scenario.is_for(Way::Held(Family::V4)) { "same" } else { "–" };
        table += &format!("| {name} | {} | {first} | {others} | {others} | {held} | same |\n", seen[0]);
    }
    table
}

#[test]
fn applications_see_no_difference_through_a_pair() {
    isolated(|| {
        let Some(deployment) = Deployment::start(&Keys::default()) else { return };
        let transparent = Family::BOTH
            .into_iter()
            .flat_map(|family| [Way::Tproxy(family), Way::Redirect(family), Way::Held(family)]);
        let ways: Vec<Way> =
            [Way::Direct, Way::Forward, Way::Socks5].into_iter().chain(transparent).collect();
        let table = format!(
            "| scenario | both ends see | `forward` | `tproxy` | `redirect` | `tproxy` with `hold_syn` | `socks5` |\n\
             |---|---|---|---|---|---|---|\n{}",
            compare(&deployment, &ways)
        );
        check_docs(&table);
    });
}

#[test]
fn applications_see_no_difference_through_a_lone_gateway() {
    isolated(|| {
        let keys = Keys { forward: "on_peer_loss = \"direct\"\n", ..Keys::default() };
        let Some(mut deployment) = Deployment::start(&keys) else { return };
        deployment.lose_hub();
        let ways = [
            Way::Direct,
            Way::Forward,
            Way::Tproxy(Family::V4),
            Way::Redirect(Family::V6),
            Way::Held(Family::V4),
        ];
        compare(&deployment, &ways);
    });
}

/// Compares the table with the one in the documentation, or writes it there.
fn check_docs(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/conformance.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("ONCEWIRE_UPDATE").is_some() {
        std::fs::write(path, format!("{before}{START}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            written, table,
            "docs/reference/conformance.md is out of date: run with ONCEWIRE_UPDATE=1"
        );
    }
}

const START: &str = "<!-- table: written by the test -->\n";
const END: &str = "<!-- end of table -->";
