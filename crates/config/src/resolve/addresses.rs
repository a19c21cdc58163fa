//! Addresses to listen on, and destinations.

use std::net::{IpAddr, SocketAddr};

use oncewire_codec::wire::{Destination, Host};
use oncewire_host::scope::{self, Scoped};

/// Reads an address to listen on: `IP:PORT`, with an IPv6 address in brackets, and a link-local one with its interface.
pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    if let Some((scoped, port)) = scope::read_with_port(text) {
        check_scope(text, &scoped, port)?;
        let (ip, interface) = scoped.parts();
        return scoped.address(port).map_err(|error| {
            format!("there is no interface {interface:?} on which {ip} could be ({error}); `ip link` lists those that are there")
        });
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if scope::lacks_interface(address) => Err(without_interface(text, address)),
        Ok(address) => Ok(address),
        Err(_) => Err(match text.parse::<u16>() {
            Ok(port) => format!("{text:?} lacks an address; write for example \"127.0.0.1:{port}\""),
            Err(_) if text.starts_with("localhost:") => {
                format!("{text:?} is a name; write \"{}\"", text.replacen("localhost", "127.0.0.1", 1))
            }
            Err(_) if text.parse::<IpAddr>().is_ok() => format!("{text:?} lacks a port"),
            Err(_) => {
                format!("{text:?} is no address to listen on; write IP:PORT such as \"127.0.0.1:7411\"")
            }
        }),
    }
}

/// Reads `HOST:PORT`, with an IPv6 address in brackets.
pub(super) fn destination(text: &str) -> Result<Destination, String> {
    if let Some((scoped, port)) = scope::read_with_port(text) {
        return of_interface(text, &scoped, port);
    }
    let example = "write HOST:PORT such as \"hub.example.net:7400\" or \"[2001:db8::1]:7400\"";
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 {
            Err(format!("{text:?} has port 0; {example}"))
        } else if scope::lacks_interface(address) {
            Err(without_interface(text, address))
        } else {
            Ok(address.into())
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(format!("{text:?} lacks a port; {example}"));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} lacks a port; {example}"))?;
    let port = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("{text:?} has no valid port; {example}"))?;
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    // A last label of digits is a mistyped IPv4 address (RFC 3696 §2: no top-level domain is all digits).
    let numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if host.len() > 253 || numeric || !name.split('.').all(label) {
        return Err(format!("{host:?} is neither an address nor a host name; {example}"));
    }
    Ok(Destination { host: Host::Name(host.to_owned()), port })
}

/// Makes a destination of a link-local address: a name, since an interface's number is valid only while it
/// exists, and is known only at the connect.
fn of_interface(text: &str, scoped: &Scoped, port: u16) -> Result<Destination, String> {
    check_scope(text, scoped, port)?;
    if port == 0 {
        return Err(format!("{text:?} has port 0"));
    }
    let (ip, interface) = scoped.parts();
    Ok(Destination { host: Host::Name(format!("{ip}%{interface}")), port })
}

/// Refuses an interface for an address without a scope.
fn check_scope(text: &str, scoped: &Scoped, port: u16) -> Result<(), String> {
    let (ip, interface) = scoped.parts();
    match scoped.is_link_local() {
        true => Ok(()),
        false => Err(format!(
            "{text:?} names the interface {interface}, which only link-local addresses have (fe80::/10); write \"[{ip}]:{port}\""
        )),
    }
}

fn without_interface(text: &str, address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "{text:?} is a link-local address, which holds on one interface only; write it with its name, such as \
         \"[{ip}%eth0]:{port}\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_addresses_or_names_with_a_port() {
        let scoped = ["[fe80::1%eth0]:7400", "[fe80::1%3]:7400"];
        let plain = ["10.0.0.5:80", "[::1]:80", "hub.example.net:7400", "hub:7400", "a_b.example.net.:1"];
        for good in plain.into_iter().chain(scoped) {
            assert_eq!(destination(good).unwrap().to_string(), good);
        }
        for (bad, why) in [
            ("", "lacks a port"),
            ("hub", "lacks a port"),
            ("::1", "lacks a port"),
            ("10.0.0.5", "lacks a port"),
            ("hub:0", "no valid port"),
            ("10.0.0.5:0", "port 0"),
            ("hub:65536", "no valid port"),
            ("hub:http", "no valid port"),
            (":80", "neither an address nor a host name"),
            ("300.1.1.1:80", "neither an address nor a host name"),
            ("http://hub:80", "neither an address nor a host name"),
            ("::1:80", "lacks a port"),
            ("a b:80", "neither an address nor a host name"),
            ("[fe80::1]:80", "write it with its name, such as \"[fe80::1%eth0]:80\""),
            ("[fe80::1%0]:80", "write it with its name"),
            ("[fe80::1%eth0]:0", "port 0"),
            ("[2001:db8::1%eth0]:80", "write \"[2001:db8::1]:80\""),
            ("fe80::1%eth0:80", "neither an address nor a host name"),
        ] {
            let error = destination(bad).unwrap_err();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
    }

    #[test]
    fn link_local_listen_addresses_need_a_local_interface() {
        assert_eq!(socket("[fe80::1%lo]:80").unwrap().to_string(), "[fe80::1%1]:80");
        assert_eq!(socket("169.254.1.1:80").unwrap().to_string(), "169.254.1.1:80");
        for (bad, why) in [
            ("[fe80::1]:80", "write it with its name, such as \"[fe80::1%eth0]:80\""),
            ("[fe80::1%nothing]:80", "there is no interface \"nothing\""),
            ("[::1%lo]:80", "write \"[::1]:80\""),
        ] {
            let error = socket(bad).unwrap_err();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
    }
}
