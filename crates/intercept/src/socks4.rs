//! CONNECT of SOCKS 4, and of 4a with names.
//!
//! Names are resolved here or beyond.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use oncewire_codec::wire::{Destination, Host};

use super::socks5::{Turned, host_of};

/// Reads a request behind its version.
pub(super) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Destination, Turned> {
    let command = stream.read_u8().await?;
    let port = stream.read_u16().await?;
    let ip = Ipv4Addr::from_bits(stream.read_u32().await?);
    // The user's name, as claimed by the client.
    read_text(stream).await?;
    // 0.0.0.x announces a name.
    let host = match ip.octets() {
        [0, 0, 0, last] if last > 0 => {
            let name = read_text(stream).await?;
            host_of(&name).map_err(|_| Turned::Socks4("sent a host name that cannot be one, by SOCKS 4a"))?
        }
        _ => Host::Ip(ip.into()),
    };
    // The whole request is read first: a reset for unread bytes must not overtake the reply.
    match command {
        CONNECT => Ok(Destination { host, port }),
        _ => Err(Turned::Socks4("asked for another command of SOCKS 4 than CONNECT (1)")),
    }
}

/// Writes a reply; it has no place for an address of IPv6.
pub(super) fn reply(granted: bool, bound: Option<SocketAddr>) -> Vec<u8> {
    let (ip, port) = match bound.map(|bound| (bound.ip().to_canonical(), bound.port())) {
        Some((IpAddr::V4(ip), port)) => (ip, port),
        Some((_, port)) => (Ipv4Addr::UNSPECIFIED, port),
        None => (Ipv4Addr::UNSPECIFIED, 0),
    };
    let mut out = vec![0, if granted { GRANTED } else { REJECTED }];
    out.extend_from_slice(&port.to_be_bytes());
    out.extend_from_slice(&ip.octets());
    out
}

/// Reads a zero-terminated text.
async fn read_text<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, Turned> {
    let mut text = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return Ok(text),
            _ if text.len() == MOST_TEXT => {
                return Err(Turned::Socks4("sent a text without an end, by SOCKS 4"));
            }
            byte => text.push(byte),
        }
    }
}

pub(super) const VERSION: u8 = 4;
const CONNECT: u8 = 1;
const GRANTED: u8 = 90;
const REJECTED: u8 = 91;

/// As long as names are.
const MOST_TEXT: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(bytes: &[u8]) -> Result<Destination, Turned> {
        read_request(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn addresses_and_names_are_read_and_nothing_behind_them() {
        let mut bytes: &[u8] = b"\x01\x00\x50\xc0\x00\x02\x07root\0GET";
        assert_eq!(read_request(&mut bytes).await.unwrap().to_string(), "192.0.2.7:80");
        assert_eq!(bytes, b"GET");
        let named = request(b"\x01\x01\xbb\x00\x00\x00\x01\0example.net\0").await.unwrap();
        assert_eq!((named.host, named.port), (Host::Name("example.net".to_owned()), 443));
    }

    #[tokio::test]
    async fn bad_request_is_refused_by_its_own_reply() {
        let endless = [&b"\x01\x00\x50\xc0\x00\x02\x07"[..], &[b'x'; MOST_TEXT + 1]].concat();
        let bind: &[u8] = b"\x02\x00\x50\xc0\x00\x02\x07\0";
        let nameless: &[u8] = b"\x01\x00\x50\x00\x00\x00\x01\0\0";
        for bad in [bind, nameless, &endless] {
            assert!(matches!(request(bad).await, Err(Turned::Socks4(_))), "{bad:?}");
        }
        assert!(matches!(request(b"\x01\x00").await, Err(Turned::Io(_))));
        assert_eq!(reply(false, None), [0, 91, 0, 0, 0, 0, 0, 0]);
        let bound = |text: &str| reply(true, Some(text.parse().unwrap()));
        assert_eq!(bound("192.0.2.1:258"), [0, 90, 1, 2, 192, 0, 2, 1]);
        assert_eq!(bound("[2001:db8::1]:258"), [0, 90, 1, 2, 0, 0, 0, 0]);
    }
}
