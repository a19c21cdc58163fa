//! The log-addressed cache: the log of remembered bytes and the rules keeping both ends in step.
//!
//! EndRE keeps one log per pair of hosts in step by resequencing all their connections [EndRE §4]; here every block
//! instead says where in the log it belongs, so blocks may arrive in any order.
//!
//! # The rules
//! Let *C* be the log's capacity and *F* < *C* the bound on bytes in flight.
//!
//! 1. The sending half owns the offsets. A block to be remembered takes `[H, H + n)` at the head *H* when it is
//!    encoded; any other takes the empty range at *H*. Offsets are never used twice.
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
//! # Logs that change their size
//! Either end may have memory for less than *C*. The receiver holds the bytes from `X - W` on, *X* being the highest
//! offset written and *W* its limit; it tells the sender *W*, and the lowest offset *B* it has not given up. The sender
//! goes by the rules with *W* in place of *C* and *F(W)* in place of *F*, and refers to nothing below *B*. The sender's
//! own reported limit is never below the one in use, so the receiver may go by the smaller one.
//!
//! The proof holds as it stands while *W* stays, and also when *W* grows to *W'*: the receiver grows first, and blocks
//! remembered under the larger bound end at or below `H + F(W')`, so bytes are given up below `H + F(W') - W'` only.
//! Since `W - F(W)` does not fall as *W* grows, this is not above `H + F(W) - W`. Bytes given up before the growth lie
//! below *B*, known to the sender by then, as it hears of *W'* with the same words.
//!
//! When *W* falls, blocks encoded before the sender heard of it may refer to lost bytes. The receiver knows the lost
//! part (all below *B*), never reads it, and asks for such a block again.
//!
//! # What is left free for what is in flight
//! Bytes in flight are no sources, and most of the time they are few. So the sending half may go by a lower *F* in rule
//! 3, another one for each block, if it keeps to more than rule 2: behind a block *b* with no source older than *L*,
//! blocks are remembered only up to `L + W`, *W* being the limit when *b* was encoded, as long as *b* is
//! unacknowledged. This overwrites offsets below *L* only, for any *F*; the agreed *F* still bounds the bytes in
//! flight. When *W* grows to *W'* meanwhile, `L + W` lies before `L + W'`; and bytes were given up only below *L*, for
//! *b* was encoded by the rules for *W*.
//!
//! Were the window of rule 3 measured from the oldest unacknowledged start (`S + F - C`), *b* might refer to
//! offsets as low as `S + F - C` while the head goes on to `H + F` as soon as the blocks before *b* are
//! acknowledged; the model test plants that error and finds it.

mod curve;
mod noise;
mod quotas;
mod ranges;
mod ring;
pub(crate) mod samples;
mod sizes;

pub use curve::Curve;
pub use noise::NoiseBound;
pub use quotas::Quotas;
pub use ranges::{Arrived, RangeSet};
pub(crate) use ring::LINE;
pub use ring::{Log, LogOffset};
pub use sizes::{Demand, share_out};
