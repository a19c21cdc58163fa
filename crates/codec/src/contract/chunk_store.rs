//! Requests of the receiving half to the chunk store, and replies.

use bytes::Bytes;

use crate::Now;
use crate::wanax::shed::Disk;
use crate::wanax::{ChunkName, NameKey, Shape};
use crate::wire::Sought;

/// A request of the receiving half to the chunk store, kept by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Read a chunk; the answer has the same ticket. A chunk unlike its name is none.
    Read {
        /// Names the request within this half.
        ticket: u64,
        /// The chunk.
        name: ChunkName,
        /// Its length in bytes.
        len: u32,
        /// What its name was made with.
        key: NameKey,
        /// Whether a put that is under way, or just was, brings it: nobody else need be asked.
        is_brought: bool,
    },
    /// Say where chunks are, without reading: [`StoreReply::Places`].
    Peek {
        /// Names the request within this half.
        ticket: u64,
        /// The chunks.
        chunks: Vec<Sought>,
        /// What their tags were made with.
        key: NameKey,
        /// What it is for.
        purpose: Purpose,
    },
    /// Put a block and all its chunks. There is no answer; later reads are to find what an earlier put brought.
    Put {
        /// The block.
        plain: Bytes,
        /// What names are made with.
        key: NameKey,
        /// How it is cut.
        shape: Shape,
    },
}

/// What [`StoreRequest::Peek`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Some of them are read next: a block waits, so it is answered before anything else is asked.
    Plan,
    /// The peer asks for readable chunks. It does not wait, so other holders may be asked for them first.
    Survey,
}

/// What became of [`StoreRequest::Read`] or [`StoreRequest::Peek`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// The chunk was there.
    Found {
        /// The request's ticket.
        ticket: u64,
        /// The chunk, of the length asked for and under the name.
        bytes: Bytes,
    },
    /// There is no such chunk.
    Absent {
        /// The request's ticket.
        ticket: u64,
    },
    /// The chunk is damaged, or the disk refuses the place where it is: it is to be put again.
    Failed {
        /// The request's ticket.
        ticket: u64,
    },
    /// The chunk may be there and cannot be read now: too many wait, or the disk is not asked. It is asked for over the
    /// network, and nobody forgets it is there.
    Busy {
        /// The request's ticket.
        ticket: u64,
    },
    /// Where chunks are.
    Places {
        /// The request's ticket.
        ticket: u64,
        /// Of each chunk, in their order. Those left out at the end take a read of the own disk each.
        places: Vec<ChunkPlace>,
        /// The disks of neighbours that places speak of; the own one is as [`StoreState`] says.
        neighbours: Vec<Disk>,
    },
}

/// Where a chunk is, as far as can be said without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPlace {
    /// No disk is waited for: it is in memory, or there is none such.
    Near,
    /// There is none such, neither here nor where else it may be read.
    Absent,
    /// It is read from a disk.
    Disk {
        /// The own one at 0, behind it those of neighbours.
        disk: u16,
        /// Chunks of a disk with the same number come with one read; `None`: it takes one of its own.
        read: Option<u64>,
    },
}

impl StoreReply {
    /// Answers [`StoreRequest::Peek`] for a store knowing nothing better: each chunk takes a read of its own.
    pub const fn each_apart(ticket: u64) -> Self {
        Self::Places { ticket, places: Vec::new(), neighbours: Vec::new() }
    }

    /// Returns the ticket of the request answered.
    pub const fn ticket(&self) -> u64 {
        match self {
            Self::Found { ticket, .. }
            | Self::Absent { ticket }
            | Self::Failed { ticket }
            | Self::Busy { ticket }
            | Self::Places { ticket, .. } => *ticket,
        }
    }
}

/// How a chunk store stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Chunks waiting to be read or are being read, of all links.
    pub queued: u32,
    /// How long a read of the disk takes once it is its turn; one may bring several chunks.
    pub service_time: Now,
    /// How long ago the oldest chunk held was put, in seconds; 0 while nothing is held.
    pub age_secs: u64,
    /// Whether chunks are being taken.
    pub taking: bool,
    /// Bytes that neighbours have asked for over the network and not got: they share the line.
    pub neighbours_pending: u64,
}
