//! TCP's guarantees, over a link.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::common::{
    Origin, Pair, exchange, expect_refused, expect_reset, forward, is_reset, nobody, noise, reset, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_bytes_are_forwarded_at_once() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        for byte in 0..100 {
            client.write_all(&[byte]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transfers_both_ways_at_once_arrive_whole() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        for seed in [1, 2, 1] {
            let sent = noise(seed, 6 << 20);
            let received = exchange(pair.connect().await, &sent).await.unwrap();
            assert!(received == sent, "seed {seed}: what came back differs");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_flows_at_once_keep_their_bytes_apart() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Arc::new(Pair::start(&forward(origin.address)).await);
        let mut flows = tokio::task::JoinSet::new();
        for seed in 0..100 {
            let pair = Arc::clone(&pair);
            flows.spawn(async move {
                let sent = noise(seed, 50_000);
                assert!(exchange(pair.connect().await, &sent).await.unwrap() == sent, "seed {seed}");
            });
        }
        while let Some(done) = flows.join_next().await {
            done.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_still_receives() {
    within(async {
        let origin = Origin::answer().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let answer = exchange(pair.connect().await, b"all of it").await.unwrap();
        assert_eq!(answer, b"got all of it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_server_still_receives() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                stream.write_all(b"bye").await.unwrap();
                stream.shutdown().await.unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                tell.send(rest).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        let mut greeting = Vec::new();
        client.read_to_end(&mut greeting).await.unwrap();
        assert_eq!(greeting, b"bye");
        client.write_all(b"not yet").await.unwrap();
        drop(client);
        assert_eq!(told.recv().await.unwrap(), b"not yet");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_reset_reaches_the_server() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                stream.write_all(b"!").await.unwrap();
                let mut rest = Vec::new();
                let ended = stream.read_to_end(&mut rest).await;
                tell.send(ended.map_err(|error| is_reset(&error))).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        reset(client);
        assert_eq!(told.recv().await.unwrap(), Err(true));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_reset_reaches_the_client() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let _ = stream.read_u8().await;
            reset(stream);
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        client.write_all(b"?").await.unwrap();
        expect_reset(&mut client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_stream_arrives_whole_although_its_server_vanished() {
    within(a_download_outlives_its_server("")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_direct_stream_arrives_whole_although_its_server_vanished() {
    within(a_download_outlives_its_server("[[policy]]\npath = \"direct\"\n")).await;
}

async fn a_download_outlives_its_server(policy: &str) {
    let data = noise(8, 24 << 20);
    let served = data.clone();
    let (tell, mut gone) = mpsc::channel(1);
    let origin = Origin::start(move |mut stream| {
        let (data, tell) = (served.clone(), tell.clone());
        async move {
            let sent = fill(&mut stream, &data).await;
            stream.shutdown().await.unwrap();
            let unread = loop {
                match Kernel::of(&stream) {
                    Some(kernel) if kernel.has_ended => break kernel.unread,
                    _ => tokio::task::yield_now().await,
                }
            };
            // A system answers so after forgetting the connection.
            reset(stream);
            tell.send((sent, unread)).await.unwrap();
        }
    })
    .await;
    let pair = Pair::start(&(forward(origin.address) + policy)).await;
    for ends_first in [false, true] {
        // A busy machine may read bytes meant to stay unread after all; then once more.
        for _ in 0..2 {
            let mut client = pair.connect().await;
            let (sent, unread) = gone.recv().await.unwrap();
            println!("{sent} bytes were sent, and {unread} were with the gateway's system");
            if ends_first {
                client.shutdown().await.unwrap();
            }
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            assert!(got == data[..sent], "{} of {sent} bytes", got.len());
            // The end of the stream counts as one.
            if unread > 1 {
                break;
            }
        }
    }
}

/// Sends until the gateway's system has taken all it can without a reader; returns the number of bytes.
async fn fill(stream: &mut TcpStream, data: &[u8]) -> usize {
    const PIECE: usize = 64 << 10;
    let (first, rest) = data.split_at(2 << 20);
    stream.write_all(first).await.unwrap();
    let (mut sent, mut before) = (first.len(), 0);
    let mut pieces = rest.chunks(PIECE);
    loop {
        let kernel = loop {
            tokio::task::yield_now().await;
            match Kernel::of(stream) {
                Some(kernel) if kernel.unsent == 0 => break kernel,
                _ => {}
            }
        };
        if kernel.unread >= PIECE && before == kernel.unread {
            return sent;
        }
        // One more look before more is sent: the gateway may be about to read.
        if kernel.unread < PIECE {
            let Some(piece) = pieces.next() else { return sent };
            stream.write_all(piece).await.unwrap();
            sent += piece.len();
        }
        before = kernel.unread;
    }
}

/// The system's view of a connection with both ends on this machine.
struct Kernel {
    /// This end has ended its stream, and all of it has arrived.
    has_ended: bool,
    /// Bytes still on the way to the other end.
    unsent: usize,
    /// Bytes arrived and unread there.
    unread: usize,
}

impl Kernel {
    fn of(stream: &TcpStream) -> Option<Self> {
        const FIN_WAIT2: &str = "05";
        let [here, there] = [stream.local_addr(), stream.peer_addr()]
            .map(|address| format!(":{:04X}", address.unwrap().port()));
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows: Vec<Vec<&str>> = sockets.lines().map(|line| line.split_whitespace().collect()).collect();
        let find = |from: &str, to: &str| {
            rows.iter()
                .find(|row| matches!(row.get(1..3), Some([a, b]) if a.ends_with(from) && b.ends_with(to)))
        };
        let (own, other) = (find(&here, &there)?, find(&there, &here)?);
        let number = |digits: &str| usize::from_str_radix(digits, 16).ok();
        Some(Self {
            has_ended: own[3] == FIN_WAIT2,
            unsent: number(own[4].split_once(':')?.0)?,
            unread: number(other[4].split_once(':')?.1)?,
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_is_noticed_without_a_reader() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let looked = Arc::new(Notify::new());
        let look = Arc::clone(&looked);
        let origin = Origin::start(move |stream| {
            let (tell, look) = (tell.clone(), Arc::clone(&look));
            async move {
                // Reads nothing at all: the client's bytes fill every buffer on the way.
                look.notified().await;
                let error = stream.ready(tokio::io::Interest::ERROR).await;
                tell.send(error.is_ok()).await.unwrap();
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let client = pair.connect().await;
        // Full: a write would wait in spite of reported readiness, for a while.
        let full = noise(7, 1 << 20);
        let fill = async {
            loop {
                client.writable().await.unwrap();
                let _ = client.try_write(&full);
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), fill).await;
        reset(client);
        looked.notify_one();
        assert!(told.recv().await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connect_is_a_reset_before_any_byte() {
    within(async {
        let nobody = nobody();
        let pair = Pair::start(&forward(nobody.address)).await;
        expect_refused(pair.branch.local_addrs().intercepts[0]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_reader_holds_back_nobody() {
    within(async {
        let data = noise(9, 8 << 20);
        let origin = Origin::serve(data.as_slice()).await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut stopped = pair.connect().await;
        assert_eq!(stopped.read_u8().await.unwrap(), data[0]);
        for _ in 0..3 {
            let received = exchange(pair.connect().await, b"").await.unwrap();
            assert!(received == data);
        }
        let mut rest = Vec::new();
        stopped.read_to_end(&mut rest).await.unwrap();
        assert!(rest == data[1..]);
    })
    .await;
}
