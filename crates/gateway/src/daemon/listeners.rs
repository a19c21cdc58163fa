//! A gateway's listening sockets, bound ahead of their use.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use oncewire_config::{Config, Intercept, Mode};
use oncewire_host::sockets::{self, Sharing};
use oncewire_intercept as intercept;
use tokio::net::TcpListener;

use super::StartError;

/// Every listening socket of a configuration.
pub(super) struct Listeners {
    pub(super) tunnel: Vec<Bound>,
    pub(super) intercepts: Vec<Bound>,
    pub(super) admin: Option<Bound>,
}

/// A listening socket.
pub(super) struct Bound {
    pub(super) listener: TcpListener,
    /// Its address; a configured port 0 is replaced by the system's choice.
    pub(super) address: SocketAddr,
    /// The socket of the other family, if rules lead both families here.
    pub(super) twin: Option<TcpListener>,
    /// Listeners on all addresses of a family until a reload is done. While there is one, this does not
    /// listen yet.
    pub(super) behind: Vec<Arc<TcpListener>>,
}

impl Bound {
    /// Listens on `address`, configured at `key`.
    pub(super) fn new(address: SocketAddr, key: &'static str, sharing: Sharing) -> Result<Self, StartError> {
        let bound = sockets::listen(address, sharing).and_then(|listener| {
            listener.local_addr().map(|address| Self { listener, address, twin: None, behind: Vec::new() })
        });
        bound.map_err(|source| StartError::Listen { address, key, source })
    }

    /// Listens for an interception.
    pub(super) fn of(config: &Intercept, sharing: Sharing) -> Result<Self, StartError> {
        let address = config.listen;
        let bind = || {
            let (listener, twin) = match config.mode.capture() {
                Some(_) => intercept::listen(config, sharing)?,
                None => (sockets::listen(address, sharing)?, None),
            };
            let bound = Self { address: listener.local_addr()?, listener, twin, behind: Vec::new() };
            bound.listeners().try_for_each(sockets::take_in_to_reset)?;
            Ok(bound)
        };
        let bound: io::Result<_> = bind();
        bound.map_err(|source| match &config.mode {
            Mode::Tproxy(_) if source.kind() == io::ErrorKind::PermissionDenied => {
                StartError::Transparent { address, source }
            }
            _ => StartError::Listen { address, key: INTERCEPT, source },
        })
    }
}

impl Bound {
    /// Listens, if it does not yet.
    pub(super) fn listen_late(&mut self) -> io::Result<()> {
        let behind = std::mem::take(&mut self.behind);
        if behind.is_empty() {
            return Ok(());
        }
        let share = |bound: &Self, sharing| {
            let mut all = behind.iter().map(Arc::as_ref).chain(bound.listeners());
            all.try_for_each(|listener| sockets::share(listener, sharing))
        };
        share(self, Sharing::Shared)?;
        let mut own = std::iter::once(&mut self.listener).chain(&mut self.twin);
        own.try_for_each(sockets::listen_late)?;
        share(self, Sharing::Alone)
    }

    /// Returns the listeners, of both families.
    pub(super) fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        std::iter::once(&self.listener).chain(&self.twin)
    }

    /// Returns the listening addresses, of both families.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let twin = self.twin.as_ref().and_then(|twin| twin.local_addr().ok());
        std::iter::once(self.address).chain(twin)
    }
}

impl Listeners {
    /// Binds all of them, or none.
    pub(super) fn bind(config: &Config) -> Result<Self, StartError> {
        let plain = |address, key| Bound::new(address, key, Sharing::Alone);
        let tunnel = config.gateway.listen.iter().map(|address| plain(*address, TUNNEL));
        let intercepts = config.intercepts.iter().map(|intercept| Bound::of(intercept, Sharing::Alone));
        let admin = config.gateway.admin.as_ref().map(|admin| plain(admin.listen, ADMIN));
        Ok(Self {
            tunnel: tunnel.collect::<Result<_, _>>()?,
            intercepts: intercepts.collect::<Result<_, _>>()?,
            admin: admin.transpose()?,
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Bound> {
        self.tunnel.iter().chain(&self.intercepts).chain(&self.admin)
    }
}

/// Their key in the configuration.
pub(super) const TUNNEL: &str = "[gateway] listen";
pub(super) const INTERCEPT: &str = "[[intercept]] listen";
pub(super) const ADMIN: &str = "[gateway] admin";
