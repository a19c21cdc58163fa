"""Checks the documents: every relative link leads to a file, and to a heading where it names one."""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


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


def main() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout
    wrong = [line for page in tracked.split() for line in broken(pathlib.Path(page))]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
