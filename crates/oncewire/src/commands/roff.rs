//! Markdown of the documents as roff.

use std::iter::Peekable;
use std::str::Lines;

/// Converts a page: `##` becomes `.SH`, `###` becomes `.SS`, a paragraph about a key `.TP`.
pub(super) fn from_markdown(text: &str) -> String {
    let mut roff = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            roff.push_str(&format!(".SH \"{}\"\n", title.replace('`', "")));
        } else if let Some(title) = line.strip_prefix("### ") {
            roff.push_str(&format!(".SS \"{}\"\n", title.replace('`', "")));
        } else if line.starts_with("```") {
            code(&mut lines, &mut roff);
        } else if line.starts_with('|') {
            row(line, &mut lines, &mut roff);
        } else if let Some(item) = line.strip_prefix("- ") {
            roff.push_str(&format!(".IP \\(bu 2\n{}\n", inline(&joined(item, &mut lines))));
        } else if !line.is_empty() && !line.starts_with("# ") {
            paragraph(&joined(line, &mut lines), &mut roff);
        }
    }
    roff
}

/// Joins a line with the rest of its block.
fn joined(first: &str, lines: &mut Peekable<Lines<'_>>) -> String {
    let mut text = first.trim().to_owned();
    let goes_on =
        |line: &&str| !line.is_empty() && !["- ", "|", "#", "```"].iter().any(|mark| line.starts_with(mark));
    while let Some(line) = lines.next_if(goes_on) {
        text.push(' ');
        text.push_str(line.trim());
    }
    text
}

/// Writes lines as they are, up to the end of the fence.
fn code(lines: &mut Peekable<Lines<'_>>, roff: &mut String) {
    roff.push_str(".PP\n.RS 4\n.nf\n");
    for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
        roff.push_str(&format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")));
    }
    roff.push_str(".fi\n.RE\n");
}

/// Writes a table's row as a tagged paragraph, without its heading.
fn row(line: &str, lines: &mut Peekable<Lines<'_>>, roff: &mut String) {
    if lines.next_if(|next| next.starts_with("|--")).is_some() {
        return;
    }
    let mut cells = line.trim_matches('|').split('|').map(|cell| inline(cell.trim()));
    let tag = cells.next().unwrap_or_default();
    let rest: Vec<String> = cells.filter(|cell| !cell.is_empty()).collect();
    roff.push_str(&format!(".TP\n{tag}\n{}\n", rest.join("; ")));
}

/// Writes a paragraph; one about a key has the key and its default as a tag.
fn paragraph(text: &str, roff: &mut String) {
    if !text.starts_with("**`") {
        roff.push_str(&format!(".PP\n{}\n", inline(text)));
        return;
    }
    let ends = [(". ", 1), ("**: ", 3)].iter().filter_map(|(mark, len)| Some(text.find(mark)? + len));
    let (tag, rest) = text.split_at_checked(ends.min().unwrap_or(text.len())).unwrap_or((text, ""));
    roff.push_str(&format!(".TP\n{}\n", inline(tag)));
    if !rest.is_empty() {
        roff.push_str(&format!("{}\n", inline(rest.trim())));
    }
}

/// Converts a line: code and strong text are bold, emphasis is italic, a link is its text.
fn inline(text: &str) -> String {
    let mut roff = String::new();
    let (mut in_code, mut in_bold, mut in_italics) = (false, false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        match next {
            '`' => in_code = !in_code,
            '\\' => roff.push_str("\\e"),
            '-' if in_code => roff.push_str("\\-"),
            '*' if !in_code && rest.starts_with("**") => (in_bold, taken) = (!in_bold, 2),
            '*' if !in_code => in_italics = !in_italics,
            '[' if !in_code => {}
            ']' if !in_code && rest.starts_with("](") => taken = rest.find(')').map_or(1, |end| end + 1),
            ']' if !in_code => {}
            other => roff.push(other),
        }
        if matches!(next, '`' | '*') && !(in_code && next == '*') {
            roff.push_str(if in_code || in_bold {
                "\\fB"
            } else if in_italics {
                "\\fI"
            } else {
                "\\fR"
            });
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    if roff.starts_with(['.', '\'']) { format!("\\&{roff}") } else { roff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_markdown_become_roff() {
        let page = "# Title\n\nA *word*,\nand `a-b`.\n\n## `[link]`: lanes\n\n**`rate`** (default: none). See\n[there](a.md#b).\n\n\
                    | key | text |\n|---|---|\n| `a` | one |\n\n- an item\n  goes on\n\n```toml\n[x]\na = \"b\\c\"\n```\n";
        let roff = ".PP\nA \\fIword\\fR, and \\fBa\\-b\\fR.\n.SH \"[link]: lanes\"\n\
                    .TP\n\\fB\\fBrate\\fB\\fR (default: none).\nSee there.\n\
                    .TP\n\\fBa\\fR\none\n.IP \\(bu 2\nan item goes on\n\
                    .PP\n.RS 4\n.nf\n\\&[x]\n\\&a = \"b\\ec\"\n.fi\n.RE\n";
        assert_eq!(from_markdown(page), roff);
    }
}
