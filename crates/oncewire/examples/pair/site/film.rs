//! Many clients of one site with the same film, each from its beginning [Wanax §6].

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::common::data::{self, Rng};
use crate::common::origin::Origin;
use crate::common::site::{Plan, Site};

use super::{all, line, median};

/// The numbers of clients and films.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Clients of the film, one second apart.
    #[arg(long, default_value_t = 20)]
    clients: u32,
    /// 10⁶ bytes of the film.
    #[arg(long, default_value_t = 3)]
    film_mb: usize,
    /// The duration of a read from the store meanwhile, in milliseconds; 0: the machine's own, with earlier reads in
    /// memory.
    #[arg(long, default_value_t = 8)]
    film_read_ms: u64,
    /// The congestion control of the server; its system's by default.
    #[arg(long)]
    server_congestion: Option<String>,
    /// One `codec` alone.
    #[arg(long)]
    film_codec: Option<String>,
}

/// A way to bring the film.
struct Way {
    /// `None`: without gateways.
    codec: Option<&'static str>,
    /// Both gateways' `rate_limit`.
    rate_limit: Option<&'static str>,
}

/// A client's measurements.
#[derive(Clone, Copy)]
struct Viewer {
    kbit_per_s: f64,
    /// Whether all of it came while there was hope.
    done: bool,
    /// By [`RATES_KBIT_PER_S`]: how long after asking it had to begin so as never to wait.
    head_starts: [Duration; 2],
}

const WAYS: [Way; 5] = [
    Way { codec: None, rate_limit: None },
    Way { codec: Some("wanax"), rate_limit: None },
    Way { codec: Some("auto"), rate_limit: None },
    Way { codec: Some("wanax"), rate_limit: Some("950 kbit/s") },
    Way { codec: Some("auto"), rate_limit: Some("950 kbit/s") },
];

pub(super) fn run(arguments: &Arguments, at_once: usize) {
    let film = data::random(1, arguments.film_mb * 1_000_000);
    println!(
        "| codec | rate_limit | whole film | median kbit/s | watch 320 kbit/s | never wait from | watch 809 kbit/s | MB on \
         the line |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let wanted = |way: &&Way| arguments.film_codec.is_none() || arguments.film_codec.as_deref() == way.codec;
    let ways: Vec<&Way> = WAYS.iter().filter(wanted).collect();
    for row in all(&ways, at_once, |way| row(way, arguments, &film)).into_iter().flatten() {
        println!("| {row} |");
    }
    let Arguments { clients, film_mb, .. } = arguments;
    println!(
        "\n{clients} clients, 1 s apart, {film_mb} MB behind 200 to 600 other bytes for each, 1 Mbit/s and 1,000 ms. \
         Watch: those whose transfer was as fast as the film; in brackets those who never waited, once they began {} s \
         after asking; from how many seconds after asking half, nine tenths and all never waited at 320 kbit/s. Who would \
         have waited longer than that at 320 kbit/s goes when the film would be over.\n",
        HEAD_START.as_secs()
    );
}

/// Shows the film one way; `None`, with the reason printed, without a network.
fn row(way: &Way, arguments: &Arguments, film: &[u8]) -> Option<String> {
    let codec = way.codec.unwrap_or("none");
    let limit = way.rate_limit.map(|rate| format!("rate_limit = \"{rate}\"\n")).unwrap_or_default();
    let disk = match arguments.film_read_ms {
        0 => String::new(),
        ms => format!("store_read_latency = \"{ms} ms\"\n"),
    };
    let all = format!(
        "[codec]\ncodec = \"{codec}\"\nentropy = \"none\"\nadapt = false\n[link]\ndead_after = \"60 s\"\n{limit}\
         [cache]\nmemory = \"512 MiB\"\nlog_memory = \"32 MiB\"\nstore_disk = \"1 GiB\"\n{disk}"
    );
    let plan = Plan { line: line(1_000_000, 1000), members: 1, hubs: 1, grouped: false, all };
    let site = Site::start(&crate::binary(), &plan)?;
    let listener = site.listen(0);
    if let Some(name) = &arguments.server_congestion {
        // Connections have it of their listener.
        socket2::SockRef::from(&listener).set_tcp_congestion(name.as_bytes()).unwrap();
    }
    let served = film.to_vec();
    let _origin = Origin::on(listener, move |mut stream| {
        let mut number = [0; 4];
        if stream.read_exact(&mut number).is_ok() {
            // Whether it arrived is for the client to say.
            let header = header(u32::from_le_bytes(number));
            let _ = stream.write_all(&header).and_then(|()| stream.write_all(&served));
        }
    });
    let before: u64 = site.crossed().iter().sum();
    let viewers: Vec<Viewer> = scope(|scope| {
        let watch = |number: u32| {
            let site = &site;
            scope.spawn(move || {
                wait(Duration::from_secs(1) * number);
                watch(site.connect(way.codec.map(|_| 0), 0), number, film, way)
            })
        };
        let viewers: Vec<_> = (0..arguments.clients).map(watch).collect();
        viewers.into_iter().map(|viewer| viewer.join().unwrap()).collect()
    });
    let wire = site.crossed().iter().sum::<u64>() - before;
    let count = |test: &dyn Fn(&Viewer) -> bool| viewers.iter().filter(|viewer| test(viewer)).count();
    let can = [0, 1].map(|at: usize| {
        let fast = count(&|viewer| viewer.done && viewer.kbit_per_s >= RATES_KBIT_PER_S[at]);
        format!("{fast} ({})", count(&|viewer| viewer.head_starts[at] <= HEAD_START))
    });
    let mut starts: Vec<Duration> = viewers.iter().map(|viewer| viewer.head_starts[0]).collect();
    starts.sort_unstable();
    let from = [50, 90, 100].map(|share| match starts[(starts.len() * share / 100).max(1) - 1] {
        Duration::MAX => "never".to_owned(),
        start => format!("{:.0}", start.as_secs_f64()),
    });
    let median = median(viewers.iter().map(|viewer| viewer.kbit_per_s).collect());
    Some(format!(
        "{} | {} | {} | {median:.0} | {} | {} | {} | {:.1}",
        way.codec.unwrap_or("no gateways"),
        way.rate_limit.unwrap_or_default(),
        count(&|viewer| viewer.done),
        can[0],
        from.join(", "),
        can[1],
        wire as f64 / 1e6
    ))
}

/// The server's header to a client before the film, different for each: other bytes, and more or fewer.
fn header(number: u32) -> Vec<u8> {
    let len = 200 + Rng::new(number.into()).below(401);
    data::random(HEADERS + u64::from(number), len)
}

/// Reads the film, and gives up once it would be over at the lowest rate.
fn watch(mut stream: TcpStream, number: u32, film: &[u8], way: &Way) -> Viewer {
    let header = header(number);
    let seconds = |bytes: usize, rate: f64| Duration::from_secs_f64(bytes as f64 * 8e-3 / rate);
    let limit = HEAD_START + seconds(film.len(), RATES_KBIT_PER_S[0]);
    let start = Instant::now();
    stream.write_all(&number.to_le_bytes()).unwrap();
    let (mut got, mut head_starts, mut buffer) = (0, [Duration::ZERO; 2], vec![0; 64 << 10]);
    while let Some(left) = limit.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        stream.set_read_timeout(Some(left)).unwrap();
        let count = match stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => break,
            Err(error) => {
                let way = way.codec.unwrap_or("no gateways");
                println!("{way}: a viewer is cut off after {got} bytes and {:.0?}: {error}", start.elapsed());
                break;
            }
        };
        if count == 0 {
            break;
        }
        let now = start.elapsed();
        for (head_start, rate) in head_starts.iter_mut().zip(RATES_KBIT_PER_S) {
            *head_start = now.saturating_sub(seconds(got, rate)).max(*head_start);
        }
        let (of_header, of_film) = buffer[..count].split_at(header.len().saturating_sub(got).min(count));
        data::assert_same(of_header, &header[got.min(header.len())..][..of_header.len()], "the header");
        let seen = (got + of_header.len()).saturating_sub(header.len());
        data::assert_same(of_film, &film[seen..][..of_film.len()], "the film");
        got += count;
    }
    let done = got == header.len() + film.len();
    let kbit_per_s = got as f64 * 8e-3 / start.elapsed().as_secs_f64();
    let head_starts = head_starts.map(|head_start| if done { head_start } else { Duration::MAX });
    Viewer { kbit_per_s, done, head_starts }
}

#[allow(clippy::disallowed_methods, reason = "who comes when is what is measured")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// The seeds of headers begin here.
const HEADERS: u64 = 1_000_000;
/// The rates of the paper's films.
const RATES_KBIT_PER_S: [f64; 2] = [320.0, 809.0];
/// How long after asking a client begins to watch.
const HEAD_START: Duration = Duration::from_secs(10);
