//! Drives the emulator: a thread for each direction of a line, between two descriptors that carry packets.
//!
//! Each thread waits in `ppoll`, whose timeout is in nanoseconds, for the next packet to come or to be due; reads
//! at most [`BURST`] packets, so that a flood does not keep back what is due; then emits what is due. It asks for
//! the least timer slack and for SCHED_FIFO, without which a loaded machine makes packets late by milliseconds.

mod direction;
mod ends;

pub use direction::Direction;

use oncewire_netem::{LinkParams, ParamsError};

pub(crate) use ends::{Ends, Layout, packet_ends, tun_end};

/// An emulated line, whose settings can be changed while it runs.
#[derive(Debug)]
pub struct Wan {
    /// From the site to the core.
    pub up: Direction,
    /// From the core to the site.
    pub down: Direction,
}

impl Wan {
    /// Sets both directions for what is sent from now on; each keeps its seed.
    ///
    /// A line that is cut stays so, and has the new settings once it is restored.
    ///
    /// # Errors
    ///
    /// Settings out of range; both directions are as they were.
    pub fn set(&self, params: &LinkParams) -> Result<(), ParamsError> {
        self.up.set(params)?;
        self.down.set(params)
    }

    /// Loses everything that is sent from now on, both ways. What is on its way still arrives.
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
