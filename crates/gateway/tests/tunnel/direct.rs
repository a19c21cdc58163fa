//! Connections without a link, and the PROXY header.

use std::net::SocketAddr;
use std::sync::Arc;

use oncewire_report::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};

use crate::common::{
    CuttingRelay, Origin, Pair, exchange, expect_reset, forward, is_reset, nobody, noise, proxy, reset,
    until, within,
};

/// A pair with a down link and a directly connecting branch.
async fn without_link(origin: SocketAddr, more: &str) -> (Pair, CuttingRelay) {
    Pair::parted(&format!("{}on_peer_loss = \"direct\"\n{more}", forward(origin))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_direct_transfers_arrive_whole_and_are_counted() {
    within(async {
        let origin = Origin::echo().await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let (branch, address) = (&lone.branch, lone.branch.local_addrs().intercepts[0]);
        let sent = noise(41, 8 << 20);
        for _ in 0..2 {
            let received = exchange(TcpStream::connect(address).await.unwrap(), &sent).await.unwrap();
            assert!(received == sent);
        }
        let rows = branch.status().flows_not_coded;
        let row = rows.iter().find(|row| row.reason == Reason::PeerLost).unwrap();
        assert_eq!((row.count, row.bytes), (2, 4 * (8 << 20)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connects_are_not_counted_as_direct() {
    within(async {
        let nobody = nobody();
        let (lone, _relay) = without_link(nobody.address, "").await;
        let mut client = TcpStream::connect(lone.branch.local_addrs().intercepts[0]).await.unwrap();
        expect_reset(&mut client).await;
        let rows = lone.branch.status().flows_not_coded;
        assert!(rows.iter().all(|row| row.reason != Reason::PeerLost), "{rows:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_outage_delays_no_connection() {
    within(async {
        let origin = Origin::echo().await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let address = lone.branch.local_addrs().intercepts[0];
        // A second each, the time of a link just lost, would exceed the whole test's time.
        for _ in 0..100 {
            assert_eq!(
                exchange(TcpStream::connect(address).await.unwrap(), b"hello").await.unwrap(),
                b"hello"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_direct_reader_misses_nothing() {
    within(async {
        let data = Arc::new(noise(42, 16 << 20));
        let (serve, held_back) = (Arc::clone(&data), Arc::new(Notify::new()));
        let held = Arc::clone(&held_back);
        let origin = Origin::start(move |stream| {
            let (serve, held) = (Arc::clone(&serve), Arc::clone(&held));
            async move {
                let mut sent = 0;
                while sent < serve.len() {
                    match stream.try_write(&serve[sent..]) {
                        Ok(len) => sent += len,
                        Err(_) => {
                            held.notify_one();
                            stream.writable().await.unwrap();
                        }
                    }
                }
                // A kernel with room for all of it does not block.
                held.notify_one();
            }
        })
        .await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let address = lone.branch.local_addrs().intercepts[0];
        let socket = TcpSocket::new_v4().unwrap();
        // Little room: the gateway must not be able to get rid of it.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(address).await.unwrap();
        let mut received = vec![0; 100];
        client.read_exact(&mut received).await.unwrap();
        held_back.notified().await;
        client.read_to_end(&mut received).await.unwrap();
        assert!(received == *data);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_direct_stream_keeps_the_other_direction() {
    within(async {
        let origin = Origin::answer().await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let address = lone.branch.local_addrs().intercepts[0];
        let client = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(client, b"all of it").await.unwrap(), b"got all of it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_direct_connections_reach_the_other_side() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |mut stream| {
            let tell = tell.clone();
            async move {
                if stream.read_u8().await.unwrap() == b'r' {
                    return reset(stream);
                }
                stream.write_all(b"!").await.unwrap();
                let ended = stream.read_u8().await.map_err(|error| is_reset(&error));
                tell.send(ended).await.unwrap();
            }
        })
        .await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let address = lone.branch.local_addrs().intercepts[0];
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"r").await.unwrap();
        expect_reset(&mut client).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"?").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        reset(client);
        assert_eq!(told.recv().await.unwrap(), Err(true));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urgent_bytes_of_a_direct_connection_stay_in_line() {
    within(async {
        let origin = Origin::echo().await;
        let (lone, _relay) = without_link(origin.address, "").await;
        let address = lone.branch.local_addrs().intercepts[0];
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"before").await.unwrap();
            socket2::SockRef::from(&client).send_out_of_band(b"!").unwrap();
            assert_eq!(exchange(client, b"after").await.unwrap(), b"before!after");
        }
    })
    .await;
}

/// An origin returning a connection's first bytes and then echoing.
async fn told_first(len: usize) -> Origin {
    Origin::start(move |mut stream| async move {
        let mut header = vec![0; len];
        stream.read_exact(&mut header).await.unwrap();
        stream.write_all(&header).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// The header for a connection over IPv4 loopback.
fn header(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    header.extend_from_slice(&client.port().to_be_bytes());
    header.extend_from_slice(&local.port().to_be_bytes());
    header
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_learn_the_client_ahead_of_its_first_byte() {
    within(async {
        let origin = told_first(28).await;
        let intercept = forward(origin.address) + "proxy_protocol = \"v2\"\n";
        let pair = Pair::start(&intercept).await;
        let (lone, _relay) = without_link(origin.address, "proxy_protocol = \"v2\"\n").await;
        let direct = lone.branch.local_addrs().intercepts[0];
        for address in [pair.branch.local_addrs().intercepts[0], direct] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let mut said = vec![0; 28];
            client.read_exact(&mut said).await.unwrap();
            assert_eq!(said, header(client.local_addr().unwrap(), address));
            assert_eq!(exchange(client, b"and on").await.unwrap(), b"and on");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_behind_the_header_is_recognised() {
    within(async {
        let origin = told_first(28).await;
        let pair = Pair::start(&(forward(origin.address) + "proxy_protocol = \"v2\"\n")).await;
        let mut client = pair.connect().await;
        client.read_exact(&mut [0; 28]).await.unwrap();
        let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1], noise(43, 500).as_slice()].concat();
        assert!(exchange(client, &hello).await.unwrap() == hello);
        let rows = pair.branch.status().flows_not_coded;
        assert_eq!(rows.iter().map(|row| row.reason).collect::<Vec<_>>(), [Reason::Tls], "{rows:?}");
    })
    .await;
}

#[test]
fn proxy_header_needs_forward_and_version_2() {
    let refused = |intercept: String| {
        let text = format!("[gateway]\nname = \"b\"\nkey_file = \"none.key\"\n{intercept}");
        let parsed = oncewire_config::Config::parse(&text, "/nowhere/b.toml".as_ref());
        parsed.unwrap_err().to_string()
    };
    let socks = refused(proxy("socks5", "proxy_protocol = \"v2\""));
    assert!(socks.contains("proxy_protocol: has no effect with mode socks5; remove it"), "{socks}");
    let v1 = refused(forward(SocketAddr::from(([10, 0, 0, 5], 80))) + "proxy_protocol = \"v1\"\n");
    assert!(v1.contains("proxy_protocol: unknown value \"v1\"; did you mean \"v2\"?"), "{v1}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_stream_arrives_although_the_client_system_forgets_it() {
    within(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        // Its system answers no client until this one is accepted.
        let _first = TcpStream::connect(address).await.unwrap();
        let (lone, _relay) = without_link(address, "").await;
        let mut client = lone.connect().await;
        client.write_all(b"whole").await.unwrap();
        client.shutdown().await.unwrap();
        until(|| lone.branch.status().intercepts[0].connections == 1).await;
        // A system answers so to a probe of a forgotten connection.
        reset(client);
        drop(listener.accept().await.unwrap());
        let (mut server, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"whole");
    })
    .await;
}
