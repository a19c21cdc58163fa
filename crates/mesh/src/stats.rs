//! What is counted of a neighbourhood.

/// What a gateway and its neighbours have done for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourStats {
    /// Neighbours that are up.
    pub members: u64,
    /// Chunks that were asked for, each neighbour that was asked counted. Whether it has a chunk is another question.
    pub asked: u64,
    /// Chunks that a neighbour had.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Answers that a chunk is not there.
    pub absent: u64,
    /// Questions that were not answered in time.
    pub late: u64,
    /// Answers that were not what was asked for: other content than the name says, or of another kind.
    pub wrong: u64,
    /// Chunks that were waited for, since another gateway of the site fetched them already.
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
