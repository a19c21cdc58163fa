//! To come.
pub struct Log; pub struct LogOffset(pub u64);
