//! Interceptions added, changed and removed at runtime, and rules loaded by others.

use std::process::Command;

use oncewire_testnet::isolated;

use super::{Deployment, LIMIT, PORTS, Plan, tproxy};

/// An interception of the other port, by redirection.
const REDIRECT: &str = "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15002\"\nscope = \"gateway\"\n\
                        interfaces = [\"lan0\"]\nports = [9090]\n";

#[test]
fn first_interception_comes_and_last_goes_without_restart() {
    isolated(|| {
        let Some(mut deployment) = Deployment::new(&Plan::default()) else { return };
        deployment.start();
        let (clients, hubs, servers) = (deployment.clients(), deployment.hubs(), deployment.servers());
        let mut older = servers.map(|server| deployment.connect(server, PORTS[0]).unwrap());
        assert!(deployment.reload(&tproxy("gateway")).contains("intercept tproxy on 127.0.0.1:15001 added"));
        let mut first = [0, 1].map(|family| deployment.connect_as(servers[family], PORTS[0], hubs[family]));
        let both = tproxy("gateway") + REDIRECT;
        assert!(deployment.reload(&both).contains("intercept redirect on 0.0.0.0:15002 added"));
        let mut second = [0, 1].map(|family| deployment.connect_as(servers[family], PORTS[1], hubs[family]));
        for port in PORTS {
            deployment.connect_as(servers[0], port, hubs[0]);
        }
        deployment.reload(REDIRECT);
        deployment.connect_as(servers[0], PORTS[0], clients[0]);
        deployment.connect_as(servers[0], PORTS[1], hubs[0]);
        assert!(deployment.reload("").contains("intercept redirect on 0.0.0.0:15002 removed"));
        deployment.connect_as(servers[1], PORTS[1], clients[1]);
        // An intercepted connection is led to the gateway up to its end.
        let rules = deployment.rules(&["--installed"]);
        assert!(rules.contains("socket transparent") && !rules.contains("goto intercept"), "{rules}");
        for (what, connections) in [("older", &mut older), ("first", &mut first), ("second", &mut second)] {
            connections
                .iter_mut()
                .for_each(|connection| connection.say(&format!("{what}, through all of it")));
        }
        deployment.branch.terminate();
        drop((older, first, second));
        deployment.branch.wait(LIMIT);
        assert_eq!(deployment.rules(&["--installed"]), "# not installed\n");
    });
}

#[test]
fn redirection_and_tproxy_take_each_others_place_on_a_port() {
    isolated(|| {
        let Some(mut deployment) = Deployment::new(&Plan::default()) else { return };
        deployment.start();
        let (hubs, servers) = (deployment.hubs(), deployment.servers());
        let redirect = REDIRECT.replace("15002", "15001").replace("9090", "8080");
        let added = "intercept redirect on 0.0.0.0:15001 added";
        let mut taken = Vec::new();
        for (intercepts, said) in [
            (redirect.clone(), added),
            (tproxy("gateway"), "intercept tproxy on 127.0.0.1:15001 added"),
            (redirect, added),
        ] {
            let reloaded = deployment.reload(&intercepts);
            assert!(reloaded.contains(said), "{reloaded}");
            taken.extend([0, 1].map(|family| deployment.connect_as(servers[family], PORTS[0], hubs[family])));
            taken.iter_mut().for_each(|connection| connection.say("through each of them"));
        }
    });
}

#[test]
fn unloadable_rules_leave_the_loaded_ones() {
    isolated(|| {
        let Some(mut deployment) = Deployment::of_routers() else { return };
        deployment.start();
        let (hubs, servers) = (deployment.hubs(), deployment.servers());
        let mut taken = deployment.connect_as(servers[0], PORTS[0], hubs[0]);
        let before = deployment.rules(&["--installed"]);
        let nobody =
            "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nusers = [\"no-such-user\"]\n";
        let said = deployment.reload(&(tproxy("gateway") + nobody));
        assert!(said.contains("was not reloaded") && said.contains("no-such-user"), "{said}");
        taken.say("on the old rules");
        for (hub, server) in hubs.into_iter().zip(servers) {
            deployment.connect_as(server, PORTS[0], hub).say("also new ones");
        }
        assert_eq!(
            before.contains("goto intercept-0"),
            deployment.rules(&["--installed"]).contains("goto intercept-0")
        );
    });
}

#[test]
fn printed_rules_work_once_loaded_by_a_shell() {
    isolated(|| {
        let intercepts = tproxy("gateway") + "rules = \"print\"\n";
        let Some(mut deployment) = Deployment::new(&Plan { intercepts: &intercepts, ..Plan::default() })
        else {
            return;
        };
        deployment.start();
        assert_eq!(deployment.rules(&["--installed"]), "# not installed\n");
        let printed = deployment.rules(&[]);
        deployment.gateway_host().sh(&printed);
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[0], hub).say("by hand");
        }
        deployment.branch.terminate();
        deployment.wait_until_direct();
        deployment.branch.wait(LIMIT);
        assert!(deployment.rules(&["--installed"]).contains("goto intercept-0"), "they are the operator's");
        deployment.wait_until_direct();
        assert!(deployment.rules(&["--remove"]).starts_with("removed table"));
        let routing = deployment.command(Command::new("ip").arg("rule"));
        assert!(!routing.contains("fwmark"), "{routing}");
    });
}
