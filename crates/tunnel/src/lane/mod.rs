//! Lanes: encrypted, ordered byte streams between two gateways, one file per kind.
//!
//! A kind brings a connected, authenticated stream; the hello exchange and the two pumps are the same for
//! all. The accepting side says hello first: a TLS client counts itself as connected before the server has
//! looked at its key.

pub mod options;
pub(crate) mod signal;
pub mod tls_tcp;

use std::convert::Infallible;
use std::future::{Future as _, pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use oncewire_codec::wire::{Hello, HelloError, LaneId, LaneRole};
use oncewire_keys::PublicKey;
use oncewire_link::{LaneRefused, records};

use self::signal::{LaneSignal, SHORT_LIFE};
use super::peer::{Binding, Exchange, JoinError, LaneGone, Peer};

/// A connected and authenticated byte stream of any kind; written bytes leave with the next flush at the
/// latest.
pub trait LaneStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The connection beneath, for queries to the system; none if unavailable.
    fn connection(&self) -> Option<OwnedFd> {
        None
    }

    /// A secret shared by both ends of this stream alone; none if it is not encrypted.
    fn binding(&self) -> Option<Binding> {
        None
    }
}

/// Why the exchange of hellos failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelloFailure {
    /// The stream failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side speaks something else.
    #[error("{0}")]
    Hello(#[from] HelloError),
    /// The link does not take the lane.
    #[error("the link refused the lane: {0}")]
    Join(#[from] JoinError),
}

impl HelloFailure {
    /// Whether the two builds do not fit: another protocol, version or codec. An operator must change something.
    pub(crate) fn is_mismatch(&self) -> bool {
        match self {
            Self::Hello(_) => true,
            Self::Join(JoinError::Refused(why)) => why.is_mismatch(),
            _ => false,
        }
    }

    /// Whether neither end is at fault: this end ended, or either began anew, while the lane came up.
    pub(super) fn is_transient(&self) -> bool {
        let Self::Join(why) = self else { return false };
        matches!(why, JoinError::Ended | JoinError::Late | JoinError::Refused(LaneRefused::Outdated))
    }
}

/// A lane joined to its link, with its tasks not yet running.
pub struct Joined<S> {
    pub(crate) signal: Arc<LaneSignal>,
    role: LaneRole,
    stream: S,
    /// Bytes received behind the hello.
    early: BytesMut,
}

/// Says hello as the accepting side and joins the lane named by the dialler.
///
/// # Errors
/// If the stream fails, the hello is of another protocol or version, or the link refuses the lane.
pub(crate) async fn accept_hello<S: LaneStream>(
    peer: &Arc<Peer>,
    theirs: PublicKey,
    mut stream: S,
) -> Result<Joined<S>, HelloFailure> {
    // An error means a slow read: the logs follow after the hellos.
    let _ = timeout(LOGS_BEFORE_HELLO, peer.ready_to_come_up()).await;
    let began = Instant::now();
    if peer.has_ended() {
        return Err(JoinError::Ended.into());
    }
    let binding = stream.binding();
    let (said, ours) = peer.hello(LaneId(0), LaneRole::Control, &theirs, binding.as_ref());
    stream.write_all(&ours).await?;
    stream.flush().await?;
    let (hello, early) = read_hello(&mut stream).await?;
    peer.ready_for(&hello).await;
    let exchange = Exchange { began, said, dialled: false, binding };
    let signal = peer.lane_up(theirs, &hello, (hello.lane, hello.role), exchange)?;
    signal.watch(stream.connection());
    Ok(Joined { signal, role: hello.role, stream, early })
}

/// The accepting side's hello, not yet answered.
pub(crate) struct Heard<S> {
    /// Its presented key.
    theirs: PublicKey,
    stream: S,
    hello: Hello,
    early: BytesMut,
    began: Instant,
}

/// Waits for the accepting side's hello, from any gateway at the dialled address.
///
/// # Errors
/// As [`accept_hello`]; an early end of the stream is most often a refusal of our key.
pub(crate) async fn hear_hello<S: LaneStream>(
    theirs: PublicKey,
    mut stream: S,
) -> Result<Heard<S>, HelloFailure> {
    let began = Instant::now();
    let (hello, early) = read_hello(&mut stream).await?;
    Ok(Heard { theirs, stream, hello, early, began })
}

/// Answers the accepting side's hello and joins the lane chosen by this side.
///
/// # Errors
/// As [`accept_hello`].
pub(crate) async fn answer_hello<S: LaneStream>(
    peer: &Arc<Peer>,
    heard: Heard<S>,
    lane: LaneId,
    role: LaneRole,
) -> Result<Joined<S>, HelloFailure> {
    let Heard { theirs, mut stream, hello, early, began } = heard;
    let _ = timeout(LOGS_BEFORE_HELLO, peer.ready_for(&hello)).await;
    let binding = stream.binding();
    let (said, ours) = peer.hello(lane, role, &theirs, binding.as_ref());
    stream.write_all(&ours).await?;
    stream.flush().await?;
    peer.ready_for(&hello).await;
    let exchange = Exchange { began, said, dialled: true, binding };
    let signal = peer.lane_up(theirs, &hello, (lane, role), exchange)?;
    signal.watch(stream.connection());
    Ok(Joined { signal, role, stream, early })
}

async fn read_hello<S: LaneStream>(stream: &mut S) -> Result<(Hello, BytesMut), HelloFailure> {
    let mut input = BytesMut::with_capacity(READ_BUFFER);
    loop {
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some((hello, used)) = Hello::decode(&input)? {
            let early = input.split_off(used.min(input.len()));
            return Ok((hello, early));
        }
        if input.len() > MAX_HELLO {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a hello without an end").into());
        }
    }
}

/// Moves bytes between a joined lane and its link until either ends it.
pub async fn run<S: LaneStream>(peer: Arc<Peer>, lane: Joined<S>) {
    let Joined { signal, stream, early, .. } = lane;
    let (read, write) = tokio::io::split(stream);
    // Two tasks: decoding and encoding can use two cores. The set ends the reader with this task.
    let mut reader = JoinSet::new();
    reader.spawn(read_lane(Arc::clone(&peer), Arc::clone(&signal), read, early));
    let mut lost = Lost { peer: &peer, signal: &signal, in_order: false };
    tokio::select! {
        ended = reader.join_next() => match ended {
            Some(Ok(Ok(()))) => lost.in_order = true,
            Some(Ok(Err(why))) => {
                tracing::debug!(peer = peer.name(), lane = signal.id.0, %why, "lane lost while reading");
            }
            _ => {}
        },
        ended = write_lane(&peer, &signal, write) => {
            if let Err(why) = ended {
                tracing::debug!(peer = peer.name(), lane = signal.id.0, %why, "lane lost while writing");
            }
        }
        // A peer not reading must not keep the socket.
        () = async { signal.overdue.notified().await; tokio::time::sleep(CLOSE_LIMIT).await } => {}
        never = report_lane_stable(&peer, &signal) => match never {},
    }
    drop(lost);
}

/// Tells the dialler once about a lane kept by the peer.
async fn report_lane_stable(peer: &Peer, signal: &LaneSignal) -> Infallible {
    sleep_until(signal.since + SHORT_LIFE).await;
    peer.dials.note_stable();
    pending().await
}

/// Reports the end of a lane on any end of its task.
struct Lost<'a> {
    peer: &'a Arc<Peer>,
    signal: &'a Arc<LaneSignal>,
    /// Whether the other side ended it, behind all its data.
    in_order: bool,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.peer.lane_lost(self.signal, self.signal.is_short_lived(), self.in_order);
    }
}

/// Always reads, independent of applications: backpressure is per flow, by credit.
async fn read_lane<S: LaneStream>(
    peer: Arc<Peer>,
    signal: Arc<LaneSignal>,
    mut stream: ReadHalf<S>,
    mut input: BytesMut,
) -> io::Result<()> {
    loop {
        if !input.is_empty() {
            match peer.input(signal.id, &mut input).await {
                Ok(()) => {}
                Err(LaneGone::Closed) => return Ok(()),
                Err(LaneGone::Protocol(error)) => {
                    tracing::warn!(peer = peer.name(), lane = signal.id.0, %error, "the peer broke the protocol");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "protocol error"));
                }
            }
        }
        if !read_more(&mut stream, &mut input).await? {
            return Ok(());
        }
    }
}

/// Waits for bytes and takes the available ones, up to about [`READ_BUFFER`]; false at the end of the stream.
///
/// TLS gives one record at a time, a quarter of a block; handing each to the link by itself would quadruple
/// the locking.
async fn read_more(stream: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> io::Result<bool> {
    let before = input.len();
    poll_fn(|context| {
        input.reserve((before + READ_BUFFER).saturating_sub(input.len()));
        while input.len() - before < READ_BUFFER {
            match pin!(stream.read_buf(input)).poll(context) {
                Poll::Ready(Ok(1..)) => {}
                // Earlier bytes are handed on; the next call meets the same end or error with nothing read.
                _ if input.len() > before => break,
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if input.is_empty() {
                        // An idle lane holds no memory worth mentioning.
                        *input = BytesMut::new();
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(input.len() > before))
    })
    .await
}

/// Asks the link for bytes only when the socket has taken the last ones: blocks are encoded as late as
/// possible.
async fn write_lane<S: LaneStream>(
    peer: &Arc<Peer>,
    signal: &LaneSignal,
    mut stream: WriteHalf<S>,
) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        out.clear();
        signal.effort.work();
        if peer.transmit(signal.id, &mut out) {
            let write = async {
                for record in records(&out) {
                    stream.write_all(record).await?;
                }
                stream.flush().await
            };
            signal.effort.write(write).await?;
            continue;
        }
        signal.effort.rest();
        if out.capacity() > KEPT_BUFFER {
            // An idle lane holds no memory worth mentioning.
            out = Vec::new();
        }
        tokio::select! {
            biased;
            // Queued data precedes the lane's end.
            () = signal.ready.notified() => {}
            () = signal.closing.notified() => break,
        }
    }
    stream.shutdown().await
}

/// Bytes asked of the stream at once; a TLS record is at most 16 KiB.
const READ_BUFFER: usize = 64 << 10;

/// Capacity of the write buffer retained by an idle lane.
const KEPT_BUFFER: usize = 32 << 10;

/// How long this side's hello waits for logs to be read. A peer with our hello takes the link for up, and
/// flows opened there wait. Short beside the handshake limits.
const LOGS_BEFORE_HELLO: Duration = Duration::from_secs(5);

/// More than any hello takes.
const MAX_HELLO: usize = 4096;

/// Time for a closing lane's last bytes.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod hello_tests;
#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Context;

    use tokio::io::ReadBuf;

    use super::*;

    struct Broken;

    impl AsyncRead for Broken {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }

    async fn read(sent: &[u8]) -> Result<(Hello, BytesMut), String> {
        let (mut theirs, mut ours) = tokio::io::duplex(8192);
        theirs.write_all(sent).await.unwrap();
        drop(theirs);
        read_hello(&mut ours).await.map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn another_version_is_refused_with_both_versions_named() {
        let refused = read(b"oncewire\x09\x00\x07\x00").await.unwrap_err();
        assert_eq!(
            refused,
            "peer speaks protocol versions 7 to 9, this build speaks 1 to 3; update the older one"
        );
    }

    #[tokio::test]
    async fn arrived_bytes_precede_the_end() {
        let mut stream = (&b"a rec"[..]).chain(&b"ord"[..]).chain(&b" and more"[..]);
        let mut input = BytesMut::from("before: ");
        assert!(read_more(&mut stream, &mut input).await.unwrap());
        assert_eq!(input, "before: a record and more");
        assert!(!read_more(&mut stream, &mut input).await.unwrap());
        assert_eq!(input, "before: a record and more");
    }

    #[tokio::test]
    async fn read_takes_at_most_one_buffer() {
        let pieces = [7u8; READ_BUFFER / 2 + 1];
        let mut stream = (&pieces[..]).chain(&pieces[..]).chain(&pieces[..]);
        let mut input = BytesMut::new();
        assert!(read_more(&mut stream, &mut input).await.unwrap());
        assert!((READ_BUFFER..3 * pieces.len()).contains(&input.len()), "{}", input.len());
    }

    #[tokio::test]
    async fn bytes_before_an_error_are_handed_on_first() {
        let mut stream = (&b"whole frames"[..]).chain(Broken);
        let mut input = BytesMut::new();
        assert!(read_more(&mut stream, &mut input).await.unwrap());
        assert_eq!(input, "whole frames");
        assert!(read_more(&mut stream, &mut input).await.is_err());
    }

    #[tokio::test]
    async fn invalid_hello_and_early_end_are_errors() {
        assert_eq!(read(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap_err(), "not an oncewire hello");
        assert!(read(b"oncewire\x01\x00").await.is_err());
        let endless = [b"oncewire\x01\x00\x01\x00\xff\x7f".as_slice(), &[0; 5000]].concat();
        assert!(read(&endless).await.unwrap_err().contains("over the limit"));
    }
}
