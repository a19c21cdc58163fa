//! Servers behind the far gateway.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::data;
use super::wait::{LIMIT, eventually};

/// A server, one thread a connection.
pub(crate) struct Origin {
    address: SocketAddr,
    listener: TcpListener,
}

impl Origin {
    /// Hands each connection to a loopback port of its own to `handler`, on a thread of its own.
    pub(crate) fn start(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(listen(), handler)
    }

    /// The same with the connections of `listener`.
    pub(crate) fn on(listener: TcpListener, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let handler = Arc::new(handler);
        let accepting = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            loop {
                let stream = match accepting.accept() {
                    Ok((stream, _)) => stream,
                    // The other handle was shut down.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    Err(_) => continue,
                };
                let handler = Arc::clone(&handler);
                let _ = stream.set_nodelay(true);
                let thread = std::thread::Builder::new().stack_size(STACK);
                thread.spawn(move || handler(stream)).unwrap();
            }
        });
        Self { address, listener }
    }

    /// Echoes bytes, and the end of the stream, too.
    pub(crate) fn echo() -> Self {
        Self::start(|mut stream| {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 || stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers a [`Request`] with as many random bytes from its seed, then ends the stream.
    pub(crate) fn server() -> Self {
        Self::start(answer)
    }

    /// Reads to the end of the stream, then answers with length and digest of the bytes.
    pub(crate) fn sink() -> Self {
        Self::start(take)
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// [`Origin::server`]'s treatment of a connection.
pub(crate) fn answer(mut stream: TcpStream) {
    if let Some(request) = Request::read(&mut stream) {
        let _ = stream.write_all(&request.answer());
    }
}

/// [`Origin::sink`]'s treatment of a connection.
pub(crate) fn take(mut stream: TcpStream) {
    let mut got = Vec::new();
    if stream.read_to_end(&mut got).is_ok() {
        let _ = stream.write_all(&receipt(&got));
    }
}

/// Sends a half, and the other once the path is gone.
pub(crate) fn halves(mut stream: &TcpStream, all: &[u8], gone: &AtomicBool) {
    let (first, second) = all.split_at(all.len() / 2);
    stream.write_all(first).unwrap();
    eventually("the path is gone", LIMIT, || gone.load(Ordering::SeqCst).then_some(()));
    stream.write_all(second).unwrap();
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

/// A request to [`Origin::server`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Seed of the answer.
    pub(crate) seed: u64,
    /// Bytes of the answer.
    pub(crate) len: usize,
}

impl Request {
    /// Asks for it on `stream` and leaves the writing side open.
    pub(crate) fn send(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut request = self.seed.to_be_bytes().to_vec();
        request.extend_from_slice(&(self.len as u64).to_be_bytes());
        stream.write_all(&request)
    }

    /// The right answer.
    pub(crate) fn answer(self) -> Vec<u8> {
        data::random(self.seed, self.len)
    }

    /// Asks `address` for it and reads to the end of the stream.
    pub(crate) fn fetch(self, address: SocketAddr) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        self.send(&mut stream)?;
        let mut got = Vec::with_capacity(self.len);
        stream.read_to_end(&mut got)?;
        Ok(got)
    }

    /// Reads a client's request.
    pub(crate) fn read(stream: &mut TcpStream) -> Option<Self> {
        let (mut seed, mut len) = ([0; 8], [0; 8]);
        stream.read_exact(&mut seed).ok()?;
        stream.read_exact(&mut len).ok()?;
        Some(Self { seed: u64::from_be_bytes(seed), len: usize::try_from(u64::from_be_bytes(len)).ok()? })
    }
}

/// [`Origin::sink`]'s answer to `data`.
pub(crate) fn receipt(data: &[u8]) -> Vec<u8> {
    let mut answer = (data.len() as u64).to_be_bytes().to_vec();
    answer.extend_from_slice(&data::digest(data).to_be_bytes());
    answer
}

/// Sends `data` to the sink behind `address` and returns its answer.
pub(crate) fn upload(address: SocketAddr, data: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(data)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Listens on a loopback port with room for many clients at once.
fn listen() -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(4096).unwrap();
    socket.into()
}

const STACK: usize = 256 * 1024;
