//! Connections excluded by policies, unseen by the gateway.

use oncewire_testnet::isolated;

use super::{Deployment, LIMIT, PORTS, Plan, hold};
use crate::common::wait::eventually;

/// An interception of both ports for connections from the client.
const BOTH_PORTS: &str = "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n\
                          ports = [8080, 9090]\npeer = \"hub\"\n";

#[test]
fn first_matching_policy_decides_on_passing_by() {
    isolated(|| {
        // The second port is excluded for IPv4, and for IPv6 except by the rule before.
        let policies = "[[policy]]\nmatch = { networks = [\"fd18::/16\"], peers = [\"hub\"] }\ncodec = \"auto\"\n\
                        [[policy]]\nmatch = { ports = [9090] }\npath = \"direct\"\n";
        let plan = Plan { intercepts: &format!("{BOTH_PORTS}{policies}"), ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        let (clients, hubs, servers) = (deployment.clients(), deployment.hubs(), deployment.servers());
        // Both families are taken in from here on, and nothing else connects.
        let taken = servers.map(|server| deployment.taken_in(server));
        drop(taken);
        let before = deployment.taken_count();
        // Connections pass by, uncounted, while a gateway without CPU time sends no sign of life.
        eventually("the kernel's counters are read", LIMIT, || {
            let mut passed = deployment.connect(servers[0], PORTS[1]).unwrap();
            assert_eq!(passed.seen_as.ip(), clients[0]);
            passed.say("past the gateway");
            let rows = bypassed(&deployment);
            assert!(rows.iter().all(|(policy, _)| policy == "(policy 2: ports 9090)"), "{rows:?}");
            rows.iter().any(|(_, count)| *count >= 5).then_some(())
        });
        assert_eq!(deployment.taken_count(), before);
        deployment.connect_as(servers[1], PORTS[1], hubs[1]).say("by way of the link");
        let rules = deployment.rules(&[]);
        let legend = rules.lines().next().unwrap();
        assert!(
            legend.starts_with("# policy 2 (") && legend.ends_with("): ports 9090 passes by"),
            "{legend}"
        );
    });
}

#[test]
fn excluded_connection_is_not_held() {
    isolated(|| {
        if !hold::can_hold() {
            return;
        }
        let policy = "hold_syn = true\n[[policy]]\nmatch = { ports = [9090] }\npath = \"direct\"\n";
        let plan = Plan { intercepts: &format!("{BOTH_PORTS}{policy}"), ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        let (client, server) = (deployment.clients()[0], deployment.servers()[0]);
        deployment.taken_in(server).say("by way of the link");
        eventually("what passes is counted", LIMIT, || {
            let mut passed = deployment.connect(server, PORTS[1]).unwrap();
            assert_eq!(passed.seen_as.ip(), client);
            passed.say("past the gateway");
            (!bypassed(&deployment).is_empty()).then_some(())
        });
        // A gateway holding one would have connected for it by itself.
        let status = deployment.gateway_host().launch(|| deployment.branch.ask("status")).unwrap();
        let rows = status["flows_not_coded"].as_array().unwrap();
        assert!(!rows.iter().any(|row| row["outcome"] == "direct" && row["reason"] == "policy"), "{rows:?}");
    });
}

#[test]
fn reload_changes_exclusions_and_forgets_no_count() {
    isolated(|| {
        let excluding =
            |port: u16| format!("[[policy]]\nmatch = {{ ports = [{port}] }}\npath = \"direct\"\n");
        let config = |port: u16| format!("{BOTH_PORTS}{}", excluding(port));
        let plan = Plan { intercepts: &config(PORTS[1]), ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        let (client, hub, server) = (deployment.clients()[0], deployment.hubs()[0], deployment.servers()[0]);
        deployment.connect_as(server, PORTS[0], hub).say("by way of the link");
        let mut passed = eventually("a connection passes by and is counted", LIMIT, || {
            let passed = deployment.connect(server, PORTS[1]).filter(|passed| passed.seen_as.ip() == client);
            passed.filter(|_| !deployment.rules(&["--installed"]).contains("policy-1 {\n\t\tpackets 0 "))
        });
        let text = std::fs::read_to_string(deployment.branch.config()).unwrap();
        let reloaded = text.replace(&excluding(PORTS[1]), &excluding(PORTS[0]));
        std::fs::write(deployment.branch.config(), reloaded).unwrap();
        deployment.branch.reload();
        // An excluded connection is intercepted under the new rules, and an open one stays as it is.
        deployment.connect_as(server, PORTS[1], hub).say("by way of the link");
        deployment.connect_as(server, PORTS[0], client).say("past the gateway");
        passed.say("as if nothing had happened");
        eventually("both rules are counted", LIMIT, || {
            deployment.connect(server, PORTS[0]);
            let mut rows = bypassed(&deployment);
            rows.sort();
            let policies = rows.iter().map(|(policy, _)| policy.as_str()).collect::<Vec<_>>();
            (policies == ["(policy 1: ports 8080)", "(policy 1: ports 9090)"]).then_some(())
        });
    });
}

/// The branch's bypasses: by policy, and their number.
fn bypassed(deployment: &Deployment) -> Vec<(String, u64)> {
    let status = deployment.status();
    let rows = status["flows_not_coded"].as_array().unwrap();
    let bypassed = rows.iter().filter(|row| row["outcome"] == "bypassed");
    bypassed
        .map(|row| (row["destination"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap()))
        .collect()
}
