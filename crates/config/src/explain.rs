//! Error messages with a remedy for unknown keys and values.
//!
//! They cover misspelt, misplaced and future ones.

/// Explains an unknown key of a section; `known` are the candidates.
pub(super) fn unknown_key(key: &str, section: &str, known: &[&str]) -> String {
    if let Some(later) = later(key) {
        return format!("{later}; remove it");
    }
    if section == "policy" && PER_PEER.contains(&key) {
        let usual = section_of(key, section).unwrap_or("codec");
        return format!(
            "`{key}` cannot differ between the flows of a peer; set it in [[peer]] or {}",
            brackets(usual)
        );
    }
    let place = place(section);
    if section == "policy" && OF_MATCH.contains(&key) {
        return format!("unknown key `{key}`{place}; write match = {{ {key} = … }}");
    }
    if let Some(meant) = closest(key, known) {
        return format!("unknown key `{key}`{place}; did you mean `{meant}`?");
    }
    if let Some(other) = section_of(key, section) {
        return format!("unknown key `{key}`{place}; it belongs into {}", brackets(other));
    }
    if let Some(meant) = longer(key, known) {
        return format!("unknown key `{key}`{place}; did you mean `{meant}`?");
    }
    format!("unknown key `{key}`{place}; keys here are {}", list(known))
}

/// Explains an unknown key of a `--set`.
pub(super) fn unknown_setting(key: &str, known: &[&str]) -> String {
    if let Some(later) = later(key) {
        return later;
    }
    if section_of(key, "").is_some() {
        return format!("`{key}` has no effect here; keys that have are {}", list(known));
    }
    match closest(key, known).or_else(|| longer(key, known)) {
        Some(meant) => format!("unknown key `{key}`; did you mean `{meant}`?"),
        None => format!("unknown key `{key}`; keys are {}", list(known)),
    }
}

/// Explains an unknown value; this build knows some, a later version others.
pub(super) fn unknown_value(value: &str, here: &[&str], later: &[&str]) -> String {
    let have = if here.len() == 1 {
        format!("this build has only {}", list_plain(here))
    } else {
        format!("this build has {}", list_plain(here))
    };
    if later.contains(&value) {
        return format!("{value:?} is not in this version of oncewire; {have}");
    }
    match closest(value, here) {
        Some(meant) => format!("unknown value {value:?}; did you mean \"{meant}\"?"),
        None => format!("unknown value {value:?}; {have}"),
    }
}

/// Announces a key of a later version, if it is one.
fn later(key: &str) -> Option<String> {
    let (_, what) = LATER.iter().find(|(later, _)| *later == key)?;
    Some(format!("`{key}` is not in this version of oncewire ({what})"))
}

/// Returns the section, other than `section`, of a key.
fn section_of(key: &str, section: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|(name, keys)| *name != section && keys.contains(&key)).map(|(name, _)| *name)
}

/// Returns the only known key with this word as its last part.
fn longer<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let mut longer = known
        .iter()
        .filter(|candidate| candidate.strip_suffix(word).is_some_and(|first| first.ends_with('_')));
    longer.next().filter(|_| longer.next().is_none()).copied()
}

/// Returns the known word nearest to a misspelt one, if any is near enough.
pub(super) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|candidate| (distance(word, candidate), *candidate));
    let (distance, candidate) = near.min_by_key(|(distance, _)| *distance)?;
    let tolerated = (candidate.len().max(word.len()) / 3).clamp(1, 3);
    (distance <= tolerated && distance < candidate.len()).then_some(candidate)
}

/// Writes "`a`, `b` and `c`".
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    list_plain(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Writes "a, b and c".
pub(super) fn list_plain(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Writes a section's name as its header.
pub(super) fn brackets(section: &str) -> String {
    if LISTS.contains(&section) { format!("[[{section}]]") } else { format!("[{section}]") }
}

/// Whether a word is the name of a section.
pub(super) fn is_section(word: &str) -> bool {
    SECTIONS.iter().any(|(name, _)| *name == word)
}

fn place(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" in {}", brackets(section)) }
}

/// Returns the edit distance of two words: insertions, deletions, exchanges and swaps of neighbours (optimal
/// string alignment).
fn distance(a: &str, b: &str) -> usize {
    // Keys are short; a long text in place of one is not worth a quadratic table.
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Repeatable sections.
pub(super) const LISTS: [&str; 4] = ["group", "peer", "intercept", "policy"];

/// Keys of `[codec]` and `[link]` permitted in a `[[peer]]` but not in a `[[policy]]`.
const PER_PEER: [&str; 5] = ["window", "index_slots", "sample_bytes", "adapt", "rate_limit"];

/// Keys of `match` of a `[[policy]]`.
const OF_MATCH: [&str; 3] = ["ports", "networks", "peers"];

/// Every key of this version by section, for "it belongs into …".
const SECTIONS: [(&str, &[&str]); 8] = [
    (
        "gateway",
        &[
            "name",
            "key_file",
            "listen",
            "admin",
            "admin_token_file",
            "state",
            "encrypt_key_file",
            "drain",
            "user",
            "watchdog",
            "keepalive",
            "log_level",
            "announce",
            "site",
            "discover_port",
            "rule_priority",
            "mark",
        ],
    ),
    ("group", &["name", "key_file", "discover"]),
    (
        "peer",
        &[
            "name",
            "public_key",
            "address",
            "group",
            "site",
            "networks",
            "accept_networks",
            "allow",
            "deny",
            "allow_sources",
        ],
    ),
    (
        "intercept",
        &[
            "mode",
            "listen",
            "target",
            "proxy_protocol",
            "peer",
            "users",
            "allow_from",
            "on_peer_loss",
            "interfaces",
            "ports",
            "networks",
            "source",
            "hold_syn",
            "scope",
            "groups",
            "cgroups",
            "rules",
            "rule_priority",
            "mark",
        ],
    ),
    ("policy", &["match", "path", "codec", "priority"]),
    (
        "codec",
        &[
            "codec",
            "entropy",
            "markers",
            "matching",
            "period",
            "window",
            "index_slots",
            "sample_bytes",
            "chunk_sizes",
            "adapt",
        ],
    ),
    (
        "cache",
        &[
            "memory",
            "log_memory",
            "log_idle",
            "hint_memory",
            "store_disk",
            "store_path",
            "store_index_memory",
            "store_read_latency",
        ],
    ),
    (
        "link",
        &[
            "resume_window",
            "dead_after",
            "congestion",
            "max_lanes",
            "flow_memory",
            "max_in_flight",
            "rate_limit",
            "bulk_after",
            "shed",
        ],
    ),
];

/// Keys of later versions, with their subject.
///
/// Accepted in silence they would be empty promises.
const LATER: [(&str, &str); 1] = [("share", "narrowing what a flow may copy from")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_key_gets_the_right_proposal() {
        let known = ["name", "public_key", "address"];
        for (typed, meant) in
            [("adress", "address"), ("public-key", "public_key"), ("nmae", "name"), ("names", "name")]
        {
            assert_eq!(closest(typed, &known), Some(meant));
        }
        for strange in ["", "x", "colour", "completely_different"] {
            assert_eq!(closest(strange, &known), None, "{strange}");
        }
    }

    #[test]
    fn unique_last_part_finds_its_key() {
        assert_eq!(longer("bytes", &["sample_bytes", "window"]), Some("sample_bytes"));
        assert_eq!(longer("memory", &["log_memory", "hint_memory"]), None);
        assert_eq!(longer("indow", &["window"]), None);
        assert_eq!(longer("", &["window"]), None);
    }

    #[test]
    fn distances_count_single_slips() {
        for (a, b, slips) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("abc", "abd", 1), ("abc", "xyz", 3)]
        {
            assert_eq!(distance(a, b), slips, "{a} {b}");
            assert_eq!(distance(b, a), slips, "{b} {a}");
        }
    }

    #[test]
    fn later_keys_are_not_present_keys() {
        for (later, _) in LATER {
            assert_eq!(section_of(later, ""), None, "{later}");
        }
    }
}
