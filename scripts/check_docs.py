"""Checks documents and comments: links and paths lead to files, and the language stays plain.

Plain: few relative words (that, which, who, what, where …) in documents and comments, test names of at most ten words,
and no relative pronoun in a name of a function, type or variable. `CEILINGS` says how far each area is.
"""

import collections
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import render_benchmarks

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:crates|docs|scripts|packaging|fuzz|lints)/[^`\s{}*<]*)`")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)

WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
RELATIVE = re.compile(
    r"\b(that|which|who|whom|whose|what|where|whoever|whatever|wherever|whichever)\b", re.I
)
TEST = re.compile(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
NAMED = re.compile(r"\b(?:fn|struct|enum|let(?: mut)?)\s+(\w+)")
PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')

# Relative words per 100 words, by area: a crate, or a directory or file of the top. An area at GOAL is done, and there
# names are checked, too. Crates without a row are one area together, so that files can move between them.
GOAL = 2.5
TEST_WORDS = 10
SHOWN = 20
CEILINGS = {
    "crates": 4.0,
    "crates/codec": 2.5,
    "crates/fingerprint": 2.5,
    "crates/lab": 2.5,
    "crates/link": 2.5,
    "crates/mesh": 2.5,
    "crates/netem": 2.5,
    "crates/oncewire": 2.5,
    "crates/packet": 2.5,
    "crates/store": 2.5,
    "crates/sys": 2.5,
    "crates/testnet": 2.5,
    "docs": 2.5,
    "findings": 2.5,
    "fuzz": 2.5,
    "scripts": 2.5,
    "ARCHITECTURE.md": 2.5,
    "CHANGELOG.md": 2.5,
    "CONTRIBUTING.md": 2.5,
    "README.md": 2.5,
    "SECURITY.md": 2.5,
}


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get where repositories are shown."""
    found = set()
    for heading in re.findall(r"^#+\s+(.*)$", FENCE.sub("", text), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
        found.add(plain.strip().replace(" ", "-"))
    return found


def broken(page: pathlib.Path) -> list[str]:
    """Links of `page` that lead nowhere."""
    wrong = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else page.parent / path
        if not file.exists():
            wrong.append(f"{page}: {target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            wrong.append(f"{page}: {target}: no such heading")
    return wrong


def absent(page: pathlib.Path) -> list[str]:
    """Paths of this repository in `page`, written as code, without a file."""
    paths = PATH.findall(page.read_text())
    return [f"{page}: `{path}`: no such file" for path in paths if not pathlib.Path(path).exists()]


def area(path: str) -> str:
    """The area of a file: its crate if that has a row, or its directory or name at the top."""
    top, *rest = path.split("/")
    crate = f"{top}/{rest[0]}" if rest else top
    return crate if crate in CEILINGS else top


def prose(path: str, text: str) -> list[tuple[int, str]]:
    """The lines of a document, or the comments of a source file, with their numbers."""
    lines = list(enumerate(text.split("\n"), 1))
    if path.endswith(".md"):
        return lines
    mark = "//[/!]?" if path.endswith(".rs") else r"(?:^|\s)#(?!!)"
    found = ((number, re.search(f"{mark}(.*)", line)) for number, line in lines)
    return [(number, match.group(1)) for number, match in found if match]


def bad_names(path: str, text: str) -> list[str]:
    """Test names with too many words, and names with a relative pronoun."""
    wrong = []
    for match in TEST.finditer(text):
        if (words := match.group(1).count("_") + 1) > TEST_WORDS:
            at = text.count("\n", 0, match.start(1)) + 1
            wrong.append(f"{path}:{at}: {match.group(1)}: {words} words, at most {TEST_WORDS} in a test's name")
    for at, line in enumerate(text.split("\n"), 1):
        for name in NAMED.findall(STRING.sub("", line).partition("//")[0]):
            if any(RELATIVE.fullmatch(part) for part in PART.findall(name)):
                wrong.append(f"{path}:{at}: {name}: a relative pronoun in a name; say it with a noun")
    return wrong


def wordy(name: str, files: dict[str, str]) -> list[str]:
    """Faults of language in an area, if it is above its ceiling."""
    ceiling = CEILINGS.get(name, GOAL)
    words, hits, wrong = 0, [], []
    for path, text in files.items():
        if ceiling <= GOAL and path.endswith(".rs"):
            wrong += bad_names(path, text)
        for at, line in prose(path, text):
            words += len(WORD.findall(line))
            hits += [(path, at, line.strip(), word) for word in RELATIVE.findall(line)]
    if 100 * len(hits) > ceiling * words:
        wrong.append(f"{name}: {len(hits)} relative words of {words}, above {ceiling} per 100; densest files first:")
        counts = collections.Counter(path for path, *_ in hits)
        hits.sort(key=lambda hit: -counts[hit[0]])
        wrong += [f"{path}:{at}: {line}: '{word}': say it with a noun" for path, at, line, word in hits[:SHOWN]]
    return wrong


def self_test() -> None:
    """Each check finds its planted fault, and nothing in plain text."""
    plain = {"crates/netem/a.rs": "//! A link.\n#[test]\nfn late_packet_is_dropped() { let s = \"let who\"; }\n"}
    assert not wordy("none", plain)
    assert "a.rs:1: " in wordy("none", {"a.rs": "//! What a link does.\n"})[1]
    assert "b:2: " in wordy("none", {"b": "#!/bin/sh\n# Who listens\n"})[1]
    assert "a.rs:1: what_is: " in wordy("none", {"a.rs": "fn what_is() {} // A fn."})[0]
    assert "a.rs:1: WhoIs: " in wordy("none", {"a.rs": "struct WhoIs; // A struct."})[0]
    assert "a.rs:2: " in wordy("none", {"a.rs": "#[test]\nfn a_b_c_d_e_f_g_h_i_j_k() {}\n"})[0]


def main() -> None:
    self_test()
    kinds = ["*.md", "*.rs", "scripts", "findings"]
    tracked = subprocess.run(["git", "ls-files", *kinds], check=True, capture_output=True, text=True).stdout.split()
    wrong = [line for page in tracked if page.endswith(".md") for line in broken(pathlib.Path(page)) + absent(pathlib.Path(page))]
    wrong += [f"{path}: differs from its records; run scripts/render_benchmarks.py" for path in render_benchmarks.stale()]
    areas: dict[str, dict[str, str]] = {}
    for path in filter(lambda path: not path.endswith((".csv", ".sha256")), tracked):
        areas.setdefault(area(path), {})[path] = pathlib.Path(path).read_text()
    for name, files in areas.items():
        wrong += wordy(name, files)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
