use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use oncewire_netem::Queue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn params(mbit_per_s: u64, rtt_ms: u64, loss: f64) -> LinkParams {
    LinkParams {
        rate_bits_per_s: Some(mbit_per_s * 1_000_000),
        delay: Duration::from_millis(rtt_ms) / 2,
        loss,
        queue: Queue::Time(Duration::from_millis(100)),
        seed: 7,
        ..LinkParams::default()
    }
}

fn link(mbit_per_s: u64, rtt_ms: u64, loss: f64) -> EmulatedLink {
    let up = params(mbit_per_s, rtt_ms, loss);
    EmulatedLink::start(up.clone(), LinkParams { seed: 8, ..up }).unwrap()
}

async fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn data(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    })
    .take(len)
    .collect()
}

#[tokio::test]
async fn bytes_cross_unchanged_and_streams_end_on_their_own() {
    let link = link(200, 10, 0.005);
    let (listener, target) = server().await;
    let relay = link.relay(LOOPBACK, target, Policy::Bbr, Account(1)).unwrap();
    let sent = data(3_000_000);
    let reply = data(700_001);
    let (expected, answer) = (sent.clone(), reply.clone());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == expected, "the upload differs");
        stream.write_all(&answer).await.unwrap();
    });
    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    client.write_all(&sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert!(got == reply, "the download differs");
    server.await.unwrap();

    let traffic = link.traffic(Account(1)).await;
    assert_eq!((traffic.up.payload, traffic.down.payload), (3_000_000, 700_001));
    assert!(traffic.up.repeated > 0 && traffic.packets_bytes() > traffic.payload());
    assert!(link.link_counters(Side::Near).await.lost > 0);
    assert_eq!(link.traffic(Account(2)).await.payload(), 0);
}

#[tokio::test]
async fn round_trip_takes_its_time_and_connecting_one_more() {
    let link = link(100, 60, 0.0);
    let (listener, target) = server().await;
    let relay = link.relay(LOOPBACK, target, Policy::Cubic, Account(1)).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).await.is_ok() {
            stream.write_all(&byte).await.unwrap();
        }
    });
    let began = Instant::now();
    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    client.write_all(&[1]).await.unwrap();
    client.read_exact(&mut [0]).await.unwrap();
    let (first, two) = (began.elapsed(), Duration::from_millis(120));
    assert!(first >= two, "{first:?}");
    // A busy machine may be late with some.
    loop {
        let begun = Instant::now();
        client.write_all(&[1]).await.unwrap();
        client.read_exact(&mut [0]).await.unwrap();
        let trip = begun.elapsed();
        assert!(trip >= two / 2, "{trip:?}");
        if trip < two {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{trip:?}");
    }
}

#[tokio::test]
async fn a_reset_crosses_in_both_directions() {
    let link = link(100, 10, 0.0);
    let (listener, target) = server().await;
    let relay = link.relay(LOOPBACK, target, Policy::Cubic, Account(1)).unwrap();

    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut at_server, _) = listener.accept().await.unwrap();
    at_server.read_exact(&mut [0; 5]).await.unwrap();
    at_server.set_zero_linger().unwrap();
    drop(at_server);
    let error = client.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut at_server, _) = listener.accept().await.unwrap();
    at_server.read_exact(&mut [0; 5]).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let error = at_server.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn refusing_server_resets_the_client() {
    let link = link(100, 10, 0.0);
    let (listener, target) = server().await;
    drop(listener);
    let relay = link.relay(LOOPBACK, target, Policy::Cubic, Account(1)).unwrap();
    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    let error = client.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn dropped_path_resets_its_connections() {
    let link = link(100, 10, 0.0);
    let (listener, target) = server().await;
    let relay = link.relay(LOOPBACK, target, Policy::Cubic, Account(1)).unwrap();
    let mut client = TcpStream::connect(relay.local_addr()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut at_server, _) = listener.accept().await.unwrap();
    at_server.read_exact(&mut [0; 5]).await.unwrap();
    drop(link);
    let error = at_server.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn stopped_reader_holds_only_its_writer_back() {
    let link = link(400, 4, 0.0);
    let (listener, target) = server().await;
    let relay = link.relay(LOOPBACK, target, Policy::Bbr, Account(1)).unwrap();
    let mut stopped = TcpStream::connect(relay.local_addr()).await.unwrap();
    stopped.write_all(b"x").await.unwrap();
    let (mut unread, _) = listener.accept().await.unwrap();

    // More than all buffers on the way hold; it blocks for good while nobody reads.
    let total = 40 << 20;
    let writer = tokio::spawn(async move {
        stopped.write_all(&vec![7; total]).await.unwrap();
        stopped.shutdown().await.unwrap();
    });
    let mut other = TcpStream::connect(relay.local_addr()).await.unwrap();
    other.write_all(&data(3_000_000)).await.unwrap();
    other.shutdown().await.unwrap();
    let (mut reading, _) = listener.accept().await.unwrap();
    let mut got = Vec::new();
    reading.read_to_end(&mut got).await.unwrap();
    assert!(got == data(3_000_000));
    assert!(!writer.is_finished(), "the writer is held back");

    let mut rest = Vec::new();
    unread.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), total + 1);
    writer.await.unwrap();
}

#[tokio::test]
async fn relays_share_the_rate_of_the_path() {
    let link = link(40, 10, 0.0);
    let (listener, target) = server().await;
    let first = link.relay(LOOPBACK, target, Policy::Cubic, Account(1)).unwrap();
    let second = link.relay(LOOPBACK, target, Policy::Cubic, Account(2)).unwrap();
    let began = Instant::now();
    let each = 1_000_000;
    for relay in [&first, &second] {
        let address = relay.local_addr();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&vec![1; each]).await.unwrap();
        });
    }
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move { stream.read_to_end(&mut Vec::new()).await });
    }
    while link.traffic(Account(1)).await.payload() + link.traffic(Account(2)).await.payload()
        < 2 * each as u64
    {
        tokio::task::yield_now().await;
    }
    // 2 MB at 40 Mbit/s take 0.4 s; bytes may be on the way for a while, up to the queue's 100 ms.
    assert!(began.elapsed() >= Duration::from_millis(270), "{:?}", began.elapsed());
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let wrong = LinkParams { loss: 2.0, ..LinkParams::default() };
    let error = EmulatedLink::start(wrong, LinkParams::default()).unwrap_err();
    assert!(error.to_string().contains("loss"), "{error}");
}
