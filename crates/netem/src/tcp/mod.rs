//! A model of TCP over emulated links.
//!
//! It shows what rate, round trip and loss do to TCP streams without needing privileges or a kernel that can
//! emulate a network. It is a model, and reproduces bulk goodput within the bands that its tests assert.
//!
//! Modelled: a handshake of one round trip with repeated SYNs, slow start from 10 segments of [`MSS`] bytes,
//! congestion control by one [`congestion::Policy`] a connection, selective acknowledgements of up to three
//! ranges, loss detection by order and time of transmission as in RACK, tail-loss probes, retransmission
//! timeouts from 200 ms with back-off, restart after idle, a receive window of [`RECEIVE_WINDOW`] that a reader
//! who stops closes, window probes, a send buffer that grows with the window, half-close, and reset.
//!
//! Not modelled: delayed and piggybacked acknowledgements (every segment is answered by a packet of its own, so
//! the way back carries about 3.5 % of the bytes where Linux sends half of that), the bytes of SACK options,
//! segmentation offload, Nagle's algorithm (every write may leave at once), proportional rate
//! reduction, undoing of spurious reductions, F-RTO, ECN, window scaling limits and receive-buffer tuning. A
//! reset travels in order and reliably, behind what was sent before it.

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
