//! Ports of gateways' connections: clients' own, and those of a hub with few.

use std::net::{IpAddr, SocketAddr, TcpStream};

use oncewire_testnet::isolated;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::connection::Connection;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::common::wait::eventually;

const SOURCES: &str = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";

/// Connects from this port of the client; none as for [`Connection::open`].
pub(super) fn connect_from(deployment: &Deployment, from: SocketAddr, server: IpAddr) -> Option<Connection> {
    let stream = deployment.network.host("client").enter(|| {
        let socket = Socket::new(Domain::for_address(from), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&from.into()).unwrap();
        socket
            .connect_timeout(&SocketAddr::new(server, PORTS[0]).into(), LIMIT)
            .map(|()| TcpStream::from(socket))
    });
    Connection::greeted(stream.ok()?, LIMIT)
}

/// Whether the hub remembers an ended connection.
fn remembers(deployment: &Deployment, client: SocketAddr) -> bool {
    let sockets = deployment.network.host("hub").sh("cat /proc/net/tcp /proc/net/tcp6");
    let port = format!(":{:04X} ", client.port());
    // TCP_TIME_WAIT.
    sockets.lines().any(|line| line.contains(&port) && line.split_whitespace().nth(3) == Some("06"))
}

#[test]
fn client_reusing_its_port_at_once_is_connected() {
    isolated(|| {
        reuse_ports(true);
        reuse_ports(false);
    });
}

/// Has a client use its ports again at once; by timestamps the kernel tells its connections apart.
fn reuse_ports(timestamps: bool) {
    let plan = Plan { intercepts: &tproxy("client"), peer: SOURCES, ..Plan::default() };
    let Some(mut deployment) = Deployment::new(&plan) else { return };
    // It forgets its ended connections, as after a restart.
    deployment.network.host("client").sh("echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets");
    let kept = u8::from(timestamps);
    deployment.network.host("hub").sh(&format!("echo {kept} > /proc/sys/net/ipv4/tcp_timestamps"));
    deployment.start();
    for (client, server) in deployment.clients().into_iter().zip(deployment.servers()) {
        deployment.taken_in(server);
        for port in [40_000, 20_000, 1000] {
            let from = SocketAddr::new(client, port);
            let mut first = connect_from(&deployment, from, server).unwrap();
            assert_eq!(first.seen_as, from);
            first.say("from the client's own port");
            drop(first);
            eventually("the hub's end waits", LIMIT, || remembers(&deployment, from).then_some(()));
            let mut again = connect_from(&deployment, from, server).expect("it is reset");
            assert_eq!(again.seen_as.ip(), client);
            assert_eq!(again.seen_as.port() == port, timestamps, "{}", again.seen_as);
            assert_eq!(again.seen_as.port() < 1024, port < 1024);
            again.say("from a port of the client's address");
        }
    }
}

#[test]
fn hub_without_a_free_port_counts_and_says_so() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.network.host("hub").sh("echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range");
        deployment.start();
        let [v4, v6] = deployment.servers();
        let mut open = vec![deployment.taken_in(v4)];
        let refused = eventually("no port is left", LIMIT, || match deployment.connect(v4, PORTS[0]) {
            Some(more) => {
                open.push(more);
                None
            }
            None => Some(open.len()),
        });
        assert!((1..=4).contains(&refused), "{refused} connections");
        open.iter_mut().for_each(|open| open.say("as before"));
        let hub = deployment.network.host("hub");
        let status = hub.launch(|| deployment.hub.ask("status")).unwrap();
        let count = status["gateway"]["connects_without_port"].as_u64();
        assert!(count > Some(0), "{status}");
        let log = deployment.hub.whole_log();
        let line = log.lines().find(|line| line.contains("ip_local_port_range")).unwrap();
        assert!(line.contains(&format!("{v4}:{}", PORTS[0])) && line.contains("40000 to 40003"), "{line}");
        // Another destination has the same ports.
        deployment.taken_in(v6).say("elsewhere");
        assert_eq!(deployment.status()["gateway"]["connects_without_port"], Value::from(0));
    });
}
