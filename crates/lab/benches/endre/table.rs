//! Tables in Markdown, and the figures in them.

use std::time::Duration;

/// Prints a heading, notes, and the first lines of a table.
pub(crate) fn start(title: &str, notes: &str, columns: &[&str]) {
    println!("\n### {title}\n\n{notes}\n");
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// Prints a row.
pub(crate) fn row<T: AsRef<str>>(cells: &[T]) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    println!("| {} |", cells.join(" | "));
}

/// Returns the middle one, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    (at(low) + at(high)) / 2.0
}

/// 10⁹ bytes a second.
pub(crate) fn gigabytes_per_second(bytes: u64, spent: Duration) -> f64 {
    bytes as f64 / spent.as_secs_f64().max(1e-9) / 1e9
}

/// Returns 1 − wire / plain.
pub(crate) fn savings(plain: u64, wire: u64) -> f64 {
    1.0 - wire as f64 / plain.max(1) as f64
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2} ×")
}

/// A whole number of MiB or GiB.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) }
}
