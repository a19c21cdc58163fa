//! Many connections through a pair, most of them idle.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::data;
use super::gateway::Gateway;
use super::leaks::Files;
use super::pair::{Options, Pair};
use super::wait::{eventually, pause};

/// The number of connections, and their work.
pub(crate) struct Crowd {
    /// Connections in all.
    pub(crate) all: usize,
    /// How many of them have a transfer while the others are idle.
    pub(crate) active: usize,
    /// Bytes sent and echoed on each of these.
    pub(crate) len: usize,
    /// For how long CPU time is counted while all are idle.
    pub(crate) idle: Duration,
}

/// The gateways' cost, the branch's first.
pub(crate) struct Cost {
    /// Bytes of memory added by each idle connection.
    pub(crate) memory_each: [u64; 2],
    /// Share of one processor while all were idle.
    pub(crate) idle_cpu: [f64; 2],
    /// How long it took to open all.
    pub(crate) opening: Duration,
    /// How long the transfers took.
    pub(crate) transfers: Duration,
    /// Bytes of memory in use after them.
    pub(crate) resident: [u64; 2],
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| gateway | memory for each idle connection | processor, all idle | memory after |")?;
        writeln!(f, "|---|---|---|---|")?;
        for (at, name) in ["branch", "hub"].into_iter().enumerate() {
            let (memory, cpu) = (self.memory_each[at] as f64 / 1024.0, self.idle_cpu[at] * 100.0);
            writeln!(f, "| {name} | {memory:.1} KiB | {cpu:.1} % | {} MiB |", self.resident[at] >> 20)?;
        }
        let [opening, transfers] = [self.opening, self.transfers].map(|time| time.as_secs_f64());
        write!(f, "\nOpened in {opening:.1} s; the transfers took {transfers:.1} s.")
    }
}

/// Opens them through a pair to an echo; panics on a wrong byte, and on anything left behind.
pub(crate) fn run(binary: &Path, origin: SocketAddr, crowd: &Crowd) -> Cost {
    raise_open_files();
    let pair = Pair::start_with(binary, &Options { straight: true, ..Options::to(origin) });
    let gateways = [&pair.branch, &pair.hub];
    let before = gateways.map(|gateway| (gateway.resident(), Files::of(gateway)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let start = Instant::now();
    let mut streams = runtime.block_on(open(pair.forward(), crowd.all));
    let opening = start.elapsed();
    for gateway in gateways {
        until_open(gateway, crowd.all);
    }
    let cpu = || gateways.map(|gateway| gateway.cpu_time().as_secs_f64());
    let (start, taken) = (Instant::now(), cpu());
    while start.elapsed() < crowd.idle {
        pause();
    }
    let (now, seconds) = (cpu(), start.elapsed().as_secs_f64());
    let idle_cpu = [0, 1].map(|at| (now[at] - taken[at]) / seconds);
    let used = gateways.map(Gateway::resident);
    let memory_each = [0, 1].map(|at| used[at].saturating_sub(before[at].0) / crowd.all as u64);

    let start = Instant::now();
    streams = runtime.block_on(transfer(streams, crowd));
    let transfers = start.elapsed();
    let resident = gateways.map(Gateway::resident);
    // The idle ones have been through all of it.
    streams = runtime.block_on(say_something(streams));
    drop(streams);
    for (gateway, (_, files)) in gateways.into_iter().zip(&before) {
        until_open(gateway, 0);
        files.wait_for(LIMIT, || Some(Files::of(gateway)));
        assert_eq!(gateway.counter("mismatches"), 0);
    }
    Cost { memory_each, idle_cpu, opening, transfers, resident }
}

/// Waits until a gateway has so many flows; it may be too busy to answer at once.
pub(crate) fn until_open(gateway: &Gateway, flows: usize) {
    eventually(&format!("{flows} flows are open"), LIMIT, || {
        (gateway.ask("status")?["peers"][0]["flows_open"] == flows).then_some(())
    });
}

/// Opens connections, a hundred at a time, each with an echo of one byte.
async fn open(address: SocketAddr, all: usize) -> Vec<TcpStream> {
    let turn = Arc::new(Semaphore::new(100));
    let mut opening = JoinSet::new();
    for _ in 0..all {
        let turn = Arc::clone(&turn);
        opening.spawn(async move {
            let _turn = turn.acquire().await.unwrap();
            let mut stream = TcpStream::connect(address).await.unwrap();
            repeated(&mut stream, b"?").await;
            stream
        });
    }
    opening.join_all().await
}

/// Has evenly spread ones transfer something at once.
async fn transfer(streams: Vec<TcpStream>, crowd: &Crowd) -> Vec<TcpStream> {
    let (every, len) = (crowd.all / crowd.active, crowd.len);
    let (active, mut idle): (Vec<_>, Vec<_>) =
        streams.into_iter().enumerate().partition(|(number, _)| number % every == 0);
    let mut transfers = JoinSet::new();
    for (number, mut stream) in active {
        transfers.spawn(async move {
            // Every other one has something of its own; the rest share ten texts.
            let sent = match number / every % 2 {
                0 => data::random(number as u64, len),
                _ => data::text(number as u64 % 10, len),
            };
            repeated(&mut stream, &sent).await;
            (number, stream)
        });
    }
    idle.extend(transfers.join_all().await);
    idle.into_iter().map(|(_, stream)| stream).collect()
}

async fn say_something(streams: Vec<TcpStream>) -> Vec<TcpStream> {
    let mut saying = JoinSet::new();
    for mut stream in streams {
        saying.spawn(async move {
            repeated(&mut stream, b"!").await;
            stream
        });
    }
    saying.join_all().await
}

/// Sends and compares the echo.
async fn repeated(stream: &mut TcpStream, sent: &[u8]) {
    let mut got = vec![0; sent.len()];
    let (mut from, mut to) = stream.split();
    let both = async { tokio::try_join!(to.write_all(sent), from.read_exact(&mut got)) };
    timeout(LIMIT, both).await.expect("no answer").unwrap();
    data::assert_same(&got, sent, "what came back");
}

/// Raises this process's own limit, as a gateway does; as root beyond the given one.
pub(crate) fn raise_open_files() {
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit { current: Some(FILES), maximum: Some(FILES) };
    if now.current.is_some_and(|files| files < FILES) && setrlimit(Resource::Nofile, most).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now });
    }
}

const FILES: u64 = 64 << 10;
/// On a machine busy with other tests.
const LIMIT: Duration = Duration::from_secs(120);
