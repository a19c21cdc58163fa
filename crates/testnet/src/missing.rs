//! Why a network was not built.

use std::io;

/// Why a network was not built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine lacks a program, a device or a privilege: a reason to leave a test out.
    #[error("missing: {0}")]
    Missing(String),
    /// Everything was there, and it failed: a reason for a test to fail.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Tells a missing privilege from other failures of `what`.
    pub(crate) fn from_io(what: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
                Self::Missing(format!("{what}: {error}"))
            }
            _ => Self::Failed(format!("{what}: {error}")),
        }
    }
}

/// Says why a test is left out.
///
/// # Panics
///
/// With `CI=true`: there, a skipped test is a failed one.
pub fn skip(reason: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!ci, "{reason}");
    println!("skipped: {reason}");
}
