//! Tolerant reading of a file, with all type errors at once.
//!
//! The TOML reader stops at the first misfit value. That value is left out, or filled in for a missing key,
//! and the rest is read again, until nothing is wrong.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::problem::Problems;
use super::raw::RawConfig;
use super::wording::rephrase;

/// A file of valid TOML.
#[derive(Debug)]
pub(super) struct Typed {
    /// Its valid part; none if that is not enough for a configuration.
    pub(super) raw: Option<RawConfig>,
    /// Problems of the changed keys.
    pub(super) problems: Problems,
    /// The keys left out or filled in.
    pub(super) mended: Vec<Mended>,
}

/// A key left out or filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) key: String,
    /// Its section's place.
    pub(super) section: Range<usize>,
}

impl Typed {
    /// Reads a file.
    ///
    /// # Errors
    /// Invalid TOML, one error at a time: text behind a missing quote has lost its meaning.
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
                    // A key left out is present, and was reported.
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

/// Returns the missing key of an error.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// Fills in a section's missing key; false if there is no such section, or only the whole file is one.
fn fill_in(table: &mut DeTable<'_>, lacking: &Mended) -> bool {
    table.iter_mut().any(|(_, value)| fill_in_within(value, lacking))
}

fn fill_in_within(value: &mut Spanned<DeValue<'_>>, lacking: &Mended) -> bool {
    let is_here = value.span() == lacking.section;
    match value.get_mut() {
        DeValue::Table(table) if is_here => {
            // An empty text fits the type of all required keys.
            let filling = Spanned::new(lacking.section.clone(), DeValue::String(Cow::Borrowed("")));
            let key = Spanned::new(lacking.section.clone(), Cow::Owned(lacking.key.clone()));
            table.insert(key, filling).is_none()
        }
        DeValue::Table(table) => fill_in(table, lacking),
        DeValue::Array(values) => values.iter_mut().any(|value| fill_in_within(value, lacking)),
        _ => false,
    }
}

/// Leaves out the value at a place, with its key.
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

/// Whether a list has a scalar at a place.
fn has_scalar(value: &DeValue<'_>, span: &Range<usize>) -> bool {
    let mut values = value.as_array().into_iter().flat_map(|values| values.iter());
    values.any(|value| !value.get_ref().is_table() && value.span() == *span)
}

/// The most problems reported at once.
const MOST_PROBLEMS: usize = 100;
