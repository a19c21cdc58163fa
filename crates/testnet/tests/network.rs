//! Networks are built, carry packets as emulated, and are gone afterwards.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{PipeReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::{Duration, Instant};

use oncewire_testnet::{Direction, Family, Line, LinkParams, Network, Queue, Shell, isolated};

/// More than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
const SHELLS: [Shell; 2] = [Shell::Tun, Shell::Packet];

/// Builds the usual network with an emulated line; `None` without a necessary privilege or program, with a message.
fn emulated(shell: Shell, params: &LinkParams) -> Option<Network> {
    Network::builder().line(Line::emulated(params).through(shell)).build_or_skip()
}

/// Waits until nothing is on its way in `direction` and returns its counters.
fn settled(direction: &Direction, packets: u64) -> oncewire_testnet::LinkCounters {
    let patience = Instant::now() + LIMIT;
    loop {
        let counted = direction.counters();
        let arrived = counted.lost + counted.delivered == counted.carried + counted.duplicated;
        if counted.packets >= packets && arrived {
            return counted;
        }
        assert!(
            Instant::now() < patience,
            "{packets} packets were sent, and this is what was seen: {counted:?}"
        );
        std::thread::yield_now();
    }
}

/// Waits until `direction` has been offered so many packets.
fn seen(direction: &Direction, packets: u64) {
    let patience = Instant::now() + LIMIT;
    while direction.counters().packets < packets {
        assert!(Instant::now() < patience, "{packets} were sent, and this is what was seen: {direction:?}");
        std::thread::yield_now();
    }
}

/// A pair of UDP sockets: one in the client, connected to one in the server.
fn datagrams(network: &Network, family: Family) -> (UdpSocket, UdpSocket) {
    let server = network.host("server").enter(|| {
        let socket = UdpSocket::bind(SocketAddr::new(network.host("server").ip(family), 0)).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    });
    let client = network.host("client").enter(|| {
        let socket = UdpSocket::bind(SocketAddr::new(network.host("client").ip(family), 0)).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.connect(server.local_addr().unwrap()).unwrap();
        socket
    });
    (client, server)
}

#[test]
fn every_host_reaches_every_other_at_once() {
    isolated(|| {
        let builder = Network::builder().branches(2).hubs(2).clients_each(3).servers_each(2);
        let Some(network) = builder.build_or_skip() else { return };
        println!("{} hosts in {:?}", network.hosts().len(), network.time_to_build());
        let names: Vec<_> = network.hosts().iter().map(|host| host.name()).collect();
        assert_eq!(names[..6], ["client", "client2", "client3", "client4", "client5", "client6"]);
        assert_eq!(network.host("client4").site(), Some("branch2"));
        for family in Family::BOTH {
            for (from, to) in
                [("client", "server"), ("client6", "server4"), ("client2", "client3"), ("client", "client5")]
            {
                let start = Instant::now();
                let address = SocketAddr::new(network.host(to).ip(family), 9);
                let refused = network.host(from).enter(|| TcpStream::connect(address)).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{from} to {address}");
                println!("{from} to {address}: {:?}", start.elapsed());
            }
        }
    });
}

#[test]
fn a_round_trip_takes_no_less_than_twice_the_delay() {
    isolated(|| {
        for shell in SHELLS {
            let Some(network) = emulated(shell, &LinkParams { delay: 25 * MS, ..LinkParams::default() })
            else {
                return;
            };
            for family in Family::BOTH {
                let (client, server) = datagrams(&network, family);
                let trips: Vec<_> = (0..5).map(|_| round_trip(&client, &server)).collect();
                println!("{shell:?} {family:?}: {trips:?}");
                assert!(trips.iter().all(|trip| *trip >= 50 * MS), "{shell:?} {family:?}: {trips:?}");
            }
            assert_eq!(
                settled(&network.wan().up, 10).packets,
                10,
                "nothing but what the hosts sent is counted"
            );
            assert_eq!((network.wan().up.refused(), network.wan().down.refused()), (0, 0));
        }
    });
}

fn round_trip(client: &UdpSocket, server: &UdpSocket) -> Duration {
    let start = Instant::now();
    client.send(b"ping").unwrap();
    let (_, from) = server.recv_from(&mut [0; 64]).unwrap();
    server.send_to(b"pong", from).unwrap();
    client.recv(&mut [0; 64]).unwrap();
    start.elapsed()
}

#[test]
fn packets_take_the_time_of_the_rate() {
    isolated(|| {
        for shell in SHELLS {
            let params = LinkParams {
                rate_bits_per_s: Some(8_000_000),
                queue: Queue::Time(Duration::from_secs(10)),
                ..LinkParams::default()
            };
            let Some(network) = emulated(shell, &params) else { continue };
            for (family, headers) in [(Family::V4, 28), (Family::V6, 48)] {
                let (client, server) = datagrams(&network, family);
                // Afterwards all neighbours know each other: a packet waiting for address resolution may be dropped.
                round_trip(&client, &server);
                let before = network.wan().up.counters();
                let start = Instant::now();
                for sent in 1..=100 {
                    assert_eq!(client.send(&[0; 1000]).unwrap(), 1000);
                    // One after the other, so the machine's own queues lose none.
                    seen(&network.wan().up, before.packets + sent);
                }
                (0..100).for_each(|_| assert_eq!(server.recv(&mut [0; 2000]).unwrap(), 1000));
                let took = start.elapsed();
                println!("{shell:?} {family:?}: {took:?}");
                let after = settled(&network.wan().up, before.packets + 100);
                assert_eq!(after.carried_bytes - before.carried_bytes, 100 * (1000 + headers));
                assert!(took >= 100 * MS, "{shell:?} {family:?}: a tenth of a megabyte took {took:?}");
            }
        }
    });
}

#[test]
fn losses_of_the_emulator_are_counted() {
    isolated(|| {
        for shell in SHELLS {
            let params = LinkParams { loss: 0.05, seed: 11, ..LinkParams::default() };
            let Some(network) = emulated(shell, &params) else { continue };
            let mut sent = 0;
            for family in Family::BOTH {
                let (client, _server) = datagrams(&network, family);
                for _ in 0..1000 {
                    client.send(&[0; 100]).unwrap();
                    sent += 1;
                    // One at a time, so the machine's own queues lose none.
                    settled(&network.wan().up, sent);
                }
            }
            let counted = network.wan().up.counters();
            println!("{shell:?}: {counted:?}");
            assert_eq!(counted.packets, 2000);
            assert!(
                (60..=140).contains(&counted.lost),
                "{shell:?}, seed 11: {} of 2000 at 5 %",
                counted.lost
            );
        }
    });
}

#[test]
fn settings_change_while_it_runs_and_a_cut_loses_all() {
    isolated(|| {
        for shell in SHELLS {
            let Some(network) = emulated(shell, &LinkParams::default()) else { continue };
            let (client, server) = datagrams(&network, Family::V4);
            let wan = network.wan();
            wan.set(&LinkParams { delay: 20 * MS, ..LinkParams::default() }).unwrap();
            assert!(round_trip(&client, &server) >= 40 * MS);
            wan.down.cut();
            client.send(b"one way").unwrap();
            server.recv(&mut [0; 64]).unwrap();
            wan.cut();
            client.send(b"lost").unwrap();
            assert_eq!(settled(&wan.up, 3).lost, 1);
            assert!(wan.up.is_cut() && wan.up.params().loss == 0.0);
            wan.set(&LinkParams { delay: 10 * MS, ..LinkParams::default() }).unwrap();
            wan.restore();
            assert!(round_trip(&client, &server) >= 20 * MS);
        }
    });
}

#[test]
fn streams_arrive_whole_through_either_shell() {
    isolated(|| {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        for shell in SHELLS {
            let params = LinkParams { loss: 0.01, delay: MS, seed: 5, ..LinkParams::default() };
            let Some(network) = emulated(shell, &params) else { continue };
            for family in Family::BOTH {
                let server = network.host("server");
                let listener =
                    server.enter(|| TcpListener::bind(SocketAddr::new(server.ip(family), 0))).unwrap();
                let address = listener.local_addr().unwrap();
                let mut stream = network.host("client").enter(|| TcpStream::connect(address)).unwrap();
                let (mut accepted, _) = listener.accept().unwrap();
                let mut got = Vec::new();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        accepted.write_all(&bytes).unwrap();
                        drop(accepted);
                    });
                    stream.read_to_end(&mut got).unwrap();
                });
                assert!(got == bytes, "{shell:?} {family:?}: {} bytes", got.len());
            }
            assert!(network.wan().down.counters().lost > 0);
        }
    });
}

#[test]
fn a_token_bucket_and_a_plain_line_carry_too() {
    isolated(|| {
        for line in [Line::Plain, Line::TokenBucket { rate_bits_per_s: 1_000_000_000 }] {
            let Some(network) = Network::builder().line(line.clone()).congestion("reno").build_or_skip()
            else {
                return;
            };
            for family in Family::BOTH {
                let (client, server) = datagrams(&network, family);
                round_trip(&client, &server);
            }
            let shaped = network.host("branch").sh("tc qdisc show dev wan0").contains("tbf");
            assert_eq!(shaped, matches!(line, Line::TokenBucket { .. }));
        }
    });
}

#[test]
fn impossible_networks_are_refused() {
    isolated(|| {
        let no_rate = LinkParams { rate_bits_per_s: Some(0), ..LinkParams::default() };
        for builder in [Network::builder().branches(0), Network::builder().line(Line::emulated(&no_rate))] {
            let refused = builder.build().unwrap_err();
            assert!(matches!(refused, oncewire_testnet::Error::Failed(_)), "{refused}");
        }
    });
}

#[test]
fn orphaned_programs_end_with_the_network_too() {
    isolated(|| {
        let Some(network) = Network::builder().build_or_skip() else { return };
        let held = leave_a_program(&network);
        drop(network);
        assert_ends(held);
    });
}

#[test]
fn a_panic_leaves_nothing() {
    isolated(|| {
        let Some(network) = Network::builder().build_or_skip() else { return };
        let held = leave_a_program(&network);
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
            network.host("server").enter(|| panic!("{} fails", "the test"));
        }));
        assert!(panicked.is_err());
        assert_ends(held);
    });
}

/// Leaves an orphaned program behind in the client; the returned pipe ends with it.
fn leave_a_program(network: &Network) -> PipeReader {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "setsid sleep 1000 &"]).stdout(writer);
    let status = network.host("client").spawn(&mut command).unwrap().wait().unwrap();
    assert!(status.success());
    reader
}

/// Reads to the end, after the last holder of the other end has closed it.
fn assert_ends(mut held: PipeReader) {
    assert_eq!(held.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn bridged_gateways_have_addresses_and_route_nothing() {
    isolated(|| {
        let Some(network) = Network::builder().line(Line::Plain).bridged().build_or_skip() else { return };
        for family in Family::BOTH {
            let (client, server) = datagrams(&network, family);
            client.send(b"there").unwrap();
            assert_eq!(server.recv(&mut [0; 16]).unwrap(), 5);
        }
        let hops = network.host("client").sh("ip route get 198.18.1.102");
        assert!(hops.contains("dev eth0") && !hops.contains("via"), "{hops}");
        assert_eq!(network.host("branch").sh("cat /proc/sys/net/ipv4/ip_forward").trim(), "0");
        assert!(network.host("hub").sh("ip -br addr show br0").contains("198.18.1.2/24"));
    });
}
