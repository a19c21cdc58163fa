//! The names that frames carry: flows, lanes, destinations, reasons.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::reader::{Reader, WireError};
use super::varint::put_varint;

/// The short number of a flow within one link; even numbers are opened by the gateway with the smaller key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// The name of a lane, chosen at random by the gateway that dialled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u64);

/// What a lane is mainly for; any frame is understood on any lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneRole {
    /// Acknowledgements, credit, liveness.
    Control,
    /// Self-contained blocks asked for again.
    Repair,
    /// Flows' blocks.
    Flow,
}

impl LaneRole {
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Control => 0,
            Self::Repair => 1,
            Self::Flow => 2,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Control, Self::Repair, Self::Flow].into_iter().find(|role| role.to_byte() == byte)
    }
}

/// A host as the application named it; names are resolved at the far end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name of 1 to 255 bytes.
    Name(String),
}

/// Where a flow is to be connected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            // An address with its interface, or what an application took for a name.
            Host::Name(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

/// The longest host name carried.
pub(crate) const MAX_NAME: usize = 255;

impl Destination {
    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.host {
            Host::Ip(ip) => put_ip(out, *ip),
            Host::Name(name) => {
                out.push(3);
                let name = &name.as_bytes()[..name.len().min(MAX_NAME)];
                put_varint(out, name.len() as u64);
                out.extend_from_slice(name);
            }
        }
        out.extend_from_slice(&self.port.to_le_bytes());
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// An unknown kind of host, or a name that is empty, too long or not printable ASCII without spaces.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = reader.byte("destination")?;
        let host = if kind == 3 {
            let len = reader.varint_up_to(MAX_NAME as u64, "host name")? as usize;
            let name = reader.bytes(len, "host name")?;
            if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
                return Err(WireError::Invalid("host name"));
            }
            Host::Name(String::from_utf8_lossy(name).into_owned())
        } else {
            Host::Ip(take_ip(kind, reader)?)
        };
        Ok(Self { host, port: reader.u16("port")? })
    }
}

/// Appends an address, preceded by its kind.
pub(super) fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(2);
            out.extend_from_slice(&ip.octets());
        }
    }
}

/// Reads an address of a kind.
pub(super) fn take_ip(kind: u8, reader: &mut Reader<'_>) -> Result<IpAddr, WireError> {
    let invalid = |_| WireError::Invalid("address");
    match kind {
        1 => Ok(Ipv4Addr::from(<[u8; 4]>::try_from(reader.bytes(4, "address")?).map_err(invalid)?).into()),
        2 => Ok(Ipv6Addr::from(<[u8; 16]>::try_from(reader.bytes(16, "address")?).map_err(invalid)?).into()),
        _ => Err(WireError::Invalid("kind of address")),
    }
}

/// Appends an optional socket address.
pub(crate) fn put_address(out: &mut Vec<u8>, address: Option<SocketAddr>) {
    match address {
        None => out.push(0),
        Some(address) => {
            put_ip(out, address.ip());
            out.extend_from_slice(&address.port().to_le_bytes());
        }
    }
}

/// Reads an optional socket address.
pub(crate) fn take_address(reader: &mut Reader<'_>) -> Result<Option<SocketAddr>, WireError> {
    match reader.byte("address")? {
        0 => Ok(None),
        kind => {
            let ip = take_ip(kind, reader)?;
            Ok(Some(SocketAddr::new(ip, reader.u16("port")?)))
        }
    }
}

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            pub(crate) fn to_byte(self) -> u8 {
                match self { $(Self::$variant => $code,)+ }
            }

            pub(crate) fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($code => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}

reasons! {
    /// Why a flow was reset.
    ResetReason {
        /// The application at the far end reset its connection.
        Application = 1, "reset by the application";
        /// The far connect failed.
        OpenFailed = 2, "could not be opened";
        /// The link was away for longer than the resume window.
        PeerLost = 3, "peer lost for longer than the resume window";
        /// The peer restarted and no longer knows the flow.
        PeerRestarted = 4, "peer restarted";
        /// A gateway was told to stop.
        Shutdown = 5, "gateway is shutting down";
        /// The peer broke the protocol on this flow.
        Protocol = 6, "protocol violation";
        /// A gateway could not do what it had to (memory, sockets).
        Internal = 7, "gateway error";
    }
}

reasons! {
    /// Why the far end could not connect to a destination.
    OpenFailure {
        /// The destination refused.
        Refused = 1, "connection refused";
        /// No route, or the network said unreachable.
        Unreachable = 2, "destination unreachable";
        /// No answer in time.
        TimedOut = 3, "connection timed out";
        /// The name did not resolve.
        NameNotFound = 4, "name not found";
        /// The far gateway's `allow`, `deny` or built-in rules forbid the destination.
        NotAllowed = 5, "not allowed by the far gateway";
        /// Anything else.
        Other = 6, "far gateway could not connect";
        /// The far gateway takes no new flows, and did not try; told only to a peer understanding it.
        Draining = 7, "far gateway takes no new connections";
    }
}
