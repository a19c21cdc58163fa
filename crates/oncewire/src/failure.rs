//! Errors as messages for people and exit codes for scripts.

use std::fmt;
use std::io;
use std::process::ExitCode;

use oncewire_config::{ConfigError, SetError};
use oncewire_gateway::daemon::StartError;

/// A command line, or a file named there, without possible execution: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Has an error printed to standard error and returns its exit code: 2 for wrong usage or configuration, else 1.
pub(crate) fn report(error: &anyhow::Error, print: impl FnOnce(&str)) -> ExitCode {
    // A reader with enough of our output, such as `head`, is no failure of ours to talk about.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::from(FAILED);
    }
    if let Some(config) = config_error(error) {
        print(&config.to_string());
        return ExitCode::from(WRONG);
    }
    print(&format!("oncewire: {}", message_of(error)));
    ExitCode::from(if error.is::<Usage>() || error.is::<SetError>() { WRONG } else { FAILED })
}

/// Returns a configuration's error, also one found only at the start.
fn config_error(error: &anyhow::Error) -> Option<&ConfigError> {
    error.downcast_ref().or_else(|| match error.downcast_ref()? {
        StartError::Config(config) => Some(config),
        _ => None,
    })
}

/// Writes an error and its causes, except those already in the message above them.
fn message_of(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

const FAILED: u8 = 1;
const WRONG: u8 = 2;

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn cause_of_an_error_is_said_once() {
        let refused = || io::Error::from(io::ErrorKind::AddrInUse);
        let cause = refused().to_string();
        let silent = Err::<(), _>(refused()).context("cannot listen").unwrap_err();
        assert_eq!(message_of(&silent), format!("cannot listen: {cause}"));
        let telling = Err::<(), _>(refused()).context(format!("cannot listen ({cause}); try another port"));
        assert_eq!(message_of(&telling.unwrap_err()), format!("cannot listen ({cause}); try another port"));
    }
}
