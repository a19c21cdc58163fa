//! Listeners across a reload: staying, newly bound, closing.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use oncewire_config::{Config, Intercept, Scope};
use oncewire_host::sockets::{self, Sharing};
use oncewire_intercept::Entrance;
use oncewire_tunnel::listener::TunnelPort;
use tokio::net::TcpListener;

use super::StartError;
use super::listeners::{ADMIN, Bound, INTERCEPT, TUNNEL};
use super::reload::Reloaded;
use super::state::State;

/// A present or future listener.
pub(super) enum Place<T> {
    Kept(T),
    New(Bound),
}

impl<T> Place<T> {
    /// Returns a newly bound socket.
    fn bound(&self) -> Option<&Bound> {
        match self {
            Self::Kept(_) => None,
            Self::New(bound) => Some(bound),
        }
    }
}

/// Listeners after the reload, in the configuration's order, and the closing ones.
pub(super) struct Places {
    pub(super) ports: Vec<Place<Arc<TunnelPort>>>,
    pub(super) entrances: Vec<Place<Arc<Entrance>>>,
    pub(super) closed_ports: Vec<Arc<TunnelPort>>,
    pub(super) closed_entrances: Vec<Arc<Entrance>>,
}

impl Places {
    /// Finds staying listeners and binds new ones; nothing is closed or used yet.
    pub(super) fn find(old: &State, config: &Config, done: &mut Reloaded) -> Result<Self, StartError> {
        let mut own = Own::of(old);
        let ports: Vec<_> = config.gateway.listen.iter().map(|address| own.keep_port(*address)).collect();
        let entrances: Vec<_> =
            config.intercepts.iter().map(|intercept| own.keep_entrance(intercept)).collect();
        let port = |(address, kept): (&SocketAddr, Option<_>)| match kept {
            Some(port) => Ok(Place::Kept(port)),
            None => {
                done.changes.push(format!("peers are accepted on {address}"));
                own.bind(Wanted::Port(*address)).map(Place::New)
            }
        };
        let ports = config.gateway.listen.iter().zip(ports).map(port).collect::<Result<_, _>>()?;
        let entrance = |(intercept, kept): (&Intercept, Option<(Intercept, _)>)| {
            let (mode, listen) = (intercept.mode.name(), intercept.listen);
            match kept {
                Some((before, entrance)) => {
                    if before != *intercept {
                        done.changes.push(format!("intercept {mode} on {listen} changed"));
                    }
                    Ok(Place::Kept(entrance))
                }
                None => {
                    done.changes.push(format!("intercept {mode} on {listen} added"));
                    own.bind(Wanted::Entrance(intercept)).map(Place::New)
                }
            }
        };
        let entrances = config.intercepts.iter().zip(entrances).map(entrance).collect::<Result<_, _>>()?;
        let no_longer = |(address, _): &(SocketAddr, _)| format!("peers are no longer accepted on {address}");
        done.changes.extend(own.ports.iter().map(no_longer));
        let removed = |(intercept, _): &(Intercept, _)| {
            format!("intercept {} on {} removed", intercept.mode.name(), intercept.listen)
        };
        done.changes.extend(own.entrances.iter().map(removed));
        Ok(Self {
            ports,
            entrances,
            closed_ports: own.ports.into_iter().map(|(_, port)| port).collect(),
            closed_entrances: own.entrances.into_iter().map(|(_, entrance)| entrance).collect(),
        })
    }

    /// Starts listeners delayed by the rules of their predecessors.
    ///
    /// # Errors
    /// If one cannot.
    pub(super) fn listen_late(&mut self) -> Result<(), StartError> {
        for place in &mut self.entrances {
            let Place::New(bound) = place else { continue };
            let address = bound.address;
            bound.listen_late().map_err(|source| StartError::Listen { address, key: INTERCEPT, source })?;
        }
        Ok(())
    }

    /// Returns the addresses of new listeners.
    pub(super) fn new_addresses(&self) -> Vec<SocketAddr> {
        let ports = self.ports.iter().filter_map(Place::bound);
        ports.chain(self.entrances.iter().filter_map(Place::bound)).flat_map(Bound::addresses).collect()
    }

    /// Returns the entrances in order; new ones are not open yet.
    pub(super) fn weak_entrances(&self) -> Vec<Weak<Entrance>> {
        let weak = |place: &Place<_>| match place {
            Place::Kept(entrance) => Arc::downgrade(entrance),
            Place::New(_) => Weak::new(),
        };
        self.entrances.iter().map(weak).collect()
    }
}

/// This gateway's listeners: staying ones, and closing ones unless a use is found for them.
struct Own {
    ports: Vec<(SocketAddr, Arc<TunnelPort>)>,
    entrances: Vec<(Intercept, Arc<Entrance>)>,
    /// Addresses of staying listeners, with their keys in the configuration.
    stays: Vec<(SocketAddr, &'static str)>,
}

/// A socket to bind.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Port(SocketAddr),
    Entrance(&'a Intercept),
}

impl Own {
    fn of(state: &State) -> Self {
        let config = &state.config;
        let listen = config.gateway.listen.iter().copied();
        Self {
            ports: listen.zip(state.ports.iter().cloned()).collect(),
            entrances: config.intercepts.iter().cloned().zip(state.entrances.iter().cloned()).collect(),
            stays: state.admin.iter().map(|address| (*address, ADMIN)).collect(),
        }
    }

    fn keep_port(&mut self, address: SocketAddr) -> Option<Arc<TunnelPort>> {
        let at = self.ports.iter().position(|(known, _)| *known == address)?;
        let (_, port) = self.ports.remove(at);
        self.stays.push((port.address, TUNNEL));
        Some(port)
    }

    fn keep_entrance(&mut self, intercept: &Intercept) -> Option<(Intercept, Arc<Entrance>)> {
        let at = self.entrances.iter().position(|(known, _)| known.same_sockets(intercept))?;
        let (before, entrance) = self.entrances.remove(at);
        self.stays.extend(entrance.addresses().map(|address| (address, INTERCEPT)));
        Some((before, entrance))
    }

    /// Binds. If only a closing listener of the same kind is in the way, both share the port until it closes:
    /// no connection is refused meanwhile, and nothing has to be reopened after a failed reload. If it is of
    /// another kind, at another address, a socket reached by rules listens once these are loaded.
    fn bind(&self, wanted: Wanted<'_>) -> Result<Bound, StartError> {
        let error = match wanted.bind(Sharing::Alone) {
            Err(StartError::Listen { address, key, source })
                if source.kind() == std::io::ErrorKind::AddrInUse =>
            {
                StartError::Listen { address, key, source }
            }
            done => return done,
        };
        let (address, key) = wanted.place();
        let itself = |other, other_key| StartError::ListensItself { address, key, other, other_key };
        let wants = wanted.addresses();
        let in_its_way = |other: SocketAddr| wants.iter().any(|address| overlap(other, *address));
        if let Some((other, other_key)) = self.stays.iter().find(|(other, _)| in_its_way(*other)) {
            return Err(itself(*other, other_key));
        }
        let ports = self.ports.iter().filter(|(_, port)| in_its_way(port.address));
        let ports = ports.map(|(_, port)| {
            (port.address, TUNNEL, matches!(wanted, Wanted::Port(_)), Vec::from_iter(port.listener()))
        });
        let entrances = self.entrances.iter().filter(|(_, entrance)| entrance.addresses().any(in_its_way));
        let entrances = entrances.map(|(before, entrance)| {
            let alike = matches!(wanted, Wanted::Entrance(intercept) if intercept.same_kind(before));
            (entrance.address(), INTERCEPT, alike, entrance.listeners().collect())
        });
        let in_the_way: Vec<(SocketAddr, &'static str, bool, Vec<Arc<TcpListener>>)> =
            ports.chain(entrances).collect();
        let Some((other, other_key, ..)) = in_the_way.first() else { return Err(error) };
        let mut sharing = Sharing::Shared;
        for (other, other_key, ..) in in_the_way.iter().filter(|(_, _, alike, _)| !alike) {
            if !wanted.can_wait_for(*other) {
                return Err(itself(*other, other_key));
            }
            sharing = Sharing::Late;
        }
        let listeners = || in_the_way.iter().flat_map(|(.., listeners)| listeners);
        let share = |sharing| listeners().try_for_each(|listener| sockets::share(listener, sharing));
        let bound = share(Sharing::Shared).ok().and_then(|()| wanted.bind(sharing).ok());
        // Another gateway does not ask to share, and is to find the port taken. An error means a broken
        // socket.
        let _ = share(Sharing::Alone);
        let Some(mut bound) = bound else { return Err(itself(*other, other_key)) };
        if sharing == Sharing::Late {
            bound.behind = listeners().cloned().collect();
        }
        let _ = bound.listeners().try_for_each(|listener| sockets::share(listener, Sharing::Alone));
        Ok(bound)
    }
}

impl Wanted<'_> {
    fn bind(self, sharing: Sharing) -> Result<Bound, StartError> {
        match self {
            Self::Port(address) => Bound::new(address, TUNNEL, sharing),
            Self::Entrance(intercept) => Bound::of(intercept, sharing),
        }
    }

    /// Whether connections by new rules reach this and not the listener on `other`, although both have the
    /// port.
    fn can_wait_for(self, other: SocketAddr) -> bool {
        let Self::Entrance(intercept) = self else { return false };
        let Some(capture) = intercept.mode.capture() else { return false };
        let own = intercept.addresses();
        let is_all = own.iter().any(|address| address.ip().is_unspecified());
        // Redirection at a gateway leads to the address of an interface.
        let is_apart = capture.scope == Scope::Gateway && other.ip().is_loopback();
        !own.contains(&other) && (!is_all || is_apart)
    }

    /// Its addresses, of both families.
    fn addresses(self) -> Vec<SocketAddr> {
        match self {
            Self::Port(address) => vec![address],
            Self::Entrance(intercept) => intercept.addresses(),
        }
    }

    /// Its configured address, and its key in the configuration.
    fn place(self) -> (SocketAddr, &'static str) {
        match self {
            Self::Port(address) => (address, TUNNEL),
            Self::Entrance(intercept) => (intercept.listen, INTERCEPT),
        }
    }
}

/// Whether listeners on the two addresses exclude each other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let ips = [one.ip(), other.ip()];
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (ips[0] == ips[1] || ips.iter().any(|ip| ip.is_unspecified()))
}
