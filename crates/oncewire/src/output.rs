//! Standard output.

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Writes to standard output; unlike `print!` it returns an error without a reader, or without room.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    said(stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()))
}

/// Names standard output in an error of writing to it.
pub(crate) fn said(written: io::Result<()>) -> anyhow::Result<()> {
    written.context("cannot write to standard output")
}
