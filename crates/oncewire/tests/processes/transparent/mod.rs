//! Interception that clients know nothing of, on a network of namespaces.
//!
//! Where connections must go direct within a second or two, a machine that is busy with other tests gets some more; what
//! is tested is that they do at all, by the rules' own clock.

mod network;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;
use network::{CLIENTS, HUBS, LIMIT, Network, PORTS, SERVERS, to};

/// A network with a gateway on two of its hosts.
struct Deployment {
    // Gateways end before their hosts.
    branch: Gateway,
    hub: Gateway,
    branch_host: &'static str,
    network: Network,
    _dir: TempDir,
}

impl Deployment {
    /// Configures both gateways; `intercepts` goes into the branch's configuration and `peer` into the hub's `[[peer]]`.
    fn on(branch_host: &'static str, intercepts: &str, peer: &str) -> Option<Self> {
        let network = Network::build()?;
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| keygen(binary(), &dir.path().join(format!("{name}.key")));
        let (branch_key, hub_key) = (key("branch"), key("hub"));
        let admin = SocketAddr::from(([127, 0, 0, 1], 7411));
        let table = |name: &str| {
            format!(
                "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{admin}\"\n\
                 listen = \"0.0.0.0:7400\"\n"
            )
        };
        let cache = "[cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n";
        let branch = format!(
            "{}[[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"198.18.100.2:7400\"\n\
             {intercepts}{cache}",
            table("branch")
        );
        let hub = format!(
            "{}[[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n{peer}{cache}",
            table("hub")
        );
        let gateway = |name, config: &str| Gateway::new(binary(), dir.path(), name, admin, config);
        let (branch, hub) = (gateway("branch", &branch), gateway("hub", &hub));
        Some(Self { branch, hub, branch_host, network, _dir: dir })
    }

    /// Starts both gateways and waits for the link and the rules.
    fn start(&mut self) {
        let Self { branch, hub, branch_host, network, .. } = self;
        network.on("hgw", || hub.start());
        network.on(branch_host, || {
            branch.start();
            branch.wait_until_up(LIMIT);
        });
        for gateway in [branch, hub] {
            let started = || gateway.log().contains("gateway started").then_some(());
            eventually("rules are loaded", LIMIT, started);
        }
    }

    /// What `oncewire rules` says with more arguments.
    fn rules(&self, more: &[&str]) -> String {
        let mut command = Command::new(binary());
        command.args(["rules", "-c"]).arg(self.branch.config()).args(more);
        self.network.command(self.branch_host, &mut command)
    }

    fn routing_rules(&self) -> String {
        self.network.command(self.branch_host, Command::new("ip").arg("rule"))
    }

    /// Waits until new connections of both families no longer pass a gateway, and prints how long that took.
    fn wait_until_direct(&self, limit: Duration) {
        let start = Instant::now();
        for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
            self.network.connect_as("cli", to(server, PORTS[0]), client, limit);
        }
        println!("new connections are direct after {:.2?}", start.elapsed());
    }
}

#[test]
fn new_connections_are_taken_in_and_older_ones_are_left_alone() {
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("gateway"), "") else { return };
    let mut older = SERVERS.map(|server| deployment.network.connect("cli", to(server, PORTS[0])).unwrap());
    deployment.start();
    for ((client, hub), server) in CLIENTS.into_iter().zip(HUBS).zip(SERVERS) {
        let mut taken = deployment.network.connect_as("cli", to(server, PORTS[0]), hub, LIMIT);
        taken.say("by way of the link");
        let other = deployment.network.connect("cli", to(server, PORTS[1])).unwrap();
        assert_eq!(other.seen_as.ip(), client, "a port that is not named");
    }
    for older in &mut older {
        assert_eq!(older.seen_as, older.local());
        older.say("as if nothing had happened");
    }
    assert!(deployment.rules(&["--installed"]).contains("goto intercept-0"));
    deployment.branch.terminate();
    deployment.wait_until_direct(LIMIT);
    deployment.branch.wait(LIMIT);
    assert_eq!(deployment.rules(&["--installed"]), "# not installed\n");
    assert!(!deployment.routing_rules().contains("7400"), "{}", deployment.routing_rules());
    for older in &mut older {
        older.say("still here");
    }
}

#[test]
fn servers_see_the_clients_address_and_port() {
    let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("client"), sources) else { return };
    deployment.start();
    for server in SERVERS {
        let mut taken = deployment.network.connect("cli", to(server, PORTS[0])).unwrap();
        assert_eq!(taken.seen_as, taken.local());
        taken.say("in the client's name");
    }
    assert_eq!(deployment.network.on("bgw", || deployment.branch.counter("flows_total")), 2);
    // Without the peer the branch connects by itself, in the same name.
    deployment.hub.kill();
    let (server, client) = (to(SERVERS[0], PORTS[0]), CLIENTS[0]);
    let mut taken = deployment.network.connect_as("cli", server, client, LIMIT);
    assert_eq!(taken.seen_as, taken.local());
    taken.say("directly");
}

#[test]
fn a_hub_connects_in_the_name_of_no_client_that_it_was_not_told_of() {
    let sources = "allow_sources = [\"198.18.7.0/24\"]\n";
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("client"), sources) else { return };
    deployment.start();
    assert!(deployment.network.connect("cli", to(SERVERS[0], PORTS[0])).is_none());
    assert!(deployment.hub.log().contains("allow_sources"), "{}", deployment.hub.log());
}

#[test]
fn a_gateway_that_is_killed_is_out_of_the_way() {
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("gateway"), "") else { return };
    deployment.start();
    deployment.network.connect_as("cli", to(SERVERS[0], PORTS[0]), HUBS[0], LIMIT);
    deployment.branch.kill();
    // Nobody listens where the rule leads, so it does not match.
    deployment.wait_until_direct(LIMIT);
    assert!(deployment.rules(&["--remove"]).starts_with("removed table inet oncewire-branch"));
    assert!(deployment.rules(&["--remove"]).starts_with("there is no table"));
}

#[test]
fn a_gateway_that_hangs_is_out_of_the_way_until_it_goes_on() {
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("gateway"), "") else { return };
    deployment.start();
    deployment.network.connect_as("cli", to(SERVERS[0], PORTS[0]), HUBS[0], LIMIT);
    deployment.branch.set_stopped(true);
    deployment.wait_until_direct(LIMIT);
    deployment.branch.set_stopped(false);
    deployment.network.connect_as("cli", to(SERVERS[1], PORTS[0]), HUBS[1], LIMIT);
}

#[test]
fn rules_that_somebody_removed_come_back() {
    let Some(mut deployment) = Deployment::on("bgw", &tproxy("gateway"), "") else { return };
    deployment.start();
    deployment.network.command("bgw", Command::new("nft").args(["flush", "ruleset"]));
    deployment.network.connect_as("cli", to(SERVERS[0], PORTS[0]), HUBS[0], LIMIT);
    assert!(deployment.branch.log().contains("somebody removed the rules"), "{}", deployment.branch.log());
}

#[test]
fn a_host_takes_in_its_own_connections_by_port_and_by_user_but_not_its_gateways() {
    // The first names no user: it would take in the tunnel too, were that not the gateway's own.
    let intercepts = "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15001\"\nports = [\"1-8999\"]\n\
                      [[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nusers = [\"65534\"]\n";
    let Some(mut deployment) = Deployment::on("cli", intercepts, "") else { return };
    deployment.start();
    for ((client, hub), server) in CLIENTS.into_iter().zip(HUBS).zip(SERVERS) {
        let mut taken = deployment.network.connect_as("cli", to(server, PORTS[0]), hub, LIMIT);
        taken.say("by port");
        let other = deployment.network.connect("cli", to(server, PORTS[1])).unwrap();
        assert_eq!(other.seen_as.ip(), client, "another user's");
    }
    let script = "exec 3<>/dev/tcp/198.18.2.2/9090 && head -n 1 <&3";
    let seen =
        deployment.network.command("cli", Command::new("bash").args(["-c", script]).uid(65534).gid(65534));
    assert_eq!(seen.trim().parse::<SocketAddr>().unwrap().ip(), HUBS[0]);
    deployment.branch.kill();
    deployment.wait_until_direct(LIMIT);
}

#[test]
fn a_gateway_redirects_connections_that_pass_through_it() {
    let intercepts = "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15001\"\nscope = \"gateway\"\n\
                      interfaces = [\"lan0\"]\nnetworks = [\"198.18.2.0/24\", \"fd18:2::/64\"]\n";
    let Some(mut deployment) = Deployment::on("bgw", intercepts, "") else { return };
    deployment.start();
    for (hub, server) in HUBS.into_iter().zip(SERVERS) {
        let mut taken = deployment.network.connect_as("cli", to(server, PORTS[0]), hub, LIMIT);
        taken.say("with another destination");
    }
    // Whoever connects to the port itself asks for no other place.
    let strange = deployment.network.connect("cli", SocketAddr::from(([198, 18, 1, 1], 15001)));
    assert!(strange.is_none());
    eventually("it is counted", LIMIT, || {
        let status = deployment.network.on("bgw", || deployment.branch.ask("status"))?;
        let refused = status["gateway"]["refused"].as_array()?.clone();
        refused.iter().any(|row| row["reason"] == "bad_request" && row["count"] == 1).then_some(())
    });
}

/// An interception of one port of what comes in from the client.
fn tproxy(source: &str) -> String {
    format!(
        "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\nports = [8080]\n\
         source = \"{source}\"\n"
    )
}
