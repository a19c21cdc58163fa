//! The pump between an application's socket and its flow, true to TCP.
//!
//! Per block of 64 KiB in a steady stream: one read of the socket, one lock of the link, one wake-up.

use std::borrow::Borrow;
use std::future::{pending, poll_fn};
use std::io::{self, Read as _};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use oncewire_codec::wire::ResetReason;
use oncewire_host::sockets;
use oncewire_link::{Pieces, Received};

use super::Flow;
use super::ahead::{self, Ahead};
use super::ends::{self, End};
use super::keepalive;

/// A flow's end, seen by its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both applications ended their streams.
    InOrder,
    /// The application here got a reset, or gave one.
    Reset,
}

/// All bytes of an application, to be sent another way: the far side took no new flows, without a connect, or
/// was lost before it got a byte. An end of the stream is still to be read.
pub struct Rerouted(pub Bytes);

/// Carries a flow with an answered connect until it ends.
///
/// As [`carry_unanswered`] otherwise.
pub async fn carry(stream: impl Borrow<TcpStream>, flow: Flow, early: Bytes) -> Ended {
    carry_unanswered(stream.borrow(), flow, early).await.unwrap_or(Ended::Reset)
}

/// Carries a flow until it ends, or is turned back.
///
/// `stream` must have been prepared as an application's socket, with a reset on close; that is taken back
/// only when the far application's end has been written. `early` was read from the socket before.
///
/// # Errors
/// If it is turned back. The application's connection is then unchanged.
pub async fn carry_unanswered(stream: &TcpStream, flow: Flow, early: Bytes) -> Result<Ended, Rerouted> {
    carry_all(stream, flow, early, Backlog::default()).await
}

/// Carries a flow with received bytes, as [`carry`].
pub async fn carry_begun(
    stream: impl Borrow<TcpStream>,
    (flow, backlog): (Flow, Backlog),
    early: Bytes,
) -> Ended {
    carry_all(stream.borrow(), flow, early, backlog).await.unwrap_or(Ended::Reset)
}

async fn carry_all(
    stream: &TcpStream,
    flow: Flow,
    early: Bytes,
    backlog: Backlog,
) -> Result<Ended, Rerouted> {
    let (ended_here, end) = (Notify::new(), End::default());
    // Ahead of any possible end: later bytes must not arrive without these.
    let given = if early.is_empty() { Ok(()) } else { flow.send(early, false).map(drop) };
    let both = async {
        let from = async {
            match given {
                Ok(()) => from_application(stream, &flow, &ended_here, ahead::AFTER).await,
                Err(_) => pending().await,
            }
        };
        tokio::try_join!(from, to_application(stream, &flow, backlog, &ended_here, &end))
    };
    // An application may reset an unread socket; noticing that must not wait for room.
    let broken = tokio::select! {
        ended = both => ended.err(),
        error = end.reset(stream) => Some(FlowError::Local(error)),
        never = ends::keep_half_open(stream) => match never {},
        never = keepalive::mirror(stream, &flow) => match never {},
        () = flow.lost_untouched() => return Err(Rerouted(Bytes::new())),
    };
    match broken {
        None => return Ok(Ended::InOrder),
        Some(FlowError::Remote) => {
            if let Some(early) = flow.turned_back() {
                return Err(Rerouted(early));
            }
        }
        Some(FlowError::Local(error)) => {
            tracing::debug!(flow = flow.id().0, %error, "the application's connection broke");
            hand_on_rest(stream, &flow).await;
            flow.abort(ResetReason::Application);
        }
    }
    sockets::end_with_reset(stream);
    Ok(Ended::Reset)
}

/// Side of a flow's failure.
enum FlowError {
    /// Our application's socket failed.
    Local(io::Error),
    /// The flow is over.
    Remote,
}

/// Forwards the application's bytes, to the end of its stream. Does not end with the flow: the reason, and
/// the bytes before it, are for the other direction to find.
async fn from_application(
    stream: &TcpStream,
    flow: &Flow,
    ended_here: &Notify,
    ahead_after: Duration,
) -> Result<(), FlowError> {
    let mut ahead = Ahead::new(stream, flow, ahead_after);
    // Earlier bytes may have taken all the room.
    ahead.wait().await;
    // A bulk transfer is likely to go on at once, and a cut at the end of a read matches no store.
    let mut more = false;
    loop {
        let ready = match more {
            true => timeout(LINGER, stream.readable()).await.ok(),
            false => Some(stream.readable().await),
        };
        let Some(ready) = ready else {
            more = false;
            flow.expect_no_more();
            continue;
        };
        ready.map_err(FlowError::Local)?;
        let most = if ahead.is_reading() { BLOCK } else { flow.read_size() };
        match read_block(stream, most) {
            Read::Bytes(bytes) => {
                more = bytes.len() >= BULK.min(most);
                hand_on(flow, bytes, more, &mut ahead).await;
            }
            Read::Nothing => {}
            Read::Failed(rest, error) => {
                if !rest.is_empty() {
                    // Neither room nor a receiver is waited for: the reset must be seen.
                    let _ = flow.send(rest, false);
                }
                return Err(FlowError::Local(error));
            }
            Read::End(rest) => {
                // With its last bytes; they need no room.
                if !rest.is_empty() && flow.send(rest, false).is_err() {
                    pending::<()>().await;
                }
                flow.finish();
                ended_here.notify_one();
                return Ok(());
            }
        }
    }
}

/// Queues bytes, and waits until there is room for more, or a read is due without: for ever, if the flow is
/// over.
async fn hand_on(flow: &Flow, bytes: Bytes, more: bool, ahead: &mut Ahead<'_>) {
    let len = bytes.len();
    match flow.send(bytes, more) {
        Ok(0) => {
            ahead.filled(len);
            ahead.wait().await;
        }
        Ok(_) => ahead.has_room(),
        Err(_) => pending().await,
    }
}

/// Forwards an application's bytes from before its reset, as far as there is room: without a gateway they
/// would arrive before the reset.
async fn hand_on_rest(stream: &TcpStream, flow: &Flow) {
    loop {
        // Independent of the socket's known readiness.
        let mut block = BytesMut::zeroed(BLOCK);
        let Ok(len @ 1..) = (&*SockRef::from(stream)).read(&mut block) else { return };
        block.truncate(len);
        match flow.send(block.freeze(), false) {
            Ok(1..) => {}
            Ok(0) if timeout(REST_LIMIT, flow.writable()).await.is_ok() => {}
            _ => return,
        }
    }
}

/// Result of a read from a socket.
pub enum Read {
    /// Some bytes.
    Bytes(Bytes),
    /// Nothing now.
    Nothing,
    /// The last bytes, and the end of the stream.
    End(Bytes),
    /// The last bytes, and the error behind them.
    Failed(Bytes, io::Error),
}

/// Takes available bytes, up to so many, without waiting for more.
pub fn read_block(stream: &TcpStream, most: usize) -> Read {
    let mut block = BytesMut::with_capacity(most);
    let mut end = None;
    while block.len() < most {
        let left = most - block.len();
        match stream.try_read_buf(&mut (&mut block).limit(left)) {
            Ok(0) => {
                end = Some(Ok(()));
                break;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                end = Some(Err(error));
                break;
            }
        }
    }
    // Waiting for their acknowledgement, bytes must not hold much more memory than their own.
    let bytes = if block.len() < most / 4 * 3 { Bytes::copy_from_slice(&block) } else { block.freeze() };
    match end {
        Some(Ok(())) => Read::End(bytes),
        Some(Err(error)) => Read::Failed(bytes, error),
        None if bytes.is_empty() => Read::Nothing,
        None => Read::Bytes(bytes),
    }
}

async fn to_application(
    stream: &TcpStream,
    flow: &Flow,
    backlog: Backlog,
    ended_here: &Notify,
    end: &End,
) -> Result<(), FlowError> {
    let Backlog { blocks, consumed, reported } = backlog;
    let mut out = Outgoing { stream, flow, blocks, consumed, reported, finished: false };
    while !out.is_done() {
        out.step().await?;
    }
    end.end_ours(stream).await.map_err(FlowError::Local)?;
    // After the far end of stream only a reset can come; our application may go on sending for hours.
    tokio::select! {
        // A flow ended both ways is over too.
        biased;
        () = ended_here.notified() => Ok(()),
        _ = flow.received(0) => Err(FlowError::Remote),
    }
}

/// Bytes received for the application before the flow is carried.
#[derive(Default)]
pub struct Backlog {
    blocks: Pieces,
    /// Taken and not yet reported to the link.
    consumed: usize,
    /// Leading bytes of the blocks, counted by the link as taken.
    reported: usize,
}

impl Backlog {
    /// Of the two pieces, in order, `taken` is part of `consumed`, or reported earlier.
    pub(super) fn new(taken: Bytes, rest: Bytes, consumed: usize) -> Self {
        let reported = taken.len();
        let mut blocks = Pieces::default();
        [taken, rest].into_iter().filter(|piece| !piece.is_empty()).for_each(|piece| blocks.push(piece));
        Self { blocks, consumed, reported }
    }
}

/// Bytes on their way to an application.
struct Outgoing<'a> {
    stream: &'a TcpStream,
    flow: &'a Flow,
    /// Received and not yet written. While the application does not read, this fills up to the flow's credit:
    /// a reset behind the bytes is seen at once.
    blocks: Pieces,
    /// Written and not yet reported to the link.
    consumed: usize,
    /// The next bytes to be written, already reported.
    reported: usize,
    /// The far application ended its stream.
    finished: bool,
}

impl Outgoing<'_> {
    fn is_done(&self) -> bool {
        self.finished && self.blocks.is_empty()
    }

    /// Writes if possible, or waits for more bytes or for room, the earlier of both.
    async fn step(&mut self) -> Result<(), FlowError> {
        // Neither side ever has to wait here, and other flows share the thread.
        tokio::task::consume_budget().await;
        let blocked = !self.write_some().map_err(FlowError::Local)?;
        let Self { stream, flow, consumed, .. } = self;
        let received = match (blocked, self.finished) {
            (true, true) => return stream.writable().await.map_err(FlowError::Local),
            (false, true) => return Ok(()),
            (true, false) => tokio::select! {
                received = poll_fn(|cx| flow.poll_received(cx, consumed)) => received,
                ready = stream.writable() => return ready.map_err(FlowError::Local),
            },
            (false, false) => poll_fn(|cx| flow.poll_received(cx, consumed)).await,
        };
        match received {
            Received::Opened(Ok(_)) => Ok(()),
            Received::Data(bytes) => {
                self.blocks.push(bytes);
                Ok(())
            }
            Received::Finished => {
                self.finished = true;
                Ok(())
            }
            Received::Opened(Err(_)) | Received::Reset(_) => {
                // Earlier bytes must arrive before it.
                let _ = timeout(REST_LIMIT, self.write_rest()).await;
                Err(FlowError::Remote)
            }
        }
    }

    async fn write_rest(&mut self) -> io::Result<()> {
        while !self.write_some()? {
            self.stream.writable().await?;
        }
        Ok(())
    }

    /// Writes until nothing is left (true) or the socket takes no more (false).
    fn write_some(&mut self) -> io::Result<bool> {
        while let Some(block) = self.blocks.front_mut() {
            match self.stream.try_write(block) {
                Ok(written) => {
                    let known = written.min(self.reported);
                    self.reported -= known;
                    self.consumed += written - known;
                    block.advance(written);
                    if block.is_empty() {
                        self.blocks.pop();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Writes everything to a borrowed socket.
pub async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Maximum plain length of a codec's block.
pub const BLOCK: usize = 64 << 10;

/// A read of so many bytes is likely to be followed by more.
const BULK: usize = 16 << 10;

/// How long the end of such a read may wait for its continuation, with blocks cut by content.
const LINGER: Duration = Duration::from_millis(1);

/// How long the rest of a reset connection waits for room: the far end may have no reader.
pub const REST_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oncewire_link::{Event, Now};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::lane;
    use crate::lane::testing::{Other, SMALLER, peer, request};

    /// A connection with sent bytes and a later reset, both known to the system.
    async fn broken(sent: &[u8]) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client.write_all(sent).await.unwrap();
        stream.readable().await.unwrap();
        sockets::end_with_reset(&client);
        drop(client);
        stream.ready(Interest::ERROR).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn answered_application_is_read_ahead_within_a_limit() {
        let (peer, mut other) = (peer(), Other::new(2, SMALLER));
        let begun = other.begin(&peer).await;
        let (joined, _near) = other.join(begun).await.unwrap();
        let running = tokio::spawn(lane::run(Arc::clone(&peer), joined));
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(256 << 10).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sending = tokio::spawn(async move { client.write_all(&vec![7; 64 << 20]).await });
        let flow = crate::flows::open(&peer, request()).unwrap();
        let (ended, ahead) = (Notify::new(), || peer.with(|core, _| core.link.beyond_room(flow.id())));
        {
            // The far end has no reader, and nothing more is granted.
            let reading = from_application(&stream, &flow, &ended, Duration::from_millis(1));
            tokio::pin!(reading);
            let until = async |enough: usize| {
                while ahead() < enough {
                    tokio::task::yield_now().await;
                }
            };
            assert!(timeout(Duration::from_millis(50), &mut reading).await.is_err(), "it ended");
            assert_eq!(ahead(), 0, "a flow without an answer has lost its way back");
            assert!(!flow.may_read_ahead(1));
            // Answered.
            flow.early.lock().take();
            tokio::select! {
                _ = &mut reading => panic!("it ended"),
                () = until(30 << 20) => {}
                () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{} B read ahead", ahead()),
            }
            // Long enough for some more bytes, if nothing stopped it.
            assert!(timeout(Duration::from_millis(300), &mut reading).await.is_err(), "it ended");
            assert!(ahead() <= 32 << 20, "{} B read ahead", ahead());
        }
        assert!(!sending.is_finished(), "64 MiB went somewhere");
        sending.abort();
        running.abort();
    }

    #[tokio::test]
    async fn bytes_arrive_only_behind_earlier_ones() {
        let (peer, mut other) = (peer(), Other::new(2, SMALLER));
        let begun = other.begin(&peer).await;
        let (joined, mut near) = other.join(begun).await.unwrap();
        let running = tokio::spawn(lane::run(Arc::clone(&peer), joined));
        let mut input = BytesMut::new();
        // The order of looks at ready events is random.
        for _ in 0..50 {
            let flow = crate::flows::open(&peer, request()).unwrap();
            let id = flow.id();
            let stream = broken(b"behind").await;
            let ended = carry_unanswered(&stream, flow, Bytes::from_static(b"before and ")).await;
            assert!(ended.is_ok_and(|ended| ended == Ended::Reset));
            let mut got = Vec::new();
            loop {
                match other.link.poll_payload(id, Now::ZERO) {
                    Some(Received::Data(bytes)) => got.extend_from_slice(&bytes),
                    Some(Received::Reset(_)) => break,
                    Some(other) => panic!("{other:?}"),
                    None => {
                        near.read_buf(&mut input).await.unwrap();
                        let lane = other.lane();
                        other.link.handle_input(lane, &mut input, Now::ZERO).unwrap();
                        while let Some(event) = other.link.poll_event() {
                            assert!(!matches!(event, Event::CloseLane(..)), "{event:?}");
                        }
                    }
                }
            }
            assert_eq!(got, b"before and behind");
        }
        running.abort();
    }
}
