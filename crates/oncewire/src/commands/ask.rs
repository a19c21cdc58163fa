//! Asking a running gateway by way of its admin interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use oncewire_config::{Admin, Config, read_token};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Body;
use ureq::http::Response;

use crate::cli::Ask;
use crate::failure::Usage;
use crate::table::printable;

/// A gateway's answer.
pub(super) struct Answer<T> {
    /// The JSON as it came.
    pub(super) text: String,
    /// Its report.
    pub(super) report: T,
}

/// The admin interface, and its token.
pub(super) struct Place {
    address: String,
    token: Option<String>,
    /// How long its answer may take.
    patience: Duration,
}

/// The HTTP method.
#[derive(Clone, Copy)]
pub(super) enum Verb {
    Get,
    Post,
}

/// Nobody listens there, or the connection ends without an answer.
#[derive(Debug)]
pub(super) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address) = self;
        write!(
            f,
            "no gateway answers at {address}; is it running, and is this the `admin` of its [gateway] section?"
        )
    }
}

/// Somebody is there, does not answer in time, and may still execute the request.
#[derive(Debug)]
pub(super) struct Silent {
    address: String,
    patience: Duration,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, patience } = self;
        write!(f, "the gateway at {address} does not answer within {patience:?}")
    }
}

/// Asks for one of the admin interface's paths.
pub(super) fn ask<T: DeserializeOwned>(args: &Ask, path: &str) -> anyhow::Result<Answer<T>> {
    place(args)?.request(Verb::Get, path)
}

impl Place {
    /// The interface in a configuration.
    pub(super) fn of(admin: Admin) -> Self {
        Self::at(reachable(admin.listen).to_string(), admin.token)
    }

    fn at(address: String, token: Option<String>) -> Self {
        Self { address, token, patience: PATIENCE }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// [`Unreachable`] if nobody is there, [`Silent`] if the answer takes too long; else the fault of the answer.
    pub(super) fn request<T: DeserializeOwned>(&self, verb: Verb, path: &str) -> anyhow::Result<Answer<T>> {
        let address = &self.address;
        let mut response = self.call(verb, path).map_err(|error| self.no_answer(error))?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        let text = text.map_err(|error| self.no_answer(error))?;
        if status == 401 {
            bail!("{address} asks for a token; give -c FILE, or --token-file FILE");
        }
        if !status.is_success() {
            bail!("{address} answered {status}: {}", why(&text));
        }
        match serde_json::from_str(&text) {
            Ok(report) => Ok(Answer { text, report }),
            // A parser's words about somebody else's answer help nobody.
            Err(_) => bail!(
                "{address} answers, but is no oncewire admin interface, or one of another version; \
                 compare with `admin` in its configuration, and `oncewire --version` at both"
            ),
        }
    }

    fn no_answer(&self, error: ureq::Error) -> anyhow::Error {
        let (address, patience) = (self.address.clone(), self.patience);
        match error {
            ureq::Error::Timeout(_) => anyhow::Error::new(error).context(Silent { address, patience }),
            // The library's word for it says nothing to a user.
            ureq::Error::Io(error) => anyhow::Error::new(error).context(Unreachable(address)),
            _ => anyhow::Error::new(error).context(Unreachable(address)),
        }
    }

    fn call(&self, verb: Verb, path: &str) -> Result<Response<Body>, ureq::Error> {
        let agent = ureq::Agent::new_with_config(
            ureq::Agent::config_builder()
                .timeout_global(Some(self.patience))
                .http_status_as_error(false)
                .proxy(None)
                .build(),
        );
        let url = format!("http://{}{path}", self.address);
        let bearer = self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}")));
        match verb {
            Verb::Get => {
                let request = agent.get(url);
                bearer.into_iter().fold(request, |request, (name, value)| request.header(name, value)).call()
            }
            Verb::Post => {
                let request = agent.post(url);
                let request =
                    bearer.into_iter().fold(request, |request, (name, value)| request.header(name, value));
                request.send_empty()
            }
        }
    }
}

/// Returns the address and the token.
pub(super) fn place(args: &Ask) -> anyhow::Result<Place> {
    let Some(path) = &args.config else {
        if is_link_local(&args.admin) {
            let message = format!(
                "--admin: {:?} is link-local, and a gateway is not asked at such an address; \
                 write 127.0.0.1:PORT on its own machine, else another address of it",
                args.admin
            );
            return Err(Usage(message).into());
        }
        if !is_address(&args.admin) {
            let message =
                format!("--admin: {:?} is no ADDRESS:PORT; write for example 127.0.0.1:7411", args.admin);
            return Err(Usage(message).into());
        }
        let token = args.token_file.as_deref().map(read_token).transpose().map_err(Usage)?;
        return Ok(Place::at(args.admin.clone(), token));
    };
    match Config::load_admin(path)? {
        Some(admin) => Ok(Place::of(admin)),
        None => Err(Usage(format!(
            "{}: no `admin` in [gateway], so there is nobody to ask; set it",
            path.display()
        ))
        .into()),
    }
}

/// Says whether a text is an address or a name with a port; the port must be there, since the web's default is never
/// meant.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_one = host.starts_with('[') && host.ends_with(']') || !host.contains([':', '/']);
    is_one && !host.is_empty() && !host.contains('%') && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// Says whether a text is a link-local address of IPv6, with its interface or without: no `admin` may be one, since HTTP
/// has no place for the interface.
fn is_link_local(text: &str) -> bool {
    let bare = text.trim_start_matches('[');
    let end = bare.find(['%', ']']).unwrap_or(bare.len());
    bare[..end].parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_unicast_link_local())
}

/// Returns the reason in a refusal: a gateway's, or anything sent by another server.
fn why(answer: &str) -> String {
    let reason = serde_json::from_str::<Refused>(answer);
    printable(reason.as_ref().map_or(answer.trim(), |refused| &refused.error))
}

/// How a gateway refuses.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// Returns the address for connecting to a listener: any address means this machine's.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Connecting and answering take milliseconds, unless the machine is in trouble.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ten thousand flows with names of 255 bytes take some five million.
const MAX_ANSWER: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use serde_json::Value;

    use super::*;

    #[test]
    fn admin_address_needs_a_port() {
        for good in ["127.0.0.1:7411", "[::1]:7411", "hub:7411", "hub.example.net:1"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1",
            "hub",
            ":7411",
            "hub:",
            "hub:http",
            "hub:0",
            "::1",
            "http://hub:7411",
            "hub:7411/",
            "[::1%lo]:7411",
            "hub%lo:7411",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn link_local_addresses_are_told_from_others() {
        for one in
            ["[fe80::1%eth0]:7411", "[fe80::1%3]:7411", "[fe80::1]:7411", "fe80::1%eth0", "[fe80::1%25x]:1"]
        {
            assert!(is_link_local(one), "{one}");
            let ask = Ask { config: None, admin: one.to_owned(), token_file: None, json: false };
            let refused = place(&ask).err().unwrap();
            assert!(refused.is::<Usage>() && refused.to_string().contains("is link-local"), "{refused}");
        }
        for other in [
            "[::1]:7411",
            "[::1%lo]:7411",
            "127.0.0.1:7411",
            "fe80:7411",
            "[2001:db8::1]:7411",
            "",
            "[",
            "é%",
        ] {
            assert!(!is_link_local(other), "{other}");
        }
    }

    #[test]
    fn silent_gateway_is_told_from_an_absent_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ask = |patience| {
            let place = Place { patience, ..Place::at(address.clone(), None) };
            place.request::<Value>(Verb::Post, "/cache/clear").map(drop).unwrap_err()
        };
        let silent = ask(Duration::from_millis(50));
        assert!(silent.is::<Silent>() && !silent.is::<Unreachable>(), "{silent:#}");
        assert!(silent.to_string().ends_with("does not answer within 50ms"), "{silent}");
        drop(listener);
        let absent = ask(PATIENCE);
        assert!(absent.is::<Unreachable>(), "{absent:#}");
    }

    #[test]
    fn foreign_answers_are_refused_in_plain_words() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::at(listener.local_addr().unwrap().to_string(), None);
        let answers = std::thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let _ = client.read(&mut [0; 4096]).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>").unwrap();
        });
        let error = place.request::<Value>(Verb::Get, "/status").map(drop).unwrap_err();
        answers.join().unwrap();
        let said = format!("{error:#}");
        assert!(said.contains("no oncewire admin interface") && !said.contains("expected value"), "{said}");
    }

    #[test]
    fn reason_of_a_refusal_is_printable() {
        assert_eq!(
            why("{\"error\":\"there is no peer \\\"a\\u001b\\\"\"}"),
            "there is no peer \"a\u{fffd}\""
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::at(listener.local_addr().unwrap().to_string(), None);
        let answers = std::thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let _ = client.read(&mut [0; 4096]).unwrap();
            client.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\n\x1b[31mx").unwrap();
        });
        let error = place.request::<Value>(Verb::Get, "/status").map(drop).unwrap_err();
        answers.join().unwrap();
        assert!(error.to_string().ends_with(": \u{fffd}[31mx"), "{error}");
    }
}
