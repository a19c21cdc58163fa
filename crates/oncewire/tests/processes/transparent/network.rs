//! A client, two routers and a server in network namespaces of their own: `cli – bgw – hgw – srv`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::wait::eventually;

/// The namespaces; they end with it.
pub(super) struct Network {
    prefix: String,
}

/// A connection to the server, and the address under which that sees it.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    pub(super) seen_as: SocketAddr,
}

impl Network {
    /// Builds the network and starts the server; none, with the reason printed, where that is not allowed.
    pub(super) fn build() -> Option<Self> {
        if let Some(lacking) = lacking() {
            let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!ci, "{lacking}");
            println!("skipped: {lacking}");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let network = Self { prefix: format!("ow{}t{number}", std::process::id()) };
        for host in HOSTS {
            ip(&format!("netns add {}", network.name(host)));
            network.ip(host, "link set lo up");
            for key in ["net/ipv6/conf/all/accept_dad", "net/ipv6/conf/default/accept_dad"] {
                network.sysctl(host, key, "0");
            }
        }
        network.wire();
        for port in PORTS {
            network.serve(port);
        }
        for server in SERVERS {
            // The first packet to a neighbour may be lost while its address is asked for.
            eventually("the server answers", LIMIT, || network.connect("cli", to(server, PORTS[0])));
        }
        Some(network)
    }

    /// Runs something on one of the hosts.
    pub(super) fn on<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        let there = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(there).join())
            .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
    }

    /// Connects to the server from a host; none if the connection fails or says nothing for a second.
    pub(super) fn connect(&self, host: &str, server: SocketAddr) -> Option<Connection> {
        let stream = self.on(host, || TcpStream::connect_timeout(&server, Duration::from_secs(1))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        Some(Connection { seen_as: line.trim().parse().ok()?, stream })
    }

    /// Connects until the server sees the address that is expected.
    pub(super) fn connect_as(
        &self,
        host: &str,
        server: SocketAddr,
        seen_as: IpAddr,
        limit: Duration,
    ) -> Connection {
        let what = format!("{server} sees a connection from {seen_as}");
        eventually(&what, limit, || {
            self.connect(host, server).filter(|connection| connection.seen_as.ip() == seen_as)
        })
    }

    /// Runs a command on a host and returns what it printed.
    pub(super) fn command(&self, host: &str, command: &mut Command) -> String {
        let output = self.on(host, || command.output().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn ip(&self, host: &str, command: &str) {
        ip(&format!("-n {} {command}", self.name(host)));
    }

    fn sysctl(&self, host: &str, key: &str, value: &str) {
        self.on(host, || std::fs::write(format!("/proc/sys/{key}"), value).unwrap());
    }

    fn wire(&self) {
        for (a, device_a, b, device_b) in
            [("bgw", "lan0", "cli", "eth0"), ("hgw", "lan0", "srv", "eth0"), ("bgw", "wan0", "hgw", "wan0")]
        {
            let (a, b) = (self.name(a), self.name(b));
            ip(&format!("link add {device_a} netns {a} type veth peer name {device_b} netns {b}"));
        }
        for (host, device, v4, v6) in [
            ("cli", "eth0", "198.18.1.2/24", "fd18:1::2/64"),
            ("bgw", "lan0", "198.18.1.1/24", "fd18:1::1/64"),
            ("bgw", "wan0", "198.18.100.1/24", "fd18:100::1/64"),
            ("hgw", "wan0", "198.18.100.2/24", "fd18:100::2/64"),
            ("hgw", "lan0", "198.18.2.1/24", "fd18:2::1/64"),
            ("srv", "eth0", "198.18.2.2/24", "fd18:2::2/64"),
        ] {
            self.ip(host, &format!("addr add {v4} dev {device}"));
            self.ip(host, &format!("addr add {v6} dev {device} nodad"));
            self.ip(host, &format!("link set {device} up"));
        }
        for router in ["bgw", "hgw"] {
            self.sysctl(router, "net/ipv4/ip_forward", "1");
            self.sysctl(router, "net/ipv6/conf/all/forwarding", "1");
        }
        for (host, v4, v6) in [
            ("cli", "198.18.1.1", "fd18:1::1"),
            ("bgw", "198.18.100.2", "fd18:100::2"),
            ("hgw", "198.18.100.1", "fd18:100::1"),
            ("srv", "198.18.2.1", "fd18:2::1"),
        ] {
            self.ip(host, &format!("route add default via {v4}"));
            self.ip(host, &format!("route add default via {v6}"));
        }
    }

    /// Serves whoever comes: their address as a line, and then what they say.
    fn serve(&self, port: u16) {
        for address in SERVERS {
            let listener = self.on("srv", || TcpListener::bind(SocketAddr::new(address, port)).unwrap());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || echo(stream));
                }
            });
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in HOSTS {
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).status();
        }
    }
}

impl Connection {
    /// Says something and waits for it to come back.
    pub(super) fn say(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        let mut back = vec![0; text.len()];
        self.stream.read_exact(&mut back).unwrap();
        assert_eq!(back, text.as_bytes());
    }

    /// The client's own address.
    pub(super) fn local(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }
}

/// An address and a port.
pub(super) fn to(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

fn echo(mut stream: TcpStream) {
    let Ok(peer) = stream.peer_addr() else { return };
    let mut block = [0; 4096];
    let mut said = writeln!(stream, "{peer}");
    while said.is_ok() {
        said = match stream.read(&mut block) {
            Ok(0) | Err(_) => return,
            Ok(count) => stream.write_all(&block[..count]),
        };
    }
}

fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces of hosts take root".to_owned());
    }
    let missing = |program: &&str| Command::new(program).arg("-V").output().is_err();
    let missing: Vec<_> = ["ip", "nft"].into_iter().filter(missing).collect();
    (!missing.is_empty()).then(|| format!("missing: {missing:?}; scripts/test installs them"))
}

const HOSTS: [&str; 4] = ["cli", "bgw", "hgw", "srv"];

/// The client, by family.
pub(super) const CLIENTS: [IpAddr; 2] = [v4(1, 2), v6(1, 2)];
/// The hub as the server sees it.
pub(super) const HUBS: [IpAddr; 2] = [v4(2, 1), v6(2, 1)];
/// The server.
pub(super) const SERVERS: [IpAddr; 2] = [v4(2, 2), v6(2, 2)];
/// Where it listens.
pub(super) const PORTS: [u16; 2] = [8080, 9090];

const fn v4(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(198, 18, net, host))
}

const fn v6(net: u16, host: u16) -> IpAddr {
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd18, net, 0, 0, 0, 0, 0, host))
}

pub(super) const LIMIT: Duration = Duration::from_secs(20);
