//! Keep-alive of applications' hosts, mirrored at the far end.

use std::time::Duration;

use oncewire_sys::connections;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Origin, Pair, forward, within};

/// Has an application's host probe its connection after each second of silence.
fn probe(stream: &TcpStream) {
    let second = Duration::from_secs(1);
    let probes = TcpKeepalive::new().with_time(second).with_interval(second);
    SockRef::from(stream).set_tcp_keepalive(&probes).unwrap();
}

fn segments(stream: &TcpStream) -> u32 {
    connections::traffic(stream).unwrap().unwrap().segments_received
}

/// Waits until several probes have come.
async fn probed(stream: &TcpStream) {
    let before = segments(stream);
    while segments(stream) < before + 4 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An origin reporting probes, and another sending them.
async fn origins() -> [Origin; 2] {
    let told = Origin::start(|mut stream| async move {
        stream.write_all(b"hello").await.unwrap();
        probed(&stream).await;
        stream.write_all(b"probed").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    });
    let probing = Origin::start(|mut stream| async move {
        probe(&stream);
        stream.write_all(b"hello").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    });
    [told.await, probing.await]
}

async fn greeted(mut stream: TcpStream) -> TcpStream {
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_probed_as_often_as_the_other_end_probes() {
    within(async {
        let [told, probing] = origins().await;
        let pair = Pair::start(&(forward(told.address) + &forward(probing.address))).await;
        let addresses = pair.branch.local_addrs().intercepts;
        let connect = async |to: usize| greeted(TcpStream::connect(addresses[to]).await.unwrap()).await;
        let (silent, mut client, server_probes) = (connect(0).await, connect(0).await, connect(1).await);
        let before = segments(&silent);
        probe(&client);
        let mut said = [0; 6];
        let (read, ()) = tokio::join!(client.read_exact(&mut said), probed(&server_probes));
        assert_eq!((read.unwrap(), &said), (6, b"probed"));
        assert!(segments(&silent) <= before + 1, "nobody asked for it");
    })
    .await;
}
