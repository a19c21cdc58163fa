//! Configuration problems, with place and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use super::typed::Mended;
use super::wording::refused;

/// All problems of a configuration file; at least one.
///
/// Its text has a line for each: `FILE: line 3, column 5: problem and remedy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The problems, in the file's order.
    pub problems: Vec<Problem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line and the column (in characters), both from 1; none for the whole file.
    pub place: Option<(usize, usize)>,
    /// The problem and its remedy.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.path.display())?;
            if let Some((line, column)) = problem.place {
                write!(f, " line {line}, column {column}:")?;
            }
            write!(f, " {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// Describes an unreadable file.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("cannot read the configuration: {error}");
        Self { path: path.to_owned(), problems: vec![Problem { place: None, message }] }
    }

    /// Describes a file not in UTF-8.
    pub(super) fn no_text(path: &Path, error: &FromUtf8Error) -> Self {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let good = String::from_utf8_lossy(good);
        let message = "here it is no UTF-8, which a configuration is; save it as that".to_owned();
        let problem = Problem { place: Some(place(&good, good.len())), message };
        Self { path: path.to_owned(), problems: vec![problem] }
    }

    /// Describes the TOML reader's error in helpful words.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let (at, message) = refused(text, error);
        let place = at.map(|at| place(text, at));
        Self { path: path.to_owned(), problems: vec![Problem { place, message }] }
    }
}

/// Collects problems, to show an operator all of them at once.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Found>,
}

#[derive(Debug)]
struct Found {
    span: Option<Range<usize>>,
    message: String,
    /// Whether it is wrong by itself, independent of the rest of the file.
    is_of_value: bool,
}

impl Problems {
    /// Notes a problem without a known place.
    pub(super) fn somewhere(&mut self, message: String) {
        self.found.push(Found { span: None, message, is_of_value: false });
    }

    /// Notes a problem at a place in the text.
    pub(super) fn at(&mut self, span: Range<usize>, message: impl fmt::Display) {
        self.found.push(Found { span: Some(span), message: message.to_string(), is_of_value: false });
    }

    /// Notes a problem of a value by itself.
    pub(super) fn at_value(&mut self, span: Range<usize>, message: impl fmt::Display) {
        self.found.push(Found { span: Some(span), message: message.to_string(), is_of_value: true });
    }

    /// Passes a good value on, or notes its problem.
    pub(super) fn check<T, E: fmt::Display>(
        &mut self,
        span: Range<usize>,
        key: &str,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|error| self.at_value(span, format_args!("{key}: {error}"))).ok()
    }

    /// Adds the problems of single values from a file with some keys left out or filled in, without
    /// consequent ones.
    pub(super) fn add_of_values(&mut self, others: Self, mended: &[Mended]) {
        // A filled-in key has its section's place.
        let follows =
            |found: &Found| mended.iter().any(|mended| found.span.as_ref() == Some(&mended.section));
        self.found.extend(others.found.into_iter().filter(|found| found.is_of_value && !follows(found)));
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Turns the problems into an error, in the file's order.
    pub(super) fn into_error(self, path: &Path, text: &str) -> ConfigError {
        let described = |found: Found| Problem {
            place: found.span.map(|span| place(text, span.start)),
            message: found.message,
        };
        let mut problems: Vec<_> = self.found.into_iter().map(described).collect();
        problems.sort();
        ConfigError { path: path.to_owned(), problems }
    }
}

/// Returns line and column, both from 1, of a byte offset.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
