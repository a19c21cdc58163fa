//! Lane kind 1: TLS 1.3 over TCP. Half the processor time of QUIC, and it passes every firewall.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, ClientConfig, Error as TlsError, ServerConfig};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::HelloFailure;
use crate::identity::PublicKey;
use crate::sockets::{self, LaneOptions};
use crate::tunnel::count::{Counting, WireCounter};
use crate::tunnel::onward::OwnSockets;
use crate::tunnel::tls::{self, PinnedKeys};

/// The stream of a lane. The buffer lies under TLS, which by itself asks the kernel for 4 KiB at a time.
pub(crate) type TlsTcp = TlsStream<BufReader<Counting<TcpStream>>>;

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
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no addresses");
        for candidate in found.take(MAX_ADDRESSES) {
            match self.connect(candidate).await {
                Ok(tcp) => return self.authenticate(tcp, counter).await,
                Err(error) => failed = error,
            }
        }
        Err(DialError::Connect { address: address(), source: failed })
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let connect =
            tokio::time::timeout(CONNECT_LIMIT, sockets::connect(address, self.own.are_marked(), None));
        let tcp = connect.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
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
        Ok((ready(stream.into()), theirs))
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
    Ok((ready(stream.into()), key))
}

/// Counts a lane's bytes, those of its handshake included, for the peer that it turned out to be.
pub(crate) fn count_for(stream: &mut TlsTcp, counter: &Arc<WireCounter>) {
    stream.get_mut().0.get_mut().count_for(counter);
}

/// Prepares the socket of an accepted lane for the peer that it turned out to be.
pub(crate) fn prepare(stream: &TlsTcp, options: &LaneOptions) {
    sockets::prepare_lane(stream.get_ref().0.get_ref().get_ref(), options);
}

fn buffered(tcp: TcpStream, counter: Arc<WireCounter>) -> BufReader<Counting<TcpStream>> {
    BufReader::with_capacity(SOCKET_BUFFER, Counting::new(tcp, counter))
}

/// Lets TLS take whatever it is given at once. By itself it takes 64 KiB, so that each block would leave a few bytes
/// behind for a record, a system call and a packet of their own. What it is given is bounded by the lane's writer.
fn ready(mut stream: TlsTcp) -> TlsTcp {
    match &mut stream {
        TlsStream::Client(client) => client.get_mut().1.set_buffer_limit(None),
        TlsStream::Server(server) => server.get_mut().1.set_buffer_limit(None),
    }
    stream
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

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// From the first packet to the other side's hello.
pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(15);
