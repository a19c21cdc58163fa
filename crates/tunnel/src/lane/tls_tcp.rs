//! Lane kind 1: TLS 1.3 over TCP.
//!
//! It takes half the CPU time of QUIC, and passes every firewall.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use oncewire_host::connects::ConnectShortage;
use oncewire_host::names::lookup;
use oncewire_host::{limits, sockets};
use oncewire_keys::PublicKey;
use oncewire_keys::tls::{self, PinnedKeys};
use parking_lot::Mutex;
use rustls::{AlertDescription, ClientConfig, Error as TlsError, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::super::peer::Binding;
use super::{Heard, HelloFailure, Joined, LaneStream, hear_hello};
use crate::count::{Counting, WireCounter};
use crate::happy_eyeballs::{ATTEMPT_DELAY, Delays, first_to_welcome};
use crate::lane::options::{self, LaneOptions};
use crate::onward::OwnSockets;

/// A lane's stream. Each write is a TLS record of its own, and leaves with the next flush: a lane decides on
/// the ends of records, and many of them take one system call. The lane's writer bounds the unflushed bytes.
pub(crate) struct TlsTcp(Inner);

/// The buffer lies under TLS: by itself TLS reads 4 KiB at a time from the kernel.
type Inner = TlsStream<BufReader<Counting<TcpStream>>>;

/// Why dialling a peer failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("cannot resolve {address}: {source}")]
    Resolve { address: String, source: io::Error },
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("no answer from {address} within {} s", DIAL_LIMIT.as_secs())]
    TimedOut { address: String },
    #[error("{address} presented public key {presented}, which is not the peer's `public_key`")]
    WrongKey { address: String, presented: PublicKey },
    #[error("{address} does not accept our public key; it must name {ours} as a peer")]
    NotAccepted { address: String, ours: PublicKey },
    #[error("TLS with {address} failed: {source}")]
    Tls { address: String, source: io::Error },
    #[error("{address}: {source}")]
    Hello { address: String, source: HelloFailure },
    #[error("{}", each(.0))]
    Each(Vec<DialError>),
}

impl DialError {
    /// Whether the gateway there refuses us, or is not the peer.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Each(each) => each.iter().any(Self::is_refusal),
            Self::WrongKey { .. } | Self::NotAccepted { .. } => true,
            Self::Hello { source, .. } => source.is_mismatch(),
            _ => false,
        }
    }

    /// Whether trying again soon is pointless, since an operator must change something first: not if any
    /// address may yet lead to the peer.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Each(each) => each.iter().all(Self::is_lasting),
            _ => self.is_refusal(),
        }
    }

    /// Whether neither end is at fault.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Hello { source, .. } if source.is_transient())
    }
}

/// Lists the failure at each address.
fn each(failures: &[DialError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// How a peer is dialled.
pub struct Dialling {
    /// The peer's name, for the log.
    pub name: String,
    /// The peer's `host:port`.
    pub address: String,
    /// Options of its TCP connections.
    pub options: LaneOptions,
    /// The client's side of TLS.
    pub tls: Arc<ClientConfig>,
    /// The peer's keys, as in `tls`.
    pub pinned: Arc<PinnedKeys>,
    /// This gateway's key.
    pub ours: PublicKey,
    /// Addresses of this gateway itself, and the mark of its sockets.
    pub own: OwnSockets,
    /// Failed connects for lack of ports or files.
    pub shortage: Arc<ConnectShortage>,
    /// The peer's last address; tried first.
    pub known: Mutex<Option<SocketAddr>>,
}

impl Dialling {
    /// Connects to the first of the peer's addresses with a hello under its key, before that time; the caller
    /// answers. Logs addresses leading to other gateways.
    ///
    /// # Errors
    /// By the failed step, and by the sense of a retry.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        counter: &Arc<WireCounter>,
        end: Instant,
    ) -> Result<Heard<TlsTcp>, DialError> {
        let address = || self.address.clone();
        let found = timeout_at(end, lookup(&self.address)).await;
        let found = found.map_err(|_| DialError::TimedOut { address: address() })?;
        let found = found.map_err(|source| DialError::Resolve { address: address(), source })?;
        self.dial_each(found.into_iter().take(MAX_ADDRESSES).collect(), counter, end).await
    }

    async fn dial_each(
        self: &Arc<Self>,
        mut addresses: Vec<SocketAddr>,
        counter: &Arc<WireCounter>,
        end: Instant,
    ) -> Result<Heard<TlsTcp>, DialError> {
        let known = *self.known.lock();
        addresses.sort_by_key(|address| Some(*address) != known);
        let count = addresses.len();
        let delays = delays(&addresses, known);
        let place = move |dialling: &Self, address| match count {
            1 => dialling.address.clone(),
            _ => format!("{} ({address})", dialling.address),
        };
        let (connecting, welcoming, counter) = (Arc::clone(self), Arc::clone(self), Arc::clone(counter));
        let connect = move |address| {
            let (dialling, place) = (Arc::clone(&connecting), place(&connecting, address));
            async move {
                dialling
                    .connect(address)
                    .await
                    .map_err(|source| DialError::Connect { address: place, source })
            }
        };
        let welcome = move |address, tcp| {
            let (dialling, place, counter) =
                (Arc::clone(&welcoming), place(&welcoming, address), Arc::clone(&counter));
            async move {
                let heard = timeout_at(end, dialling.authenticate(tcp, &place, &counter)).await;
                heard.unwrap_or(Err(DialError::TimedOut { address: place }))
            }
        };
        match first_to_welcome(addresses, delays, connect, welcome).await {
            Ok(welcomed) => {
                self.note_passed_over(welcomed.address, welcomed.failures);
                Ok(welcomed.result)
            }
            Err(failures) => {
                *self.known.lock() = None;
                Err(self.all_failed(failures))
            }
        }
    }

    /// Remembers the peer's address, and logs new addresses leading to other gateways.
    fn note_passed_over(&self, address: SocketAddr, failures: Vec<(SocketAddr, DialError)>) {
        if self.known.lock().replace(address) == Some(address) {
            return;
        }
        // Some unreachable addresses of a name are usual.
        let somebody = |error: &DialError| !matches!(error, DialError::Connect { .. });
        for (_, error) in failures.iter().filter(|(_, error)| somebody(error)) {
            tracing::warn!(peer = self.name, "{error}; the peer is dialled at {address} instead");
        }
    }

    /// One error for all addresses, in an order independent of time.
    fn all_failed(&self, mut failures: Vec<(SocketAddr, DialError)>) -> DialError {
        failures.sort_by_key(|(address, _)| *address);
        let mut errors: Vec<_> = failures.into_iter().map(|(_, error)| error).collect();
        match errors.pop() {
            Some(only) if errors.is_empty() => only,
            Some(last) => {
                errors.push(last);
                DialError::Each(errors)
            }
            None => {
                let source = io::Error::new(io::ErrorKind::NotFound, "the name has no addresses");
                DialError::Connect { address: self.address.clone(), source }
            }
        }
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let connecting = sockets::connect(address, self.own.are_marked());
        let tcp = timeout(CONNECT_LIMIT, connecting).await.map_err(|_| io::ErrorKind::TimedOut)?;
        let tcp = tcp.inspect_err(|error| _ = self.shortage.note(address, error))?;
        if sockets::is_its_own_peer(&tcp) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        options::prepare_lane(&tcp, &self.options);
        Ok(tcp)
    }

    /// Verifies the peer's identity, and waits for its hello.
    async fn authenticate(
        &self,
        tcp: TcpStream,
        place: &str,
        counter: &Arc<WireCounter>,
    ) -> Result<Heard<TlsTcp>, DialError> {
        let stream = buffered(tcp, Arc::clone(counter));
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let connected = connector.connect(tls::server_name(), stream).await;
        let stream = connected.map_err(|source| self.tls_error(place, source))?;
        let Some(theirs) = tls::presented_key(stream.get_ref().1.peer_certificates()) else {
            return Err(self.tls_error(place, io::ErrorKind::InvalidData.into()));
        };
        let heard = hear_hello(theirs, TlsTcp::new(stream.into())).await;
        heard.map_err(|source| self.hello_error(place, source))
    }

    fn tls_error(&self, place: &str, source: io::Error) -> DialError {
        let address = place.to_owned();
        match (tls_cause(&source), self.pinned.last_refused()) {
            (Some(TlsError::InvalidCertificate(_)), Some(presented)) => {
                DialError::WrongKey { address, presented }
            }
            _ => DialError::Tls { address, source },
        }
    }

    /// Sorts a failed hello: an alert in its place means a refusal of our key by the other side.
    fn hello_error(&self, place: &str, source: HelloFailure) -> DialError {
        let address = place.to_owned();
        match &source {
            HelloFailure::Io(error) if is_refusing_alert(error) => {
                DialError::NotAccepted { address, ours: self.ours }
            }
            _ => DialError::Hello { address, source },
        }
    }
}

/// Returns the delays between these addresses, for a peer last seen at `known`.
fn delays(addresses: &[SocketAddr], known: Option<SocketAddr>) -> Delays {
    let count = u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let proof = PROOF_DELAY.min(DIAL_LIMIT / count);
    // At the peer's last address, the others need no parallel attempt.
    let is_known = known.is_some() && addresses.first().copied() == known;
    Delays { first: if is_known { proof } else { ATTEMPT_DELAY }, proof }
}

/// Why accepting a connection ended before any identity was known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    #[error("an unknown key")]
    UnknownKey,
    #[error("our key is another than the one that is expected there")]
    NotExpected,
    #[error("not TLS as gateways speak it: {0}")]
    NotTls(TlsError),
    #[error("{0}")]
    Io(io::Error),
}

/// Authenticates an accepted connection.
///
/// # Errors
/// By the side to blame; each is counted.
pub(crate) async fn accept(
    tcp: TcpStream,
    counter: Arc<WireCounter>,
    tls: &Arc<ServerConfig>,
) -> Result<(TlsTcp, PublicKey), AcceptError> {
    let stream = buffered(tcp, counter);
    let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream).await;
    let stream = accepted.map_err(|error| match tls_cause(&error) {
        Some(TlsError::InvalidCertificate(_)) => AcceptError::UnknownKey,
        Some(TlsError::AlertReceived(AlertDescription::AccessDenied)) => AcceptError::NotExpected,
        Some(cause) => AcceptError::NotTls(cause.clone()),
        None => AcceptError::Io(error),
    })?;
    let key = tls::presented_key(stream.get_ref().1.peer_certificates()).ok_or(AcceptError::UnknownKey)?;
    Ok((TlsTcp::new(stream.into()), key))
}

impl TlsTcp {
    /// Lets TLS take all given bytes at once. By default it takes 64 KiB; the rest would need a flush of its
    /// own.
    fn new(mut stream: Inner) -> Self {
        match &mut stream {
            TlsStream::Client(client) => client.get_mut().1.set_buffer_limit(None),
            TlsStream::Server(server) => server.get_mut().1.set_buffer_limit(None),
        }
        Self(stream)
    }

    /// Counts a lane's bytes, those of its handshake included, for its peer, once known.
    pub(crate) fn count_for(&mut self, counter: &Arc<WireCounter>) {
        self.0.get_mut().0.get_mut().count_for(counter);
    }

    /// Prepares the socket of an accepted lane for its peer, once known.
    pub(crate) fn prepare(&self, options: &LaneOptions) {
        options::prepare_lane(self.tcp(), options);
    }

    fn tcp(&self) -> &TcpStream {
        self.0.get_ref().0.get_ref().get_ref()
    }
}

impl Joined<TlsTcp> {
    /// Returns the remote address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.stream.tcp().peer_addr().ok()
    }

    /// Prepares the socket for the lane's role, once known.
    pub(crate) fn prepare_for_role(&self, options: &LaneOptions) {
        options::limit_unsent(self.stream.tcp(), options, self.role);
    }
}

impl LaneStream for TlsTcp {
    fn connection(&self) -> Option<OwnedFd> {
        // Without a spare descriptor the lane is as good, but not observed.
        self.tcp().as_fd().try_clone_to_owned().ok().filter(limits::leaves_reserve)
    }

    fn binding(&self) -> Option<Binding> {
        let binding = [0; 32];
        match &self.0 {
            TlsStream::Client(client) => client.get_ref().1.export_keying_material(binding, BINDING, None),
            TlsStream::Server(server) => server.get_ref().1.export_keying_material(binding, BINDING, None),
        }
        .ok()
    }
}

impl AsyncRead for TlsTcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsTcp {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match &mut self.get_mut().0 {
            TlsStream::Client(client) => client.get_mut().1.writer().write(bytes),
            TlsStream::Server(server) => server.get_mut().1.writer().write(bytes),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

fn buffered(tcp: TcpStream, counter: Arc<WireCounter>) -> BufReader<Counting<TcpStream>> {
    BufReader::with_capacity(SOCKET_BUFFER, Counting::new(tcp, counter))
}

fn tls_cause(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

fn is_refusing_alert(error: &io::Error) -> bool {
    let Some(TlsError::AlertReceived(alert)) = tls_cause(error) else { return false };
    !matches!(alert, AlertDescription::CloseNotify | AlertDescription::InternalError)
}

/// Label of the keying material behind proofs of membership.
const BINDING: &[u8] = b"EXPERIMENTAL-oncewire-group";

/// Capacity of one socket read: two full TLS records.
const SOCKET_BUFFER: usize = 33 << 10;

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

/// How long each address has.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Head start of a connected address over the next: a few round trips by way of a satellite.
const PROOF_DELAY: Duration = Duration::from_secs(3);

/// From the first packet to the other side's hello.
pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
