//! Gateways on bridges between clients and servers, without routing.

use std::net::SocketAddr;
use std::process::Command;

use oncewire_testnet::{Line, Network, isolated};

use super::connection::has_nft;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::common::wait::eventually;

/// Builds a network of bridges with a gateway on each; none, with the reason printed, if impossible.
fn bridged(intercepts: &str, peer: &str) -> Option<Deployment> {
    if !has_nft() {
        return None;
    }
    let network = Network::builder().line(Line::Plain).bridged().build_or_skip()?;
    Some(Deployment::over(network, &Plan { intercepts, peer, ..Plan::default() }))
}

/// Whether a table for bridges is loaded at a host.
fn is_loaded(deployment: &Deployment, host: &str) -> bool {
    let tables = deployment.network.host(host).sh("nft list tables");
    tables.contains(&format!("table bridge oncewire-{host}"))
}

#[test]
fn bridge_intercepts_its_port_and_passes_the_rest() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
        let mut older = deployment.take_in_beside_older("table bridge oncewire-branch");
        assert!(!is_loaded(&deployment, "branch"));
        for older in &mut older {
            older.say("still here");
        }
    });
}

#[test]
fn servers_behind_bridges_see_the_clients_address_and_port() {
    isolated(|| {
        let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
        let Some(mut deployment) = bridged(&tproxy("client"), sources) else { return };
        deployment.start();
        assert!(is_loaded(&deployment, "hub"));
        let servers = deployment.servers();
        for server in servers {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say(&"in the client's name ".repeat(10_000));
        }
        assert!(deployment.status()["peers"][0]["flows_total"].as_u64().unwrap() >= 2);
        // Without the peer the branch connects by itself, in the same name; answers meet its own bridge.
        deployment.hub.kill();
        for server in servers {
            eventually("a connection is carried without the peer", LIMIT, || {
                let before = deployment.taken_count();
                let mut taken = deployment.connect(server, PORTS[0])?;
                assert_eq!(taken.seen_as, taken.local());
                taken.say("directly");
                (deployment.taken_count() > before).then_some(())
            });
        }
    });
}

/// For how many seconds the branch's bridge goes on to remember a client's connection.
fn remembered_for(deployment: &Deployment, client: SocketAddr) -> Option<u64> {
    let listed = deployment.network.host("branch").sh("nft -j list set bridge oncewire-branch carried-v4");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let mut sets = listed["nftables"].as_array().unwrap().iter();
    let elements = sets.find_map(|item| item["set"]["elem"].as_array())?;
    let is_its = |value: &serde_json::Value| {
        value["concat"][0] == client.ip().to_string() && value["concat"][1] == client.port()
    };
    let its = elements.iter().find(|element| is_its(&element["elem"]["val"]))?;
    its["elem"]["expires"].as_u64()
}

#[test]
fn ended_connections_leave_their_bridge_and_open_ones_stay() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
        deployment.start();
        let server = deployment.servers()[0];
        let mut taken = deployment.taken_in(server);
        taken.say("to be remembered");
        let client = taken.local();
        eventually("what goes on is remembered for hours", LIMIT, || {
            remembered_for(&deployment, client).filter(|seconds| *seconds > 4 * 3600)
        });
        // The bridge's memory may be saved and loaded with all other rules of the machine.
        let host = deployment.network.host("branch");
        host.sh("saved=$(nft list ruleset); echo \"$saved\" | nft -c -f -");
        drop(taken);
        eventually("what has ended is remembered for minutes", LIMIT, || {
            remembered_for(&deployment, client).filter(|seconds| *seconds <= 300)
        });
        deployment.taken_in(server).say("again");
    });
}

#[test]
fn a_bridge_passes_everything_on_when_its_gateway_is_killed() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
        deployment.start();
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[0], hub);
        }
        deployment.branch.kill();
        deployment.wait_until_direct();
        assert!(deployment.rules(&["--remove"]).starts_with("removed table"));
        assert!(!is_loaded(&deployment, "branch"));
        deployment.wait_until_direct();
    });
}

#[test]
fn a_bridge_passes_everything_on_while_its_gateway_hangs() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
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
fn bridge_redirects_instead_of_tproxy() {
    isolated(|| {
        let intercepts = "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15001\"\nscope = \"gateway\"\n\
                          interfaces = [\"lan0\"]\nports = [8080]\n";
        let Some(mut deployment) = bridged(intercepts, "") else { return };
        deployment.start();
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[0], hub).say("with another destination");
        }
    });
}

#[test]
fn connections_excluded_by_policies_never_leave_the_bridge() {
    isolated(|| {
        let intercepts = tproxy("gateway").replace("[80, 8080]", "[8080, 9090]");
        let policy = "[[policy]]\nmatch = { ports = [9090] }\npath = \"direct\"\n";
        let Some(mut deployment) = bridged(&(intercepts + policy), "") else { return };
        deployment.start();
        let (clients, hubs, servers) = (deployment.clients(), deployment.hubs(), deployment.servers());
        for ((client, hub), server) in clients.into_iter().zip(hubs).zip(servers) {
            deployment.connect_as(server, PORTS[0], hub).say("by way of the link");
            let mut passed = deployment.connect(server, PORTS[1]).unwrap();
            assert_eq!(passed.seen_as.ip(), client);
            passed.say("past the gateway");
        }
        eventually("the bridge's count is told", LIMIT, || {
            deployment.connect(servers[0], PORTS[1]);
            let status = deployment.status();
            let rows = status["flows_not_coded"].as_array()?.clone();
            rows.iter().any(|row| row["outcome"] == "bypassed").then_some(())
        });
    });
}

#[test]
fn look_at_the_rules_does_not_read_all_connections() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
        deployment.start();
        let element = "{ 192.0.2.1 . 7 . 192.0.2.2 . 80 }";
        let set = ["add", "element", "bridge", "oncewire-branch", "carried-v4"];
        deployment.command(Command::new("nft").args(set).arg(element));
        let rules = deployment.rules(&["--installed"]);
        assert!(rules.contains("table bridge oncewire-branch {"), "{rules}");
        assert!(rules.contains("set carried-v4 {") && !rules.contains("192.0.2.1"), "{rules}");
    });
}

#[test]
fn bridge_made_under_a_running_gateway_is_found() {
    isolated(|| {
        let Some(mut deployment) = bridged(&tproxy("gateway"), "") else { return };
        let host = deployment.network.host("branch");
        host.sh("ip link set lan0 nomaster");
        deployment.start();
        assert!(!is_loaded(&deployment, "branch"));
        deployment.network.host("branch").sh("ip link set lan0 master br0");
        deployment.connect_as(deployment.servers()[0], PORTS[0], deployment.hubs()[0]);
        assert!(is_loaded(&deployment, "branch"));
    });
}

#[test]
fn bridge_with_rules_for_packets_on_frames_is_reported() {
    isolated(|| {
        let Some(deployment) = bridged(&tproxy("gateway"), "") else { return };
        let key = "bridge-nf-call-iptables";
        let host = deployment.network.host("branch");
        let warnings = || deployment.rules(&[]).lines().filter(|line| line.contains(key)).count();
        assert_eq!(warnings(), 0);
        let path = format!("/proc/sys/net/bridge/{key}");
        if !host.run(Command::new("test").args(["-e", &path])).unwrap().status.success() {
            println!("this kernel has no {key}");
            return;
        }
        host.sh(&format!("echo 1 > {path}"));
        assert_eq!(warnings(), 1);
    });
}
