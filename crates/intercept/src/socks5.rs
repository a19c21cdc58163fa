//! `socks5`: CONNECT of SOCKS 5, 4 and 4a.
//!
//! RFC 1928, with no authentication or the names and passwords of RFC 1929. Names are resolved at the far
//! end. The reply comes after the far connect, with its outcome. Bytes are read exactly as far as the
//! protocol needs: no application bytes are ever held here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use oncewire_codec::wire::{Destination, Host, OpenFailure};
use oncewire_config::Users;
use oncewire_host::sockets;
use oncewire_report::Refusal;
use oncewire_tunnel::flows::{ends, pump};

use super::router::{NoWay, Way};
use super::{Door, HANDSHAKE_LIMIT, direct, socks4};

/// Serves one client.
pub(super) async fn serve(door: &Door, mut stream: TcpStream, source: SocketAddr) {
    let asked = tokio::time::timeout(HANDSHAKE_LIMIT, negotiate(&mut stream, &door.intercept.users)).await;
    let (version, destination) = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(refusal)) => return refuse(door, stream, source, refusal).await,
        Err(_) => return refuse(door, stream, source, Turned::TooSlow).await,
    };
    let connected = tokio::select! {
        connected = door.router.connect(&door.intercept, &destination, source) => connected,
        // A client gone during the wait wants nothing.
        () = gone(&stream) => return,
        never = ends::keep_half_open(&stream) => match never {},
    };
    match connected {
        Ok((way, local)) => {
            if stream.write_all(&version.reply(Reply::Succeeded, local)).await.is_err() {
                return;
            }
            match way {
                Way::Link(flow) => pump::carry(stream, flow, Bytes::new()).await,
                Way::Direct(server, counted) => direct::carry(stream, server, Bytes::new(), &counted).await,
            };
        }
        Err(why) => {
            end(stream, &version.reply(Reply::from(why), None)).await;
            door.no_way(source, &destination, why);
        }
    }
}

/// Waits until a client awaiting its reply is gone: by a reset, or by the end of its stream without more
/// bytes.
async fn gone(stream: &TcpStream) {
    // Bytes before the reply are for the server, and stay unread.
    if let Ok(1..) = stream.peek(&mut [0]).await {
        ends::socket_error(stream).await;
    }
}

/// A client's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Socks4,
    Socks5,
}

impl Version {
    /// Writes a reply in the client's format.
    fn reply(self, outcome: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Socks5 => reply(outcome, bound),
            Self::Socks4 => socks4::reply(outcome == Reply::Succeeded, bound),
        }
    }
}

/// The reply field of RFC 1928 §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    TimeToLiveExpired = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl From<NoWay> for Reply {
    fn from(why: NoWay) -> Self {
        match why {
            NoWay::NoPeer | NoWay::PeerGone => Self::NetworkUnreachable,
            NoWay::Failed(OpenFailure::Unreachable | OpenFailure::NameNotFound) => Self::HostUnreachable,
            NoWay::Failed(OpenFailure::Refused) => Self::Refused,
            // RFC 1928's closest match for a connect without an answer.
            NoWay::Failed(OpenFailure::TimedOut) => Self::TimeToLiveExpired,
            NoWay::Failed(OpenFailure::NotAllowed) => Self::NotAllowed,
            NoWay::Failed(OpenFailure::Other | OpenFailure::Draining) | NoWay::Full | NoWay::Stopping => {
                Self::GeneralFailure
            }
        }
    }
}

/// Why a client was not served.
#[derive(Debug)]
pub(super) enum Turned {
    Io(io::Error),
    TooSlow,
    /// Not SOCKS 5; the first byte gives a guess.
    NotSocks5(u8),
    /// It does not offer our one accepted method of authentication.
    NoMethod(u8),
    WrongPassword,
    /// An unsupported request of SOCKS 4, with the reason.
    Socks4(&'static str),
    Command(u8),
    AddressType(u8),
    Malformed(&'static str),
}

impl From<io::Error> for Turned {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn negotiate(stream: &mut TcpStream, users: &Users) -> Result<(Version, Destination), Turned> {
    let version = stream.read_u8().await?;
    if version == socks4::VERSION {
        let asked = socks4::read_request(stream).await?;
        return match users.is_empty() {
            true => Ok((Version::Socks4, asked)),
            false => Err(Turned::Socks4("speaks SOCKS 4, which has no passwords; use version 5")),
        };
    }
    if version != VERSION {
        return Err(Turned::NotSocks5(version));
    }
    let methods = read_counted(stream).await?;
    let method = if users.is_empty() { NO_AUTHENTICATION } else { USERNAME_PASSWORD };
    if !methods.contains(&method) {
        return Err(Turned::NoMethod(method));
    }
    stream.write_all(&[VERSION, method]).await?;
    if method == USERNAME_PASSWORD {
        authenticate(stream, users).await?;
    }
    Ok((Version::Socks5, read_request(stream).await?))
}

/// RFC 1929 §2.
async fn authenticate(stream: &mut TcpStream, users: &Users) -> Result<(), Turned> {
    if stream.read_u8().await? != AUTHENTICATION_VERSION {
        return Err(Turned::Malformed("another version of RFC 1929"));
    }
    let name = read_counted(stream).await?;
    let password = read_counted(stream).await?;
    if !users.verify(&name, &password) {
        return Err(Turned::WrongPassword);
    }
    stream.write_all(&[AUTHENTICATION_VERSION, 0]).await?;
    Ok(())
}

/// RFC 1928 §4.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Destination, Turned> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, _reserved, kind] = head;
    if version != VERSION {
        return Err(Turned::Malformed("a request of another version"));
    }
    let host = match kind {
        1 => Host::Ip(Ipv4Addr::from_bits(stream.read_u32().await?).into()),
        3 => host_of(&read_counted(stream).await?)?,
        4 => Host::Ip(Ipv6Addr::from_bits(stream.read_u128().await?).into()),
        _ => return Err(Turned::AddressType(kind)),
    };
    let port = stream.read_u16().await?;
    // The whole request is read first: a reset for unread bytes must not overtake the reply.
    if command == CONNECT { Ok(Destination { host, port }) } else { Err(Turned::Command(command)) }
}

/// Clients send addresses as names too.
pub(super) fn host_of(name: &[u8]) -> Result<Host, Turned> {
    let name = str::from_utf8(name).map_err(|_| Turned::Malformed("a host name that is not text"))?;
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip = inner.parse::<Ipv6Addr>();
        return ip
            .map(|ip| Host::Ip(ip.into()))
            .map_err(|_| Turned::Malformed("brackets without an IPv6 address"));
    }
    match name.parse() {
        Ok(ip) => Ok(Host::Ip(ip)),
        Err(_) if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(Turned::Malformed("a host name that cannot be one"))
        }
        Err(_) => Ok(Host::Name(name.to_owned())),
    }
}

/// Reads a field bounded by its leading length of one byte.
async fn read_counted<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Vec<u8>> {
    let mut field = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut field).await?;
    Ok(field)
}

async fn refuse(door: &Door, stream: TcpStream, source: SocketAddr, refusal: Turned) {
    let garbage = Refusal::BadRequest;
    let (why, line, answer) = match refusal {
        Turned::Io(error) => (garbage, format!("left before it asked for anything: {error}"), vec![]),
        Turned::TooSlow => (garbage, "did not say in time what it wants".to_owned(), vec![]),
        Turned::NotSocks5(first) => (garbage, guess(first), vec![]),
        Turned::Socks4(what) => {
            let why = if door.intercept.users.is_empty() { garbage } else { Refusal::BadCredentials };
            (why, what.to_owned(), socks4::reply(false, None))
        }
        Turned::NoMethod(USERNAME_PASSWORD) => {
            let line = "offers no authentication that is accepted here; it needs a name and a password";
            (Refusal::BadCredentials, line.to_owned(), vec![VERSION, NO_ACCEPTABLE_METHOD])
        }
        Turned::NoMethod(_) => {
            let line =
                "wants to authenticate, and there are no `users` here; it has to offer to do without, too";
            (garbage, line.to_owned(), vec![VERSION, NO_ACCEPTABLE_METHOD])
        }
        Turned::WrongPassword => {
            (Refusal::BadCredentials, "wrong name or password".to_owned(), vec![AUTHENTICATION_VERSION, 1])
        }
        Turned::Command(command) => (
            garbage,
            format!("asked for command {command}; only CONNECT (1) is offered"),
            reply(Reply::CommandNotSupported, None),
        ),
        Turned::AddressType(kind) => (
            garbage,
            format!("named its destination in unknown form {kind}"),
            reply(Reply::AddressTypeNotSupported, None),
        ),
        Turned::Malformed(what) => (garbage, format!("sent {what}"), reply(Reply::GeneralFailure, None)),
    };
    if !answer.is_empty() {
        end(stream, &answer).await;
    }
    door.turn_away(source, why, &line);
}

/// Guesses the protocol of a client without SOCKS 5.
fn guess(first: u8) -> String {
    let what = match first {
        0x16 => "TLS; this is a SOCKS 5 proxy",
        b'A'..=b'Z' => "HTTP; this is a SOCKS 5 proxy",
        _ => "something that is not SOCKS 5",
    };
    format!("speaks {what}")
}

/// Writes a last answer, not to be overtaken by a reset.
async fn end(mut stream: TcpStream, answer: &[u8]) {
    sockets::end_cleanly(&stream);
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

fn reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
    let mut out = vec![VERSION, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&bound.port().to_be_bytes());
    out
}

const VERSION: u8 = 5;
const AUTHENTICATION_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USERNAME_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(bytes: &[u8]) -> Result<Destination, Turned> {
        read_request(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn every_form_of_destination_is_read() {
        let v4 = request(&[5, 1, 0, 1, 192, 0, 2, 7, 0, 80]).await.unwrap();
        assert_eq!(v4.to_string(), "192.0.2.7:80");
        let mut bytes = vec![5, 1, 0, 4];
        bytes.extend("2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend([1, 187]);
        assert_eq!(request(&bytes).await.unwrap().to_string(), "[2001:db8::7]:443");
        let name = request(b"\x05\x01\x00\x03\x0bexample.net\x00\x16").await.unwrap();
        assert_eq!(name.host, Host::Name("example.net".to_owned()));
        let bracketed = request(b"\x05\x01\x00\x03\x0d[2001:db8::7]\x00\x16").await.unwrap();
        assert_eq!(bracketed.to_string(), "[2001:db8::7]:22");
        let literal = request(b"\x05\x01\x00\x03\x09127.0.0.1\x00\x16").await.unwrap();
        assert_eq!(literal.host, Host::Ip(Ipv4Addr::LOCALHOST.into()));
    }

    #[tokio::test]
    async fn unsupported_and_malformed_requests_are_named() {
        assert!(matches!(request(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]).await, Err(Turned::Command(2))));
        assert!(matches!(request(&[5, 3, 0, 1, 1, 2, 3, 4, 0, 80]).await, Err(Turned::Command(3))));
        assert!(matches!(request(&[5, 1, 0, 9, 1, 2]).await, Err(Turned::AddressType(9))));
        assert!(matches!(request(&[4, 1, 0, 1]).await, Err(Turned::Malformed(_))));
        assert!(matches!(request(b"\x05\x01\x00\x03\x00\x00\x16").await, Err(Turned::Malformed(_))));
        assert!(matches!(request(b"\x05\x01\x00\x03\x03a b\x00\x16").await, Err(Turned::Malformed(_))));
        assert!(matches!(request(b"\x05\x01\x00\x03\x06[name]\x00\x16").await, Err(Turned::Malformed(_))));
        assert!(matches!(request(&[5, 1]).await, Err(Turned::Io(_))));
    }

    #[test]
    fn replies_carry_the_bound_address() {
        assert_eq!(reply(Reply::Succeeded, None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let bound = "[2001:db8::1]:258".parse().unwrap();
        let bytes = reply(Reply::Succeeded, Some(bound));
        assert_eq!((bytes[3], bytes.len(), &bytes[20..]), (4, 22, &[1, 2][..]));
    }
}
