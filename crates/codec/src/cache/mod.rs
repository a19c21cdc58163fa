//! The log-addressed cache: the ring of remembered bytes and the rules that keep both ends in step.
//!
//! EndRE keeps one log per pair of hosts in step by resequencing all their connections [EndRE §4]; here every
//! block instead says where in the log it belongs, so that blocks may arrive in any order.
//!
//! # The rules
//! Let *C* be the log's capacity and *F* ≤ *C* the bound on bytes in flight.
//!
//! 1. The sending half owns the offsets. A block that is to be remembered takes `[H, H + n)` at the head *H*
//!    when it is encoded; one that is not takes the empty range at *H*. Offsets are never used twice.
//! 2. A block is remembered only if `H + n - S ≤ F`, where *S* is the start of the oldest unacknowledged block
//!    (or *H*, if there is none).
//! 3. A block encoded at head *H* refers only to offsets in `[H + F - C, H)`, and not below the epoch's base.
//! 4. The receiving half writes a block at its range, whatever the order of arrival, and acknowledges it only
//!    when it is rebuilt, verified and written.
//!
//! **No referenced byte is overwritten before it is read.** Take a block *b* encoded at *H*. While *b* is
//! unacknowledged, its start *H* is at least the oldest unacknowledged start *S*, so by rule 2 every remembered
//! block ends at or below `S + F ≤ H + F`. Writing up to `H + F` overwrites offsets below `H + F - C` only,
//! which by rule 3 *b* does not refer to. Once *b* is acknowledged, by rule 4, it has been read. ∎
//!
//! Were the window of rule 3 measured from the oldest unacknowledged start (`S + F - C`), *b* might refer to
//! offsets as low as `S + F - C` while the head goes on to `H + F` as soon as the blocks before *b* are
//! acknowledged; the model test plants that error and finds it.

mod ledger;
mod log;
mod quotas;
mod ranges;

pub use ledger::{Content, Item, Ledger, MAX_UNACKED, Repair};
pub use log::{Log, LogOffset};
pub use quotas::Quotas;
pub use ranges::{Arrived, RangeSet};
