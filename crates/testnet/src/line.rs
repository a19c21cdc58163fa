//! The kinds of lines.

use oncewire_netem::LinkParams;

/// The connection between a site's gateway and the core.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are a few, made once")]
pub enum Line {
    /// A pair of interfaces, as fast as the machine.
    Plain,
    /// A pair of interfaces, each with a token bucket of the kernel: a rate, and as good as no delay.
    TokenBucket {
        /// Bits per second, headers of Ethernet included.
        rate_bits_per_s: u64,
    },
    /// The emulator.
    Emulated {
        /// From the site to the core.
        up: LinkParams,
        /// From the core to the site.
        down: LinkParams,
        /// How packets get into the emulator.
        shell: Shell,
    },
}

/// How packets get into the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// TUN if the machine has it, else packet sockets.
    Any,
    /// A TUN interface at each end, for IP packets.
    Tun,
    /// Packet sockets on a veth pair at each end, without need of `/dev/net/tun`. They carry frames, so the site's
    /// end can be put into a bridge.
    Packet,
}

impl Line {
    /// The emulator with the same settings both ways; the delay is one way, so the round trip is twice as long.
    ///
    /// The two directions lose different packets: `down` gets another seed.
    pub fn emulated(params: &LinkParams) -> Self {
        let down = LinkParams { seed: params.seed ^ OTHER_WAY, ..params.clone() };
        Self::Emulated { up: params.clone(), down, shell: Shell::Any }
    }

    /// The same line with packets going in another way; no change to a line without emulation.
    #[must_use]
    pub fn through(self, shell: Shell) -> Self {
        match self {
            Self::Emulated { up, down, .. } => Self::Emulated { up, down, shell },
            other => other,
        }
    }
}

/// Parts the seeds of the two directions; any number but 0.
pub(crate) const OTHER_WAY: u64 = 0x6f74_6865_7277_6179;
