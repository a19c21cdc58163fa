//! Configurations in documents: `oncewire check` accepts each of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

const ONCEWIRE: &str = env!("CARGO_BIN_EXE_oncewire");

#[test]
fn configurations_in_documents_pass_check() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![top.join("README.md")];
    for directory in ["docs/using", "docs/operating"] {
        let entries = std::fs::read_dir(top.join(directory)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let mut checked = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            check(&page, block);
            checked += 1;
        }
    }
    assert!(checked >= 15, "only {checked} configurations were found");
}

/// Runs `oncewire check` on one configuration, with key files and public keys of its own.
fn check(page: &Path, block: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut text = block.to_owned();
    while let Some((before, rest)) = text.split_once("\"THE LINE ") {
        let (_, after) = rest.split_once('"').unwrap();
        text = format!("{before}\"{}\"{after}", keygen(dir.path(), &format!("peer-{}", before.len()), false));
    }
    for file in text.lines().filter_map(|line| Some(line.split_once("key_file = \"")?.1.split_once('"')?.0)) {
        keygen(dir.path(), file, file.starts_with("group"));
    }
    let path = dir.path().join("gateway.toml");
    std::fs::write(&path, &text).unwrap();
    let output = Command::new(ONCEWIRE).arg("check").arg("-c").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}\n{block}", page.display());
}

/// Makes a key file, and returns its public key.
fn keygen(dir: &Path, name: &str, is_group: bool) -> String {
    let file: PathBuf = dir.join(name);
    let mut command = Command::new(ONCEWIRE);
    command.arg("keygen").args(is_group.then_some("--group")).arg("--out").arg(file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
