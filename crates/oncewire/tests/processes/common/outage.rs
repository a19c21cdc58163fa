//! An outage under a download, an upload and an idle ssh session, all through a pair in their path.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, LinkParams, Process};

use super::data;
use super::network::{PairInNetwork, Place, Setup, TPROXY};
use super::origin::{self, Origin, Request, halves, receipt};
use super::sshd::Sshd;
use super::wait::{LIMIT, eventually, pause};

/// The state of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outage {
    /// Lanes are reset, new ones refused.
    Refused,
    /// Nothing arrives: from the branch, from the hub, or from neither.
    Silent([bool; 2]),
    /// Lanes are reset and new ones refused every other second.
    Flapping,
}

/// The length of an outage, and its circumstances.
#[derive(Clone, Debug)]
pub(crate) struct Ordeal {
    /// The state of the path.
    pub(crate) outage: Outage,
    /// How long.
    pub(crate) away: Duration,
    /// Bytes of the download, and of the upload.
    pub(crate) len: usize,
    /// TOML at the end of both configurations.
    pub(crate) both: String,
}

/// The measurements.
pub(crate) struct Survived {
    /// From the path's return to the last byte of the download, that of the upload, and the session's answer.
    pub(crate) after: [Duration; 3],
    /// Log lines of branch and hub, from before the outage to the end.
    pub(crate) log_lines: [usize; 2],
}

impl fmt::Display for Survived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [download, upload, session] = self.after.map(|time| time.as_secs_f64());
        let [branch, hub] = self.log_lines;
        write!(f, "{download:.1} s | {upload:.1} s | {session:.1} s | {branch}, {hub}")
    }
}

/// Runs the three over one outage; `None`, with the reason printed, if impossible. Panics on a wrong byte, and on a
/// connection that ends too early.
pub(crate) fn survive(binary: &Path, ordeal: &Ordeal) -> Option<Survived> {
    let line =
        LinkParams { rate_bits_per_s: Some(RATE), delay: Duration::from_millis(20), ..LinkParams::default() };
    let setup = Setup { line, both: ordeal.both.clone(), every_mode: true };
    let pair = PairInNetwork::start(binary, &setup)?;
    let [download, upload, shell] = TPROXY;
    // Neither end sends its second half before the path is gone.
    let gone = Arc::new(AtomicBool::new(false));
    let (half, begun) = (ordeal.len / 2, Arc::clone(&gone));
    let _origins = [
        Origin::on(pair.listen_on(Family::V4, download), move |mut stream| {
            if greet(&mut stream) && stream.read_exact(&mut [0; GREETING.len()]).is_ok() {
                halves(&stream, &Request { seed: 61, len: 2 * half }.answer(), &begun);
            }
        }),
        Origin::on(pair.listen_on(Family::V6, upload), |mut stream| {
            if greet(&mut stream) {
                origin::take(stream);
            }
        }),
    ];
    let address = pair.server(Family::V4, shell);
    let sshd = pair.network.host("server").launch(|| Sshd::start(address))?;
    let mut session = pair.taken_in(|| {
        let mut session = Session::open(&pair, &sshd);
        session.say("before");
        session
    });

    let connect = |family, port| {
        let address = pair.server(family, port);
        pair.taken_in(|| {
            let mut stream = pair.network.host("client").enter(|| TcpStream::connect(address).unwrap());
            stream.set_read_timeout(Some(ordeal.away + PATIENCE)).unwrap();
            stream.read_exact(&mut [0; GREETING.len()]).unwrap();
            stream
        })
    };
    let (down, up) = (connect(Family::V4, download), connect(Family::V6, upload));
    let lines = || Place::BOTH.map(|place| pair.gateway(place).whole_log().lines().count());
    let before = lines();
    let after = scope(|scope| {
        let download = scope.spawn(|| fetch(down, 2 * half));
        let upload = scope.spawn(|| send(up, 2 * half, &gone));
        let wan = pair.network.wan();
        eventually("both are under way", PATIENCE, || {
            [&wan.up, &wan.down]
                .iter()
                .all(|way| way.counters().carried_bytes > ordeal.len as u64 / 4)
                .then_some(())
        });
        assert_eq!(pair.flows_open(), 3, "all are taken in");
        pair.suffer(ordeal, &gone);
        let back = Instant::now();
        session.say("after");
        let answered = back.elapsed();
        let ends = [download, upload].map(|transfer| transfer.join().expect("a transfer failed"));
        [ends[0].saturating_duration_since(back), ends[1].saturating_duration_since(back), answered]
    });
    let log_lines = [0, 1].map(|place| lines()[place] - before[place]);
    assert_eq!(pair.count("mismatches"), 0);
    Some(Survived { after, log_lines })
}

impl PairInNetwork {
    /// Opens a connection until the branch intercepts it: on a busy machine some pass. Each had an answer from its
    /// server, so its flow is there if it has one.
    fn taken_in<T>(&self, open: impl Fn() -> T) -> T {
        eventually("a connection is taken in", PATIENCE, || {
            let before = self.flows_open();
            let opened = open();
            (self.flows_open() > before).then_some(opened)
        })
    }

    fn flows_open(&self) -> u64 {
        eventually("the branch answers", LIMIT, || {
            self.at(Place::Branch, |branch| branch.ask("status"))?["peers"][0]["flows_open"].as_u64()
        })
    }

    /// Takes the path away for as long as it is to be, and until both gateways have noticed.
    fn suffer(&self, ordeal: &Ordeal, gone: &AtomicBool) {
        let wan = self.network.wan();
        match ordeal.outage {
            Outage::Refused => self.set_rejecting(true),
            Outage::Silent([up, down]) => [(up, &wan.up), (down, &wan.down)]
                .into_iter()
                .filter(|(cut, _)| *cut)
                .for_each(|(_, way)| way.cut()),
            Outage::Flapping => return self.flap(ordeal.away, gone),
        }
        gone.store(true, Ordering::SeqCst);
        pass(ordeal.away);
        self.wait_until_down();
        match ordeal.outage {
            Outage::Refused => self.set_rejecting(false),
            _ => wan.restore(),
        }
    }

    fn flap(&self, away: Duration, gone: &AtomicBool) {
        let start = Instant::now();
        while start.elapsed() < away {
            self.set_rejecting(true);
            gone.store(true, Ordering::SeqCst);
            pass(SECOND);
            self.set_rejecting(false);
            pass(SECOND);
        }
    }
}

/// A shell session with an echo.
struct Session {
    _ssh: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn open(pair: &PairInNetwork, server: &Sshd) -> Self {
        let mut command = server.client("ssh");
        command.args(["-p", &server.address.port().to_string(), &server.login(), "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = pair.network.host("client").spawn(&mut command).unwrap();
        let (input, output) = (ssh.stdin.take().unwrap(), ssh.stdout.take().unwrap());
        Self { _ssh: ssh, input, output: BufReader::new(output) }
    }

    fn say(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), text, "the session has ended");
    }
}

/// Says the first word to a client; false if the client has gone.
fn greet(stream: &mut TcpStream) -> bool {
    stream.write_all(GREETING).is_ok()
}

fn fetch(mut stream: TcpStream, len: usize) -> Instant {
    stream.write_all(GREETING).unwrap();
    let mut got = Vec::with_capacity(len);
    stream.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &Request { seed: 61, len }.answer(), "the download");
    Instant::now()
}

fn send(mut stream: TcpStream, len: usize, gone: &AtomicBool) -> Instant {
    let sent = data::random(62, len);
    halves(&stream, &sent, gone);
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, receipt(&sent), "the upload");
    Instant::now()
}

fn pass(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        pause();
    }
}

/// Comes first at either end of a transfer: a connection past the branch is noticed before anything more crosses.
const GREETING: &[u8; 1] = b"!";
/// A transfer takes some seconds, so the outage falls into its middle.
const RATE: u64 = 32_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// The rest's time on top of the outage.
const PATIENCE: Duration = LIMIT.saturating_mul(2);
