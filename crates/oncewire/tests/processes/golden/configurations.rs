//! What `check` and `measure` say of stored configurations.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::golden;
use crate::binary;

/// A configuration with every key of the earlier build, and one with the least.
const NAMES: [&str; 2] = ["full", "least"];

/// Runs a command in a folder with a configuration and its keys.
fn output(binary: &Path, dir: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(binary).current_dir(dir).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Makes a folder with the stored configurations and keys.
fn folder(golden: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    crate::common::pair::copy_folder(&golden.join("sealed"), dir.path());
    crate::common::pair::copy_folder(&self::golden().join("configurations"), dir.path());
    dir
}

/// The values of a configuration in `check`, without warnings about the machine.
fn checked(binary: &Path, dir: &Path, name: &str) -> String {
    let output = output(binary, dir, &["check", "-c", &format!("{name}.toml")]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("warning: "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The settings of a configuration's first peer in `measure`.
fn measured(binary: &Path, dir: &Path, name: &str) -> Value {
    std::fs::write(dir.join("content"), "content").unwrap();
    let config = format!("{name}.toml");
    let output = output(binary, dir, &["measure", "--json", "--like", &config, "content"]);
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["config"].clone()
}

/// Writes the words of `binary` about each configuration.
pub(super) fn make(binary: &Path, golden: &Path) {
    let (dir, to) = (folder(golden), golden.join("configurations"));
    std::fs::create_dir_all(&to).unwrap();
    for name in NAMES {
        std::fs::write(to.join(format!("{name}.check")), checked(binary, dir.path(), name)).unwrap();
        let settings = format!("{:#}\n", measured(binary, dir.path(), name));
        std::fs::write(to.join(format!("{name}.json")), settings).unwrap();
    }
}

#[test]
fn stored_configurations_resolve_to_the_same_values() {
    let (dir, stored) = (folder(&golden()), golden().join("configurations"));
    for name in NAMES {
        let expected = std::fs::read_to_string(stored.join(format!("{name}.check"))).unwrap();
        let checked = checked(binary(), dir.path(), name);
        for (line, expected) in checked.lines().zip(expected.lines()) {
            assert_eq!(line, expected, "check of {name}.toml");
        }
        assert_eq!(checked.len(), expected.len(), "check of {name}.toml");
        let expected = std::fs::read(stored.join(format!("{name}.json"))).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let settings = measured(binary(), dir.path(), name);
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&settings[key], value, "{key} of {name}.toml");
        }
    }
}
