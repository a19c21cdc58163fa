//! Ways in.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use oncewire_testnet::{Family, Network};
use socket2::{Domain, Socket, Type};

use super::super::clients::{http_ask, socks_ask};
use super::super::network::{FORWARDED, HTTP, OWN, REDIRECT, SOCKS, TPROXY};
use super::plan::Way;

/// The clients' way in, and their destination.
pub(super) struct Door {
    network: Arc<Network>,
}

impl Door {
    /// Into this network.
    pub(super) fn new(network: &Arc<Network>) -> Self {
        Self { network: Arc::clone(network) }
    }

    /// Connects; an error may be a refusal.
    pub(super) fn open(&self, way: Way, family: Family) -> io::Result<TcpStream> {
        let server = |port| SocketAddr::new(self.network.host("server").ip(family), port);
        let branch = |port| SocketAddr::new(self.network.host("branch").lan_ip(family), port);
        match way {
            Way::Forward => self.connect("client", branch(FORWARDED)),
            Way::Tproxy => self.connect("client", server(TPROXY[0])),
            Way::Redirect => self.connect("client", server(REDIRECT)),
            Way::Own => self.connect_from(Some(branch(0)), "branch", server(OWN)),
            Way::Socks => {
                let target = server(FORWARDED);
                let proxy = self.connect("client", branch(SOCKS))?;
                let asked = socks_ask(proxy, None, &target.ip().to_string(), target.port())?;
                asked.map_err(|code| io::Error::other(format!("SOCKS reply {code}")))
            }
            Way::Http => {
                match http_ask(self.connect("client", branch(HTTP))?, &server(FORWARDED).to_string())? {
                    (200, stream) => Ok(stream),
                    (status, _) => Err(io::Error::other(format!("HTTP status {status}"))),
                }
            }
        }
    }

    /// Whether a connection came by the link, from its address at the origin.
    pub(super) fn is_the_hub(&self, address: IpAddr) -> bool {
        Family::BOTH.iter().any(|family| self.network.host("hub").lan_ip(*family) == address)
    }

    fn connect(&self, host: &str, to: SocketAddr) -> io::Result<TcpStream> {
        self.connect_from(None, host, to)
    }

    /// Connects from an address of the host's own.
    fn connect_from(&self, from: Option<SocketAddr>, host: &str, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.network.host(host).enter(|| {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            from.map_or(Ok(()), |from| socket.bind(&from.into()))?;
            socket.connect_timeout(&to.into(), ANSWER)?;
            Ok::<_, io::Error>(socket)
        })?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(stream)
    }
}

/// Longer than a gateway tries to connect.
const ANSWER: Duration = Duration::from_secs(90);
