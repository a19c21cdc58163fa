//! Views of IP, TCP, UDP and ICMP packets, and their checksums.
//!
//! A view borrows the packet and checks its lengths once, in `read`; its methods cannot fail afterwards.
//! Bytes behind the packet, such as padding of Ethernet, are not part of the view. `read_cut` takes packets
//! without their ends: those in the messages of ICMP, in captures and in queues of the kernel.
//!
//! Writing is the reverse: a struct of `…Fields` writes its header into a buffer of the caller, with lengths and
//! checksums filled in. Lower layers come first and return the room for the next:
//!
//! ```
//! use oncewire_packet::{Ip, Ipv4Fields, Tcp, TcpFields, TcpFlags, TcpOption, protocol};
//!
//! # fn main() -> Result<(), oncewire_packet::Error> {
//! let ip = Ipv4Fields {
//!     source: [198, 18, 1, 2].into(),
//!     destination: [198, 18, 2, 2].into(),
//!     ..Ipv4Fields::new(protocol::TCP)
//! };
//! let syn = TcpFields { source_port: 40_000, destination_port: 80, flags: TcpFlags::SYN, ..TcpFields::default() };
//! let options = [TcpOption::Mss(1460), TcpOption::SackPermitted];
//! let mut buffer = [0; 64];
//! let room = ip.write(&[], syn.len(&options, &[])?, &mut buffer)?;
//! syn.write(&options, &[], ip.pseudo(), room)?;
//!
//! let packet = Ip::read(&buffer)?;
//! let tcp = Tcp::read(packet.upper()?.payload)?;
//! assert!(tcp.verify(packet.pseudo()));
//! assert_eq!(tcp.options().next(), Some(Ok(TcpOption::Mss(1460))));
//! # Ok(())
//! # }
//! ```
//!
//! Jumbograms (RFC 2675) are read by `read_cut` alone.

#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests"))]

pub mod checksum;
mod error;
mod icmp;
mod ip;
mod ipv4;
mod ipv6;
mod options;
pub mod protocol;
mod room;
mod tcp;
mod udp;

pub use error::{Error, Layer};
pub use icmp::{Echo, Icmp, IcmpFields, Icmpv6, icmp_kind, icmpv6_kind};
pub use ip::{Fragment, Ip, Pseudo, Upper};
pub use ipv4::{Ipv4, Ipv4Fields};
pub use ipv6::extensions::{Extension, Extensions, write_extension, write_fragment};
pub use ipv6::{Ipv6, Ipv6Fields};
pub use options::{Options, RawOption};
pub use tcp::flags::TcpFlags;
pub use tcp::options::{SackBlocks, TcpOption, TcpOptions};
pub use tcp::{Tcp, TcpFields};
pub use udp::{Udp, UdpFields};
