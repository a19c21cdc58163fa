//! The programs for building networks.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::Error;

/// Finds a program in PATH, and in Debian's directories of system programs.
///
/// # Errors
///
/// [`Error::Missing`].
pub(crate) fn find(name: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing(format!("the program {name}")))
}

/// A program with commands, one a line, on standard input: `ip -batch -` or `tc -batch -`.
pub(crate) struct Batch {
    child: Child,
    lines: String,
}

impl Batch {
    /// Starts `program` in the namespaces of the calling thread and hands it `lines`.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub(crate) fn start(program: &str, lines: &str) -> Result<Self, Error> {
        let mut child = Command::new(find(program)?)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::from_io(program, &error))?;
        if let Some(mut input) = child.stdin.take() {
            // Its exit status tells why it stopped reading.
            let _ = input.write_all(lines.as_bytes());
        }
        Ok(Self { child, lines: lines.into() })
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// A command was refused: the program's message, and all commands.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let output = self.child.wait_with_output().map_err(|error| Error::from_io("wait", &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("Operation not permitted") {
            return Err(Error::Missing(format!("a privilege: {said}")));
        }
        Err(Error::Failed(format!("{said}\nof these commands:\n{}", self.lines)))
    }
}
