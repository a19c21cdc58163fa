//! Machines with other setups.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};

use oncewire_testnet::{Family, isolated};

use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::binary;
use crate::common::gateway::{Gateway, keygen};

/// A hub's setting for connecting in clients' names.
const SOURCES: &str = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";

#[test]
fn gateway_without_privileges_still_changes_its_rules() {
    isolated(|| {
        let intercepts = tproxy("client");
        let plan = Plan {
            gateway: "user = \"nobody\"\n",
            intercepts: &intercepts,
            peer: SOURCES,
            ..Plan::default()
        };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        if !give_to_nobody(&deployment) {
            println!("skipped: this user namespace has no other user");
            return;
        }
        deployment.start();
        let status = std::fs::read_to_string(format!("/proc/{}/status", deployment.branch.pid())).unwrap();
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        // CAP_NET_BIND_SERVICE and CAP_NET_ADMIN.
        assert!(status.contains("CapEff:\t0000000000001400"), "{status}");
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say("as nobody");
        }
        deployment.reload(&tproxy("gateway"));
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[0], hub);
        }
        deployment.branch.terminate();
        deployment.branch.wait(LIMIT);
        assert!(!deployment.gateway_host().sh("nft list tables; ip rule").contains("oncewire"));
    });
}

/// Lets the user `nobody` read the branch's files; false without such a user.
fn give_to_nobody(deployment: &Deployment) -> bool {
    let config = deployment.branch.config();
    let dir = config.parent().unwrap();
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    match chown(dir.join("branch.key"), Some(65534), Some(65534)) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => false,
        done => {
            done.unwrap();
            true
        }
    }
}

#[test]
fn machine_with_reverse_path_checks_intercepts() {
    isolated(|| {
        // By itself, and as a VPN of WireGuard sets it.
        for (filter, by_mark) in [("1", "0"), ("2", "0"), ("0", "1"), ("1", "1")] {
            let intercepts = tproxy("client");
            let plan = Plan { intercepts: &intercepts, peer: SOURCES, ..Plan::default() };
            let Some(mut deployment) = Deployment::new(&plan) else { return };
            for host in ["branch", "hub"] {
                for (key, value) in [("rp_filter", filter), ("src_valid_mark", by_mark)] {
                    let each =
                        format!("for f in /proc/sys/net/ipv4/conf/*/{key}; do echo {value} > $f; done");
                    deployment.network.host(host).sh(&each);
                }
            }
            deployment.start();
            for server in deployment.servers() {
                let mut taken = deployment.taken_in(server);
                assert_eq!(taken.seen_as, taken.local(), "rp_filter = {filter}, src_valid_mark = {by_mark}");
                taken.say("although it was checked");
            }
        }
    });
}

#[test]
fn clients_without_ipv4_cross_a_tunnel_of_ipv4() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.network.host("client").sh("ip -4 addr flush dev eth0; ip -4 addr flush dev lo");
        deployment.network.host("branch").sh("ip -6 addr flush dev wan0; ip -6 route flush default");
        deployment.start();
        deployment.connect_as(deployment.servers()[1], PORTS[0], deployment.hubs()[1]).say("IPv6 alone");
    });
}

#[test]
fn two_gateways_on_one_machine_are_independent() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        // None of its peers fronts the server, so it connects by itself.
        let dir = tempfile::tempdir().unwrap();
        let keys =
            ["other", "elsewhere"].map(|name| keygen(binary(), &dir.path().join(format!("{name}.key"))));
        let admin = SocketAddr::from(([127, 0, 0, 1], 7412));
        let config = format!(
            "[gateway]\nname = \"other\"\nkey_file = \"other.key\"\nadmin = \"{admin}\"\n\
             [cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n\
             [[peer]]\nname = \"elsewhere\"\npublic_key = \"{}\"\naddress = \"192.0.2.1:7400\"\n\
             networks = [\"192.0.2.0/24\"]\n\
             [[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15002\"\nscope = \"gateway\"\n\
             interfaces = [\"lan0\"]\nports = [9090]\n",
            keys[1]
        );
        let mut other = Gateway::new(binary(), dir.path(), "other", admin, &config);
        let branch = deployment.network.host("branch").ip(Family::V4);
        let (client, hub, server) = (deployment.clients()[0], deployment.hubs()[0], deployment.servers()[0]);
        deployment.gateway_host().launch(|| other.start());
        deployment.connect_as(server, PORTS[1], branch).say("by the one");
        deployment.connect_as(server, PORTS[0], hub).say("by the other");
        // The living one does not speak for the dead.
        other.kill();
        deployment.connect_as(server, PORTS[1], client);
        deployment.connect_as(server, PORTS[0], hub);
        deployment.gateway_host().launch(|| other.start());
        let mut carried = deployment.connect_as(server, PORTS[1], branch);
        deployment.branch.terminate();
        deployment.branch.wait(LIMIT);
        deployment.connect_as(server, PORTS[0], client);
        deployment.connect_as(server, PORTS[1], branch).say("alone");
        carried.say("all the time");
    });
}
