//! Link-local IPv6 addresses with their interface: `fe80::1%eth0` [RFC 4007 §11].

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// An address with its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scoped {
    ip: Ipv6Addr,
    /// A name, or a number.
    interface: String,
}

impl Scoped {
    /// Reads `fe80::1%eth0`; none if the form differs.
    pub fn read(text: &str) -> Option<Self> {
        let (ip, interface) = text.split_once('%')?;
        let ip: Ipv6Addr = ip.parse().ok()?;
        let is_name = (1..=LONGEST_NAME).contains(&interface.len())
            && interface.bytes().all(|byte| byte.is_ascii_graphic() && !b"/%[]".contains(&byte));
        // Number 0 is no interface.
        let is_name = is_name && interface.parse() != Ok(0);
        is_name.then(|| Self { ip, interface: interface.to_owned() })
    }

    /// Whether the address needs an interface.
    pub fn is_link_local(&self) -> bool {
        self.ip.is_unicast_link_local()
    }

    /// Returns the address and the name or number of the interface.
    pub fn parts(&self) -> (Ipv6Addr, &str) {
        (self.ip, &self.interface)
    }

    /// Asks the kernel for the interface's number, valid for the interface's lifetime.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn address(&self, port: u16) -> io::Result<SocketAddr> {
        let number = match self.interface.parse() {
            Ok(number) => number,
            Err(_) => {
                let asked = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
                netdevice::name_to_index(&asked, &self.interface)?
            }
        };
        Ok(SocketAddrV6::new(self.ip, port, 0, number).into())
    }
}

/// Reads `[fe80::1%eth0]:7400`; none if the form differs.
pub fn read_with_port(text: &str) -> Option<(Scoped, u16)> {
    let (host, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    Some((Scoped::read(host)?, port.parse().ok()?))
}

/// Whether a link-local address lacks its interface.
pub fn lacks_interface(address: SocketAddr) -> bool {
    match (address.ip().to_canonical(), address) {
        (IpAddr::V6(ip), SocketAddr::V6(address)) => ip.is_unicast_link_local() && address.scope_id() == 0,
        _ => false,
    }
}

/// The kernel's limit for interface names.
const LONGEST_NAME: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scoped_addresses_are_read_by_name_and_number() {
        let (scoped, port) = read_with_port("[fe80::1%lo]:7400").unwrap();
        assert_eq!((scoped.parts(), port), (("fe80::1".parse().unwrap(), "lo"), 7400));
        assert!(scoped.is_link_local());
        assert_eq!(scoped.address(7400).unwrap().to_string(), "[fe80::1%1]:7400");
        assert_eq!(Scoped::read("fe80::1%7").unwrap().address(80).unwrap().to_string(), "[fe80::1%7]:80");
        assert!(!Scoped::read("2001:db8::1%lo").unwrap().is_link_local());
        assert!(Scoped::read("fe80::1%nothing").unwrap().address(80).is_err());
        for bad in [
            "fe80::1",
            "fe80::1%",
            "fe80::1%a/b",
            "fe80::1%a name",
            "10.0.0.1%lo",
            "fe80::1%0",
            "fe80::1%sixteen-letters0",
        ] {
            assert_eq!(Scoped::read(bad), None, "{bad}");
        }
        for bad in ["fe80::1%lo:80", "[fe80::1%lo]", "[fe80::1%lo]:", "[fe80::1%lo]:65536"] {
            assert_eq!(read_with_port(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_link_local_addresses_lack_an_interface() {
        for (text, lacks) in [
            ("[fe80::1]:80", true),
            ("[febf::1]:80", true),
            ("[fe80::1%3]:80", false),
            ("[2001:db8::1]:80", false),
            ("169.254.0.1:80", false),
        ] {
            assert_eq!(lacks_interface(text.parse().unwrap()), lacks, "{text}");
        }
    }
}
