//! Read-ahead of an application while there is no room for its bytes.
//!
//! A server that has written all and closed depends on it: after two to four minutes without progress its
//! system gives up the connection and the unsent rest.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use oncewire_codec::wire::FlowId;
use oncewire_host::sockets;
use oncewire_link::{Link, Now};

use super::Flow;
use super::pump::BLOCK;

/// Waiting bytes read ahead by a peer's flows.
#[derive(Debug, Default)]
pub(crate) struct AheadBytes {
    /// The link's last sum, and later grants.
    taken: usize,
    /// Time of the last query to the link; a query looks at all flows.
    asked: Now,
}

/// The read-ahead of one application's stream.
pub(super) struct Ahead<'a> {
    stream: &'a TcpStream,
    flow: &'a Flow,
    /// Time without room until a read regardless of it.
    after: Duration,
    /// Allowance until the next look at the system's room.
    left: usize,
    /// Its bytes received at the start of reading.
    received: u64,
}

/// Three quarters of the least time until a system gives up.
pub(super) const AFTER: Duration = Duration::from_secs(90);
/// Maximum read-ahead of a peer's flows: permanently stopped readers must not take more and more.
const MOST: usize = 64 << 20;
/// Minimum interval of queries to the link.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl AheadBytes {
    /// Counts so many bytes more of a flow, unless it then had more than the rest left for others: many may
    /// read a little each, and a single one half of all.
    pub(crate) fn take(&mut self, link: &Link, flow: FlowId, bytes: usize, now: Now) -> bool {
        if now >= self.asked + ASK_EVERY {
            *self = Self { taken: link.all_beyond_room(), asked: now };
        }
        let taken = self.taken.saturating_add(bytes);
        let most = MOST.min(link.most_beyond_room());
        let fits = link.beyond_room(flow).saturating_add(bytes) <= most.saturating_sub(taken);
        if fits {
            self.taken = taken;
        }
        fits
    }
}

impl<'a> Ahead<'a> {
    pub(super) fn new(stream: &'a TcpStream, flow: &'a Flow, after: Duration) -> Self {
        Self { stream, flow, after, left: 0, received: 0 }
    }

    /// So many bytes were queued, and there is no room for more.
    pub(super) fn filled(&mut self, bytes: usize) {
        let is_reading = self.left > 0;
        // Less than a block means that nothing more was there.
        self.left = if bytes < BLOCK { 0 } else { self.left.saturating_sub(bytes) };
        if is_reading && self.left == 0 && bytes >= BLOCK {
            let unread = sockets::unread(self.stream);
            self.left = if unread.received == self.received { self.take(unread.to_read) } else { 0 };
        }
    }

    /// Whether bytes are being read without room for them.
    pub(super) fn is_reading(&self) -> bool {
        self.left > 0
    }

    /// There is room.
    pub(super) fn has_room(&mut self) {
        self.left = 0;
    }

    /// Waits until there is room, or a read is due without: until the system has some.
    pub(super) async fn wait(&mut self) {
        while self.left == 0 && timeout(self.after, self.flow.writable()).await.is_err() {
            let unread = sockets::unread(self.stream);
            (self.left, self.received) = (self.take(unread.to_read), unread.received);
        }
    }

    /// Returns the permitted part of so many bytes: all or none.
    fn take(&self, bytes: usize) -> usize {
        // The last block read may be longer than the rest then.
        if bytes > 0 && self.flow.may_read_ahead(bytes.saturating_add(BLOCK)) { bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use oncewire_link::LinkConfig;
    use oncewire_sys::connections;
    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::flows::pump::{Read, read_block};
    use crate::lane::testing::{Other, SMALLER, config, peer, peer_with, request};

    const PART: usize = 1 << 20;

    #[tokio::test]
    async fn one_flow_reads_half_ahead_and_waiting_bytes_count() {
        let (peer, mut other) = (peer(), Other::new(2, SMALLER));
        let begun = other.begin(&peer).await;
        let _lane = other.join(begun).await.unwrap();
        let flows = [(); 3].map(|()| crate::flows::open(&peer, request()).unwrap());
        let [first, second, third] = flows.each_ref().map(Flow::id);
        peer.with(|core, _| {
            let mut now = Now::ZERO;
            let mut read = |flow: FlowId, is_queued: bool| {
                now += ASK_EVERY;
                let mut parts = 0;
                while core.read_ahead.take(&core.link, flow, PART, now) {
                    if is_queued {
                        core.link.handle_payload(flow, vec![7; PART].into(), now).unwrap();
                    }
                    parts += 1;
                    assert!(parts <= MOST / PART, "more than there is for all");
                }
                core.link.finish_flow(flow, now);
                parts
            };
            // Neither a flow's queue within its room nor one block beyond is counted.
            assert_eq!(read(first, true), 32);
            // Though the first has ended.
            assert_eq!(read(second, true), 16);
            // Nothing of it is left at the next query.
            assert_eq!([read(third, false), read(third, false)], [16, 16]);
        });
    }

    /// A connection into a buffer of so many bytes, in segments of so many, and its other end.
    async fn into(buffer: u32, segment: Option<u32>) -> (TcpStream, std::net::TcpStream) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        other.set_send_buffer_size(256 << 10).unwrap();
        segment.map_or(Ok(()), |bytes| other.set_tcp_mss(bytes)).unwrap();
        other.connect(&listener.local_addr().unwrap().into()).unwrap();
        other.set_nonblocking(true).unwrap();
        (listener.accept().await.unwrap().0, other.into())
    }

    #[tokio::test]
    async fn each_read_makes_little_more_than_its_room() {
        use std::io::Write as _;
        // The other end answers no probes, and the test may take long.
        let link = LinkConfig { dead_after: Some(Now::from_secs(3600)), ..config(1) };
        let (peer, mut lanes) = (peer_with(link), Other::new(2, SMALLER));
        let begun = lanes.begin(&peer).await;
        let _lane = lanes.join(begun).await.unwrap();
        let flow = crate::flows::open(&peer, request()).unwrap();
        flow.send(vec![7; 1 << 20].into(), false).unwrap();
        flow.early.lock().take();
        let kinds = [64 << 10, 512 << 10, 4 << 20].map(|buffer| [(buffer, None), (buffer, Some(1448))]);
        for (buffer, segment) in kinds.into_iter().flatten() {
            let (stream, other) = into(buffer, segment).await;
            let mut ahead = Ahead::new(&stream, &flow, Duration::from_millis(1));
            let sending = || connections::sending(&other).unwrap().unwrap();
            let until = |what: &str, is_so: &dyn Fn() -> bool| {
                let start = Instant::now();
                while !is_so() {
                    let seen = (buffer, segment, sending(), connections::unread(&stream));
                    assert!(start.elapsed() < Duration::from_secs(30), "{what}: {seen:?}");
                    std::thread::yield_now();
                }
            };
            for round in 0..8 {
                until("it is full", &|| {
                    while (&other).write(&[7; BLOCK]).is_ok() {}
                    let sending = sending();
                    sending.unsent > 0 && sending.unacknowledged == 0
                });
                let (mut read, full) = (0, sending().unsent);
                ahead.wait().await;
                while ahead.left > 0 {
                    let Read::Bytes(bytes) = read_block(&stream, BLOCK) else { panic!("it has some") };
                    ahead.filled(bytes.len());
                    read += bytes.len();
                }
                let most = (buffer as usize).max(2 * BLOCK);
                assert!(read <= most, "{buffer} {segment:?}: {read} B in round {round}");
                until("there is room", &|| sending().unsent < full);
            }
        }
    }
}
