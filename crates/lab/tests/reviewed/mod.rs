//! Tables under review.

use std::path::Path;

/// Expects a table equal to the reviewed one of this name, or with `ONCEWIRE_UPDATE` set writes it anew.
#[track_caller]
pub(crate) fn assert_reviewed(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("ONCEWIRE_UPDATE").is_some() {
        return std::fs::write(path, table).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> = table.lines().filter(|line| !reviewed.lines().any(|old| old == *line)).collect();
    assert!(
        table == reviewed,
        "this differs from {}; if that is meant, run with ONCEWIRE_UPDATE=1 and let the difference be reviewed:\n{}",
        path.display(),
        changed.join("\n")
    );
}
