//! TLS 1.3 between the client and the origin, as with browsers.
//!
//! In place of a certificate the origin presents a raw public key (RFC 7250): without a name, no authority could
//! vouch for it. For the gateways between them it is TLS like any other.

use std::io;
use std::sync::Arc;

use anyhow::Context as _;
use oncewire_keys::Identity;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::{ClientConfig, Error, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Both ends' settings, with a key made for them.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    name: ServerName<'static>,
}

impl Tls {
    /// Makes a key and settings for both ends.
    ///
    /// # Errors
    ///
    /// No random bytes from the operating system.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let identity = Identity::generate().context("cannot make the origin's key")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = identity.public_key().verifier();
        Ok(Self {
            connector: Arc::new(client_config(provider.clone(), verifier)?).into(),
            acceptor: Arc::new(server_config(provider, &identity)?).into(),
            name: ServerName::try_from("origin.example").context("the origin's name is none")?,
        })
    }

    /// Shakes hands as the client.
    ///
    /// # Errors
    ///
    /// A broken connection, or another key than the origin's.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }

    /// Shakes hands as the server.
    ///
    /// # Errors
    ///
    /// A broken connection, or a refusal by the client.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

fn client_config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, Error> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

fn server_config(provider: Arc<CryptoProvider>, identity: &Identity) -> Result<ServerConfig, Error> {
    let keys = AlwaysResolvesServerRawPublicKeys::new(identity.certified_key()?);
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(keys)))
}
