//! Counters of a neighbourhood.

/// Services of a gateway and its neighbours for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourStats {
    /// Live neighbours.
    pub members: u64,
    /// Chunks asked for, each neighbour asked counted. Whether it has a chunk is another question.
    pub asked: u64,
    /// Chunks a neighbour had.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Answers a chunk is not there.
    pub absent: u64,
    /// Questions without an answer in time.
    pub late: u64,
    /// Wrong answers: other content than the name's, or of another kind.
    pub wrong: u64,
    /// Chunks waited for, since another gateway of the site fetched them already.
    pub waited: u64,
    /// Chunks that came so, and were not fetched again.
    pub spared: u64,
    /// Chunks that neighbours were given when they asked.
    pub served: u64,
    /// Chunks that neighbours were given to keep.
    pub given: u64,
    /// Their bytes.
    pub given_bytes: u64,
    /// Chunks that were not offered, because too much was already or the neighbour had failed.
    pub not_offered: u64,
    /// Chunks that neighbours gave to be kept.
    pub taken: u64,
}
