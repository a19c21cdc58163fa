//! A stream without end that is like text and repeats itself, and its far end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::common::data::{self, Rng};

/// What all flows send, again and again, each from a place of its own. It is longer than the log.
pub(super) struct Content(Vec<u8>);

impl Content {
    /// Makes content of which about half repeats what came not long before.
    pub(super) fn generate() -> Self {
        let mut rng = Rng::new(7);
        let fresh = data::text(8, LEN);
        let (mut out, mut used) = (Vec::with_capacity(LEN), 0);
        while out.len() < LEN {
            let len = 2000 + rng.below(30_000);
            if rng.below(2) == 0 && out.len() > 2 * REACH {
                let from = out.len() - len - rng.below(REACH);
                out.extend_from_within(from..from + len);
            } else {
                out.extend_from_slice(&fresh[used..used + len]);
                used += len;
            }
        }
        out.truncate(LEN);
        Self(out)
    }

    /// The bytes from an offset of the endless stream to the end of a round.
    fn from(&self, offset: u64) -> &[u8] {
        &self.0[(offset % LEN as u64) as usize..]
    }
}

/// Sends until the connection ends: first where in the content it begins.
pub(super) fn send(to: SocketAddr, content: &Arc<Content>, flow: usize) -> JoinHandle<()> {
    let content = Arc::clone(content);
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        let mut offset = (flow * LEN / 2) as u64;
        let mut write = || -> std::io::Result<()> {
            stream.write_all(&offset.to_le_bytes())?;
            loop {
                let rest = content.from(offset);
                let count = stream.write(&rest[..rest.len().min(PIECE)])?;
                offset += count as u64;
            }
        };
        // The gateways are taken away at the end of the measurement.
        let _ = write();
    })
}

/// Takes what comes, compares it and counts it.
pub(super) struct Sink {
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

impl Sink {
    pub(super) fn start(content: &Arc<Content>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
        let (content, counter) = (Arc::clone(content), Arc::clone(&received));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (content, counter) = (Arc::clone(&content), Arc::clone(&counter));
                std::thread::spawn(move || take(stream.unwrap(), &content, &counter));
            }
        });
        Self { address, received }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes so far, of all flows.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }
}

fn take(mut stream: TcpStream, content: &Content, counter: &AtomicU64) {
    let mut start = [0; 8];
    if stream.read_exact(&mut start).is_err() {
        return;
    }
    let (mut offset, mut buffer) = (u64::from_le_bytes(start), vec![0; PIECE]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut got = &buffer[..count];
        while !got.is_empty() {
            let expected = content.from(offset);
            let len = got.len().min(expected.len());
            if got[..len] != expected[..len] {
                eprintln!("wrong bytes arrived near offset {offset}");
                std::process::exit(1);
            }
            offset += len as u64;
            got = &got[len..];
        }
        counter.fetch_add(count as u64, Relaxed);
    }
}

/// Four times the log.
const LEN: usize = 256 << 20;
/// How far back repeats lie at most: well within the log, whatever the flows do.
const REACH: usize = 12 << 20;
const PIECE: usize = 128 << 10;
