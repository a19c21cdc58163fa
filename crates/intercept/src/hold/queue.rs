//! A kernel queue of packets awaiting verdicts (`nfnetlink_queue`).
//!
//! The few necessary messages are written and read here. The crate `nfq` reads with pointers, panics on the
//! unexpected, and gives no descriptor to wait for.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Our queue; waiting packets are dropped with it.
#[derive(Debug)]
pub(super) struct Queue {
    /// Of netlink; the runtime waits for datagrams of any family alike.
    socket: UdpSocket,
    number: u16,
}

/// A waiting packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Queued<'a> {
    pub(super) packet: u32,
    pub(super) mark: u32,
    /// As much of it as was asked for, from the header of IP on.
    pub(super) bytes: &'a [u8],
}

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on, with another mark if one is given.
    Accept(Option<u32>),
    /// It is lost.
    Drop,
}

impl Queue {
    /// Takes the queue of this number. Packets beyond `capacity` go on as if there were no queue.
    ///
    /// # Errors
    /// If the kernel has no such queues, this process lacks CAP_NET_ADMIN, or another has the queue.
    pub(super) fn open(number: u16, capacity: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        // An oversized burst is not held.
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
        let queue = Self { socket: UdpSocket::from_std(socket.into())?, number };
        queue.configure(CFG_CMD, &[CMD_BIND, 0, 0, 0])?;
        let [a, b, c, d] = HEADERS.to_be_bytes();
        queue.configure(CFG_PARAMS, &[a, b, c, d, COPY_PACKET])?;
        queue.configure(CFG_QUEUE_MAXLEN, &capacity.to_be_bytes())?;
        let mut message = Message::new(CONFIG, true, number);
        message.put(CFG_FLAGS, &FAIL_OPEN.to_be_bytes());
        message.put(CFG_MASK, &FAIL_OPEN.to_be_bytes());
        queue.ask(message)?;
        Ok(queue)
    }

    /// Sends the verdict on a packet.
    ///
    /// # Errors
    /// If the kernel takes no message now.
    pub(super) fn answer(&self, packet: u32, verdict: Verdict) -> io::Result<()> {
        let (code, mark) = match verdict {
            Verdict::Accept(mark) => (NF_ACCEPT, mark),
            Verdict::Drop => (NF_DROP, None),
        };
        let mut message = Message::new(VERDICT, false, self.number);
        message.put(VERDICT_HEADER, &[code.to_be_bytes(), packet.to_be_bytes()].concat());
        if let Some(mark) = mark {
            message.put(MARK, &mark.to_be_bytes());
        }
        send(&self.socket, &message.finish(), SendFlags::empty())?;
        Ok(())
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// If the runtime ends.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Hands over the packets of one message, and returns whether there was any; `woken` by
    /// [`Queue::readable`] or not.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn read(&self, woken: bool, mut each: impl FnMut(Queued<'_>)) -> io::Result<bool> {
        let mut buffer = [0; MESSAGE];
        let mut receive = || Ok(recv(&self.socket, &mut buffer[..], RecvFlags::empty())?.1);
        let received = match woken {
            // This also clears the readiness of an empty queue.
            true => self.socket.try_io(Interest::READABLE, receive),
            false => receive(),
        };
        match received {
            Ok(received) => {
                let bytes = buffer.get(..received).unwrap_or_default();
                for (kind, body) in messages(bytes) {
                    if kind == PACKET
                        && let Some(queued) = queued(body)
                    {
                        each(queued);
                    }
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // Packets without room have gone on without us.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOBUFS | Errno::INTR)) => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn configure(&self, attribute: u16, value: &[u8]) -> io::Result<()> {
        let mut message = Message::new(CONFIG, true, self.number);
        message.put(attribute, value);
        self.ask(message)
    }

    /// Sends a message and reads the kernel's reply, available at once.
    fn ask(&self, message: Message) -> io::Result<()> {
        send(&self.socket, &message.finish(), SendFlags::empty())?;
        loop {
            let mut buffer = [0; MESSAGE];
            let (_, received) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            for (kind, body) in messages(buffer.get(..received).unwrap_or_default()) {
                if kind == ERROR {
                    let code = body.first_chunk().map_or(-1, |code| i32::from_ne_bytes(*code));
                    return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                }
            }
        }
    }
}

/// A message to the kernel.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, acknowledge: bool, queue: u16) -> Self {
        let flags = REQUEST | if acknowledge { ACK } else { 0 };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // Sequence number and sender, both unused here.
        bytes.extend([0; 8]);
        bytes.extend([ANY_FAMILY, VERSION]);
        bytes.extend(queue.to_be_bytes());
        Self(bytes)
    }

    fn put(&mut self, attribute: u16, value: &[u8]) {
        let len = ATTRIBUTE_HEADER + value.len();
        self.0.extend((len as u16).to_ne_bytes());
        self.0.extend(attribute.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() as u32).to_ne_bytes();
        self.0.splice(..4, len);
        self.0
    }
}

/// Splits received bytes into messages: the kind of each, and the part behind its header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<MESSAGE_HEADER>()?;
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let body = bytes.get(MESSAGE_HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[4], header[5]]), body))
    })
}

/// Reads a waiting packet; none if the message lacks a needed part.
fn queued(body: &[u8]) -> Option<Queued<'_>> {
    let mut rest = body.get(QUEUE_HEADER..)?;
    let (mut packet, mut mark, mut bytes) = (None, 0, None);
    while let Some(header) = rest.first_chunk::<ATTRIBUTE_HEADER>() {
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = rest.get(ATTRIBUTE_HEADER..len)?;
        match u16::from_ne_bytes([header[2], header[3]]) & !NESTED {
            PACKET_HEADER => packet = value.first_chunk().map(|number| u32::from_be_bytes(*number)),
            MARK => mark = u32::from_be_bytes(*value.first_chunk()?),
            PAYLOAD => bytes = Some(value),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Queued { packet: packet?, mark, bytes: bytes.unwrap_or_default() })
}

// Constants of <linux/netlink.h>, <linux/netfilter/nfnetlink.h> and <linux/netfilter/nfnetlink_queue.h>
// follow.

const MESSAGE_HEADER: usize = 16;
const QUEUE_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const NESTED: u16 = 0xc000;
const ANY_FAMILY: u8 = 0;
const VERSION: u8 = 0;

/// Kinds of messages; a queue's kinds have its subsystem's number, 3, in the upper byte.
const ERROR: u16 = 2;
const PACKET: u16 = 0x300;
const VERDICT: u16 = 0x301;
const CONFIG: u16 = 0x302;

/// Attributes of packets and verdicts.
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
const PAYLOAD: u16 = 10;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// Attributes of a queue's configuration.
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
const CMD_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FAIL_OPEN: u32 = 1;

/// Bytes copied of each packet: the longest header of IPv4 and the shortest of TCP, and more than both of
/// IPv6.
const HEADERS: u32 = 80;

/// Room for one packet's message; the kernel writes one at a time.
const MESSAGE: usize = 4096;

/// Room for a thousand messages and more, as the kernel counts them.
const RECEIVE_BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's message about a packet, with attributes in any order and some unrequested ones.
    fn packet_message() -> Vec<u8> {
        let mut message = Message::new(PACKET, false, 5);
        message.put(PACKET_HEADER, &[0, 0, 1, 2, 8, 0, 0]);
        message.put(99, b"unknown");
        message.put(MARK, &7_u32.to_be_bytes());
        message.put(PAYLOAD, b"packet");
        message.finish()
    }

    #[test]
    fn packets_are_read_past_unknown_attributes() {
        let two = [packet_message(), packet_message()].concat();
        let read: Vec<_> = messages(&two).map(|(kind, body)| (kind, queued(body))).collect();
        let expected = Queued { packet: 0x102, mark: 7, bytes: b"packet" };
        assert_eq!(read.len(), 2);
        for (kind, queued) in read {
            assert_eq!(kind, PACKET);
            assert_eq!(queued.as_ref(), Some(&expected));
        }
    }

    #[test]
    fn cut_messages_are_not_read_beyond_their_end() {
        let whole = packet_message();
        for len in 0..whole.len() {
            assert_eq!(messages(&whole[..len]).count(), 0, "{len} bytes");
        }
        let body = &whole[MESSAGE_HEADER..];
        for len in 0..body.len() {
            let queued = queued(&body[..len]);
            assert!(queued.is_none_or(|queued| [&b""[..], b"packet"].contains(&queued.bytes)), "{len} bytes");
        }
        let endless = [[0; MESSAGE_HEADER].as_slice(), &whole].concat();
        assert_eq!(messages(&endless).count(), 0);
        let mut body = body.to_vec();
        body[QUEUE_HEADER] = 0;
        assert_eq!(queued(&body), None);
    }
}
