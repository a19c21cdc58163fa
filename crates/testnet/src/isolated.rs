//! Tests that need root, for those who are not.

use std::any::type_name_of_val;
use std::process::{Command, Stdio};

use crate::missing::skip;
use crate::namespace::Namespace;
use crate::{Error, programs};

/// Runs the body of a test where networks can be built: here, or in a user namespace.
///
/// Without the privilege, the test's own program is run again under `unshare --user --map-root-user`, with this
/// one test, and its result is ours. Give it a closure that stands in the test function itself: its type names
/// the test. Where user namespaces are not allowed either, it says so and returns.
///
/// # Panics
///
/// Where `body` does; with `CI=true` also where it cannot run.
pub fn isolated<F: FnOnce()>(body: F) {
    if Namespace::new().is_ok() {
        return body();
    }
    if std::env::var_os(AGAIN).is_some() {
        return skip("the user namespace allows no network namespaces");
    }
    if let Err(reason) = run_again(test_name(type_name_of_val(&body))) {
        skip(&reason.to_string());
    }
}

/// Runs this program again in a user namespace, with one test; panics if that fails.
fn run_again(test: &str) -> Result<(), Error> {
    let unshare = programs::find("unshare")?;
    let enter = ["--user", "--map-root-user", "--kill-child", "--fork"];
    let possible = Command::new(&unshare)
        .args(enter)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !possible {
        return Err(Error::Missing("root, or permission to make user namespaces".into()));
    }
    let program = std::env::current_exe().map_err(|error| Error::from_io("this program", &error))?;
    let output = Command::new(unshare)
        .args(enter)
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(AGAIN, "1")
        .output()
        .map_err(|error| Error::from_io("unshare", &error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} in a user namespace: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The test that the closure of this type stands in: its path without the crate and without the closure.
fn test_name(closure: &str) -> &str {
    let function = closure.split("::{{closure}}").next().unwrap_or(closure);
    function.split_once("::").map_or(function, |(_, rest)| rest)
}

/// Set for a program that was run again, so that it does not do so too.
const AGAIN: &str = "ONCEWIRE_TESTNET_AGAIN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_names_its_test() {
        let body = || ();
        assert_eq!(test_name(type_name_of_val(&body)), "isolated::tests::a_closure_names_its_test");
    }
}
