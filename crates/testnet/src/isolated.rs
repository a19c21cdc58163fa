//! Tests with root's privileges, for users without them.

use std::any::type_name_of_val;
use std::process::{Command, Stdio};

use crate::missing::skip;
use crate::namespace::Namespace;
use crate::{Error, programs};

/// Runs the body of a test with the privileges to build networks: here, or in a user namespace.
///
/// Without the privilege, the test's own program runs again under `unshare --user --map-root-user`, with this one
/// test, and its result is ours. Give it a closure from the test function itself: the closure's type names the test.
/// Without user namespaces, it says so and returns.
///
/// # Panics
///
/// On a panic of `body`; with `CI=true` also if it cannot run.
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

/// Runs this program again in a user namespace, with one test; panics if it fails.
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

/// The test around the closure of this type: its path without the crate and without the closure.
fn test_name(closure: &str) -> &str {
    let function = closure.split("::{{closure}}").next().unwrap_or(closure);
    function.split_once("::").map_or(function, |(_, rest)| rest)
}

/// Set for the second run of a program, to prevent a third.
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
