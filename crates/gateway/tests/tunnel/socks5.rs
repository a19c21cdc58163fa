//! SOCKS 5 as clients meet it.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Origin, Pair, exchange, nobody, proxy, until, within};

/// The request for an address.
fn connect_to(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&[5, 1, 0, 1][..], &ip.octets(), &port].concat(),
        IpAddr::V6(ip) => [&[5, 1, 0, 4][..], &ip.octets(), &port].concat(),
    }
}

/// The request for a name.
fn connect_to_name(name: &str, port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// Greets without authentication and sends a request; returns the reply code.
async fn ask(client: &mut TcpStream, request: &[u8]) -> u8 {
    client.write_all(&[5, 1, 0]).await.unwrap();
    let mut chosen = [0; 2];
    client.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    client.write_all(request).await.unwrap();
    reply(client).await
}

async fn reply(client: &mut TcpStream) -> u8 {
    let mut reply = [0; 4];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[0], 5);
    let mut bound = vec![0; if reply[3] == 4 { 18 } else { 6 }];
    client.read_exact(&mut bound).await.unwrap();
    reply[1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_and_names_are_connected_at_the_far_end() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&proxy("socks5", "")).await;
        for request in [connect_to(origin.address), connect_to_name("localhost", origin.address.port())] {
            let mut client = pair.connect().await;
            assert_eq!(ask(&mut client, &request).await, 0);
            assert_eq!(exchange(client, b"hello").await.unwrap(), b"hello");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipv6_destination_is_connected_by_its_address() {
    within(async {
        let origin = Origin::echo_on("[::1]:0").await;
        let pair = Pair::start(&proxy("socks5", "")).await;
        let mut client = pair.connect().await;
        assert_eq!(ask(&mut client, &connect_to(origin.address)).await, 0);
        assert_eq!(exchange(client, b"hello").await.unwrap(), b"hello");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_sent_right_behind_the_request_are_not_lost() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&proxy("socks5", "")).await;
        let mut client = pair.connect().await;
        let all = [&[5, 1, 0][..], &connect_to(origin.address), b"eager"].concat();
        client.write_all(&all).await.unwrap();
        assert_eq!(client.read_u16().await.unwrap(), 0x0500);
        assert_eq!(reply(&mut client).await, 0);
        assert_eq!(exchange(client, b"").await.unwrap(), b"eager");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_tell_the_truth_about_the_far_connect() {
    within(async {
        let pair = Pair::with(&proxy("socks5", ""), "deny = [\"127.9.0.0/16\"]", async |hub| hub).await;
        let (own, nobody) = (pair.hub.local_addrs().tunnel[0], nobody());
        let mut bind = connect_to(own);
        bind[1] = 2;
        let mut associate = connect_to(own);
        associate[1] = 3;
        for (request, expected) in [
            (connect_to(nobody.address), 5),
            (connect_to("127.9.0.1:80".parse().unwrap()), 2),
            (connect_to("169.254.169.254:80".parse().unwrap()), 2),
            (connect_to(own), 2),
            (connect_to_name("no-such-host.invalid", 80), 4),
            (bind, 7),
            (associate, 7),
        ] {
            let mut client = pair.connect().await;
            assert_eq!(ask(&mut client, &request).await, expected, "{request:?}");
            // The refusal ends in order: no client loses it to a reset.
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_need_their_password() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&proxy("socks5", "users = [\"anna:secret\"]")).await;
        let greet = |password: &'static str| {
            let pair = &pair;
            async move {
                let mut client = pair.connect().await;
                client.write_all(&[5, 2, 0, 2]).await.unwrap();
                assert_eq!(client.read_u16().await.unwrap(), 0x0502);
                let login = [&[1, 4][..], b"anna", &[password.len() as u8], password.as_bytes()].concat();
                client.write_all(&login).await.unwrap();
                (client.read_u16().await.unwrap(), client)
            }
        };
        let (status, mut client) = greet("secret").await;
        assert_eq!(status, 0x0100);
        client.write_all(&connect_to(origin.address)).await.unwrap();
        assert_eq!(reply(&mut client).await, 0);
        assert_eq!(exchange(client, b"in").await.unwrap(), b"in");
        let (status, mut client) = greet("guess").await;
        assert_eq!(status, 0x0101);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        let mut anonymous = pair.connect().await;
        anonymous.write_all(&[5, 1, 0]).await.unwrap();
        assert_eq!(anonymous.read_u16().await.unwrap(), 0x05ff);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unneeded_password_is_never_wrong() {
    within(async {
        let pair = Pair::start(&proxy("socks5", "")).await;
        let mut client = pair.connect().await;
        client.write_all(&[5, 1, 2]).await.unwrap();
        assert_eq!(client.read_u16().await.unwrap(), 0x05ff);
        let count = |reason: &str| {
            let refused = pair.branch.status().gateway.refused;
            refused.iter().find(|row| row.reason == reason).unwrap().count
        };
        until(|| count("bad_request") == 1).await;
        assert_eq!(count("bad_credentials"), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_turned_away_and_others_are_served() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&proxy("socks5", "")).await;
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[5, 0], &[0xff; 600]] {
            let mut client = pair.connect().await;
            let _ = client.write_all(garbage).await;
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            assert!(answer.len() <= 2, "{answer:?}");
        }
        let mut client = pair.connect().await;
        assert_eq!(ask(&mut client, &connect_to(origin.address)).await, 0);
    })
    .await;
}

/// A request of SOCKS 4 for an address, or of 4a for a name.
fn version_4(command: u8, to: SocketAddr, name: Option<&str>) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else { panic!("{to}") };
    let head = [&[4, command][..], &to.port().to_be_bytes()].concat();
    match name {
        None => [&head[..], &ip.octets(), b"user\0"].concat(),
        Some(name) => [&head[..], &[0, 0, 0, 9], b"user\0", name.as_bytes(), b"\0"].concat(),
    }
}

async fn answer_of_4(client: &mut TcpStream, request: &[u8]) -> u8 {
    client.write_all(request).await.unwrap();
    let mut reply = [0; 8];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[0], 0);
    reply[1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_4_is_served_or_refused_by_its_own_reply() {
    within(async {
        let (origin, nobody) = (Origin::echo().await, nobody());
        let pair = Pair::start(&proxy("socks5", "")).await;
        for name in [None, Some("localhost"), Some("[::1]")] {
            let v6 = name == Some("[::1]");
            let request = version_4(1, origin.address, name);
            let mut client = pair.connect().await;
            let code = answer_of_4(&mut client, &request).await;
            // The origin listens on IPv4 alone.
            assert_eq!(code, if v6 { 91 } else { 90 }, "{name:?}");
            if !v6 {
                assert_eq!(exchange(client, b"hello").await.unwrap(), b"hello");
            }
        }
        for request in [version_4(1, nobody.address, None), version_4(2, origin.address, None)] {
            let mut client = pair.connect().await;
            assert_eq!(answer_of_4(&mut client, &request).await, 91);
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
        let guarded = Pair::start(&proxy("socks5", "users = [\"anna:secret\"]")).await;
        let mut client = guarded.connect().await;
        assert_eq!(answer_of_4(&mut client, &version_4(1, origin.address, None)).await, 91);
    })
    .await;
}
