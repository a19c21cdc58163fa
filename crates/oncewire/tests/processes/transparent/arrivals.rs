//! Machines without arrival of intercepted connections.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;

use oncewire_testnet::{Line, Network, isolated};

use super::connection::has_nft;
use super::{Deployment, LIMIT, PORTS, Plan, tproxy};
use crate::common::gateway::Gateway;
use crate::common::wait::eventually;

/// A usual router's firewall: packets for the router itself are dropped.
const FIREWALL: &str = "nft -f - <<END
table inet fw {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname lo accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport 22 accept
  }
}
END";
const SOURCES: &str = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";

fn redirect() -> String {
    "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15001\"\nscope = \"gateway\"\n\
     interfaces = [\"lan0\"]\nports = [8080]\n"
        .to_owned()
}

/// Has an earlier rule lead packets to hosts by a table of its own, as VPNs do for their networks.
fn lead_elsewhere(deployment: &Deployment, host: &str, to: [IpAddr; 2]) {
    for (family, address) in ["-4", "-6"].into_iter().zip(to) {
        let by = format!("$(ip {family} route show default | grep -o 'via [^ ]*')");
        deployment.network.host(host).sh(&format!(
            "ip {family} rule add priority 50 lookup 52; ip {family} route add {address} {by} table 52"
        ));
    }
}

/// Waits until the status of a host's gateway reports something not arriving, and returns the report.
fn not_arriving(deployment: &Deployment, host: &str, gateway: &Gateway) -> String {
    eventually("the status says that connections do not arrive", LIMIT, || {
        let status = deployment.network.host(host).launch(|| gateway.ask("status"))?;
        status["gateway"]["not_arriving"].as_str().map(str::to_owned)
    })
}

/// Connects to each server past the gateway, with the reason in its status, and through it after the mending.
fn pass_by_until_mended(deployment: &Deployment, reason: &str, mend: &dyn Fn()) {
    let (clients, hubs, servers) = (deployment.clients(), deployment.hubs(), deployment.servers());
    for (client, server) in clients.into_iter().zip(servers) {
        let mut passed = deployment.connect(server, PORTS[0]).expect("it goes direct");
        assert_eq!(passed.seen_as.ip(), client);
        passed.say("as if there were no gateway");
    }
    let sentence = not_arriving(deployment, deployment.on(), &deployment.branch);
    assert!(sentence.contains(reason), "{sentence}");
    assert!(deployment.branch.whole_log().contains(reason));
    mend();
    for (hub, server) in hubs.into_iter().zip(servers) {
        deployment.connect_as(server, PORTS[0], hub).say("taken in");
    }
    // A reload may still be about to end.
    eventually("the status says no more that connections do not arrive", LIMIT, || {
        deployment.status()["gateway"]["not_arriving"].is_null().then_some(())
    });
}

fn pass_a_firewall(bridged: bool, intercepts: &str, accept: &dyn Fn(&Deployment) -> String) {
    isolated(|| {
        if !has_nft() {
            return;
        }
        let builder = Network::builder().line(Line::Plain);
        let builder = if bridged { builder.bridged() } else { builder };
        let Some(network) = builder.build_or_skip() else { return };
        let mut deployment = Deployment::over(network, &Plan { intercepts, ..Plan::default() });
        deployment.gateway_host().sh(FIREWALL);
        assert!(deployment.rules(&[]).contains("# warning: the firewall's input chain `input`"));
        deployment.start();
        pass_by_until_mended(&deployment, "the firewall's input chain `input`", &|| {
            deployment.gateway_host().sh(&accept(&deployment));
        });
    });
}

/// The gateway's advice for its firewall.
fn as_advised(deployment: &Deployment) -> String {
    let warnings = deployment.rules(&[]);
    let (_, advice) = warnings.split_once("such as by `").unwrap();
    advice.split('`').next().unwrap().to_owned()
}

#[test]
fn firewall_drops_tproxy_until_it_accepts_the_mark() {
    pass_a_firewall(false, &tproxy("gateway"), &as_advised);
}

#[test]
fn firewall_drops_redirect_until_it_accepts_the_port() {
    pass_a_firewall(false, &redirect(), &as_advised);
}

#[test]
fn firewall_drops_a_bridges_packets_until_it_accepts_the_mark() {
    pass_a_firewall(true, &tproxy("gateway"), &as_advised);
}

#[test]
fn earlier_routing_rule_wins_until_ours_stands_before_it() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        lead_elsewhere(&deployment, "branch", deployment.servers());
        assert!(deployment.rules(&[]).contains("# warning: the routing rule 50"));
        deployment.start();
        let config = std::fs::read_to_string(deployment.branch.config()).unwrap();
        pass_by_until_mended(&deployment, "the routing rule 50", &|| {
            let config = config.replacen("[gateway]\n", "[gateway]\nrule_priority = 40\nmark = 0x100\n", 1);
            std::fs::write(deployment.branch.config(), config).unwrap();
            deployment.branch.reload();
        });
        let rules = deployment.command(Command::new("ip").arg("rule"));
        assert!(rules.contains("40:\tfrom all fwmark 0x100 lookup"), "{rules}");
        assert!(!rules.contains("90:\t"), "{rules}");
        deployment.branch.terminate();
        deployment.branch.wait(LIMIT);
        let rules = deployment.command(Command::new("ip").arg("rule"));
        assert!(!rules.contains("fwmark"), "{rules}");
    });
}

#[test]
fn hub_reports_answers_led_elsewhere() {
    isolated(|| {
        let plan = Plan { intercepts: &tproxy("client"), peer: SOURCES, ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        deployment.taken_in(deployment.servers()[0]).say("with answers");
        lead_elsewhere(&deployment, "hub", deployment.clients());
        let client = deployment.network.host("client");
        let server = SocketAddr::new(deployment.servers()[0], PORTS[0]);
        let _waiting = client.enter(|| TcpStream::connect(server)).unwrap();
        let sentence = not_arriving(&deployment, "hub", &deployment.hub);
        assert!(
            sentence.contains("answers of servers") && sentence.contains("the routing rule 50"),
            "{sentence}"
        );
    });
}
