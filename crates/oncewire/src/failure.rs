//! From an error to what people read and the exit code that scripts read.

use std::fmt;
use std::io;
use std::process::ExitCode;

use oncewire_gateway::config::{ConfigError, SetError};

/// The command line, or a file that it names, asks for what cannot be done as written: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Writes an error to standard error and returns its exit code: 2 for wrong usage or configuration, else 1.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // A reader of our output that has seen enough, such as `head`, is no failure of ours to talk about.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::from(FAILED);
    }
    if let Some(config) = error.downcast_ref::<ConfigError>() {
        eprintln!("{config}");
        return ExitCode::from(WRONG);
    }
    eprintln!("oncewire: {error:#}");
    ExitCode::from(if error.is::<Usage>() || error.is::<SetError>() { WRONG } else { FAILED })
}

const FAILED: u8 = 1;
const WRONG: u8 = 2;
