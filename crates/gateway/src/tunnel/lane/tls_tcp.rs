//! Lane kind 1: TLS 1.3 over TCP. Half the processor time of QUIC, and it passes every firewall.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::{AlertDescription, ClientConfig, Error as TlsError, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::HelloFailure;
use crate::identity::PublicKey;
use crate::sockets::{self, LaneOptions};
use crate::tunnel::count::{Counting, WireCounter};
use crate::tunnel::happy_eyeballs::first_to_answer;
use crate::tunnel::onward::OwnSockets;
use crate::tunnel::tls::{self, PinnedKeys};

/// The stream of a lane. Each write is a record of its own, and leaves with the next flush: so a lane decides where records
/// end, and many of them take one system call. What waits to be flushed is bounded by the lane's writer.
pub(crate) struct TlsTcp(Inner);

/// The buffer lies under TLS, which by itself asks the kernel for 4 KiB at a time.
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
}

impl DialError {
    /// Says whether trying again soon is pointless, since an operator must change something first.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::WrongKey { .. }
                | Self::NotAccepted { .. }
                | Self::Hello { source: HelloFailure::Hello(_), .. }
        )
    }

    /// Says whether nobody did anything wrong.
    pub(crate) fn is_of_the_moment(&self) -> bool {
        matches!(self, Self::Hello { source, .. } if source.is_of_the_moment())
    }
}

/// How a peer is dialled.
pub(crate) struct Dialling {
    pub(crate) address: String,
    pub(crate) options: LaneOptions,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) pinned: Arc<PinnedKeys>,
    pub(crate) ours: PublicKey,
    pub(crate) own: OwnSockets,
}

impl Dialling {
    /// Connects and authenticates; the caller exchanges hellos.
    ///
    /// # Errors
    /// By what failed, and by whether trying again makes sense.
    pub(crate) async fn dial(&self, counter: &Arc<WireCounter>) -> Result<(TlsTcp, PublicKey), DialError> {
        let address = || self.address.clone();
        let found = tokio::net::lookup_host(&self.address)
            .await
            .map_err(|source| DialError::Resolve { address: address(), source })?;
        let connected = self.connect(found.take(MAX_ADDRESSES).collect()).await;
        let tcp = connected.map_err(|source| DialError::Connect { address: address(), source })?;
        self.authenticate(tcp, counter).await
    }

    /// Connects to the first of the addresses that answers.
    async fn connect(&self, addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
        let marked = self.own.are_marked();
        let attempt = move |address| async move {
            let connecting = sockets::connect(address, marked, None);
            tokio::time::timeout(CONNECT_LIMIT, connecting).await.map_err(|_| io::ErrorKind::TimedOut)?
        };
        let tcp = first_to_answer(addresses, attempt).await?;
        sockets::prepare_lane(&tcp, &self.options);
        Ok(tcp)
    }

    async fn authenticate(
        &self,
        tcp: TcpStream,
        counter: &Arc<WireCounter>,
    ) -> Result<(TlsTcp, PublicKey), DialError> {
        let stream = buffered(tcp, Arc::clone(counter));
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let connected = connector.connect(tls::server_name(), stream).await;
        let stream = connected.map_err(|source| self.tls_error(source))?;
        let Some(theirs) = tls::presented_key(stream.get_ref().1.peer_certificates()) else {
            return Err(self.tls_error(io::ErrorKind::InvalidData.into()));
        };
        Ok((TlsTcp::new(stream.into()), theirs))
    }

    fn tls_error(&self, source: io::Error) -> DialError {
        let address = self.address.clone();
        match (tls_cause(&source), self.pinned.last_refused()) {
            (Some(TlsError::InvalidCertificate(_)), Some(presented)) => {
                DialError::WrongKey { address, presented }
            }
            _ => DialError::Tls { address, source },
        }
    }

    /// Sorts a failed hello: an alert in its place means that the other side refused our key.
    pub(crate) fn hello_error(&self, source: HelloFailure) -> DialError {
        let address = self.address.clone();
        match &source {
            HelloFailure::Io(error) if is_refusing_alert(error) => {
                DialError::NotAccepted { address, ours: self.ours }
            }
            _ => DialError::Hello { address, source },
        }
    }
}

/// Why accepting a connection ended before anybody was known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    #[error("an unknown key")]
    UnknownKey,
    #[error("not TLS as gateways speak it: {0}")]
    NotTls(TlsError),
    #[error("{0}")]
    Io(io::Error),
}

/// Authenticates an accepted connection.
///
/// # Errors
/// By who is to blame; each is counted.
pub(crate) async fn accept(
    tcp: TcpStream,
    counter: Arc<WireCounter>,
    tls: &Arc<ServerConfig>,
) -> Result<(TlsTcp, PublicKey), AcceptError> {
    let stream = buffered(tcp, counter);
    let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream).await;
    let stream = accepted.map_err(|error| match tls_cause(&error) {
        Some(TlsError::InvalidCertificate(_)) => AcceptError::UnknownKey,
        Some(cause) => AcceptError::NotTls(cause.clone()),
        None => AcceptError::Io(error),
    })?;
    let key = tls::presented_key(stream.get_ref().1.peer_certificates()).ok_or(AcceptError::UnknownKey)?;
    Ok((TlsTcp::new(stream.into()), key))
}

impl TlsTcp {
    /// Lets TLS take whatever it is given at once. By itself it takes 64 KiB, and what is beyond would have to be flushed
    /// apart.
    fn new(mut stream: Inner) -> Self {
        match &mut stream {
            TlsStream::Client(client) => client.get_mut().1.set_buffer_limit(None),
            TlsStream::Server(server) => server.get_mut().1.set_buffer_limit(None),
        }
        Self(stream)
    }

    /// Counts a lane's bytes, those of its handshake included, for the peer that it turned out to be.
    pub(crate) fn count_for(&mut self, counter: &Arc<WireCounter>) {
        self.0.get_mut().0.get_mut().count_for(counter);
    }

    /// Prepares the socket of an accepted lane for the peer that it turned out to be.
    pub(crate) fn prepare(&self, options: &LaneOptions) {
        sockets::prepare_lane(self.0.get_ref().0.get_ref().get_ref(), options);
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

/// What one read of the socket may bring: two full TLS records.
const SOCKET_BUFFER: usize = 33 << 10;

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

/// How long each address has.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// From the first packet to the other side's hello.
pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::Identity;
    use crate::tunnel::happy_eyeballs::tests::silent;

    async fn joined() -> (TlsTcp, TlsTcp) {
        let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        let client = tls::client_config(&branch, PinnedKeys::new([hub.public_key()])).unwrap();
        let server = tls::server_config(&hub, PinnedKeys::new([branch.public_key()])).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let connected =
            TlsConnector::from(client).connect(tls::server_name(), buffered(dialled, Arc::default()));
        let (near, far) = tokio::join!(connected, accept(accepted, Arc::default(), &server));
        (TlsTcp::new(near.unwrap().into()), far.unwrap().0)
    }

    #[tokio::test]
    async fn each_write_is_a_record_and_leaves_with_the_flush() {
        let (mut near, mut far) = joined().await;
        let counter = Arc::new(WireCounter::default());
        near.count_for(&counter);
        let before = counter.sent();
        near.write_all(&[1; 3_000]).await.unwrap();
        near.write_all(&[2; 200]).await.unwrap();
        assert_eq!(counter.sent(), before, "nothing was flushed");
        near.flush().await.unwrap();
        assert_eq!(counter.sent() - before, 3_000 + 200 + 2 * RECORD_BYTES);
        let mut got = [0; 3_200];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(got, [[1; 3_000].as_slice(), &[2; 200]].concat()[..]);
        near.shutdown().await.unwrap();
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_peer_is_reached_at_the_last_address_of_its_name_if_the_others_are_silent() {
        let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        let pinned = PinnedKeys::new([hub.public_key()]);
        let dialling = Dialling {
            address: "hub.example:7400".to_owned(),
            options: LaneOptions::default(),
            tls: tls::client_config(&branch, Arc::clone(&pinned)).unwrap(),
            pinned,
            ours: branch.public_key(),
            own: OwnSockets::default(),
        };
        let answers = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = [silent().await, silent().await, silent().await];
        let addresses = silent.iter().map(|(silent, _)| silent).chain([&answers]);
        let addresses = addresses.map(|listener| listener.local_addr().unwrap()).collect();
        let dialled = tokio::time::timeout(DIAL_LIMIT, dialling.connect(addresses)).await;
        let tcp = dialled.expect("before the attempt is over").unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), answers.local_addr().unwrap());
    }

    /// Header, type and tag of a record of TLS 1.3.
    const RECORD_BYTES: u64 = 22;
}
