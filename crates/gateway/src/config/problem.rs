//! What is wrong with a configuration, where, and what to do.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use super::explain;
use super::typed::Mended;

/// Everything that is wrong with a configuration file; at least one problem.
///
/// Its text has a line for each: `FILE: line 3, column 5: what, and what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The problems, in the file's order.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line and the column (in characters), both from 1; none where the whole file is meant.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what to do.
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
    /// Describes a file that cannot be read.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("cannot read the configuration: {error}");
        Self { path: path.to_owned(), problems: vec![Problem { place: None, message }] }
    }

    /// Describes a file that is no UTF-8.
    pub(super) fn no_text(path: &Path, error: &FromUtf8Error) -> Self {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let good = String::from_utf8_lossy(good);
        let message = "here it is no UTF-8, which a configuration is; save it as that".to_owned();
        let problem = Problem { place: Some(place(&good, good.len())), message };
        Self { path: path.to_owned(), problems: vec![problem] }
    }

    /// Describes what the TOML reader refused, in words that help.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span();
        let message = rephrase(text, error.message(), span.as_ref());
        let place = span.map(|span| place(text, span.start));
        Self { path: path.to_owned(), problems: vec![Problem { place, message }] }
    }
}

/// Collects what is wrong, so that an operator sees all of it at once.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Found>,
}

#[derive(Debug)]
struct Found {
    span: Option<Range<usize>>,
    message: String,
    /// Whether it is wrong by itself, whatever the rest of the file says.
    is_of_value: bool,
}

impl Problems {
    /// Notes a problem whose place is not known.
    pub(super) fn somewhere(&mut self, message: String) {
        self.found.push(Found { span: None, message, is_of_value: false });
    }

    /// Notes a problem at a place in the text.
    pub(super) fn at(&mut self, span: Range<usize>, message: impl fmt::Display) {
        self.found.push(Found { span: Some(span), message: message.to_string(), is_of_value: false });
    }

    /// Notes what is wrong with a value by itself.
    pub(super) fn at_value(&mut self, span: Range<usize>, message: impl fmt::Display) {
        self.found.push(Found { span: Some(span), message: message.to_string(), is_of_value: true });
    }

    /// Passes a good value on, or notes what is wrong with it.
    pub(super) fn check<T, E: fmt::Display>(
        &mut self,
        span: Range<usize>,
        key: &str,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|error| self.at_value(span, format_args!("{key}: {error}"))).ok()
    }

    /// Adds those of a file of which some keys were left out or filled in: what is wrong with single values, and nothing
    /// that may come of that.
    pub(super) fn add_of_values(&mut self, others: Self, mended: &[Mended]) {
        // What was filled in for a key stands where its section does.
        let follows =
            |found: &Found| mended.iter().any(|mended| found.span.as_ref() == Some(&mended.section));
        self.found.extend(others.found.into_iter().filter(|found| found.is_of_value && !follows(found)));
    }

    /// Says whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Turns what was found into an error, in the file's order.
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

/// Says in an operator's words what the TOML reader said in a programmer's.
pub(super) fn rephrase(text: &str, message: &str, span: Option<&Range<usize>>) -> String {
    let message = message.replace('\n', "; ").replace("expected i64", "expected a whole number");
    // No key takes so much, and the type is not the operator's.
    let message = match message.split_once(" as i128") {
        Some((number, _)) => format!("{} is too large", number.trim_start_matches("invalid type: integer ")),
        None => message,
    };
    let offset = span.map_or(0, |span| span.start);
    let section = section_at(text, offset);
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field ") {
        let Some(key) = quoted.next() else { return message };
        let known: Vec<&str> = quoted.collect();
        return unknown_name(key, section, &known);
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        let section = if key.trim_matches('`') == "gateway" { "" } else { section };
        return match section {
            "" => "there is no [gateway] section; it names this gateway and its key file".to_owned(),
            _ => format!("{key} is missing in {}", explain::brackets(section)),
        };
    }
    let header = line_at(text, offset).trim();
    if message.starts_with("invalid type") && header.starts_with('[') {
        if explain::LISTS.iter().any(|name| header.starts_with(&format!("[{name}]"))) {
            return format!("write [{header}], with two brackets: there may be several");
        }
        if header.starts_with("[[") {
            let name = section_header(header).unwrap_or("the section");
            return format!("write [{name}], with one bracket: there is only one");
        }
    }
    match line_at(text, offset).split_once('=') {
        Some((key, _)) if message == "duplicate key" => format!("`{}` stands there twice", key.trim()),
        Some((key, _)) => format!("{}: {message}", key.trim()),
        None => message,
    }
}

/// Names a key, section or condition that does not exist.
fn unknown_name(key: &str, section: &str, known: &[&str]) -> String {
    // Names of sections are listed only where a section was expected.
    if known.contains(&"gateway") {
        let meant =
            explain::closest(key, known).map(|meant| format!("; did you mean {}?", explain::brackets(meant)));
        let all: Vec<String> = known.iter().map(|name| explain::brackets(name)).collect();
        let all = explain::list_plain(&all.iter().map(String::as_str).collect::<Vec<_>>());
        return format!(
            "unknown section or key `{key}`{}",
            meant.unwrap_or_else(|| format!("; sections are {all}"))
        );
    }
    explain::unknown_key(key, section, known)
}

/// Returns the name of the section that an offset is in; empty before the first.
fn section_at(text: &str, offset: usize) -> &str {
    let end = text.get(offset..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| offset + at);
    let before = text.get(..end).unwrap_or(text);
    before.lines().rev().find_map(section_header).unwrap_or("")
}

/// Reads a line such as `[[peer]] # comment`; a list's line of the same look has quotes or commas in it.
fn section_header(line: &str) -> Option<&str> {
    let line = line.split('#').next().unwrap_or("").trim();
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name).trim();
    let word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    word.then_some(name)
}

fn line_at(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("")
}
