//! The sign of life on which the rules depend.
//!
//! A packet to itself that only this process can mark renews, as it passes the table, the element without which no new
//! connection is taken in. No rule has to be changed for it, so it costs a few microseconds and no privilege, and it
//! comes from the runtime that also accepts connections: if that hangs, it stops.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::sockets;

/// Sends signs of life, one for each family that this machine has.
pub(super) struct Heartbeat {
    sockets: Vec<UdpSocket>,
}

impl Heartbeat {
    /// Prepares the packets.
    ///
    /// # Errors
    /// If they cannot be marked, for want of CAP_NET_ADMIN, or there is not even IPv4's loopback address.
    pub(super) fn new() -> io::Result<Self> {
        let mut sockets = vec![sockets::marked_loop(Ipv4Addr::LOCALHOST.into())?];
        // Where there is no IPv6, none of its connections are to be taken in.
        sockets.extend(sockets::marked_loop(Ipv6Addr::LOCALHOST.into()));
        Ok(Self { sockets })
    }

    /// Gives one sign of life.
    pub(super) fn beat(&self) {
        for socket in &self.sockets {
            // A failure is noticed by those whose connections go direct; the next beat may do better.
            let _ = socket.send(&[0]);
            while socket.recv(&mut [0; 8]).is_ok() {}
        }
    }

    /// Beats for ever; every so many beats `look_after` is called.
    pub(super) async fn run<F: Future<Output = ()>>(self, look_after: impl Fn() -> F) {
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1_u64.. {
            ticks.tick().await;
            self.beat();
            if number % LOOK_EVERY == 0 {
                look_after().await;
            }
        }
    }
}

/// How long a sign of life counts, in milliseconds: new connections go direct within a second of the last one.
pub(super) const LIFE_MS: u64 = 900;

/// A third of that, so that one may be late.
const BEAT: Duration = Duration::from_millis(LIFE_MS / 3);

/// Every five seconds or so.
const LOOK_EVERY: u64 = 16;
