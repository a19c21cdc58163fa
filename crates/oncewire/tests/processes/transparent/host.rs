//! End hosts that take in their own connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use oncewire_testnet::isolated;

use super::{Deployment, LIMIT, PORTS, Plan};
use crate::common::wait::eventually;

#[test]
fn a_host_takes_in_its_own_connections_by_port_and_by_user_but_not_its_gateways() {
    isolated(|| {
        // The first names no user: it would take in the tunnel too, were that not the gateway's own.
        let intercepts = "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15001\"\nports = [\"1-8999\"]\n\
                          [[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nusers = [\"65534\"]\n";
        let Some(mut deployment) = Deployment::new(&Plan { on: "client", intercepts, ..Plan::default() })
        else {
            return;
        };
        deployment.start();
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

/// Connects as a user whose connections are taken in, to a port that is not for others.
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
