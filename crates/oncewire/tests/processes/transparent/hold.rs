//! Held connects: the client waits for the server's answer.
//!
//! On a busy machine connections pass a gateway now and then, and look the same by themselves; so each test counts
//! the gateway's flows.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use oncewire_testnet::{Host, Line, LinkParams, Network, isolated};

use super::connection::Connection;
use super::{Deployment, LIMIT, PORTS, Plan};
use crate::binary;
use crate::common::gateway::keygen;
use crate::common::wait::eventually;

/// An interception of the servers' ports and of one without a listener, with held SYNs.
fn holding(more: &str) -> String {
    format!(
        "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n\
         ports = [{}, {NOBODY}]\nhold_syn = true\n{more}",
        PORTS[0]
    )
}

/// A started deployment on the usual network; none, with the reason printed, if impossible.
fn deployment(more: &str, peer: &str) -> Option<Deployment> {
    if !can_hold() {
        return None;
    }
    let mut deployment = Deployment::new(&Plan { intercepts: &holding(more), peer, ..Plan::default() })?;
    deployment.start();
    Some(deployment)
}

/// Whether packets can be queued; says so if not.
pub(super) fn can_hold() -> bool {
    let there = |program| Command::new(program).arg("-V").output().is_ok();
    if ["iptables", "ip6tables"].into_iter().all(there) {
        return true;
    }
    let lacking = "iptables is missing; scripts/test installs it";
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{lacking}");
    println!("skipped: {lacking}");
    false
}

impl Deployment {
    /// Flows sent by the branch over its link.
    fn flows(&self) -> u64 {
        self.gateway_host().launch(|| self.branch.counter("flows_total"))
    }

    /// Connects from the client until the branch has asked the hub for it, and returns the result.
    fn attempt(&self, server: SocketAddr) -> io::Result<TcpStream> {
        eventually("a connect is carried", LIMIT, || {
            let before = self.flows();
            let outcome = self.network.host("client").enter(|| TcpStream::connect(server));
            (self.flows() > before).then_some(outcome)
        })
    }

    /// Connects from the client on a thread of its own.
    fn begin(&self, server: SocketAddr) -> JoinHandle<io::Result<TcpStream>> {
        self.network.host("client").enter(|| thread::spawn(move || TcpStream::connect(server)))
    }

    /// Connects on a thread of its own to a server with `filter` in front, and returns once the branch holds the
    /// connect.
    fn begin_held(&self, server: SocketAddr, filter: &Filter<'_>) -> JoinHandle<io::Result<TcpStream>> {
        eventually("a SYN is held", LIMIT, || {
            let (flows, dropped) = (self.flows(), filter.dropped());
            let connect = self.begin(server);
            eventually("the server is asked, or answers", LIMIT, || {
                (filter.dropped() > dropped || connect.is_finished()).then_some(())
            });
            (self.flows() > flows && !connect.is_finished()).then_some(connect)
        })
    }
}

/// Packets dropped by a server without a word.
struct Filter<'a>(&'a Host);

impl<'a> Filter<'a> {
    /// Has a host drop new connections to the first port on a condition of nft.
    fn new(host: &'a Host, condition: &str) -> Self {
        let port = PORTS[0];
        let chain = "type filter hook input priority filter; policy accept;";
        let syn = "tcp flags & (syn | ack) == syn";
        host.sh(&format!(
            "nft 'table inet filtered {{ chain input {{ {chain} {condition} tcp dport {port} {syn} counter drop; }}; }}'"
        ));
        Self(host)
    }

    /// Packets dropped so far.
    fn dropped(&self) -> u64 {
        let rules = self.0.sh("nft list table inet filtered");
        let count = rules.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap()
    }

    fn lift(self) {
        self.0.sh("nft delete table inet filtered");
    }
}

#[test]
fn a_connect_takes_as_long_as_the_servers() {
    isolated(|| {
        if !can_hold() {
            return;
        }
        let round_trip = Duration::from_millis(200);
        let line = LinkParams { delay: round_trip / 2, ..LinkParams::default() };
        let Some(network) = Network::builder().line(Line::emulated(&line)).build_or_skip() else { return };
        let plan = Plan { intercepts: &holding(""), ..Plan::default() };
        let mut deployment = Deployment::over(network, &plan);
        deployment.start();
        for server in deployment.servers() {
            let server = SocketAddr::new(server, PORTS[0]);
            eventually("a connect is carried", LIMIT, || {
                let (before, start) = (deployment.flows(), Instant::now());
                let connected = deployment.network.host("client").enter(|| TcpStream::connect(server));
                let took = start.elapsed();
                connected.unwrap();
                assert!(took >= round_trip, "{server} after {took:?}");
                (deployment.flows() > before).then(|| println!("{server} after {took:?}"))
            });
        }
    });
}

#[test]
fn servers_speaking_first_are_heard_and_refusals_passed_on() {
    isolated(|| {
        let Some(mut deployment) = deployment("", "") else { return };
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            taken.say("by way of the link");
            let refused = deployment.attempt(SocketAddr::new(server, NOBODY));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        assert!(deployment.rules(&[]).contains("NFQUEUE") || deployment.rules(&[]).contains("queue num"));
        // Without the peer the branch connects by itself, and holds as well.
        deployment.hub.kill();
        let server = deployment.servers()[0];
        eventually("a connection is carried without the peer", LIMIT, || {
            let before = deployment.taken_count();
            deployment.connect(server, PORTS[0])?.say("directly");
            (deployment.taken_count() > before).then_some(())
        });
        let refused = deployment.begin(SocketAddr::new(server, NOBODY)).join().unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // And everything goes at its end.
        deployment.branch.terminate();
        deployment.wait_until_direct();
        deployment.branch.wait(LIMIT);
        assert_eq!(deployment.rules(&["--installed"]), "# not installed\n");
        for program in ["iptables", "ip6tables"] {
            let left = deployment.command(Command::new(program).args(["-t", "raw", "-S"]));
            assert!(!left.contains("NFQUEUE"), "{left}");
        }
    });
}

#[test]
fn clients_are_held_in_their_own_name() {
    isolated(|| {
        let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
        let Some(deployment) = deployment("source = \"client\"\n", sources) else { return };
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say("in the client's name");
            let refused = deployment.attempt(SocketAddr::new(server, NOBODY));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn unreachable_and_forbidden_servers_fail_at_once() {
    isolated(|| {
        let deny = "deny = [\"203.0.113.0/24\", \"2001:db8:1::/48\"]\n";
        let Some(deployment) = deployment("", deny) else { return };
        deployment
            .network
            .host("hub")
            .sh("ip route add unreachable 198.51.100.0/24 && ip route add unreachable 2001:db8::/48");
        for (server, errors) in [
            ("198.51.100.1", &[ErrorKind::HostUnreachable][..]),
            ("2001:db8::1", &[ErrorKind::HostUnreachable]),
            ("203.0.113.1", &[ErrorKind::HostUnreachable]),
            ("2001:db8:1::1", &[ErrorKind::PermissionDenied]),
        ] {
            let server = SocketAddr::new(server.parse::<IpAddr>().unwrap(), PORTS[0]);
            let error = deployment.attempt(server).unwrap_err();
            assert!(errors.contains(&error.kind()), "{server}: {error:?}");
        }
    });
}

#[test]
fn filtered_server_is_reached_once_the_filter_is_gone() {
    isolated(|| {
        let Some(deployment) = deployment("", "") else { return };
        for server in deployment.servers() {
            let server = SocketAddr::new(server, PORTS[0]);
            let filter = Filter::new(deployment.network.host("server"), "");
            let connect = deployment.begin_held(server, &filter);
            let dropped = filter.dropped();
            // Its own repeats, and the client's, change nothing.
            eventually("the server is asked again", LIMIT, || (filter.dropped() > dropped + 1).then_some(()));
            assert!(!connect.is_finished());
            filter.lift();
            connect.join().unwrap().unwrap();
        }
    });
}

#[test]
fn gateway_killed_while_holding_is_out_of_the_way() {
    isolated(|| {
        let Some(mut deployment) = deployment("", "") else { return };
        let server = SocketAddr::new(deployment.servers()[0], PORTS[0]);
        let condition = format!("ip saddr {}", deployment.hubs()[0]);
        let filter = Filter::new(deployment.network.host("server"), &condition);
        let connect = deployment.begin_held(server, &filter);
        deployment.branch.kill();
        // Its SYN is lost, and comes again.
        let mut connection = Connection::new(connect.join().unwrap().unwrap());
        assert_eq!(connection.seen_as, connection.local());
        connection.say("directly");
        filter.lift();
        let Deployment { branch, network, .. } = &mut deployment;
        network.host("branch").launch(|| {
            branch.start();
            branch.wait_until_up(LIMIT);
        });
        deployment.taken_in(server.ip()).say("held again");
    });
}

#[test]
fn gateway_hanging_while_holding_lets_go_and_forgets() {
    isolated(|| {
        let Some(deployment) = deployment("", "") else { return };
        let server = SocketAddr::new(deployment.servers()[1], PORTS[0]);
        let condition = format!("ip6 saddr {}", deployment.hubs()[1]);
        let filter = Filter::new(deployment.network.host("server"), &condition);
        let connect = deployment.begin_held(server, &filter);
        deployment.branch.set_stopped(true);
        let mut connection = Connection::new(connect.join().unwrap().unwrap());
        assert_eq!(connection.seen_as, connection.local());
        // The server now answers the hub's request for the first SYN.
        filter.lift();
        deployment.branch.set_stopped(false);
        deployment.taken_in(server.ip()).say("held again");
        connection.say("still direct");
    });
}

#[test]
fn held_connect_keeps_the_rules_of_its_interception() {
    isolated(|| {
        if !can_hold() {
            return;
        }
        let nobody = keygen(binary(), &tempfile::tempdir().unwrap().path().join("nobody.key"));
        let peer = format!("[[peer]]\nname = \"nobody\"\npublic_key = \"{nobody}\"\n");
        // Connects to the other one are refused.
        let other = format!(
            "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15002\"\ninterfaces = [\"lan0\"]\n\
             ports = [{}]\nhold_syn = true\npeer = \"nobody\"\non_peer_loss = \"refuse\"\n",
            PORTS[1]
        );
        let ours = holding("peer = \"hub\"\n");
        let orders = [format!("{ours}{other}{peer}"), format!("{other}{ours}{peer}")];
        let Some(mut deployment) = Deployment::new(&Plan { intercepts: &orders[0], ..Plan::default() })
        else {
            return;
        };
        deployment.start();
        let server = SocketAddr::new(deployment.servers()[0], PORTS[0]);
        deployment.attempt(server).unwrap();
        let refused = SocketAddr::new(deployment.servers()[0], PORTS[1]);
        eventually("the other one refuses", LIMIT, || {
            deployment.begin(refused).join().unwrap().is_err().then_some(())
        });
        let over = Arc::new(AtomicBool::new(false));
        let clients = (0..16).map(|_| {
            let over = Arc::clone(&over);
            deployment.network.host("client").enter(move || {
                thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // A dropped one comes again too late, and is no failure.
                        let connected = TcpStream::connect_timeout(&server, Duration::from_millis(50));
                        assert!(!connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
                    }
                })
            })
        });
        let clients: Vec<_> = clients.collect();
        for round in 1..=10 {
            // Links begin anew, so the reload takes a while.
            let links = format!("[link]\nresume_window = \"{} s\"\n", 40 + round);
            deployment.reload(&(orders[round % 2].clone() + &links));
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn five_hundred_clients_at_once_are_all_connected() {
    isolated(|| {
        let Some(deployment) = deployment("", "") else { return };
        let server = SocketAddr::new(deployment.servers()[0], PORTS[0]);
        deployment.taken_in(server.ip());
        let before = deployment.flows();
        let clients: Vec<_> = (0..500).map(|_| deployment.begin(server)).collect();
        for client in clients {
            let mut connection = Connection::new(client.join().unwrap().unwrap());
            connection.say("one of many");
        }
        println!("{} of 500 were held", deployment.flows() - before);
        assert!(deployment.flows() > before);
    });
}

/// Nobody listens there.
const NOBODY: u16 = 8081;
