//! Scope of transparent interception, and the loader of its rules.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::network::Network;

/// Connections taken in by `tproxy` and `redirect`: the ones meeting all given conditions. Ports, networks
/// and users are the predicates of [EndRE §6.3].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Origin of the connections.
    pub scope: Scope,
    /// Inbound interfaces; a `*` at the end stands for anything. Empty with [`Scope::Host`].
    pub interfaces: Vec<String>,
    /// Destination ports; empty means any.
    pub ports: Vec<PortRange>,
    /// Destination networks; empty means any.
    pub networks: Vec<Network>,
    /// Owners of the connecting processes, by name or number; empty means anybody.
    pub users: Vec<String>,
    /// The groups of their processes, by name or number; empty means any.
    pub groups: Vec<String>,
    /// The control groups of their processes, as paths below the root; empty means any.
    pub cgroups: Vec<String>,
    /// Whether servers see the client's address and port in place of the far gateway's; default no.
    pub as_client: bool,
    /// Whether a client's connect waits for the server's; only with `tproxy`, default no.
    pub hold_syn: bool,
    /// Loader of the rules; default this gateway.
    pub rules: RulesBy,
}

impl Capture {
    /// Whether connections arriving on an interface are included.
    pub fn names_interface(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => interface.starts_with(start),
            None => interface == name,
        })
    }
}

/// Returns the IPv4 and IPv6 addresses of sockets for connections led to `listen` by rules.
pub fn both_families(listen: SocketAddr) -> [SocketAddr; 2] {
    let ips: [IpAddr; 2] = match listen.ip().is_unspecified() {
        true => [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        false => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
    };
    ips.map(|ip| SocketAddr::new(ip, listen.port()))
}

/// Origin of intercepted connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Other hosts' connections through this machine.
    #[default]
    Gateway,
    /// This machine's own.
    Host,
}

/// Loader of the rules that lead connections to this gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RulesBy {
    /// This gateway, when it starts; it removes them when it ends.
    #[default]
    Install,
    /// The operator, from the output of `oncewire rules`.
    Print,
    /// The operator, with rules of another kind.
    None,
}

impl RulesBy {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Print => "print",
            Self::None => "none",
        }
    }
}

/// A port, or all ports from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first, not 0.
    pub first: u16,
    /// The last, not below the first.
    pub last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!("{text:?} is no port and no range of ports; write 443 or \"8000-8100\"")),
        }
    }
}

/// Reads an interface name; its characters have no other meaning where rules are loaded.
///
/// # Errors
/// The permitted characters.
pub(super) fn interface(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let good =
        (1..=15).contains(&text.len()) && name.bytes().all(|byte| plain(byte) || b":@".contains(&byte));
    good.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is no name of an interface"))
}

/// Reads the name or number of a user or a group.
///
/// # Errors
/// The permitted characters.
pub(super) fn account(text: &str) -> Result<String, String> {
    let good = (1..=32).contains(&text.len()) && text.bytes().all(plain);
    good.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is no name and no number of an account"))
}

/// Reads the path of a control group, with or without the leading slash.
///
/// # Errors
/// The permitted characters.
pub(super) fn cgroup(text: &str) -> Result<String, String> {
    let path = text.trim_matches('/');
    let part = |part: &str| {
        let plain = part.bytes().all(|byte| plain(byte) || b":@".contains(&byte));
        !part.is_empty() && part != ".." && part != "." && plain
    };
    let good = path.len() <= 255 && path.split('/').all(part);
    let example = "write its path below /sys/fs/cgroup, such as \"system.slice/backup.service\"";
    good.then(|| path.to_owned()).ok_or_else(|| format!("{text:?} is no control group; {example}"))
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_single_or_ranges() {
        let read = |text: &str| text.parse::<PortRange>();
        assert_eq!(read("443"), Ok(PortRange { first: 443, last: 443 }));
        assert_eq!(read("8000-8100").unwrap().to_string(), "8000-8100");
        for bad in ["", "0", "70000", "9-8", "http", "1-2-3", "80 "] {
            assert!(read(bad).unwrap_err().contains("no range of ports"), "{bad}");
        }
    }

    #[test]
    fn names_cannot_inject_rules() {
        for evil in ["", "eth0\" accept", "a;b", "a b", "a\nb", "{x}", "sixteen-bytes-oh"] {
            assert!(interface(evil).is_err(), "{evil:?}");
        }
        assert_eq!(interface("br-lan*"), Ok("br-lan*".to_owned()));
        assert!(interface("e*h").is_err());
        assert!(account("www-data").is_ok() && account("1000").is_ok() && account("a,b").is_err());
        assert_eq!(cgroup("/system.slice/a@b.service/"), Ok("system.slice/a@b.service".to_owned()));
        for evil in ["", "/", "a//b", "a/../b", "a\"b"] {
            assert!(cgroup(evil).is_err(), "{evil:?}");
        }
    }
}
