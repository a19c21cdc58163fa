//! Traffic of flows by destination.

use oncewire_gateway::daemon::Gateway;
use oncewire_report::{DestinationReport, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Origin, Pair, UNCHANGING, exchange, forward, noise, until, within};

const LEN: u64 = 200_000;

fn row(gateway: &Gateway, origin: &Origin) -> DestinationReport {
    let rows = gateway.status().destinations.rows;
    rows.into_iter().find(|row| row.destination == origin.address.to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeating_and_noisy_origins_have_separate_figures() {
    within(async {
        let (repeats, fresh, tls) = (Origin::echo().await, Origin::echo().await, Origin::echo().await);
        let intercepts: String =
            [&repeats, &fresh, &tls].into_iter().map(|origin| forward(origin.address)).collect();
        let pair = Pair::with(&(intercepts + UNCHANGING), UNCHANGING, async |hub| hub).await;
        let forwards = pair.branch.local_addrs().intercepts;
        let cross = async |forward: usize, data: &[u8]| {
            let stream = TcpStream::connect(forwards[forward]).await.unwrap();
            assert!(exchange(stream, data).await.unwrap() == data);
        };
        for round in 0..4 {
            cross(0, &noise(1, LEN as usize)).await;
            cross(1, &noise(10 + round, LEN as usize)).await;
        }
        let hello = &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..];
        cross(2, &[hello, &noise(30, 50_000)].concat()).await;
        let is_quiet = |gateway: &Gateway| gateway.status().peers[0].flows_open == 0;
        until(|| is_quiet(&pair.branch) && is_quiet(&pair.hub)).await;
        for (gateway, peer) in [(&pair.branch, "hub"), (&pair.hub, "branch")] {
            let (again, new) = (row(gateway, &repeats), row(gateway, &fresh));
            for row in [&again, &new] {
                let figures = &row.figures;
                assert_eq!((row.peer.as_str(), row.missed_at_most), (peer, 0));
                assert_eq!((figures.flows, figures.flows_open), (4, 0));
                assert_eq!((figures.delivered_out, figures.delivered_in), (4 * LEN, 4 * LEN));
                assert_eq!((figures.uncoded, figures.reason), (0, None));
                assert_eq!(figures.wire, figures.wire_out + figures.wire_in);
            }
            // One crossing each way for repeating bytes, and all of the others.
            assert!((2 * LEN..2 * LEN + 20_000).contains(&again.figures.wire), "{again:?}");
            assert!(again.figures.savings.is_some_and(|savings| (0.73..=0.75).contains(&savings)));
            assert!((8 * LEN..8 * LEN + 40_000).contains(&new.figures.wire), "{new:?}");
            assert!(new.figures.savings.is_some_and(|savings| (-0.03..=0.0).contains(&savings)));
            let secret = row(gateway, &tls);
            assert_eq!((secret.figures.uncoded, secret.figures.reason), (100_022, Some(Reason::Tls)));
            let status = gateway.status();
            let order: Vec<_> = status.destinations.rows.iter().map(|row| row.figures.wire).collect();
            assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
            assert!(order.iter().sum::<u64>() <= status.peers[0].wire, "frames are less than what crossed");
            assert_eq!(status.destinations.other.flows, 0);
        }
        let [here, there] = [&pair.branch, &pair.hub].map(|gateway| row(gateway, &repeats).figures);
        assert_eq!((here.wire_out, here.wire_in), (there.wire_in, there.wire_out));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_is_counted_while_open_and_once_over() {
    within(async {
        let origin = Origin::echo().await;
        let pair = Pair::start(&forward(origin.address)).await;
        let mut client = pair.connect().await;
        client.write_all(b"?").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'?');
        let figures = |gateway: &Gateway| row(gateway, &origin).figures;
        for gateway in [&pair.branch, &pair.hub] {
            let open = figures(gateway);
            assert_eq!((open.flows, open.flows_open, open.delivered), (1, 1, 2));
            assert!(open.wire > open.delivered, "a byte costs more than itself");
        }
        drop(client);
        for gateway in [&pair.branch, &pair.hub] {
            until(|| figures(gateway).flows_open == 0).await;
            assert_eq!((figures(gateway).flows, figures(gateway).delivered), (1, 2));
        }
    })
    .await;
}
