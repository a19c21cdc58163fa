//! ICMP errors about gateways' packets under others' addresses: they reach their connections.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use oncewire_testnet::{Family, Line, Network, isolated};

use super::connection::has_nft;
use super::hold::can_hold;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};

const SOURCES: &str = "allow_sources = [\"198.18.0.0/16\", \"fd18::/16\"]\n";
/// Named by the interception, and served by nobody.
const REJECTED: u16 = 80;

/// Two hosts at each end, one of them as a hop of the other's path; none, with the reason printed, if impossible.
fn deployment(bridged: bool, intercepts: &str) -> Option<Deployment> {
    if !has_nft() {
        return None;
    }
    let builder = Network::builder().line(Line::Plain).clients_each(2).servers_each(2);
    let network = if bridged { builder.bridged() } else { builder }.build_or_skip()?;
    Some(Deployment::over(network, &Plan { intercepts, peer: SOURCES, ..Plan::default() }))
}

/// Leads a gateway's packets to an end host over a hop with a smaller MTU there.
fn narrow(deployment: &Deployment, gateway: &str, hop: &str, end: &str) {
    let host = |name: &str| deployment.network.host(name);
    for name in [gateway, hop, end] {
        host(name).sh(
            "for f in /proc/sys/net/ipv[46]/conf/*/accept_redirects /proc/sys/net/ipv4/conf/*/send_redirects; \
             do echo 0 > $f; done",
        );
    }
    host(hop).sh("echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    for family in Family::BOTH {
        let (end, by) = (host(end).ip(family), host(hop).ip(family));
        host(hop).sh(&format!("ip route replace {end} dev eth0 mtu lock {NARROW}"));
        host(gateway).sh(&format!("ip route replace {end} via {by}"));
    }
}

/// A host's errors about packets too big or unwanted, of each family.
fn errors_sent(deployment: &Deployment, host: &str) -> [u64; 2] {
    let host = deployment.network.host(host);
    let icmp = host.sh("grep ^Icmp: /proc/net/snmp");
    let [names, values] = &icmp.lines().collect::<Vec<_>>()[..] else { panic!("{icmp}") };
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, v4) = pairs.find(|(name, _)| *name == "OutDestUnreachs").unwrap();
    let v6 = host.sh("grep Icmp6OutPktTooBigs /proc/net/snmp6");
    [v4, v6.split_whitespace().last().unwrap()].map(|count| count.parse().unwrap())
}

fn learn_the_path_mtu(bridged: bool) {
    isolated(|| {
        let Some(mut deployment) = deployment(bridged, &tproxy("client")) else { return };
        deployment.start();
        for (gateway, hop, end) in [("branch", "client2", "client"), ("hub", "server2", "server")] {
            narrow(&deployment, gateway, hop, end);
        }
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            taken.say(&"as large as packets may be ".repeat(20_000));
        }
        for hop in ["client2", "server2"] {
            let sent = errors_sent(&deployment, hop);
            assert!(sent.iter().all(|count| *count > 0), "{hop} forwarded large packets: {sent:?}");
        }
    });
}

/// Connects from the client, and waits until the server's end says something or ends it.
fn outcome(deployment: &Deployment, server: SocketAddr) -> ErrorKind {
    let connect = || -> io::Result<usize> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.read(&mut [0])
    };
    deployment.network.host("client").enter(connect).expect_err("nobody serves it").kind()
}

/// An unused address of the server's network.
fn nobody_near(server: IpAddr) -> IpAddr {
    match server {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() | 0xf0).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() | 0xf00).into(),
    }
}

fn reject(deployment: &Deployment) {
    let chain = "type filter hook input priority filter\ntcp dport 80 reject\n";
    deployment
        .network
        .host("server")
        .sh(&format!("nft -f - <<END\ntable inet wall {{\nchain input {{\n{chain}}}\n}}\nEND"));
}

#[test]
fn smaller_mtu_behind_a_router_is_learnt() {
    learn_the_path_mtu(false);
}

#[test]
fn smaller_mtu_behind_a_bridge_is_learnt() {
    learn_the_path_mtu(true);
}

#[test]
fn rejected_or_absent_server_ends_the_connection() {
    isolated(|| {
        let Some(mut deployment) = deployment(false, &tproxy("client")) else { return };
        deployment.start();
        reject(&deployment);
        for server in deployment.servers() {
            deployment.taken_in(server);
            let before = deployment.taken_count();
            for address in [server, nobody_near(server)] {
                let seen = outcome(&deployment, SocketAddr::new(address, REJECTED));
                assert_eq!(seen, ErrorKind::ConnectionReset, "{address}");
            }
            assert_eq!(deployment.taken_count(), before + 2);
        }
    });
}

#[test]
fn rejected_server_behind_a_bridge_ends_the_connection() {
    isolated(|| {
        let Some(mut deployment) = deployment(true, &tproxy("client")) else { return };
        deployment.start();
        reject(&deployment);
        for server in deployment.servers() {
            deployment.taken_in(server);
            let before = deployment.taken_count();
            let seen = outcome(&deployment, SocketAddr::new(server, REJECTED));
            assert_eq!(seen, ErrorKind::ConnectionReset);
            assert_eq!(deployment.taken_count(), before + 1);
        }
    });
}

#[test]
fn held_connect_fails_as_a_direct_one_does() {
    if !can_hold() {
        return;
    }
    isolated(|| {
        let intercepts = tproxy("client") + "hold_syn = true\n";
        let Some(mut deployment) = deployment(false, &intercepts) else { return };
        reject(&deployment);
        let targets = deployment
            .servers()
            .map(|server| [server, nobody_near(server)].map(|address| SocketAddr::new(address, REJECTED)));
        let outcomes = |deployment: &Deployment| targets.map(|pair| pair.map(|one| outcome(deployment, one)));
        let direct = outcomes(&deployment);
        assert!(direct.iter().flatten().all(|kind| *kind != ErrorKind::TimedOut), "{direct:?}");
        deployment.start();
        let mut held = deployment.connect_as(deployment.servers()[0], PORTS[0], deployment.clients()[0]);
        held.say("by way of the link");
        assert_eq!(outcomes(&deployment), direct);
        let flows = deployment.status()["peers"][0]["flows_total"].as_u64().unwrap();
        assert!(flows >= 4, "{flows}");
    });
}

const NARROW: u16 = 1300;
