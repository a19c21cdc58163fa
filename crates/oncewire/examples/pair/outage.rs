//! A path that is gone for a minute under a download, an upload and an idle connection, in four ways at once.
//!
//! Each way has a pair of gateways of its own. Every byte is compared; a reset or a wrong byte ends the program.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::common::data;
use crate::common::origin::{Origin, Request, receipt};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{eventually, pause};

/// How long the path is gone.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds without a path.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What becomes of the path.
#[derive(Clone, Copy)]
enum Outage {
    /// Connections are reset, new ones refused.
    Cut,
    /// Nothing arrives: from the branch, from the hub, or from neither.
    Silent([bool; 2]),
}

impl Outage {
    fn set(self, pair: &Pair, away: bool) {
        match self {
            Self::Cut => pair.relay.set_down(away),
            Self::Silent(ways) => pair.relay.set_silent(ways.map(|silent| silent && away)),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) {
    let outages = [
        ("cut, and nothing can be dialled", Outage::Cut),
        ("silent from branch to hub", Outage::Silent([true, false])),
        ("silent from hub to branch", Outage::Silent([false, true])),
        ("silent both ways", Outage::Silent([true, true])),
    ];
    let away = Duration::from_secs(arguments.seconds);
    println!("| path for {away:?} | download | upload | idle connection |\n|---|---|---|---|");
    scope(|scope| {
        for (name, outage) in outages {
            scope.spawn(move || {
                let [download, upload, idle] = survive(outage, away).map(|time| time.as_secs_f64());
                println!("| {name} | {download:.1} s | {upload:.1} s | {idle:.1} s |");
            });
        }
    });
    println!("\nTimes count from when the path is back, to the last byte or the echo. Every byte was right.");
}

/// Runs the three connections over one outage; returns how long after it each had what it waited for.
fn survive(outage: Outage, away: Duration) -> [Duration; 3] {
    let origins = [Origin::server(), Origin::sink(), Origin::echo()];
    let targets = origins.iter().map(Origin::address).collect();
    let options = Options { targets, rate_bytes_per_s: Some(RATE), ..Options::default() };
    let pair = Pair::start_with(&crate::binary(), &options);
    let connect = |forward: usize| {
        let stream = TcpStream::connect(pair.forwards[forward]).unwrap();
        stream.set_read_timeout(Some(away + PATIENCE)).unwrap();
        stream
    };
    let mut idle = connect(2);
    echo(&mut idle);
    let (down, up) = (connect(0), connect(1));
    scope(|scope| {
        let download = scope.spawn(|| fetch(down));
        let upload = scope.spawn(|| send(up));
        eventually("both are under way", PATIENCE, || (pair.relay.carried() > LEN as u64 / 2).then_some(()));
        outage.set(&pair, true);
        let gone = Instant::now();
        while gone.elapsed() < away {
            pause();
        }
        assert!(!download.is_finished() && !upload.is_finished(), "an end without the rest");
        outage.set(&pair, false);
        let back = Instant::now();
        echo(&mut idle);
        let echoed = back.elapsed();
        let ends = [download, upload].map(|transfer| transfer.join().expect("a transfer failed"));
        [ends[0] - back, ends[1] - back, echoed]
    })
}

fn fetch(mut stream: TcpStream) -> Instant {
    let request = Request { seed: 61, len: LEN };
    request.send(&mut stream).unwrap();
    let mut got = Vec::with_capacity(LEN);
    stream.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &request.answer(), "the download");
    Instant::now()
}

fn send(mut stream: TcpStream) -> Instant {
    let sent = data::random(62, LEN);
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, receipt(&sent), "the upload");
    Instant::now()
}

fn echo(stream: &mut TcpStream) {
    stream.write_all(b"still here").unwrap();
    let mut back = [0; 10];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"still here");
}

/// A transfer takes some seconds, so that the outage falls into its middle.
const RATE: u64 = 4_000_000;
const LEN: usize = 24 << 20;
/// What the rest may take on top of the outage.
const PATIENCE: Duration = Duration::from_secs(40);
