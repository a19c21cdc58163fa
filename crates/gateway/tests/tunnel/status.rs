//! A working gateway's status.

use std::time::Duration;

use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;
use oncewire_report::{LinkState, NotCoded, Outcome, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{
    Origin, Pair, UNCHANGING, branch_config, exchange, expect_refused, forward, hub_config, noise, proxy,
    start, until, within,
};

fn refused(gateway: &Gateway, reason: &str) -> u64 {
    gateway.status().gateway.refused.iter().find(|row| row.reason == reason).unwrap().count
}

fn not_coded(gateway: &Gateway) -> Vec<NotCoded> {
    gateway.status().flows_not_coded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_bytes_are_saved_and_shown() {
    within(async {
        let origin = Origin::echo().await;
        let intercepts = forward(origin.address) + UNCHANGING;
        let pair = Pair::with(&intercepts, UNCHANGING, async |hub| hub).await;
        let data = noise(3, 1 << 20);
        for _ in 0..3 {
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
        }
        until(|| pair.branch.status().peers[0].flows_open == 0).await;
        let status = pair.branch.status();
        let hub = &status.peers[0];
        assert_eq!((hub.state, hub.flows_total), (LinkState::Up, 3));
        assert_eq!((hub.delivered_out, hub.delivered_in), (3 << 20, 3 << 20));
        // One crossing of random bytes each way at most, and little else.
        assert!(hub.wire > 1 << 20 && hub.wire < 5 << 19, "{} bytes on the wire", hub.wire);
        assert_eq!(status.flows_not_coded, []);
        assert_eq!(status.intercepts[0].connections, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_flows_are_listed_at_both_ends() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        client.write_all(b"?").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'?');
        let (here, there) = (pair.branch.flows().flows, pair.hub.flows().flows);
        assert_eq!((here.len(), there.len()), (1, 1));
        assert_eq!((&here[0].id, here[0].opened_here), (&there[0].id, true));
        assert_eq!(here[0].destination, origin.address.to_string());
        assert_eq!(here[0].source, Some(client.local_addr().unwrap().to_string()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncoded_flow_has_its_reason_and_bytes() {
    within(async {
        let origin = Origin::echo().await;
        let none = "[[policy]]\nmatch = { networks = [\"127.0.0.0/8\"] }\ncodec = \"none\"\n";
        let (here, there) = (Reason::Policy, Reason::PeerPolicy);
        for (at_branch, at_hub, reasons) in [(none, "", [here, there]), ("", none, [there, here])] {
            let pair = Pair::with(&(forward(origin.address) + at_branch), at_hub, async |hub| hub).await;
            let data = noise(4, 100_000);
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
            let row = |peer: &str, reason| NotCoded {
                peer: Some(peer.to_owned()),
                destination: origin.address.to_string(),
                outcome: Outcome::Uncoded,
                reason,
                count: 1,
                bytes: 200_000,
            };
            assert_eq!(not_coded(&pair.branch), [row("hub", reasons[0])]);
            assert_eq!(not_coded(&pair.hub), [row("branch", reasons[1])]);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ciphers_are_recognised_and_named() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        for (hello, reason) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], Reason::Tls),
            (b"SSH-2.0-OpenSSH_9.9\r\n", Reason::Ssh),
        ] {
            let data = [hello, &noise(6, 50_000)].concat();
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
            let rows = not_coded(&pair.branch);
            let row = rows.iter().find(|row| row.reason == reason);
            assert_eq!(row.map(|row| (row.count, row.bytes)), Some((1, 2 * data.len() as u64)), "{rows:?}");
        }
    })
    .await;
}

/// Records of TLS: a hello of a client (1) or a server (2), and application data.
fn records(hello: u8, data: usize) -> Vec<u8> {
    let body =
        [&[hello, 0, 0, 72, 3, 3][..], &noise(7, 32), &[32], &noise(8, 32), &[0, 2, 0x13, 1, 1]].concat();
    let record =
        |kind: u8, body: &[u8]| [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat();
    let data = noise(9, data).chunks(16_000).flat_map(|body| record(23, body)).collect();
    [record(22, &body), data].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_behind_a_dialogue_is_named_at_both_ends() {
    within(async {
        let answer = [b"220 go on\r\n", &records(2, 200_000)[..]].concat();
        let sent = answer.clone();
        let origin = Origin::start(move |mut stream| {
            let answer = sent.clone();
            async move {
                let mut asked = [0; 5];
                stream.read_exact(&mut asked).await.unwrap();
                // The client's hello comes before the server's.
                let mut hello = vec![0; records(1, 0).len()];
                stream.write_all(&answer[..11]).await.unwrap();
                stream.read_exact(&mut hello).await.unwrap();
                stream.write_all(&answer[11..]).await.unwrap();
                let _ = stream.read(&mut asked).await;
            }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        client.write_all(b"STLS\n").await.unwrap();
        let mut got = vec![0; 11];
        client.read_exact(&mut got).await.unwrap();
        client.write_all(&records(1, 0)).await.unwrap();
        got.resize(answer.len(), 0);
        client.read_exact(&mut got[11..]).await.unwrap();
        assert!(got == answer);
        for gateway in [&pair.branch, &pair.hub] {
            let flow = gateway.flows().flows.remove(0);
            assert_eq!(
                (flow.outcome, flow.reason, flow.begins_after),
                (Outcome::Uncoded, Some(Reason::Tls), Some(11))
            );
            let rows = not_coded(gateway);
            assert_eq!((rows.len(), rows[0].reason, rows[0].count), (1, Reason::Tls, 1), "{rows:?}");
            let bytes = rows[0].bytes;
            assert!((150_000..=answer.len() as u64 + 200).contains(&bytes), "{rows:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_peer_means_direct_or_refused_as_configured() {
    within(async {
        let origin = Origin::echo().await;
        let direct = format!("{}on_peer_loss = \"direct\"\n", forward(origin.address));
        let (pair, _relay) = Pair::parted(&format!("{direct}{}", forward(origin.address))).await;
        let [direct, refuse] = pair.branch.local_addrs().intercepts[..] else { panic!("two intercepts") };
        let stream = TcpStream::connect(direct).await.unwrap();
        assert_eq!(exchange(stream, b"in the clear").await.unwrap(), b"in the clear");
        expect_refused(refuse).await;
        let rows = not_coded(&pair.branch);
        let of = |outcome| rows.iter().find(|row| row.outcome == outcome).map(|row| (row.reason, row.bytes));
        assert_eq!(of(Outcome::Direct), Some((Reason::PeerLost, 24)));
        assert_eq!(of(Outcome::Refused), Some((Reason::PeerLost, 0)));
        assert_eq!(refused(&pair.branch, "peer_lost"), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_plain_requests_are_counted_and_avoid_the_gateway() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await;
        })
        .await;
        let (pair, _relay) = Pair::parted(&proxy("http", "on_peer_loss = \"direct\"")).await;
        let own = pair.branch.local_addrs().intercepts[0];
        for (destination, expected) in [
            (own.to_string(), "403"),
            (format!("0.0.0.0:{}", own.port()), "403"),
            ("169.254.169.254:80".to_owned(), "403"),
            (origin.address.to_string(), "200"),
        ] {
            let stream = TcpStream::connect(own).await.unwrap();
            let request = format!("GET http://{destination}/ HTTP/1.0\r\n\r\n");
            let answer = String::from_utf8(exchange(stream, request.as_bytes()).await.unwrap()).unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{destination}: {answer}");
        }
        let rows = not_coded(&pair.branch);
        let row = rows.iter().find(|row| row.destination == origin.address.to_string()).unwrap();
        assert_eq!((row.outcome, row.count), (Outcome::Direct, 1));
        assert!(row.bytes > 24, "{rows:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_key_is_refused_counted_and_explained_to_both() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let somebody_else = Identity::from_seed([7; 32]).public_key();
        let hub = start(dir.path(), &hub_config(somebody_else, "")).await.unwrap();
        let branch = branch_config(hub_key, hub.local_addrs().tunnel[0], "");
        let branch = start(dir.path(), &branch).await.unwrap();
        until(|| branch.status().peers[0].state == LinkState::Refused).await;
        let reason = branch.status().peers[0].state_reason.clone().unwrap();
        assert!(reason.contains(&branch_key.to_string()), "{reason}");
        until(|| refused(&hub, "unknown_key") > 0).await;
        assert_eq!(hub.status().peers[0].state, LinkState::Down);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_gateway_is_named_by_its_key() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let hub_key = Identity::create(&dir.path().join("hub.key")).unwrap().public_key();
        let branch_key = Identity::create(&dir.path().join("branch.key")).unwrap().public_key();
        let hub = start(dir.path(), &hub_config(branch_key, "")).await.unwrap();
        let expected = Identity::from_seed([8; 32]).public_key();
        let branch = branch_config(expected, hub.local_addrs().tunnel[0], "");
        let branch = start(dir.path(), &branch).await.unwrap();
        until(|| branch.status().peers[0].state == LinkState::Refused).await;
        let reason = branch.status().peers[0].state_reason.clone().unwrap();
        assert!(reason.contains(&hub_key.to_string()), "{reason}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_silence_on_the_tunnel_port_are_counted() {
    within(async {
        let pair = Pair::start("").await;
        let port = pair.hub.local_addrs().tunnel[0];
        let mut stranger = TcpStream::connect(port).await.unwrap();
        stranger.write_all(&noise(1, 2000)).await.unwrap();
        until(|| refused(&pair.hub, "bad_handshake") == 1).await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(TcpStream::connect(port).await.unwrap());
        }
        until(|| refused(&pair.hub, "handshake_evicted") >= 30).await;
        assert!(pair.hub.status().gateway.handshakes_pending <= 64);
        assert!(pair.branch.wait_up("hub", Duration::ZERO).await);
    })
    .await;
}
