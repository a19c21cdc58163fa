//! External programs of the rules: `nft`, `ip` and `iptables`.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use super::set::RuleSet;

/// Why rules are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A program is not installed.
    #[error("`{0}` is missing: install {1}, or set rules = \"print\" and load what `oncewire rules` prints")]
    Missing(&'static str, &'static str),
    /// A program failed.
    #[error("`{program}` failed: {said}")]
    Refused {
        /// The command.
        program: String,
        /// Its message.
        said: String,
    },
    /// A program timed out on the lock shared with others of its kind.
    #[error(
        "`{program}` failed: for {LOCK_SECS} s another program has held the xtables lock (/run/xtables.lock); \
         try again when that has ended"
    )]
    Locked {
        /// The command.
        program: String,
    },
    /// Packets cannot be marked.
    #[error("cannot mark this gateway's own packets, which takes CAP_NET_ADMIN: {0}")]
    Mark(io::Error),
    /// There is no thread to wait for programs.
    #[error("{0}")]
    Thread(io::Error),
}

/// Runs `nft` and `ip` for a set of rules.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'a>(pub &'a RuleSet);

pub(super) fn nft(arguments: &[&str], input: &str) -> Result<String, LoadError> {
    run("nft", "nftables", arguments, input)
}

pub(super) fn ip(command: &str) -> Result<String, LoadError> {
    run("ip", "iproute2", &command.split(' ').collect::<Vec<_>>(), "")
}

/// Runs `iptables` or `ip6tables` on the table `raw`.
pub(super) fn filter(program: &'static str, command: &str) -> Result<String, LoadError> {
    let command = format!("-w {LOCK_SECS} -t raw {command}");
    let done = run(program, "iptables", &command.split(' ').collect::<Vec<_>>(), "");
    done.map_err(|error| match error {
        LoadError::Refused { program, said } if is_lock(&said) => LoadError::Locked { program },
        error => error,
    })
}

/// Whether a program stopped at the lock; some report waiting for it, and then another error.
fn is_lock(said: &str) -> bool {
    said.lines().last().is_some_and(|line| line.contains("xtables lock"))
}

fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    input: &str,
) -> Result<String, LoadError> {
    let refused = |said: &str| LoadError::Refused {
        program: format!("{program} {}", arguments.join(" ")),
        said: said.trim().to_owned(),
    };
    match output(program, arguments, input) {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(refused(&String::from_utf8_lossy(&output.stderr))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LoadError::Missing(program, package)),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn output(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(arguments)
        // Not every service's path has the directories of these programs.
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It reads all of its input before the first output.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// Patience of `iptables` with its lock, in seconds: less than that of a gateway's end.
pub(super) const LOCK_SECS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_a_lock_is_limited_and_reported() {
        assert_eq!(filter("echo", "-C RULE").unwrap(), "-w 5 -t raw -C RULE\n");
        let waiting = "Another app is currently holding the xtables lock; waiting (1s) for it to exit...";
        let in_vain = "Another app is currently holding the xtables lock. Stopped waiting after 5s.";
        assert!(is_lock(&format!("{waiting}\n{in_vain}")));
        assert!(!is_lock(&format!(
            "{waiting}\niptables: Bad rule (does a matching rule exist in that chain?)."
        )));
        assert!(!is_lock(""));
        let locked = || LoadError::Locked { program: "iptables -w 5 -t raw -C RULE".to_owned() };
        assert!(locked().to_string().contains("for 5 s another program has held the xtables lock"));
    }
}
