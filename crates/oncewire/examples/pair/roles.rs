//! The other processes of a measurement: an origin and the hops of a plain relay.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::origin::Origin;

/// The first byte of a connection to the origin.
pub(crate) const SEND: u8 = b's';
/// The first byte of a connection to the origin's echo.
pub(crate) const ECHO: u8 = b'e';

/// Serves the content of `files` until standard input ends.
pub(crate) fn origin(files: &[PathBuf]) {
    let content = read_all(files);
    let origin = Origin::start(move |mut stream| {
        let mut wanted = [0; 1];
        let _ = stream.read_exact(&mut wanted);
        let _ = match wanted[0] {
            SEND => stream.write_all(&content),
            _ => echo(stream),
        };
    });
    announce(origin.address());
}

/// Relays to `target` until standard input ends.
pub(crate) fn hop(target: SocketAddr) {
    let (_runtime, address) = crate::hop::hop((Ipv4Addr::LOCALHOST, 0).into(), target);
    announce(address);
}

/// Echoes on any number of connections until standard input ends.
pub(crate) fn echoes() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    announce(address);
}

/// A process in one of these roles; it ends with this value.
pub(crate) struct Role {
    child: Child,
    /// Its address.
    pub(crate) address: SocketAddr,
}

impl Role {
    /// Starts this program again as `role` and waits until it listens.
    pub(crate) fn start(role: &str, arguments: &[PathBuf]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The content of all files in a row.
pub(crate) fn read_all(files: &[PathBuf]) -> Vec<u8> {
    files
        .iter()
        .flat_map(|file| std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())))
        .collect()
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

/// Tells the parent this process's address, and stays until the parent closes the pipe or ends.
fn announce(address: SocketAddr) {
    println!("{address}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
