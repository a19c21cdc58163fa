//! TLS 1.3 between gateways with raw public keys (RFC 7250).
//!
//! One verifier serves both sides. It takes exactly the given keys, and remembers the last refused one in the
//! configuration's format, since TLS alerts say nothing. Sessions are never resumed and the server sends no
//! tickets: unread tickets would turn the close of a connection into a reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};

use crate::identity::{Identity, PublicKey};

/// The protocol named by both sides in the handshake; the hello agrees on the version of frames.
pub(crate) const ALPN: &[u8] = b"oncewire/1";

/// Makes the configuration of the accepting side.
///
/// # Errors
/// If rustls refuses the identity; a working build does not.
pub fn server_config(identity: &Identity, peers: Arc<PinnedKeys>) -> Result<Arc<ServerConfig>, Error> {
    let keys = AlwaysResolvesServerRawPublicKeys::new(identity.certified_key()?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(peers)
        .with_cert_resolver(Arc::new(keys));
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Makes the configuration of the dialling side.
///
/// # Errors
/// If rustls refuses the identity; a working build does not.
pub fn client_config(identity: &Identity, peer: Arc<PinnedKeys>) -> Result<Arc<ClientConfig>, Error> {
    let keys = AlwaysResolvesClientRawPublicKeys::new(identity.certified_key()?);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(peer)
        .with_client_cert_resolver(Arc::new(keys));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The name required by TLS, and unread.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// Reads the other side's presented key, after the handshake proved possession of the secret.
pub fn presented_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::from_spki_der(certificates?.first()?)
}

/// The keys permitted at the other end; verifies for client and server alike.
#[derive(Debug)]
pub struct PinnedKeys {
    accepted: BTreeSet<PublicKey>,
    algorithms: WebPkiSupportedAlgorithms,
    last_refused: Mutex<Option<PublicKey>>,
}

impl PinnedKeys {
    /// Accepts these keys alone.
    pub fn new(accepted: impl IntoIterator<Item = PublicKey>) -> Arc<Self> {
        Arc::new(Self {
            accepted: accepted.into_iter().collect(),
            algorithms: provider().signature_verification_algorithms,
            last_refused: Mutex::new(None),
        })
    }

    /// Returns the last refused key; the caller logs it for the operator to paste.
    pub fn last_refused(&self) -> Option<PublicKey> {
        *self.last_refused.lock()
    }

    fn verify_key(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::from_spki_der(spki);
        if key.is_some_and(|key| self.accepted.contains(&key)) {
            return Ok(());
        }
        *self.last_refused.lock() = key;
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

impl ServerCertVerifier for PinnedKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PinnedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Names the provider explicitly: a second one in the dependency tree would panic at run time.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    /// Runs a handshake in memory; the first error of either side, or the client's key as seen by the server.
    fn shake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<PublicKey, Error> {
        let mut client = ClientConnection::new(client, server_name()).unwrap();
        let mut server = ServerConnection::new(server).unwrap();
        let mut wire = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            wire.clear();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        client.writer().write_all(b"once").unwrap();
        wire.clear();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut plain = [0; 4];
        server.reader().read_exact(&mut plain).unwrap();
        assert_eq!(&plain, b"once");
        assert_eq!(server.alpn_protocol(), Some(ALPN));
        Ok(presented_key(server.peer_certificates()).unwrap())
    }

    #[test]
    fn mutually_pinned_gateways_authenticate_each_other() {
        let (branch, hub) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        let client = client_config(&branch, PinnedKeys::new([hub.public_key()])).unwrap();
        let server = server_config(&hub, PinnedKeys::new([branch.public_key()])).unwrap();
        assert_eq!(shake(client, server).unwrap(), branch.public_key());
    }

    #[test]
    fn stranger_is_refused_and_named() {
        let (branch, hub, stranger) =
            (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]), Identity::from_seed([3; 32]));
        let pinned = PinnedKeys::new([branch.public_key()]);
        let client = client_config(&stranger, PinnedKeys::new([hub.public_key()])).unwrap();
        let server = server_config(&hub, Arc::clone(&pinned)).unwrap();
        assert!(shake(client, server).is_err());
        assert_eq!(pinned.last_refused(), Some(stranger.public_key()));
    }

    #[test]
    fn gateway_with_another_key_is_refused() {
        let (branch, hub, impostor) =
            (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]), Identity::from_seed([3; 32]));
        let pinned = PinnedKeys::new([hub.public_key()]);
        let client = client_config(&branch, Arc::clone(&pinned)).unwrap();
        let server = server_config(&impostor, PinnedKeys::new([branch.public_key()])).unwrap();
        assert!(shake(client, server).is_err());
        assert_eq!(pinned.last_refused(), Some(impostor.public_key()));
    }
}
