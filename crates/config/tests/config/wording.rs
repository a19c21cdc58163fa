//! Messages on invalid TOML and values of the wrong type.

use std::path::Path;

use oncewire_config::Config;
use oncewire_config::units::{Rate, Size, Time};

/// Returns the message about a text, without the file's name.
fn said(text: &str) -> String {
    let error = Config::parse(text, Path::new("f")).unwrap_err();
    let lines = error.problems.iter().map(|problem| match problem.place {
        Some((line, column)) => format!("{line}:{column} {}", problem.message),
        None => problem.message.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn values_without_quotes_are_shown_with_quotes() {
    for (text, expected) in [
        ("listen = 0.0.0.0:7400", "1:10 listen: put it in quotes: listen = \"0.0.0.0:7400\""),
        ("admin = 127.0.0.1 # here", "1:9 admin: put it in quotes: admin = \"127.0.0.1\""),
        ("address = [::1]:7400", "1:11 address: put it in quotes: address = \"[::1]:7400\""),
        (
            "address = hub.example.net:7400",
            "1:11 address: put it in quotes: address = \"hub.example.net:7400\"",
        ),
        ("allow = [10.0.0.0/8]", "1:10 allow: put it in quotes: \"10.0.0.0/8\""),
        ("allow = [\"10.0.0.0/8\", 11.0.0.0/8]", "1:24 allow: put it in quotes: \"11.0.0.0/8\""),
        ("log_level = info", "1:13 log_level: put it in quotes: log_level = \"info\""),
        ("watchdog = None", "1:12 watchdog: put it in quotes: watchdog = \"None\""),
        ("mode = tproxy", "1:8 mode: put it in quotes: mode = \"tproxy\""),
        ("public_key = abc=", "1:14 public_key: put it in quotes: public_key = \"abc=\""),
        ("rate_limit = 20 Mbit/s", "1:14 rate_limit: put it in quotes: rate_limit = \"20 Mbit/s\""),
        ("rate_limit = 1.9 Mbit/s", "1:14 rate_limit: put it in quotes: rate_limit = \"1900 kbit/s\""),
        ("name = hub,", "1:8 name: put it in quotes: name = \"hub\""),
        ("name = hub\"", "1:8 name: put it in quotes: name = \"hub\""),
        ("name = \"hub", "1:8 name: the closing quote is missing: name = \"hub\""),
        ("name = “hub”", "1:8 name: write straight quotes: name = \"hub\""),
        ("users = [me:secret]", "1:10 users: put it in quotes"),
        ("users = “me:secret”", "1:9 users: write straight quotes: \"…\""),
        ("shed = yes", "1:8 shed: write shed = true"),
        ("period = 064", "1:10 period: write period = 64"),
        ("period = many", "1:10 period: many is not a whole number"),
        ("match = ports", "1:9 match: write match = { ports = [22] }"),
        ("name =", "1:7 name: there is no value after the equals sign"),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

#[test]
fn lists_over_several_lines_are_reported_by_their_key() {
    for (text, expected) in [
        (
            "allow = [\n  \"10.0.0.0/8\", # here [\n  11.0.0.0/8,\n]",
            "3:3 allow: put it in quotes: \"11.0.0.0/8\"",
        ),
        (
            "users = [\n  \"a:b\",\n  me:se=cret,\n]",
            "3:8 users: a list has values and no keys; for keys write { KEY = VALUE }",
        ),
        (
            "users = [\n  \"me:se=cret,\n  \"you:[hidden\",\n]",
            "2:1 users: the closing quote is missing in this line",
        ),
        ("users = [\n  “me:secret”,\n]", "2:3 users: write straight quotes: \"…\""),
        ("match = {\n  ports = [22],\n  hosts = [a.b],\n}", "3:12 match: put it in quotes: \"a.b\""),
        ("[[peer]]\nnetworks = [\n  5,\n]", "3:3 networks: 5 is not a text in quotes; write \"5\""),
    ] {
        let said = said(text);
        let line = said.lines().find(|line| *line == expected);
        assert!(line.is_some() && !said.contains("cret") && !said.contains("hidden"), "{text}: {said}");
    }
}

#[test]
fn repeated_keys_name_the_first_place() {
    for (text, expected) in [
        (
            "[gateway]\n# name = 1\nname = \"a\"\nname = \"b\"",
            "4:1 `name` stands there twice; the first is in line 3",
        ),
        (
            "[cache]\n[link]\n[cache]",
            "3:2 the section [cache] stands there twice; the first is in line 1: put the keys there, and remove this line",
        ),
        (
            "intercept = [{ mode = \"http\" }]\n[[intercept]]\nmode = \"http\"",
            "2:3 `intercept` has a value in line 1 already; write all of it there, or all of it here",
        ),
        ("match = { ports = [1], ports = [2] }", "1:24 `ports` stands there twice; the first is in line 1"),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

#[test]
fn malformed_lines_are_shown_corrected() {
    for (text, expected) in [
        ("name: \"hub\"", "1:7 write `name = VALUE`, with an equals sign"),
        ("name", "1:5 `name` has no value; write `name = VALUE`"),
        ("// hub", "1:4 a comment begins with #, and all else is KEY = VALUE or a [section]"),
        ("[gateway", "1:9 write [gateway], and nothing else on its line"),
        ("[peer]]\nname = \"x\"", "1:7 write [[peer]], with two brackets: there may be several"),
        ("[[gateway]\n", "1:11 write [gateway], with one bracket: there is only one"),
        (
            "\nallow = [\"10.0.0.0/8\",\n[cache]",
            "2:1 allow: the list that begins here is not closed: a ] is missing",
        ),
        (
            "match = { ports = [22],\n[cache]",
            "1:1 match: the table that begins here is not closed: a } is missing",
        ),
        ("allow = [\"a\" \"b\"]", "1:14 allow: a comma is missing between two values"),
        ("allow = [\"a\",, \"b\"]", "1:14 allow: there is a comma too many"),
        ("site = \"a\",", "1:11 site: nothing but a comment may follow the value; remove the last character"),
        (
            "state = \"C:\\dir\"",
            "1:13 state: in double quotes a backslash begins an escape: write \\\\, or single quotes around it all",
        ),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

#[test]
fn values_of_another_type_are_shown_corrected() {
    for (text, expected) in [
        ("allow = \"10.0.0.0/8\"", "allow: \"10.0.0.0/8\" is not a list; write allow = [\"10.0.0.0/8\"]"),
        (
            "public_key = 5",
            "public_key: 5 is not a text in quotes, or a list of such; write public_key = \"5\"",
        ),
        ("networks = [5]", "networks: 5 is not a text in quotes; write \"5\""),
        ("period = \"64\"", "period: \"64\" is not a whole number; write period = 64"),
        ("window = 64.0", "window: 64.0 is not a whole number; write window = 64"),
        ("rate_limit = 1.9", "rate_limit: 1.9 is not a rate such as \"20 Mbit/s\""),
        ("log_memory = true", "log_memory: true is not a size such as \"64 MiB\" or a number of bytes"),
        ("site = 2026-01-01", "site: put it in quotes: site = \"2026-01-01\""),
    ] {
        let said = said(&format!("[[peer]]\n{text}"));
        assert!(said.lines().any(|line| line.ends_with(expected)), "{text}: {said}");
    }
    for (text, expected) in [
        (
            "gateway = 5",
            "1:11 gateway: 5 is not a section; write [gateway] on a line of its own, and keys below it",
        ),
        ("peer = 5", "1:8 peer: 5 is not a section; write [[peer]] on a line of its own, and keys below it"),
        ("[[intercept]]\nusers = 12345", "2:9 users: this is not a text in quotes, or a list of such"),
        ("[link]\nshed = \"true\"", "2:8 shed: \"true\" is not true or false; write shed = true"),
    ] {
        let said = said(text);
        assert!(said.lines().any(|line| line == expected), "{text}: {said}");
    }
}

#[test]
fn fractions_are_proposed_in_smaller_units() {
    let rate = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
    let size = |text: &str| text.parse::<Size>().unwrap_err().to_string();
    let time = |text: &str| text.parse::<Time>().unwrap_err().to_string();
    for (error, proposed) in [
        (rate("1.9 Mbit/s"), "1900 kbit/s"),
        (rate("1,9 Mbit/s"), "1900 kbit/s"),
        (rate("0.5Gbit/s"), "500 Mbit/s"),
        (size("1.5 GiB"), "1536 MiB"),
        (size("1.5 GB"), "1500 MB"),
        (size("0.5 KiB"), "512 B"),
        (time("1.5 min"), "90 s"),
        (time("0.25 s"), "250 ms"),
        (time("1.5 h"), "90 min"),
    ] {
        assert!(error.ends_with(&format!(" is not a whole number; write \"{proposed}\"")), "{error}");
    }
    for text in
        ["1.5", "1.5 B", "1,000 kB", "1.0000000001 GB", "99999999999999999999.5 TB", ".", "1.5 x", "-1.5 kB"]
    {
        assert!(size(text).contains("write for example"), "{text}: {}", size(text));
    }
}

/// Each byte of a configuration is removed, doubled and replaced in turn.
#[test]
fn messages_never_repeat_the_parser() {
    const GOOD: &str = "intercept = [{ mode = \"socks5\", listen = \"127.0.0.1:1080\", peer = \"hub\" }]\n\
        [gateway]\nname = \"b\" # this\nkey_file = 'b.key'\nlisten = [\"[::1]:7400\"]\ndrain = \"2 min\"\n\
        [[peer]]\nname = \"hub\"\nallow = [\"10.0.0.0/8\", \"fd00::/8\"]\n[[policy]]\nmatch = { ports = [22, 80] }\n\
        codec = \"none\"\n[link]\nshed = true\nmax_lanes = 0x10\n[codec]\nadapt = false\n";
    const OF_THE_PARSER: [&str; 16] = [
        "expected nothing",
        "invalid",
        "literal",
        "expected `",
        "a sequence",
        "a boolean",
        "struct ",
        "i64",
        "array",
        "unquoted key",
        "key-value",
        "unexpected",
        "a map",
        "floating",
        "unclosed",
        "overflowed",
    ];
    for at in 0..GOOD.len() {
        let (before, after) = (&GOOD[..at], &GOOD[at + 1..]);
        for there in [
            "", "\"", "'", "=", "[", "]", "{", "}", ",", ".", "#", "5", "x", "\n", "\\", "\u{1}", "\r", "-",
            ":",
        ] {
            for text in [format!("{before}{there}{after}"), format!("{before}{there}{}", &GOOD[at..])] {
                let Err(error) = Config::parse(&text, Path::new("f")) else { continue };
                let said = error.to_string();
                let word = OF_THE_PARSER.iter().find(|word| said.contains(**word));
                assert_eq!(word, None, "byte {at} became {there:?}: {said}\n{text}");
            }
        }
    }
}
