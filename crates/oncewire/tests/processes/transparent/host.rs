//! End hosts with interception of their own connections.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use oncewire_testnet::isolated;

use super::connection::{self, Connection};
use super::{Deployment, LIMIT, PORTS, Plan, recipe};
use crate::common::wait::eventually;

/// A deployment with interception of the client's own connections on the client.
fn started(intercepts: &str) -> Option<Deployment> {
    let mut deployment = Deployment::new(&Plan { on: "client", intercepts, ..Plan::default() })?;
    deployment.start();
    Some(deployment)
}

#[test]
fn host_intercepts_its_connections_but_not_its_gateways() {
    isolated(|| {
        // The first names no user: it would intercept the tunnel, too, were that not the gateway's own.
        let by_user =
            "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nusers = [\"65534\"]\n";
        let Some(mut deployment) = started(&format!("{}{by_user}", recipe("An end host"))) else { return };
        let (clients, hubs, servers) = (deployment.clients(), deployment.hubs(), deployment.servers());
        for ((client, hub), server) in clients.into_iter().zip(hubs).zip(servers) {
            let mut taken = deployment.connect_as(server, PORTS[0], hub);
            taken.say("by port");
            let other = deployment.connect(server, PORTS[1]).unwrap();
            assert_eq!(other.seen_as.ip(), client, "another user's");
        }
        as_nobody(&deployment);
        deployment.branch.kill();
        deployment.wait_until_direct();
    });
}

#[test]
fn host_connects_in_its_own_programs_names() {
    isolated(|| {
        let intercepts = format!("{}source = \"client\"\n", recipe("An end host"));
        let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
        let plan = Plan { on: "client", intercepts: &intercepts, peer: sources, ..Plan::default() };
        let Some(mut deployment) = Deployment::new(&plan) else { return };
        deployment.start();
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say("by way of the hub");
        }
        deployment.hub.kill();
        // The program's own socket has its port, towards the same server.
        for (client, server) in deployment.clients().into_iter().zip(deployment.servers()) {
            eventually("a connection is carried without the peer", LIMIT, || {
                let before = deployment.taken_count();
                let mut taken = deployment.connect(server, PORTS[0])?;
                assert_eq!(taken.seen_as.ip(), client);
                taken.say("directly");
                (deployment.taken_count() > before).then_some(())
            });
        }
    });
}

#[test]
fn host_reaches_link_local_and_metadata_addresses_directly() {
    isolated(|| {
        let Some(deployment) = started(recipe("An end host")) else { return };
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[0], hub);
        }
        let (client, router) = (deployment.network.host("client"), deployment.network.host("branch"));
        router.sh("ip addr add 169.254.169.254/32 dev lo; ip addr add fd00:ec2::254/128 dev lo");
        let [of_client, of_router] = [(client, "eth0"), (router, "lan0")].map(|(host, interface)| {
            let shown = host.sh(&format!("ip -6 -o addr show dev {interface} scope link"));
            let (number, rest) = shown.split_once(": ").unwrap();
            let (_, rest) = rest.split_once("inet6 ").unwrap();
            let ip: Ipv6Addr = rest.split('/').next().unwrap().parse().unwrap();
            SocketAddrV6::new(ip, PORTS[0], 0, number.parse().unwrap())
        });
        let mut at_client = of_router;
        at_client.set_scope_id(of_client.scope_id());
        let services = ["169.254.169.254:8080", "[fd00:ec2::254]:8080"].map(|text| text.parse().unwrap());
        for (served, asked) in
            services.map(|at| (at, at)).into_iter().chain([(of_router.into(), at_client.into())])
        {
            connection::serve(router, served);
            let before = deployment.taken_count();
            let mut direct = Connection::open(client, asked, LIMIT).expect("it is reset");
            assert_eq!(direct.seen_as.port(), direct.local().port());
            direct.say("to a neighbour");
            assert_eq!(deployment.taken_count(), before, "{asked}");
        }
    });
}

#[test]
fn a_host_takes_in_the_connections_of_a_control_group() {
    isolated(|| {
        let Some(group) = Group::new() else { return };
        let Some(mut deployment) = started(&group.intercept()) else { return };
        group.is_taken_in(&deployment);
        for (client, server) in deployment.clients().into_iter().zip(deployment.servers()) {
            assert_eq!(deployment.connect(server, PORTS[0]).unwrap().seen_as.ip(), client, "another group's");
        }
        // As with a restarted service: the same path, and another group.
        group.remove();
        group.make();
        group.is_taken_in(&deployment);
        deployment.branch.kill();
        deployment.wait_until_direct();
    });
}

#[test]
fn control_group_may_come_late_and_go_early() {
    isolated(|| {
        let Some(group) = Group::new() else { return };
        group.remove();
        let intercepts = group.intercept();
        let Some(mut deployment) = started(&intercepts) else { return };
        let missing = format!("there is no control group {:?} now", group.name);
        let told = |deployment: &Deployment| deployment.branch.whole_log().matches(&missing).count();
        eventually("the log says that it is missing", LIMIT, || (told(&deployment) == 1).then_some(()));
        group.make();
        group.is_taken_in(&deployment);
        group.remove();
        eventually("the log says that it is gone", LIMIT, || (told(&deployment) == 2).then_some(()));
        // Neither does it keep other rules from being loaded.
        let by_port = "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nports = [9090]\n";
        deployment.reload(&format!("{intercepts}{by_port}"));
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            deployment.connect_as(server, PORTS[1], hub);
        }
    });
}

/// A control group of its own; it ends with it.
struct Group {
    name: String,
    path: PathBuf,
}

impl Group {
    /// Makes one; none, with the reason printed, without permission.
    fn new() -> Option<Self> {
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let root = root.into_iter().find(|root| root.join("cgroup.controllers").exists());
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("oncewire-test-{}-{number}", std::process::id());
        let made = root.map(|root| root.join(&name)).filter(|path| std::fs::create_dir(path).is_ok());
        if made.is_none() {
            let lacking = "control groups of version 2 that this user may change";
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{lacking}");
            println!("skipped: {lacking}");
        }
        made.map(|path| Self { name, path })
    }

    /// The interception of its connections.
    fn intercept(&self) -> String {
        let name = &self.name;
        format!("[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15001\"\ncgroups = [\"{name}\"]\n")
    }

    fn make(&self) {
        std::fs::create_dir(&self.path).unwrap();
    }

    /// Removes it once the last process in it is gone.
    fn remove(&self) {
        eventually("the group is empty", LIMIT, || std::fs::remove_dir(&self.path).ok());
    }

    /// Waits until its connections are taken in, of both families.
    fn is_taken_in(&self, deployment: &Deployment) {
        for (hub, server) in deployment.hubs().into_iter().zip(deployment.servers()) {
            let join = format!("echo 0 > {}/cgroup.procs", self.path.display());
            let script = format!("{join} && exec 3<>/dev/tcp/{server}/{} && head -n 1 <&3", PORTS[0]);
            eventually("a connection of the group is taken in", LIMIT, || {
                let output =
                    deployment.gateway_host().run(Command::new("bash").args(["-c", &script])).unwrap();
                let seen_as = String::from_utf8(output.stdout).unwrap();
                (seen_as.trim().parse::<SocketAddr>().ok()?.ip() == hub).then_some(())
            });
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Connects as a user under interception, to a port closed to others.
fn as_nobody(deployment: &Deployment) {
    let (hub, server) = (deployment.hubs()[0], deployment.servers()[0]);
    let script = format!("exec 3<>/dev/tcp/{server}/{} && head -n 1 <&3", PORTS[1]);
    let host = deployment.gateway_host();
    eventually("a user's connection is taken in", LIMIT, || {
        let output = host.run(Command::new("bash").args(["-c", &script]).uid(NOBODY).gid(NOBODY));
        if output.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
            println!("skipped: by user, since this user namespace has no other");
            return Some(());
        }
        let seen_as = String::from_utf8(output.unwrap().stdout).unwrap();
        (seen_as.trim().parse::<SocketAddr>().ok()?.ip() == hub).then_some(())
    });
}

const NOBODY: u32 = 65534;
