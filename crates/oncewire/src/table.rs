//! Tables and figures for people.

use std::time::Duration;

use oncewire_config::units::Size;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// A table of text with a line of headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are not shown.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Says whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the table, one line a row, each cell as wide as the widest of its column.
    pub(crate) fn render(&self) -> String {
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(&self.rows).collect();
        let width =
            |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in &lines {
            let cells =
                line.iter().zip(&self.columns).zip(&widths).map(|((cell, (_, align)), width)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Replaces control characters, a danger of foreign names for a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

/// Writes a number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// Writes a share as per cent; a dash if it is unknown.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| percent_of(share, 1))
}

/// Writes a share as per cent with so many digits after the point. A share below all is never written as 100, and one
/// rounded to nothing has no sign.
pub(crate) fn percent_of(share: f64, digits: usize) -> String {
    let written = |percent: f64| format!("{percent:.digits$}");
    let mut text = written(share * 100.0);
    if share < 1.0 && text == written(100.0) {
        text = format!("99.{}", "9".repeat(digits));
    } else if text == written(-0.0) {
        text = written(0.0);
    }
    format!("{text} %")
}

/// Writes milliseconds; a dash if they are unknown.
pub(crate) fn millis(millis: Option<f64>) -> String {
    millis.map_or_else(unknown, |millis| format!("{millis:.1} ms"))
}

/// Writes an age in its two largest units: `3 d 4 h`, `12 min 5 s`, `7 s`.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Writes how many there are, with the words for one or for any other number.
pub(crate) fn counted(number: u64, one: &str, others: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { others })
}

/// Writes the mark of an unknown figure.
pub(crate) fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("PEER", Align::Left), ("WIRE", Align::Right)]);
        assert!(table.is_empty());
        table.row(["hub".to_owned(), bytes(1 << 20)]);
        table.row(["a-long-name".to_owned(), bytes(7)]);
        assert_eq!(table.render(), "PEER          WIRE\nhub          1 MiB\na-long-name    7 B\n");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let mut table = Table::new(&[("NAME", Align::Left)]);
        table.row(["\u{1b}[2Jevil\n".to_owned()]);
        assert_eq!(table.render(), "NAME\n\u{fffd}[2Jevil\u{fffd}\n");
    }

    #[test]
    fn figures_have_units_and_unknown_ones_a_dash() {
        assert_eq!(percent(Some(0.987_65)), "98.8 %");
        assert_eq!(percent(Some(-0.5)), "-50.0 %");
        assert_eq!(percent(None), "-");
        assert_eq!(percent(Some(0.999_51)), "99.9 %", "some bytes crossed");
        assert_eq!(percent(Some(1.0)), "100.0 %");
        assert_eq!(percent_of(0.999_96, 2), "99.99 %");
        assert_eq!(percent_of(0.999_94, 2), "99.99 %");
        assert_eq!(percent_of(-0.000_04, 2), "0.00 %");
        assert_eq!(percent_of(-0.0, 1), "0.0 %");
        assert_eq!(millis(Some(80.04)), "80.0 ms");
        assert_eq!(age(7.9), "7 s");
        assert_eq!(age(725.0), "12 min 5 s");
        assert_eq!(age(7200.0), "2 h 0 min");
        assert_eq!(age(277_200.0), "3 d 5 h");
        assert_eq!(age(f64::NAN), "0 s");
    }
}
