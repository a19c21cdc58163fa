//! The TOML reader's errors in an operator's words.
//!
//! The reader speaks of literals, sequences and floats, and points into the middle of a value. Here its place
//! in the text decides: most errors are values without quotes, and the answer is the corrected line.

use std::ops::Range;

use oncewire_host::scope::read_with_port;
use toml::de::Error;

use super::explain;
use super::units;

/// Locates the TOML error in a text, with the correction.
pub(super) fn refused(text: &str, error: &Error) -> (Option<usize>, String) {
    let Some(span) = error.span() else { return (None, error.message().to_owned()) };
    let at = span.start.min(text.len());
    let message = error.message();
    if message == "duplicate key" {
        return (Some(at), twice(text, &span));
    }
    let of_list = [
        "unclosed array",
        "unclosed inline table",
        "missing key for inline table element",
        "invalid inline table",
    ];
    if of_list.iter().any(|start| message.starts_with(start) && !message.starts_with("unclosed array table"))
    {
        return unclosed(text, at);
    }
    if message.starts_with("invalid multi-line") {
        return (Some(at), "a text in three quotes is not closed, or holds a control character".to_owned());
    }
    let line = Line::around(text, at);
    let listed = open_list(text, &line);
    if listed.is_none() && line.text.trim_start().starts_with('[') {
        return (Some(at), header(line.text).unwrap_or_else(|| malformed(message).to_owned()));
    }
    if listed.is_none()
        && let Some(said) = of_key(message, &line)
    {
        return (Some(at), said);
    }
    let Some(statement) = listed.or_else(|| line.statement()) else {
        return (Some(at), malformed(message).to_owned());
    };
    if statement.listed && message.starts_with("missing comma") {
        let before = Line::around(text, line.start.saturating_sub(1));
        let bare = without_comment(before.text);
        if bare.matches('"').count() % 2 == 1 {
            return (
                Some(before.start),
                format!("{}: the closing quote is missing in this line", statement.key),
            );
        }
    }
    let said = in_text(message).or_else(|| between(message)).map(str::to_owned);
    match said {
        Some(said) => (Some(at), format!("{}: {said}", statement.key)),
        None => {
            let (place, said) = statement.advice(at);
            (Some(place), format!("{}: {said}", statement.key))
        }
    }
}

/// Rephrases a programmer's error message about a single value for an operator.
pub(super) fn rephrase(text: &str, message: &str, span: Option<&Range<usize>>) -> String {
    let message = message.replace('\n', "; ");
    // No key takes so much, and the operator knows no such type.
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
    let line = Line::around(text, offset);
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let wrong = wrong.and_then(|wrong| wrong.split_once(", expected "));
    let listed = open_list(text, &line);
    if wrong.is_some()
        && listed.is_none()
        && let Some(said) = header(line.text)
    {
        return said;
    }
    let Some(statement) = listed.or_else(|| line.statement()) else { return message };
    let said = match wrong {
        Some((found, wanted)) => statement.wrong_type(text, span, found, wanted),
        None if message.ends_with(" number overflowed") => {
            format!("{} is no number, or too large", statement.value)
        }
        None => message,
    };
    format!("{}: {said}", statement.key)
}

/// Names an unknown key, section or condition.
fn unknown_name(key: &str, section: &str, known: &[&str]) -> String {
    // Names of sections are listed only in place of a section.
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

/// Names a repeated key or section, and the place of the first.
fn twice(text: &str, span: &Range<usize>) -> String {
    let name = text.get(span.clone()).unwrap_or_default();
    let first = first_of(text, name, span.start);
    let at = first.map(|first| super::problem::place(text, first).0);
    let at = at.map(|line| format!("line {line}")).unwrap_or_else(|| "another line".to_owned());
    let line = Line::around(text, span.start).text.trim_start();
    if !line.starts_with('[') {
        return format!("`{}` stands there twice; the first is in {at}", shown(name));
    }
    let is_value = first.is_some_and(|first| !Line::around(text, first).text.trim_start().starts_with('['));
    match is_value {
        true => format!("`{name}` has a value in {at} already; write all of it there, or all of it here"),
        false => format!(
            "the section [{name}] stands there twice; the first is in {at}: put the keys there, and remove this line"
        ),
    }
}

/// Finds the last occurrence of a key or section ahead of an offset.
fn first_of(text: &str, name: &str, before: usize) -> Option<usize> {
    let earlier = text.get(..before)?;
    let is_one = |at: usize| {
        let line_start = earlier.get(..at).and_then(|text| text.rfind('\n')).map_or(0, |end| end + 1);
        let ahead = earlier.get(line_start..at).unwrap_or_default();
        let behind = text.get(at + name.len()..).unwrap_or_default().trim_start_matches([' ', '\t']);
        without_comment(ahead).len() == ahead.len()
            && ahead.trim_end().chars().next_back().is_none_or(|last| "[{,.".contains(last))
            && behind.starts_with(['=', ']', '.'])
    };
    earlier.rmatch_indices(name).map(|(at, _)| at).find(|at| is_one(*at))
}

/// Returns a line as part of its list or table, if that began on an earlier line.
fn open_list<'a>(text: &'a str, line: &Line<'a>) -> Option<Statement<'a>> {
    let (mut key, mut open) = ("", 0);
    for before in text.get(..line.start)?.lines() {
        let bare = without_comment(before);
        let value = match bare.split_once('=') {
            Some((first, value)) if open == 0 => {
                key = first.trim();
                value
            }
            _ if open == 0 => continue,
            _ => bare,
        };
        open = depth(value, open);
    }
    let bare = without_comment(line.text);
    let value = bare.trim_start();
    let at = line.start + bare.len() - value.len();
    (open > 0).then_some(Statement { key, value: value.trim_end(), at, listed: true })
}

/// Returns how many brackets are open behind a line.
fn depth(line: &str, open: usize) -> usize {
    outside_quotes(line).fold(open, |open, (_, char)| match char {
        '[' | '{' => open + 1,
        ']' | '}' => open.saturating_sub(1),
        _ => open,
    })
}

/// Reports an unclosed list or inline table, at its beginning.
fn unclosed(text: &str, at: usize) -> (Option<usize>, String) {
    let before = text.get(..at).unwrap_or(text);
    let mut end = before.len();
    while end > 0 {
        let line = Line::around(text, end - 1);
        if let Some(statement) = line.statement()
            && statement.value.starts_with(['[', '{'])
        {
            let (what, bracket) =
                if statement.value.starts_with('[') { ("list", ']') } else { ("table", '}') };
            let said = format!(
                "{}: the {what} that begins here is not closed: a {bracket} is missing",
                statement.key
            );
            return (Some(line.start), said);
        }
        end = line.start.saturating_sub(1).min(end - 1);
    }
    (Some(at), "a list or table is not closed: a ] or } is missing".to_owned())
}

/// Reports wrong brackets in the header of a section, if any.
fn header(line: &str) -> Option<String> {
    let line = without_comment(line).trim();
    let name = line.strip_prefix('[')?.trim_start_matches('[').split(']').next()?.trim();
    let wanted = explain::brackets(name);
    if line == wanted || !explain::is_section(name) {
        return None;
    }
    let opening = |text: &str| text.bytes().take_while(|byte| *byte == b'[').count();
    if opening(line) == opening(&wanted) {
        return Some(format!("write {wanted}, and nothing else on its line"));
    }
    Some(match explain::LISTS.contains(&name) {
        true => format!("write {wanted}, with two brackets: there may be several"),
        false => format!("write {wanted}, with one bracket: there is only one"),
    })
}

/// Reports a malformed key.
fn of_key(message: &str, line: &Line<'_>) -> Option<String> {
    let text = line.text.trim();
    if message.starts_with("key with no value") || message.starts_with("missing value for key") {
        let word = text.split([':', ' ', '\t']).next().unwrap_or_default();
        return Some(match text {
            _ if text.starts_with("//") || text.starts_with([';', '-', '*']) => {
                "a comment begins with #, and all else is KEY = VALUE or a [section]".to_owned()
            }
            _ if text.contains(':') || text.len() > word.len() => {
                format!("write `{} = VALUE`, with an equals sign", shown(word))
            }
            _ => format!("`{}` has no value; write `{} = VALUE`", shown(word), shown(word)),
        });
    }
    let said = if message.starts_with("unquoted keys cannot be empty") {
        "there is no key before the equals sign"
    } else if message.starts_with("invalid unquoted key") {
        "a key has letters, digits, hyphens and underscores only"
    } else if message.starts_with("cannot extend value") {
        "keys cannot stand below one that has a value itself"
    } else if message.starts_with("invalid key-value pair") || message.starts_with("keys cannot be") {
        "here a [section] or KEY = VALUE was expected"
    } else if message.starts_with("extra `=`") {
        "there is an equals sign too many"
    } else {
        return None;
    };
    Some(said.to_owned())
}

/// Reports an error within the quotes of a text.
fn in_text(message: &str) -> Option<&'static str> {
    let of_escape = ["missing escaped value", "too few unicode value digits", "invalid value"];
    if of_escape.iter().any(|start| message.starts_with(start)) {
        return Some(
            "in double quotes a backslash begins an escape: write \\\\, or single quotes around it all",
        );
    }
    let of_string =
        message.starts_with("invalid basic string") || message.starts_with("invalid literal string");
    let lacks_quote = message.ends_with("expected `\"`") || message.ends_with("expected `'`");
    (of_string && !lacks_quote).then_some("a control character stands in the text; remove it")
}

/// Reports an error between the values of a list or table.
fn between(message: &str) -> Option<&'static str> {
    Some(match message.split(", expected").next()? {
        "missing comma between array elements" | "missing comma between key-value pairs" => {
            "a comma is missing between two values"
        }
        "extra comma in array" | "extra comma in inline table" => "there is a comma too many",
        "unexpected `=` in array" => "a list has values and no keys; for keys write { KEY = VALUE }",
        "missing assignment between key-value pairs" => {
            "an equals sign is missing between a key and its value"
        }
        "extra assignment between key-value pairs" => "there is an equals sign too many",
        _ => return None,
    })
}

/// Reports invalid TOML outside the line of a key.
fn malformed(message: &str) -> &'static str {
    if message.starts_with("carriage return") {
        "a carriage return stands alone here; save the file with line ends of Unix or Windows"
    } else if message.starts_with("invalid comment character") {
        "a control character stands in this comment; remove it"
    } else if message.contains("recurs") {
        "lists and tables stand too deep within each other"
    } else {
        "here a [section] or KEY = VALUE was expected"
    }
}

/// A line of the text.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    start: usize,
    text: &'a str,
}

/// A line's key and its value, without a comment behind it.
#[derive(Clone, Copy, Debug)]
struct Statement<'a> {
    key: &'a str,
    value: &'a str,
    /// The value's beginning in the text.
    at: usize,
    /// Whether it is a line of a list or table over several lines; the key stands in the first.
    listed: bool,
}

impl<'a> Line<'a> {
    fn around(text: &'a str, offset: usize) -> Self {
        let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        Self { start, text: text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("") }
    }

    /// Returns the key and value, if there is an equals sign.
    fn statement(&self) -> Option<Statement<'a>> {
        let bare = without_comment(self.text);
        let (key, value) = bare.split_once('=')?;
        let trimmed = value.trim_start();
        let at = self.start + bare.len() - trimmed.len();
        Some(Statement { key: key.trim(), value: trimmed.trim_end(), at, listed: false })
    }
}

impl Statement<'_> {
    /// Returns advice on the value's form, with its place.
    fn advice(&self, offset: usize) -> (usize, String) {
        let value = self.value;
        if value.is_empty() {
            return (self.at, "there is no value after the equals sign".to_owned());
        }
        if value.contains(['“', '”', '„', '‘', '’']) {
            let said = match self.is_secret() {
                true => "write straight quotes: \"…\"".to_owned(),
                false => format!("write straight quotes: {} = \"{}\"", self.key, unquoted(value)),
            };
            return (self.at, said);
        }
        let is_address = value.parse::<std::net::SocketAddr>().is_ok() || read_with_port(value).is_some();
        if self.listed || value.starts_with(['[', '{']) && !is_address {
            let (start, element) = self.element(offset);
            return (start, self.of_word(element, false));
        }
        let closed = value.len() > 1 && value.starts_with(['"', '\'']) && {
            let quote = value.get(..1).unwrap_or("\"");
            value.get(1..).is_some_and(|rest| rest.contains(quote))
        };
        if !closed {
            return (self.at, self.of_word(value, true));
        }
        let said = match value.ends_with([',', ';']) && value.matches('"').count() == 2 {
            true => "nothing but a comment may follow the value; remove the last character",
            false => "write one key and one value on a line; nothing but a comment may follow them",
        };
        (offset, said.to_owned())
    }

    /// Returns the written form of a word without quotes, alone or as an element of a list.
    fn of_word(&self, word: &str, alone: bool) -> String {
        let whole = |text: &str| match alone {
            true => format!("{} = {text}", self.key),
            false => text.to_owned(),
        };
        let word = word.trim_end_matches([',', ';']).trim_end();
        let is_truth = TRUTHS.contains(&self.key);
        match word.to_ascii_lowercase().trim_matches('"') {
            "yes" | "on" | "true" if is_truth => return format!("write {}", whole("true")),
            "no" | "off" | "false" if is_truth => return format!("write {}", whole("false")),
            _ => {}
        }
        let digits = word.trim_start_matches(['+', '-']).replace('_', "");
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = digits.trim_start_matches('0');
            return format!("write {}", whole(if number.is_empty() { "0" } else { number }));
        }
        if NUMBERS.contains(&self.key) && !word.contains(['"', '\'']) {
            return format!("{} is not a whole number", shown(word));
        }
        if self.key == "match" && alone {
            return format!("write {}", whole(CONDITIONS));
        }
        if self.is_secret() || word.chars().count() > LONGEST_SHOWN {
            return "put it in quotes".to_owned();
        }
        let plain = unquoted(word);
        let plain = units::in_whole_units(plain).unwrap_or_else(|| shown(plain));
        let said = if word.starts_with('"') { "the closing quote is missing" } else { "put it in quotes" };
        format!("{said}: {}", whole(&format!("\"{plain}\"")))
    }

    /// Returns the element of a list or inline table around an offset, with its place.
    fn element(&self, offset: usize) -> (usize, &str) {
        let within = offset.saturating_sub(self.at).min(self.value.len());
        let is_border = |c: char| "[]{},=".contains(c);
        let start = self.value.get(..within).and_then(|text| text.rfind(is_border)).map_or(0, |at| at + 1);
        let rest = self.value.get(start..).unwrap_or_default();
        let trimmed = rest.trim_start();
        let start = start + rest.len() - trimmed.len();
        let end = trimmed.find(is_border).unwrap_or(trimmed.len());
        (self.at + start, trimmed.get(..end).unwrap_or_default().trim_end())
    }

    /// Reports a value of the wrong type.
    fn wrong_type(&self, text: &str, span: Option<&Range<usize>>, found: &str, wanted: &str) -> String {
        let alone = !self.listed && span.is_none_or(|span| span.start == self.at);
        let literal = span.and_then(|span| text.get(span.clone())).unwrap_or_default();
        // A date is read as a table.
        if found == "map" && literal.starts_with(|first: char| first.is_ascii_digit()) {
            return self.of_word(if alone { self.value } else { literal }, alone);
        }
        let plain = unquoted(literal);
        let whole = |text: String| if alone { format!("{} = {text}", self.key) } else { text };
        let is_scalar = !matches!(found, "map" | "sequence") && plain.chars().count() <= LONGEST_SHOWN;
        let number = plain.strip_suffix(".0").unwrap_or(plain);
        let (noun, example) = match wanted {
            "a string" => ("a text in quotes", is_scalar.then(|| whole(format!("\"{plain}\"")))),
            "a string or a list of strings" => {
                ("a text in quotes, or a list of such", is_scalar.then(|| whole(format!("\"{plain}\""))))
            }
            "a sequence" if explain::LISTS.contains(&self.key) => {
                let header = explain::brackets(self.key);
                ("a section", Some(format!("{header} on a line of its own, and keys below it")))
            }
            "a sequence" => ("a list", is_scalar.then(|| whole(format!("[{literal}]")))),
            "a boolean" => {
                ("true or false", matches!(plain, "true" | "false").then(|| whole(plain.to_owned())))
            }
            "i64" => ("a whole number", number.parse::<i64>().is_ok().then(|| whole(number.to_owned()))),
            "struct RawMatch" => ("a list of conditions", Some(format!("{} = {CONDITIONS}", self.key))),
            _ if wanted.starts_with("struct ") => {
                let example =
                    format!("{} on a line of its own, and keys below it", explain::brackets(self.key));
                ("a section", Some(example))
            }
            _ => (wanted, None),
        };
        let named = match found {
            _ if self.is_secret() => "this".to_owned(),
            "map" => "a table".to_owned(),
            "sequence" => "a list".to_owned(),
            _ => shown(literal),
        };
        let example = example.filter(|_| !self.is_secret()).map(|example| format!("; write {example}"));
        format!("{named} is not {noun}{}", example.unwrap_or_default())
    }

    /// Whether the value may hold a password; messages never repeat it.
    fn is_secret(&self) -> bool {
        self.key == "users"
    }
}

/// Cuts off a comment.
fn without_comment(line: &str) -> &str {
    let mut comments = outside_quotes(line).filter(|(_, char)| *char == '#');
    comments.next().and_then(|(at, _)| line.get(..at)).unwrap_or(line)
}

/// Returns the characters of a line outside quotes, with their places.
fn outside_quotes(line: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut escaped) = (None, false);
    line.char_indices().filter(move |&(_, char)| {
        match quote {
            _ if escaped => escaped = false,
            Some('"') if char == '\\' => escaped = true,
            Some(open) if char == open => quote = None,
            None if matches!(char, '"' | '\'') => quote = Some(char),
            None => return true,
            Some(_) => {}
        }
        false
    })
}

/// Takes quotes of any kind off a word, also a single one.
fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\'', '“', '”', '„', '‘', '’'])
}

/// Replaces possible terminal commands.
fn shown(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

/// Returns the name of the section around an offset; empty ahead of the first.
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

/// Boolean keys.
const TRUTHS: [&str; 2] = ["shed", "hold_syn"];
/// Keys of plain numbers, without a unit.
const NUMBERS: [&str; 5] = ["period", "window", "index_slots", "max_lanes", "discover_port"];
/// An example of `match`.
const CONDITIONS: &str = "{ ports = [22] }";
/// A longer value is not repeated in a message.
const LONGEST_SHOWN: usize = 100;
