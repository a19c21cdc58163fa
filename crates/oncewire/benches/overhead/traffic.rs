//! The traffic of client and server, and its timing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::deployment::{Deployment, Way};

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Download,
    Upload,
}

/// The content; both ends have it.
#[derive(Clone, Default)]
pub(crate) struct Content(Arc<RwLock<Vec<u8>>>);

impl Content {
    /// Has other bytes sent from now on.
    pub(crate) fn replace(&self, bytes: Vec<u8>) {
        *self.0.write().unwrap() = bytes;
    }

    fn len(&self) -> usize {
        self.0.read().unwrap().len()
    }
}

/// Takes connections until this process ends.
pub(crate) fn serve(listener: TcpListener, content: Content) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, content) = (stream.unwrap(), content.clone());
            // A departed client has reported its reason.
            thread::spawn(move || answer(stream, &content));
        }
    });
}

/// The first byte is the request, the next two numbers the part of the content.
fn answer(mut stream: TcpStream, content: &Content) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST];
    stream.read_exact(&mut request)?;
    let number = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap()) as usize;
    let part = number(1)..number(9);
    match request[0] {
        DOWNLOAD => stream.write_all(&content.0.read().unwrap()[part]),
        UPLOAD => {
            compare(&mut stream, content, part);
            stream.write_all(&[UPLOAD])
        }
        _ => echo(stream),
    }
}

fn request(kind: u8, part: &Range<usize>) -> [u8; REQUEST] {
    let mut request = [kind; REQUEST];
    request[1..9].copy_from_slice(&(part.start as u64).to_le_bytes());
    request[9..].copy_from_slice(&(part.end as u64).to_le_bytes());
    request
}

/// Sends the content once, as so many streams at the same time, every byte compared, and returns the cost.
pub(crate) fn transfer(
    deployment: &Deployment,
    way: Way,
    direction: Direction,
    streams: usize,
    content: &Content,
) -> Duration {
    let part = content.len() / streams;
    let start = Instant::now();
    let running: Vec<_> = (0..streams)
        .map(|number| {
            let (stream, content) = (deployment.connect(way), content.clone());
            let part = number * part..(number + 1) * part;
            thread::spawn(move || carry(stream, direction, part, &content))
        })
        .collect();
    running.into_iter().for_each(|stream| stream.join().unwrap());
    start.elapsed()
}

fn carry(mut stream: TcpStream, direction: Direction, part: Range<usize>, content: &Content) {
    match direction {
        Direction::Download => {
            stream.write_all(&request(DOWNLOAD, &part)).unwrap();
            compare(&mut stream, content, part);
        }
        Direction::Upload => {
            stream.write_all(&request(UPLOAD, &part)).unwrap();
            stream.write_all(&content.0.read().unwrap()[part]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
        }
    }
}

/// Reads to the end and compares with a part of the content.
fn compare(stream: &mut TcpStream, content: &Content, part: Range<usize>) {
    let (content, mut buffer, mut at) = (content.0.read().unwrap(), vec![0; BUFFER], part.start);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            count => {
                assert!(content[at..part.end].starts_with(&buffer[..count]), "wrong bytes at {at}");
                at += count;
            }
        }
    }
    assert_eq!(at, part.end, "the stream ended early");
}

/// A connection for messages and their echoes.
pub(crate) struct Echo {
    stream: TcpStream,
    message: Vec<u8>,
}

impl Echo {
    /// Connects, for messages of this length, and waits until the server has answered once.
    pub(crate) fn start(deployment: &Deployment, way: Way, len: usize) -> Self {
        let mut stream = deployment.connect(way);
        stream.write_all(&request(ECHO, &(0..0))).unwrap();
        let mut echo = Self { stream, message: vec![0; len] };
        echo.there_and_back();
        echo
    }

    /// Sends a message and waits for it.
    pub(crate) fn there_and_back(&mut self) -> Duration {
        self.message.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let (mut back, start) = (vec![0; self.message.len()], Instant::now());
        self.stream.write_all(&self.message).unwrap();
        self.stream.read_exact(&mut back).unwrap();
        let taken = start.elapsed();
        assert_eq!(back, self.message);
        taken
    }
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 256];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

/// Downloads without end until they are told to stop.
pub(crate) struct Downloads {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<()>>,
}

impl Downloads {
    /// Starts so many, each of its own part of the content.
    pub(crate) fn start(deployment: &Deployment, way: Way, streams: usize, content: &Content) -> Self {
        let (received, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let part = content.len() / streams;
        let running = (0..streams)
            .map(|number| {
                let (mut stream, received, stop) = (deployment.connect(way), received.clone(), stop.clone());
                stream.write_all(&request(DOWNLOAD, &(number * part..(number + 1) * part))).unwrap();
                thread::spawn(move || {
                    let mut buffer = vec![0; BUFFER];
                    while !stop.load(Relaxed) {
                        let count = stream.read(&mut buffer).unwrap();
                        assert_ne!(count, 0, "the content is too short");
                        received.fetch_add(count as u64, Relaxed);
                    }
                })
            })
            .collect();
        Self { received, stop, running }
    }

    /// Bytes of all of them so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Relaxed);
        self.running.into_iter().for_each(|download| download.join().unwrap());
    }
}

const REQUEST: usize = 17;
const DOWNLOAD: u8 = b'd';
const UPLOAD: u8 = b'u';
const ECHO: u8 = b'e';
const BUFFER: usize = 256 << 10;
