//! Capabilities of a codec, for the transport below it.

/// What a codec needs of lanes, and what it promises to applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The service to applications.
    pub service: Service,
    /// Whether frames must arrive in the order of sending, so that a flow stays on one lane.
    pub needs_order: bool,
    /// Whether feedback is useful ahead of a payload, as predictions are, and goes before it on a lane.
    pub feedback_first: bool,
    /// Whether one encoder serves many decoders, as in a broadcast.
    pub one_to_many: bool,
}

/// The service of a codec to applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Every byte of a flow once and in order of its offsets, across lost lanes.
    Stream,
    /// Single packets without a promise of delivery or order; a delivered one is right.
    Datagram,
}

impl Capabilities {
    /// A stream codec between two ends over ordered lanes.
    pub const STREAM: Self =
        Self { service: Service::Stream, needs_order: true, feedback_first: false, one_to_many: false };

    /// Whether a link of two gateways can carry the codec.
    pub fn fits_link(&self) -> bool {
        self.service == Service::Stream && !self.one_to_many
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::STREAM
    }
}
