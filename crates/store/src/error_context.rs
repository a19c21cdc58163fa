//! Disk errors with their operation and file.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;

/// The error of the operating system, and its subject.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {file}: {source}{}", remedy(.source))]
struct Told {
    doing: &'static str,
    file: String,
    source: io::Error,
}

/// Returns the remedy for a limit of the process.
fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::FBIG) => "; raise the limit of file sizes with `ulimit -f` or LimitFSIZE= of the service",
        _ => "",
    }
}

/// Adds file and operation to an error; its kind and number stay.
pub(crate) fn with_file_context(doing: &'static str, file: impl Display, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), Told { doing, file: file.to_string(), source })
}

/// Returns the operating system's number of an error, also of one with file and operation.
pub(crate) fn errno(error: &io::Error) -> Option<Errno> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Told>());
    Errno::from_io_error(inner.map_or(error, |told| &told.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_with_context_keeps_its_number() {
        let error = with_file_context("cutting", "a", io::Error::from(Errno::MFILE));
        assert_eq!(errno(&error), Some(Errno::MFILE));
        assert!(error.to_string().starts_with("cutting a: "), "{error}");
        assert_eq!(with_file_context("cutting", "a", Errno::NOSPC.into()).kind(), io::ErrorKind::StorageFull);
        let too_big = with_file_context("writing", "a", Errno::FBIG.into());
        assert!(too_big.to_string().ends_with("LimitFSIZE= of the service"), "{too_big}");
    }
}
