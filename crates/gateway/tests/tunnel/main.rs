//! Pairs of gateways in one process, over loopback, with real sockets around them.

mod common;
mod cuts;
mod http;
mod shutdown;
mod socks5;
mod strangers;
mod truth;
