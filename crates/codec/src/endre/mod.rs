//! EndRE: sender-driven, fine-grained elimination [EndRE §4 to §6].

#[cfg(test)]
mod bounds_tests;
pub mod chunks;
#[cfg(test)]
mod density_tests;
#[cfg(test)]
mod fetch_tests;
#[cfg(test)]
mod hole_tests;
pub mod matcher;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod noise_tests;
#[cfg(test)]
mod quota_tests;
mod receiver;
#[cfg(test)]
mod return_tests;
mod sender;
#[cfg(test)]
mod short_name_tests;
mod slots;
#[cfg(test)]
mod start_tests;
pub mod tokens;
#[cfg(test)]
mod verify_tests;

pub use receiver::{Receiver, ReceiverConfig};
pub use sender::{PreparedLog, Sender, SenderConfig};

/// The epoch of a log that never started over.
const FIRST_EPOCH: u64 = 1;

// Why a log starts over, as either half may find.
const NOTHING_HERE: &str = "nothing is left of it here";
const TOO_LITTLE: &str = "too little is left of it for the ends to compare";
