//! Policies at both ends, and their precedence for a flow.

use std::net::SocketAddr;

use oncewire_report::{Outcome, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::common::{Origin, Pair, UNCHANGING, exchange, forward, noise, proxy, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_codes_its_sent_bytes_by_its_rules() {
    within(async {
        let origin = Origin::echo().await;
        // The hub's bytes are not logged; the branch's are, and are not compressed either way.
        let hub_rule = format!("{UNCHANGING}[[policy]]\ncodec = \"auto\"\nlog_memory = 0\n");
        let branch_rule = "[[policy]]\ncodec = \"auto\"\nentropy = \"none\"\nperiod = 32\n";
        let branch = forward(origin.address) + UNCHANGING + branch_rule;
        let pair = Pair::with(&branch, &hub_rule, async |hub| hub).await;
        let data = noise(31, 300_000);
        for _ in 0..2 {
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
        }
        let (branch, hub) = (pair.branch.status().peers.remove(0), pair.hub.status().peers.remove(0));
        assert!(branch.out.copied > 290_000, "{:?}", branch.out);
        assert_eq!((hub.out.copied, hub.out.remembered), (0, 0), "{:?}", hub.out);
        assert_eq!(hub.out.not_remembered, 600_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_at_either_end_prevents_coding_both_ways() {
    within(async {
        let origin = Origin::echo().await;
        let none = "[[policy]]\ncodec = \"none\"\n";
        let changed = "[[policy]]\ncodec = \"auto\"\nentropy = \"lz4\"\n";
        for (at_branch, at_hub) in [(none, changed), (changed, none)] {
            let pair = Pair::with(&(forward(origin.address) + at_branch), at_hub, async |hub| hub).await;
            let data = noise(32, 100_000);
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
            // The branch's bytes from before the hub's rule may be in the log.
            let hub = pair.hub.status().peers.remove(0);
            assert_eq!(hub.out.remembered, 0, "{:?}", hub.out);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_rule_is_counted_despite_a_late_answer() {
    within(async {
        let origin = Origin::echo().await;
        let (held, answers) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let patient = "[link]\ndead_after = \"1 h\"\n";
        let pair = Pair::with(
            &(forward(origin.address) + patient),
            &format!("{patient}[[policy]]\ncodec = \"none\"\n"),
            async |hub| holding_answers(hub, answers, &mut tasks).await,
        )
        .await;
        held.send_replace(true);
        let mut client = pair.connect().await;
        // More blocks than their look is of any interest.
        for sent in 1..40 {
            client.write_all(b"x").await.unwrap();
            until(|| pair.branch.flows().flows.iter().any(|flow| flow.sent == sent)).await;
        }
        assert_eq!(pair.branch.status().flows_not_coded, []);
        held.send_replace(false);
        client.read_exact(&mut [0; 39]).await.unwrap();
        assert_eq!(exchange(client, b"y").await.unwrap(), b"y");
        let row = pair.branch.status().flows_not_coded.remove(0);
        assert_eq!((row.outcome, row.reason), (Outcome::Uncoded, Reason::PeerPolicy));
        assert_eq!((row.count, row.bytes), (1, 80));
    })
    .await;
}

/// A relay passing everything on, but nothing from `target` while that is held.
async fn holding_answers(
    target: SocketAddr,
    held: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut relaying = JoinSet::new();
        while let Ok((near, _)) = listener.accept().await {
            let mut held = held.clone();
            relaying.spawn(async move {
                let Ok(far) = TcpStream::connect(target).await else { return };
                let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
                    (near.into_split(), far.into_split());
                let back = async {
                    let mut block = vec![0; 64 << 10];
                    while let Ok(len @ 1..) = far_in.read(&mut block).await {
                        // An error means the end of the test.
                        let _ = held.wait_for(|held| !held).await;
                        if near_out.write_all(&block[..len]).await.is_err() {
                            return;
                        }
                    }
                };
                let _ = tokio::join!(tokio::io::copy(&mut near_in, &mut far_out), back);
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_flows_stay_off_the_link_and_are_listed() {
    within(async {
        let origin = Origin::echo().await;
        let port = origin.address.port();
        let rules =
            format!("[[policy]]\nmatch = {{ ports = [{port}], peers = [\"hub\"] }}\npath = \"direct\"\n");
        let pair = Pair::start(&(forward(origin.address) + &rules)).await;
        let mut client = pair.connect().await;
        client.write_all(b"some").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        // The bytes are there before they are counted.
        until(|| pair.branch.flows().flows.iter().all(|flow| (flow.sent, flow.received) == (4, 4))).await;
        let flow = pair.branch.flows().flows.remove(0);
        assert_eq!((flow.outcome, flow.reason), (Outcome::Direct, Some(Reason::Policy)));
        assert_eq!((flow.peer, flow.id, flow.priority), (None, None, None));
        assert_eq!(flow.source, Some(client.local_addr().unwrap().to_string()));
        assert_eq!(exchange(client, b"more").await.unwrap(), b"more");
        until(|| pair.branch.flows().flows.is_empty()).await;
        let row = pair.branch.status().flows_not_coded.remove(0);
        assert_eq!((row.outcome, row.reason, row.count, row.bytes), (Outcome::Direct, Reason::Policy, 1, 16));
        assert_eq!(pair.branch.status().peers[0].flows_total, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_matching_rule_decides_between_link_and_direct() {
    within(async {
        let origin = Origin::echo().await;
        let port = origin.address.port();
        // A destination by name is in no network: the second rule holds.
        let rules = format!(
            "[[policy]]\nmatch = {{ networks = [\"127.0.0.0/8\"] }}\ncodec = \"auto\"\npriority = \"interactive\"\n\
             [[policy]]\nmatch = {{ ports = [{port}] }}\npath = \"direct\"\n"
        );
        let pair = Pair::start(&(proxy("http", "") + &rules)).await;
        for (host, outcome, priority) in
            [("127.0.0.1", Outcome::Coded, Some("interactive")), ("localhost", Outcome::Direct, None)]
        {
            let mut client = pair.connect().await;
            let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                answer.push(client.read_u8().await.unwrap());
            }
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
            let flow = pair.branch.flows().flows.remove(0);
            assert_eq!((flow.outcome, flow.priority.as_deref()), (outcome, priority), "{host}");
            assert_eq!(exchange(client, b"either way").await.unwrap(), b"either way");
            until(|| pair.branch.flows().flows.is_empty()).await;
        }
    })
    .await;
}
