//! Gateways and a server known by link-local addresses alone.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};

use oncewire_testnet::{Host, Line, Network, isolated};

use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::LIMIT;

/// The link-local address of an interface.
fn link_local(host: &Host, interface: &str) -> Ipv6Addr {
    let shown = host.sh(&format!("ip -6 -o addr show dev {interface} scope link"));
    let (_, rest) = shown.split_once("inet6 ").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// The same as a socket's address.
fn socket_address(host: &Host, interface: &str, port: u16) -> SocketAddr {
    let shown = host.sh(&format!("ip -o link show dev {interface}"));
    let number = shown.split(':').next().unwrap().parse().unwrap();
    SocketAddrV6::new(link_local(host, interface), port, 0, number).into()
}

#[test]
fn link_local_addresses_work_with_their_interfaces() {
    isolated(|| {
        let Some(network) = Network::builder().line(Line::Plain).build_or_skip() else { return };
        let (client, branch) = (network.host("client"), network.host("branch"));
        let (of_client, of_branch) = (link_local(client, "eth0"), link_local(branch, "lan0"));
        let dir = tempfile::tempdir().unwrap();
        let [near_key, far_key] =
            ["near", "far"].map(|name| keygen(binary(), &dir.path().join(format!("{name}.key"))));
        let head = |name: &str, more: &str| {
            format!(
                "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{ADMIN}\"\n{more}\
                 [cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n"
            )
        };
        let far = head("far", &format!("listen = \"[{of_branch}%lan0]:7400\"\n"))
            + &format!("[[peer]]\nname = \"near\"\npublic_key = \"{near_key}\"\nallow = [\"fe80::/10\"]\n");
        let near = head("near", "")
            + &format!(
                "[[peer]]\nname = \"far\"\npublic_key = \"{far_key}\"\naddress = \"[{of_branch}%eth0]:7400\"\n\
                 [[intercept]]\nmode = \"forward\"\nlisten = \"[{of_client}%eth0]:9000\"\n\
                 target = \"[{of_client}%lan0]:8080\"\nallow_from = [\"fe80::/10\"]\n"
            );
        let gateway = |name: &str, text: &str| Gateway::new(binary(), dir.path(), name, ADMIN, text);
        let (mut far, mut near) = (gateway("far", &far), gateway("near", &near));
        let server = socket_address(client, "eth0", 8080);
        let listener = client.enter(|| TcpListener::bind(server).unwrap());
        branch.launch(|| far.start());
        client.launch(|| {
            near.start();
            near.wait_until_up(LIMIT);
        });
        let SocketAddr::V6(mut entrance) = socket_address(branch, "lan0", 9000) else { unreachable!() };
        entrance.set_ip(of_client);
        let mut stream = branch.enter(|| TcpStream::connect(entrance).unwrap());
        let (mut taken, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), of_branch);
        for stream in [&stream, &taken] {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
        }
        stream.write_all(b"by its interface").unwrap();
        let mut got = [0; 16];
        taken.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"by its interface");
        let status = client.launch(|| near.ask("status")).unwrap();
        assert_eq!(status["peers"][0]["flows_open"], 1, "{status}");
    });
}

const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7411);
