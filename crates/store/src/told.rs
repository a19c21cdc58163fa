//! Errors of the disk that say what was being done, and to which file.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;

/// What the operating system said, and of what.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {file}: {source}{}", remedy(.source))]
struct Told {
    doing: &'static str,
    file: String,
    source: io::Error,
}

/// Says what is to be done where a limit of the process is in the way.
fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::FBIG) => "; raise the limit of file sizes with `ulimit -f` or LimitFSIZE= of the service",
        _ => "",
    }
}

/// Says of which file an error is, and at what; its kind and number stay.
pub(crate) fn told(doing: &'static str, file: impl Display, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), Told { doing, file: file.to_string(), source })
}

/// Returns the number that the operating system gave an error, also of one that was told.
pub(crate) fn errno(error: &io::Error) -> Option<Errno> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Told>());
    Errno::from_io_error(inner.map_or(error, |told| &told.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_told_is_still_known() {
        let error = told("cutting", "a", io::Error::from(Errno::MFILE));
        assert_eq!(errno(&error), Some(Errno::MFILE));
        assert!(error.to_string().starts_with("cutting a: "), "{error}");
        assert_eq!(told("cutting", "a", Errno::NOSPC.into()).kind(), io::ErrorKind::StorageFull);
        let too_big = told("writing", "a", Errno::FBIG.into());
        assert!(too_big.to_string().ends_with("LimitFSIZE= of the service"), "{too_big}");
    }
}
