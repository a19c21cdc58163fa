//! Connections to a server with a report of the client's address.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use oncewire_testnet::Host;
use socket2::{Domain, Socket, Type};

/// A connection to the server, and the client's address there.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    pub(super) seen_as: SocketAddr,
}

impl Connection {
    /// Connects from a host; none if it fails, or the server says nothing within `limit`.
    pub(super) fn open(host: &Host, server: SocketAddr, limit: Duration) -> Option<Self> {
        Self::greeted(host.enter(|| TcpStream::connect_timeout(&server, limit)).ok()?, limit)
    }

    /// Listens to the server's words to a connected client.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self::greeted(stream, super::LIMIT).unwrap()
    }

    /// As [`Self::new`], and none if the server says nothing within `limit`.
    pub(super) fn greeted(stream: TcpStream, limit: Duration) -> Option<Self> {
        stream.set_read_timeout(Some(limit)).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        Some(Self { seen_as: line.trim().parse().ok()?, stream })
    }

    /// Says something and waits for it to come back.
    pub(super) fn say(&mut self, text: &str) {
        self.stream.get_ref().set_read_timeout(Some(super::LIMIT)).unwrap();
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        let mut back = vec![0; text.len()];
        self.stream.read_exact(&mut back).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(back, text.as_bytes());
    }

    /// The client's own address.
    pub(super) fn local(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }
}

/// Serves every client of a host: its address as a line, and then an echo.
pub(super) fn serve(host: &Host, address: SocketAddr) {
    let listener = host.enter(|| listen(address).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
}

/// Listens with room for bursts: surplus connections may stay open for the client alone.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// Whether rules can be loaded at all; says so if not.
pub(super) fn has_nft() -> bool {
    let there = Command::new("nft").arg("-V").output().is_ok();
    if !there {
        let lacking = "nft is missing; scripts/test installs it";
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{lacking}");
        println!("skipped: {lacking}");
    }
    there
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
