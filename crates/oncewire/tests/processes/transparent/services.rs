//! Services of the hub's machine itself, reached in clients' names.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use oncewire_testnet::isolated;

use super::connection;
use super::ports::connect_from;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::common::wait::eventually;

const SOURCES: &str = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";

/// A deployment with services on all of its hub's addresses, with this in its `[gateway]`.
fn deployment(hub: &str) -> Option<Deployment> {
    let plan = Plan { intercepts: &tproxy("client"), peer: SOURCES, hub, ..Plan::default() };
    let deployment = Deployment::new(&plan)?;
    // As a router has addresses beyond the failure of any interface.
    deployment.network.host("hub").sh("ip addr add 198.18.2.77/32 dev lo; ip addr add fd18:2::77/128 dev lo");
    for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        connection::serve(deployment.network.host("hub"), SocketAddr::new(any, PORTS[0]));
    }
    Some(deployment)
}

/// The hub's addresses in its LAN, and those of no interface.
fn addresses(deployment: &Deployment) -> [IpAddr; 4] {
    let [v4, v6] = deployment.hubs();
    [v4, v6, "198.18.2.77".parse().unwrap(), "fd18:2::77".parse().unwrap()]
}

#[test]
fn services_of_the_hub_see_the_client() {
    isolated(|| {
        for (filter, by_mark) in [("0", "0"), ("1", "1")] {
            let Some(mut deployment) = deployment("") else { return };
            let set = |key: &str, value: &str| {
                let each = format!("for f in /proc/sys/net/ipv4/conf/*/{key}; do echo {value} > $f; done");
                deployment.network.host("hub").sh(&each);
            };
            set("rp_filter", filter);
            set("src_valid_mark", by_mark);
            deployment.start();
            for address in addresses(&deployment) {
                let mut taken = deployment.taken_in(address);
                assert_eq!(taken.seen_as, taken.local(), "rp_filter = {filter}");
                taken.say(&"as if there were no gateway ".repeat(20_000));
            }
        }
    });
}

#[test]
fn client_without_its_gateway_is_answered_directly() {
    isolated(|| {
        let Some(mut deployment) = deployment("") else { return };
        // It forgets its ended connections.
        deployment.network.host("client").sh("echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets");
        deployment.start();
        let mut ports = Vec::new();
        for (client, address) in deployment.clients().into_iter().zip(deployment.hubs()) {
            deployment.taken_in(address);
            let from = SocketAddr::new(client, 40_000);
            let mut taken = connect_from(&deployment, from, address).unwrap();
            assert_eq!(taken.seen_as, from);
            taken.say("by way of the gateway");
            ports.push((from, address));
        }
        deployment.branch.kill();
        for (from, address) in ports {
            let mut direct = eventually("the client connects by itself", LIMIT, || {
                connect_from(&deployment, from, address).filter(|direct| direct.seen_as == from)
            });
            direct.say("past the gateway");
        }
    });
}

#[test]
fn refusing_service_of_the_hub_ends_the_connection() {
    isolated(|| {
        let Some(mut deployment) = deployment("") else { return };
        deployment.start();
        for address in deployment.hubs() {
            deployment.taken_in(address);
            let nobody = SocketAddr::new(address, 80);
            let connected = deployment.network.host("client").enter(|| {
                let mut stream = TcpStream::connect(nobody)?;
                stream.set_read_timeout(Some(LIMIT))?;
                std::io::Read::read(&mut stream, &mut [0])
            });
            assert_eq!(connected.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn connections_to_services_of_the_hub_outlive_other_rules() {
    isolated(|| {
        let Some(mut deployment) = deployment("") else { return };
        deployment.start();
        let mut open = deployment.hubs().map(|address| deployment.taken_in(address));
        let config = std::fs::read_to_string(deployment.hub.config()).unwrap();
        // Other times of the sets; other networks; and nobody's name any more.
        let changes =
            [("listen =", "keepalive = \"1 h\"\nlisten ="), ("\"198.18.1.0/24\", ", ""), (SOURCES, "")];
        let mut changed = config;
        for (from, to) in changes {
            let said = deployment.hub.whole_log().matches("reload: ").count();
            changed = if to.is_empty() && from == SOURCES {
                changed
                    .lines()
                    .filter(|line| !line.starts_with("allow_sources"))
                    .map(|line| format!("{line}\n"))
                    .collect()
            } else {
                changed.replacen(from, to, 1)
            };
            std::fs::write(deployment.hub.config(), &changed).unwrap();
            deployment.hub.reload();
            eventually("the hub says what it did", LIMIT, || {
                (deployment.hub.whole_log().matches("reload: ").count() > said).then_some(())
            });
            // The service has the last word, and the gateway has sent nothing since.
            open.iter_mut().for_each(|open| open.say("still here"));
        }
        deployment.hub.terminate();
        drop(open);
        deployment.hub.wait(LIMIT);
        let left = deployment.network.host("hub").sh("nft list tables; ip rule; ip -6 rule");
        assert!(!left.contains("oncewire") && !left.contains("fwmark"), "{left}");
    });
}
