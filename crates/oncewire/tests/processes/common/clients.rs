//! Clients of the proxy modes, and misbehaving sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Asks a SOCKS5 proxy without authentication for `host`; `Err` is the reply code.
pub(crate) fn socks_connect(proxy: SocketAddr, host: &str, port: u16) -> Result<TcpStream, u8> {
    socks_connect_as(proxy, None, host, port)
}

/// Asks a SOCKS5 proxy for `host`, with user and password if it is given (RFC 1928, RFC 1929).
pub(crate) fn socks_connect_as(
    proxy: SocketAddr,
    user: Option<(&str, &str)>,
    host: &str,
    port: u16,
) -> Result<TcpStream, u8> {
    socks_ask(TcpStream::connect(proxy).unwrap(), user, host, port).unwrap()
}

/// Asks the SOCKS5 proxy at the other end of `stream` for `host`; the outer error is a broken connection.
pub(crate) fn socks_ask(
    mut stream: TcpStream,
    user: Option<(&str, &str)>,
    host: &str,
    port: u16,
) -> std::io::Result<Result<TcpStream, u8>> {
    let method = if user.is_some() { 2 } else { 0 };
    stream.write_all(&[5, 1, method])?;
    if try_read::<2>(&mut stream)? != [5, method] {
        return Ok(Err(NO_METHOD));
    }
    if let Some((name, password)) = user {
        let mut message = vec![1];
        push_short(&mut message, name.as_bytes());
        push_short(&mut message, password.as_bytes());
        stream.write_all(&message)?;
        if try_read::<2>(&mut stream)? != [1, 0] {
            return Ok(Err(NO_METHOD));
        }
    }
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(std::net::IpAddr::V4(ip)) => {
            request.push(1);
            request.extend_from_slice(&ip.octets());
        }
        Ok(std::net::IpAddr::V6(ip)) => {
            request.push(4);
            request.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            request.push(3);
            push_short(&mut request, host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request)?;
    let [version, reply, _, kind] = try_read::<4>(&mut stream)?;
    assert_eq!(version, 5);
    if reply != 0 {
        return Ok(Err(reply));
    }
    match kind {
        1 => drop(try_read::<6>(&mut stream)?),
        4 => drop(try_read::<18>(&mut stream)?),
        other => panic!("reply with address type {other}"),
    }
    Ok(Ok(stream))
}

/// Sends CONNECT to an HTTP proxy and returns the status code and the stream behind the header.
pub(crate) fn http_connect(proxy: SocketAddr, authority: &str) -> (u16, TcpStream) {
    http_ask(TcpStream::connect(proxy).unwrap(), authority).unwrap()
}

/// The same with the HTTP proxy at the other end of `stream`; the error is a broken connection.
pub(crate) fn http_ask(mut stream: TcpStream, authority: &str) -> std::io::Result<(u16, TcpStream)> {
    write!(stream, "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(&try_read::<1>(&mut stream)?);
    }
    let status = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().parse().unwrap();
    Ok((status, stream))
}

/// Closes `stream` with a reset instead of an end.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether the next read reports a reset by the other end; waits for it at most `limit`.
pub(crate) fn is_reset(stream: &mut TcpStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Reads exactly `N` bytes.
pub(crate) fn read<const N: usize>(stream: &mut impl Read) -> [u8; N] {
    try_read(stream).unwrap()
}

fn try_read<const N: usize>(stream: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn push_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(u8::try_from(bytes.len()).unwrap());
    out.extend_from_slice(bytes);
}

/// "No acceptable methods" of RFC 1928.
pub(crate) const NO_METHOD: u8 = 0xff;
