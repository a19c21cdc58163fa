//! Vanishing hosts, and clients giving up.

use std::time::Duration;

use oncewire_testnet::{Family, isolated};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::deployment::{Deployment, Keys};
use super::scenarios::exchanged;
use super::{Bench, Target, Way, prepare, rest};
use crate::common::{until, within};

const WAYS: [Way; 5] =
    [Way::Direct, Way::Forward, Way::Socks5, Way::Tproxy(Family::V6), Way::Redirect(Family::V4)];

#[test]
fn vanished_server_ends_connections_on_all_ways() {
    isolated(|| {
        let keys = Keys { gateway: "keepalive = \"1 s\"\n", ..Keys::default() };
        let Some(deployment) = Deployment::start(&keys) else { return };
        vanish(&deployment, "server", |client, server| [client, server]);
    });
}

#[test]
fn vanished_client_ends_connections_on_all_ways() {
    isolated(|| {
        // Its own gateway vanishes with it; this limits the wait for it.
        let link = "[link]\nresume_window = \"2 s\"\n";
        let keys = Keys { gateway: "keepalive = \"1 s\"\n", link, ..Keys::default() };
        let Some(deployment) = Deployment::start(&keys) else { return };
        vanish(&deployment, "client", |client, server| [server, client]);
    });
}

/// Has a host vanish in the middle of a connection on each way; of its ends, `order` puts the one to be
/// notified first.
///
/// Direct, its own keep-alive notices; behind a gateway, the far gateway's does.
fn vanish(deployment: &Deployment, host: &str, order: fn(TcpStream, TcpStream) -> [TcpStream; 2]) {
    let (runtime, benches) = prepare(deployment, &WAYS);
    runtime.block_on(within(async {
        let mut ends = Vec::new();
        for bench in &benches {
            let (client, server) = exchanged(bench).await;
            let second = Duration::from_secs(1);
            let keepalive = TcpKeepalive::new().with_time(second).with_interval(second).with_retries(6);
            for end in [&client, &server] {
                SockRef::from(end).set_tcp_keepalive(&keepalive).unwrap();
            }
            ends.push((bench.way, order(client, server)));
        }
        // Bytes under way are repeated for a quarter of an hour before their sender gives up, with probes or without.
        until(|| deployment.is_silent()).await;
        deployment.vanish(host);
        for (way, [watched, _gone]) in &mut ends {
            let seen = rest(watched).await;
            println!("{way:?}: {seen}");
            assert_eq!(seen, if *way == Way::Direct { "nothing, timed out" } else { "nothing, reset" });
        }
        until(|| deployment.is_idle()).await;
    }));
}

#[test]
fn abandoned_connect_is_given_up_by_its_gateway() {
    isolated(|| {
        let keys = Keys { forward: "on_peer_loss = \"direct\"\n", ..Keys::default() };
        let Some(mut deployment) = Deployment::start(&keys) else { return };
        give_up(&deployment, &WAYS[1..]);
        give_up(&deployment, &[Way::Held(Family::V4)]);
        deployment.lose_hub();
        let ways = [Way::Forward, Way::Tproxy(Family::V4), Way::Held(Family::V6), Way::Redirect(Family::V6)];
        give_up(&deployment, &ways);
    });
}

fn give_up(deployment: &Deployment, ways: &[Way]) {
    let (runtime, benches) = prepare(deployment, ways);
    for bench in &benches {
        println!("{:?}", bench.way);
        runtime.block_on(within(begin_and_give_up(bench)));
    }
}

/// Connects to a silent server, and gives up once the connect is under way there.
async fn begin_and_give_up(bench: &Bench<'_>) {
    let port = bench.port(Target::Filtered);
    let _filler = bench.fill().await;
    let mut connecting = Box::pin(bench.connect(Target::Filtered));
    let mut connected = None;
    while !bench.deployment.is_connecting(bench.way, port) {
        let look_again = tokio::time::sleep(Duration::from_millis(20));
        tokio::select! {
            client = &mut connecting, if connected.is_none() => connected = Some(client.unwrap()),
            () = look_again => {}
        }
    }
    drop((connecting, connected));
    until(|| !bench.deployment.is_connecting(bench.way, port)).await;
}
