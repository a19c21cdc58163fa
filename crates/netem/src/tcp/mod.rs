//! A model of TCP over emulated links.
//!
//! It shows the effect of rate, round trip and loss on TCP streams without privileges and without a kernel's
//! emulation. It is a model: its bulk goodput is within the bands of its tests.
//!
//! Modelled: a handshake of one round trip with repeated SYNs, slow start from 10 segments of [`MSS`] bytes,
//! congestion control by one [`congestion::Policy`] a connection, selective acknowledgements of up to three ranges,
//! loss detection by order and time of transmission as in RACK, tail-loss probes, retransmission timeouts from 200 ms
//! with back-off, restart after idle, a receive window of [`RECEIVE_WINDOW`], closed by a stalled reader, window
//! probes, a send buffer growing with the window, half-close, and reset.
//!
//! Not modelled: delayed and piggybacked acknowledgements (every segment is answered by a packet of its own, so the
//! way back carries about 3.5 % of the bytes, twice as much as with Linux), the bytes of SACK options, segmentation
//! offload, Nagle's algorithm (every write may leave at once), proportional rate reduction, undoing of spurious
//! reductions, F-RTO, ECN, window scaling limits and receive-buffer tuning. A reset travels in order and reliably,
//! behind earlier bytes.

pub mod congestion;
mod connection;
mod network;
mod packet;
mod ranges;
mod rate;
mod receiver;
mod rtt;
mod scoreboard;
mod sender;

pub use network::{
    Account, ConnectError, ConnectionId, Event, MAX_CONNECTIONS, Network, Side, TooManyConnections, Traffic,
};
pub use packet::{HEADER_BYTES, MSS};
pub use receiver::RECEIVE_WINDOW;
pub use sender::SendingReport;
