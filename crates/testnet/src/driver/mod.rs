//! The emulator's driver: a thread for each direction of a line.
//!
//! Each thread waits in `ppoll`, with its timeout in nanoseconds, for the next packet to come or to be due; reads at
//! most [`BURST`] packets, so a flood does not delay due ones; then emits the due ones. It asks for the least timer
//! slack and for SCHED_FIFO. Without them a loaded machine makes packets late by milliseconds.

mod direction;
mod ends;

pub use direction::Direction;

use oncewire_netem::{LinkParams, ParamsError};

pub(crate) use ends::{Ends, Layout, packet_ends, tun_end};

/// An emulated line, with settings to be changed at any time.
#[derive(Debug)]
pub struct Wan {
    /// From the site to the core.
    pub up: Direction,
    /// From the core to the site.
    pub down: Direction,
}

impl Wan {
    /// Sets both directions for later packets; each keeps its seed.
    ///
    /// A line remains cut, and has the new settings once it is restored.
    ///
    /// # Errors
    ///
    /// Settings out of range; both directions are as they were.
    pub fn set(&self, params: &LinkParams) -> Result<(), ParamsError> {
        self.up.set(params)?;
        self.down.set(params)
    }

    /// Loses every later packet, both ways. Packets on their way still arrive.
    pub fn cut(&self) {
        self.up.cut();
        self.down.cut();
    }

    /// Ends a cut of either direction.
    pub fn restore(&self) {
        self.up.restore();
        self.down.restore();
    }
}
