//! Gateways as their clients' routers.

use std::process::Command;

use oncewire_testnet::isolated;

use super::deployment::ADMIN;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

#[test]
fn new_connections_are_intercepted_and_older_ones_left_alone() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        let mut older = deployment.take_in_beside_older("goto intercept-0");
        assert_eq!(deployment.rules(&["--installed"]), "# not installed\n");
        let routing = deployment.command(Command::new("ip").arg("rule"));
        assert!(!routing.contains("fwmark"), "{routing}");
        for older in &mut older {
            older.say("still here");
        }
    });
}

#[test]
fn handshakes_by_syn_cookies_end_at_the_gateway() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        // Cookies for all, and not only once half-open connections are many.
        deployment.gateway_host().sh("echo 2 > /proc/sys/net/ipv4/tcp_syncookies");
        let (hubs, servers) = (deployment.hubs(), deployment.servers());
        let mut older = servers.map(|server| deployment.connect(server, PORTS[0]).unwrap());
        deployment.start();
        for (hub, server) in hubs.into_iter().zip(servers) {
            deployment.connect_as(server, PORTS[0], hub);
            for _ in 0..20 {
                let mut taken = deployment.connect(server, PORTS[0]).expect("it is reset");
                assert_eq!(taken.seen_as.ip(), hub);
                taken.say("behind a cookie");
            }
        }
        let counters = deployment.gateway_host().sh("grep ^TcpExt: /proc/net/netstat");
        let [names, values] = &counters.lines().collect::<Vec<_>>()[..] else { panic!("{counters}") };
        let mut pairs = names.split(' ').zip(values.split(' '));
        let (_, received) = pairs.find(|(name, _)| *name == "SyncookiesRecv").unwrap();
        assert!(received.parse::<u64>().unwrap() >= 40, "{received} handshakes were by cookies");
        for older in &mut older {
            assert_eq!(older.seen_as, older.local());
            older.say("taken in by nobody");
        }
    });
}

#[test]
fn connections_without_room_in_the_set_go_direct() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        let rules = tproxy("gateway") + "rules = \"print\"\n";
        std::fs::write(deployment.branch.config(), deployment.with(&rules)).unwrap();
        let printed = deployment.rules(&[]);
        assert!(printed.contains("size 131072"), "{printed}");
        // One handshake of each family has room at a time.
        let small = printed.replace("size 131072", "size 1").replace("timeout 30s", "timeout 1h");
        let cookies = "echo 2 > /proc/sys/net/ipv4/tcp_syncookies";
        deployment.gateway_host().sh(&format!("{cookies}\n{small}"));
        deployment.start();
        for ((client, hub), server) in
            deployment.clients().into_iter().zip(deployment.hubs()).zip(deployment.servers())
        {
            deployment.connect_as(server, PORTS[0], hub);
            let mut direct = deployment.connect(server, PORTS[0]).expect("it is reset");
            assert_eq!(direct.seen_as.ip(), client);
            direct.say("as if there were no gateway");
        }
    });
}

#[test]
fn gateway_behind_one_without_ports_reaches_the_same_hub() {
    isolated(|| {
        let dir = tempfile::tempdir().unwrap();
        let inner_key = keygen(binary(), &dir.path().join("inner.key"));
        let intercepts =
            "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n";
        let peer = format!("[[peer]]\nname = \"inner\"\npublic_key = \"{inner_key}\"\n");
        let plan = Plan { intercepts, peer: &peer, ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        deployment.connect_as(deployment.servers()[0], PORTS[1], deployment.hubs()[0]);
        // The branch's configuration of the hub.
        let config = std::fs::read_to_string(deployment.branch.config()).unwrap();
        let hub = config.split("[[peer]]").nth(1).unwrap().split("[[").next().unwrap();
        let config = format!(
            "[gateway]\nname = \"inner\"\nkey_file = \"inner.key\"\nadmin = \"{ADMIN}\"\n\
             [cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n[[peer]]{hub}"
        );
        let mut inner = Gateway::new(binary(), dir.path(), "inner", ADMIN, &config);
        deployment.network.host("client").launch(|| {
            inner.start();
            inner.wait_until_up(LIMIT);
        });
    });
}

#[test]
fn servers_see_the_clients_address_and_port() {
    isolated(|| {
        let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
        let plan = Plan { intercepts: &tproxy("client"), peer: sources, ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        let servers = deployment.servers();
        for server in servers {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say("in the client's name");
        }
        assert!(deployment.status()["peers"][0]["flows_total"].as_u64().unwrap() >= 2);
        // Without the peer the branch connects by itself, in the same name.
        deployment.hub.kill();
        eventually("a connection is carried without the peer", LIMIT, || {
            let before = deployment.taken_count();
            let mut taken = deployment.connect(servers[0], PORTS[0])?;
            assert_eq!(taken.seen_as, taken.local());
            taken.say("directly");
            (deployment.taken_count() > before).then_some(())
        });
    });
}

#[test]
fn hub_connects_only_in_names_of_allowed_clients() {
    isolated(|| {
        let sources = "allow_sources = [\"198.18.7.0/24\"]\n";
        let plan = Plan { intercepts: &tproxy("client"), peer: sources, ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        let server = deployment.servers()[0];
        eventually("a connection is refused", LIMIT, || {
            deployment.connect(server, PORTS[0]).is_none().then_some(())
        });
        eventually("the hub says why", LIMIT, || {
            deployment.hub.log().contains("allow_sources").then_some(())
        });
    });
}

#[test]
fn killed_gateway_is_out_of_the_way() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        deployment.connect_as(deployment.servers()[0], PORTS[0], deployment.hubs()[0]);
        deployment.branch.kill();
        // Nobody listens at the rule's target, so it does not match.
        deployment.wait_until_direct();
        assert!(deployment.rules(&["--remove"]).starts_with("removed table inet oncewire-branch"));
        assert!(deployment.rules(&["--remove"]).starts_with("there is no table"));
    });
}

#[test]
fn hanging_gateway_is_out_of_the_way_until_it_continues() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        let (hubs, servers) = (deployment.hubs(), deployment.servers());
        deployment.connect_as(servers[0], PORTS[0], hubs[0]);
        deployment.branch.set_stopped(true);
        deployment.wait_until_direct();
        deployment.branch.set_stopped(false);
        deployment.connect_as(servers[1], PORTS[0], hubs[1]);
    });
}

#[test]
fn rules_removed_by_others_come_back() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        deployment.command(Command::new("nft").args(["flush", "ruleset"]));
        deployment.connect_as(deployment.servers()[0], PORTS[0], deployment.hubs()[0]);
        eventually("the branch says so", LIMIT, || {
            deployment.branch.log().contains("somebody removed the rules").then_some(())
        });
    });
}

#[test]
fn routing_removed_by_others_comes_back() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        // The routing table has the number of the mark.
        let rule = deployment.command(Command::new("sh").args(["-c", "ip -4 rule | grep ^90:"]));
        let table = rule.trim().rsplit(' ').next().unwrap();
        let show = format!(
            "ip -4 rule; ip -6 rule; ip -4 route show table {table}; ip -6 route show table {table}; true"
        );
        let before = deployment.gateway_host().sh(&show);
        let ways = [
            "ip -4 rule del priority 90; ip -6 rule del priority 90",
            "ip -4 rule del priority 89; ip -6 rule del priority 89",
            &format!("ip -4 route flush table {table}; ip -6 route flush table {table}"),
            "ip link set lo down; ip link set lo up",
        ];
        for way in ways {
            deployment.gateway_host().sh(way);
            eventually(&format!("after {way}: it is all there again"), LIMIT, || {
                (deployment.gateway_host().sh(&show) == before).then_some(())
            });
            for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
                deployment.connect_as(server, PORTS[0], hub).say("led here again");
            }
        }
        assert!(deployment.branch.whole_log().contains("somebody removed routing rules or routes"));
    });
}

#[test]
fn gateway_redirects_connections_through_it() {
    isolated(|| {
        let intercepts = "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15001\"\nscope = \"gateway\"\n\
                          interfaces = [\"lan0\"]\nnetworks = [\"198.18.2.0/24\", \"fd18:2::/64\"]\n";
        let Some(mut deployment) = Deployment::new(&Plan { intercepts, ..Plan::default() }) else { return };
        deployment.start();
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            let mut taken = deployment.connect_as(server, PORTS[0], hub);
            taken.say("with another destination");
        }
        // A connection to the port itself asks for no other place.
        let strange = deployment.connect([198, 18, 1, 1].into(), 15001);
        assert!(strange.is_none());
        eventually("it is counted", LIMIT, || {
            let status = deployment.status();
            let refused = status["gateway"]["refused"].as_array()?.clone();
            refused.iter().any(|row| row["reason"] == "bad_request" && row["count"] == 1).then_some(())
        });
    });
}
