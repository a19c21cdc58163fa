//! Reads a file as typed even if some of it cannot be, so that all of that is told at once.
//!
//! The reader of TOML stops at the first value that does not fit. What it stopped at is left out, or filled in where a
//! key is missing, and the rest is read again, until nothing is wrong any more.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::problem::Problems;
use super::raw::RawConfig;
use super::wording::rephrase;

/// A file whose TOML is right.
#[derive(Debug)]
pub(super) struct Typed {
    /// What it says, without what is wrong; none if that is not enough for a configuration.
    pub(super) raw: Option<RawConfig>,
    /// What was left out or filled in, and why.
    pub(super) problems: Problems,
    /// The keys that were.
    pub(super) mended: Vec<Mended>,
}

/// A key that was left out or filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) key: String,
    /// Where its section stands.
    pub(super) section: Range<usize>,
}

impl Typed {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no TOML; that is told one at a time, since what follows a missing quote is not what was meant.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let mut table = DeTable::parse(text)?;
        let root = table.span();
        let mut typed = Self { raw: None, problems: Problems::default(), mended: Vec::new() };
        for _ in 0..MOST_PROBLEMS {
            let error = match RawConfig::deserialize(Deserializer::from(table.clone())) {
                Ok(raw) => {
                    typed.raw = Some(raw);
                    return Ok(typed);
                }
                Err(error) => error,
            };
            let message = rephrase(text, error.message(), error.span().as_ref());
            let Some(span) = error.span() else {
                typed.problems.somewhere(message);
                return Ok(typed);
            };
            let mended = match missing(error.message()) {
                Some(key) => {
                    let lacking = Mended { key: key.to_owned(), section: span.clone() };
                    // One that was left out is there, and was told.
                    if !typed.mended.contains(&lacking) {
                        typed.problems.at(span, message);
                    }
                    fill_in(table.get_mut(), &lacking).then_some(lacking)
                }
                None => {
                    typed.problems.at(span.clone(), message);
                    leave_out(table.get_mut(), &root, &span)
                }
            };
            let Some(mended) = mended else { return Ok(typed) };
            typed.mended.push(mended);
        }
        Ok(typed)
    }
}

/// Returns the key that an error says is missing.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// Fills a key in that is missing in its section; false if there is no such section, or only the whole file is one.
fn fill_in(table: &mut DeTable<'_>, lacking: &Mended) -> bool {
    table.iter_mut().any(|(_, value)| fill_in_within(value, lacking))
}

fn fill_in_within(value: &mut Spanned<DeValue<'_>>, lacking: &Mended) -> bool {
    let is_here = value.span() == lacking.section;
    match value.get_mut() {
        DeValue::Table(table) if is_here => {
            // Empty, it is of the type of all keys that must be there.
            let filling = Spanned::new(lacking.section.clone(), DeValue::String(Cow::Borrowed("")));
            let key = Spanned::new(lacking.section.clone(), Cow::Owned(lacking.key.clone()));
            table.insert(key, filling).is_none()
        }
        DeValue::Table(table) => fill_in(table, lacking),
        DeValue::Array(values) => values.iter_mut().any(|value| fill_in_within(value, lacking)),
        _ => false,
    }
}

/// Leaves out what stands at a place, with its key.
fn leave_out(table: &mut DeTable<'_>, section: &Range<usize>, span: &Range<usize>) -> Option<Mended> {
    let wrong = table.iter().find(|(key, value)| {
        key.span() == *span || value.span() == *span || has_scalar(value.get_ref(), span)
    });
    if let Some(key) = wrong.map(|(key, _)| key.get_ref().clone().into_owned()) {
        table.remove(key.as_str());
        return Some(Mended { key, section: section.clone() });
    }
    table.iter_mut().find_map(|(_, value)| leave_out_within(value, span))
}

fn leave_out_within(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Mended> {
    let section = value.span();
    match value.get_mut() {
        DeValue::Table(table) => leave_out(table, &section, span),
        DeValue::Array(values) => values.iter_mut().find_map(|value| leave_out_within(value, span)),
        _ => None,
    }
}

/// Says whether a list has something at a place that is no table.
fn has_scalar(value: &DeValue<'_>, span: &Range<usize>) -> bool {
    let mut values = value.as_array().into_iter().flat_map(|values| values.iter());
    values.any(|value| !value.get_ref().is_table() && value.span() == *span)
}

/// More problems are not told at once.
const MOST_PROBLEMS: usize = 100;
