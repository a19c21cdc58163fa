//! The rules' sign of life.
//!
//! A packet to itself, markable by this process alone, passes the table and renews an element; without the
//! element no new connection is taken in. No rule has to be changed for it, so it costs a few microseconds
//! and no privilege, and it comes from the runtime accepting connections: if that hangs, it stops. A bridge
//! with lifted frames gets one too; the table for bridges drops it on its way out.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use oncewire_host::sockets;
use oncewire_tunnel::accounts::TrafficAccounts;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::bridge;
use super::set::RuleSet;
use super::words::{BEAT_GROUP, BEAT_PORT, LIFE_MS};
use crate::Held;

/// Sends signs of life, one for each family of this machine, and one for each bridge.
pub(super) struct Heartbeat {
    /// This gateway's own: another on this machine must not speak for it.
    mark: u32,
    loops: Vec<UdpSocket>,
    bridges: Mutex<BTreeMap<String, UdpSocket>>,
    held: Arc<Held>,
    accounts: Arc<TrafficAccounts>,
}

impl Heartbeat {
    /// Prepares the packets with a gateway's [`beat_mark`](super::beat_mark).
    ///
    /// # Errors
    /// If they cannot be marked, for want of CAP_NET_ADMIN, or there is not even IPv4's loopback address.
    pub(super) fn new(mark: u32, held: Arc<Held>, accounts: Arc<TrafficAccounts>) -> io::Result<Self> {
        let mut loops = vec![sockets::marked_loop(Ipv4Addr::LOCALHOST.into(), mark)?];
        // Without IPv6, none of its connections are to be taken in.
        loops.extend(sockets::marked_loop(Ipv6Addr::LOCALHOST.into(), mark));
        Ok(Self { mark, loops, bridges: Mutex::default(), held, accounts })
    }

    /// Gives one sign of life to rules.
    pub(super) fn beat(&self, rules: Option<&RuleSet>) {
        let Some(rules) = rules else { return };
        self.held.before_sign_of_life(Instant::now());
        for socket in &self.loops {
            // A failure shows in connections going direct; the next beat may do better.
            let _ = socket.send(&[0]);
            while socket.recv(&mut [0; 8]).is_ok() {}
        }
        if self.accounts.arrivals.connections_are_lost() {
            // Frames lifted from a bridge and not taken in would have to be routed.
            return;
        }
        let mut sockets = self.bridges.lock();
        sockets.retain(|known, _| bridge::bridges(rules).any(|bridge| bridge == known));
        for bridge in bridge::bridges(rules) {
            if !sockets.contains_key(bridge)
                && let Ok(socket) =
                    sockets::marked_on(bridge, SocketAddrV4::new(BEAT_GROUP, BEAT_PORT), self.mark)
            {
                sockets.insert(bridge.to_owned(), socket);
            }
            // A failing one may be of a recreated bridge.
            if sockets.get(bridge).is_some_and(|socket| socket.send(&[0]).is_err()) {
                sockets.remove(bridge);
            }
        }
    }

    /// Beats for ever.
    pub(super) async fn run(beat: impl Fn()) {
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            beat();
        }
    }
}

/// A third of a life: one may be late.
const BEAT: Duration = Duration::from_millis(LIFE_MS / 3);
