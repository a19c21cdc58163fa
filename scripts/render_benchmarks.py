#!/usr/bin/env python3
"""Renders the tables and charts of docs/benchmarks.md and docs/benchmarks/ from the records beside them.

    scripts/render_benchmarks.py            writes pages and charts
    scripts/render_benchmarks.py --check    fails if a page or a chart differs from its records
    scripts/render_benchmarks.py --record DATE-MACHINE/NAME --title TEXT --command TEXT < OUTPUT
                                            keeps a Markdown table of a bench's output as a record: the first one, or
                                            the N-th (--table N), with headings of one's own (--names "A|B")

A record is a CSV file in docs/benchmarks/records/DATE-MACHINE/; lines with # in front say title and command. A unit in
a column's heading, `time [s]`, is of all its cells. In a page, `<!-- table RECORD ... -->` and `<!-- chart RECORD ... -->`
begin a block, `<!-- end -->` ends it. RECORD is NAME, MACHINE/NAME or DATE-MACHINE/NAME; the newest counts. Options, one `key=value` each, divided by `;`:

    columns=A|B     columns of the table, by their names without units; `A as B` gives another heading
    where=A:x|y     rows with x or y in column A (repeatable); where=A!x leaves out
    file=NAME       of a chart: docs/benchmarks/charts/NAME.svg
    label=A  values=B|C  title=TEXT  kind=bars|lines  log=x  max=N       of a chart
"""

import argparse
import csv
import html
import io
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
RECORDS = DOCS / "benchmarks" / "records"
CHARTS = DOCS / "benchmarks" / "charts"
BLOCK = re.compile(r"(<!-- (table|chart) ([^>]*?) -->\n).*?(<!-- end -->)", re.S)
QUANTITY = re.compile(r"^-?[\d.,]+ (%|×|s|ms|µs|ns|B|kB|MB|GB|KiB|MiB|GiB|kbit/s|Mbit/s)$")
COLOURS = ["#2f6fb3", "#c8642b", "#5b9a4f", "#8a63a8", "#a08a2c"]


class Record:
    """A table with its title, command, date and machine."""

    def __init__(self, name: str):
        self.path = newest(name)
        text = self.path.read_text()
        self.facts = dict(re.findall(r"^# (\w+): (.*)$", text, re.M))
        rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("# ")))
        self.names, self.units = [], []
        for heading in rows[0]:
            match = re.match(r"^(.*) \[(.*)\]$", heading)
            self.names.append(match.group(1) if match else heading)
            self.units.append(match.group(2) if match else "")
        self.rows = rows[1:]
        match = re.match(r"(\d{4}-\d\d-\d\d)-(.*)", self.path.parent.name)
        self.date, self.machine = match.groups()

    def column(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"{self.path}: no column {name!r} among {self.names}")
        return self.names.index(name)

    def chosen(self, wheres: list[str]) -> list[list[str]]:
        """Rows that all conditions let pass."""
        rows = self.rows
        for where in wheres:
            name, sign, values = re.match(r"^(.*?)([:!])(.*)$", where).groups()
            at, allowed = self.column(name), values.split("|")
            rows = [row for row in rows if (row[at] in allowed) == (sign == ":")]
        return rows

    def shown(self, row: list[str], at: int) -> str:
        """A cell with its unit."""
        cell = row[at]
        if re.fullmatch(r"\d{5,}", cell):
            cell = f"{int(cell):,}"
        return f"{cell} {self.units[at]}" if self.units[at] and re.match(r"-?[\d.]", cell) else cell


def newest(name: str) -> pathlib.Path:
    """The latest record of a name, or of a machine and a name."""
    folder, _, name = name.rpartition("/")
    found = sorted(path for path in RECORDS.glob(f"*/{name}.csv") if path.parent.name.endswith(folder))
    if not found:
        raise ValueError(f"no record {folder}/{name} in {RECORDS}")
    return found[-1]


def options(text: str) -> tuple[str, dict[str, str], list[str]]:
    """Record, options and conditions of a block's first line."""
    parts = [part.strip() for part in text.split(";")]
    pairs = [part.split("=", 1) for part in parts[1:] if part]
    return parts[0], {key: value for key, value in pairs if key != "where"}, [value for key, value in pairs if key == "where"]


def table(text: str, page: pathlib.Path) -> str:
    """A Markdown table, and below it where it comes from."""
    name, opts, wheres = options(text)
    record = Record(name)
    wanted = [part.split(" as ") for part in opts["columns"].split("|")] if "columns" in opts else [[name] for name in record.names]
    at = [record.column(part[0]) for part in wanted]
    rows = record.chosen(wheres)
    numbers = [all(re.match(r"^(-?[\d.,]+|-|)$", row[i]) for row in rows) for i in at]
    lines = ["| " + " | ".join(part[-1] for part in wanted) + " |"]
    lines.append("|" + "|".join("---:" if number else "---" for number in numbers) + "|")
    lines += ["| " + " | ".join(record.shown(row, i) for i in at) + " |" for row in rows]
    return "\n".join(line.replace("|  |", "| |") for line in lines) + "\n\n" + source(record, page) + "\n"


def source(record: Record, page: pathlib.Path) -> str:
    up = "../" * (len(page.relative_to(DOCS).parts) - 1)
    link = f"[{record.date}, {record.machine}]({up}benchmarks/records/{record.path.relative_to(RECORDS)})"
    return f"<sub>{link}: `{record.facts['command']}`</sub>"


def value(cell: str) -> float | None:
    match = re.match(r"-?[\d,]*\.?\d+", cell)
    return float(match.group().replace(",", "")) if match else None


def chart(text: str, page: pathlib.Path, charts: dict[pathlib.Path, str]) -> str:
    """An image's link; its drawing goes to `charts`."""
    name, opts, wheres = options(text)
    record = Record(name)
    rows = record.chosen(wheres)
    label = record.column(opts["label"])
    wanted = [part.split(" as ") for part in opts["values"].split("|")]
    series = [(part[-1], [value(row[record.column(part[0])]) for row in rows]) for part in wanted]
    labels = [record.shown(row, label) for row in rows]
    unit = record.units[record.column(wanted[0][0])] or opts.get("unit", "")
    draw = lines_chart if opts.get("kind") == "lines" else bars_chart
    path = CHARTS / f"{opts['file']}.svg"
    charts[path] = draw(opts["title"], labels, series, unit, float(opts.get("max", 0)))
    up = "../" * (len(page.relative_to(DOCS).parts) - 1)
    return f"![{opts['title']}]({up}benchmarks/charts/{path.name})\n"


def svg(width: int, height: int, title: str, body: list[str]) -> str:
    style = "text{font:12px sans-serif;fill:#555}.t{font-weight:bold}line{stroke:#bbb}@media(prefers-color-scheme:dark){text{fill:#bbb}line{stroke:#555}}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    words = f"<title>{html.escape(title)}</title><style>{style}</style>"
    heading = f'<text class="t" x="8" y="18">{html.escape(title)}</text>'
    return "\n".join([head, words, heading, *body, "</svg>"]) + "\n"


def legend(names: list[str], y: int) -> list[str]:
    body, x = [], 8
    for i, name in enumerate(names):
        body.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{COLOURS[i]}"/>')
        body.append(f'<text x="{x + 14}" y="{y}">{html.escape(name)}</text>')
        x += 34 + 7 * len(name)
    return body


def bars_chart(title: str, labels: list[str], series: list[tuple[str, list[float | None]]], unit: str, top: float) -> str:
    """Horizontal bars, a group for each label."""
    left, width, bar = 14 + 7 * max(map(len, labels)), 720, 14
    top = top or max(v for _, values in series for v in values if v is not None)
    scale = (width - left - 90) / top
    body, y = legend([name for name, _ in series], 38), 52
    for i, label in enumerate(labels):
        group = bar * len(series)
        body.append(f'<text x="{left - 6}" y="{y + group / 2 + 4:.0f}" text-anchor="end">{html.escape(label)}</text>')
        for j, (_, values) in enumerate(series):
            if values[i] is not None:
                long = max(1.0, min(values[i], top) * scale)
                body.append(f'<rect x="{left}" y="{y + 1}" width="{long:.1f}" height="{bar - 2}" fill="{COLOURS[j]}"/>')
                body.append(f'<text x="{left + long + 5:.1f}" y="{y + bar - 3}">{values[i]:g} {html.escape(unit)}</text>')
            y += bar
        y += 8
    return svg(width, y + 4, title, body)


def lines_chart(title: str, labels: list[str], series: list[tuple[str, list[float | None]]], unit: str, top: float) -> str:
    """Lines over labels that are evenly spaced."""
    left, width, height, base = 60, 720, 300, 262
    top = top or max(v for _, values in series for v in values if v is not None)
    step = 10 ** math.floor(math.log10(top))
    step = step / 2 if top / step < 3 else step
    body = legend([name for name, _ in series], 38)
    x = lambda i: left + i * (width - left - 20) / max(1, len(labels) - 1)
    y = lambda v: base - v / top * (base - 56)
    for n in range(int(top / step) + 1):
        body.append(f'<line x1="{left}" y1="{y(n * step):.1f}" x2="{width - 20}" y2="{y(n * step):.1f}"/>')
        body.append(f'<text x="{left - 6}" y="{y(n * step) + 4:.1f}" text-anchor="end">{n * step:g} {html.escape(unit)}</text>')
    for i, label in enumerate(labels):
        body.append(f'<text x="{x(i):.1f}" y="{base + 18}" text-anchor="middle">{html.escape(label)}</text>')
    for j, (_, values) in enumerate(series):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values) if v is not None)
        body.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[j]}" stroke-width="2"/>')
    return svg(width, height, title, body)


def rendered() -> dict[pathlib.Path, str]:
    """All pages and charts as they should be."""
    files: dict[pathlib.Path, str] = {}
    for page in [DOCS / "benchmarks.md", *sorted((DOCS / "benchmarks").glob("*.md"))]:
        draw = lambda m: m.group(1) + (table(m.group(3), page) if m.group(2) == "table" else chart(m.group(3), page, files)) + m.group(4)
        files[page] = BLOCK.sub(draw, page.read_text())
    return files


def stale() -> list[str]:
    """What differs from its records, and charts that no page shows."""
    files = rendered()
    wrong = [str(path) for path, text in files.items() if not path.exists() or path.read_text() != text]
    return wrong + [str(path) for path in CHARTS.glob("*.svg") if path not in files]


def as_record(markdown: str, number: int, names: str) -> str:
    """The table of that number as CSV, with the unit of a column in its heading."""
    tables = re.findall(r"(?:^\|.*\n?)+", markdown, re.M)
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in tables[number - 1].splitlines()]
    return to_csv(names.split("|") if names else rows[0], rows[2:])


def to_csv(names: list[str], rows: list[list[str]]) -> str:
    names, rows = list(names), [row + [""] * (len(names) - len(row)) for row in rows]
    if len(set(names)) < len(names):
        raise ValueError(f"two columns of one name: {names}")
    for at in range(len(names)):
        cells = [row[at] for row in rows if row[at] not in ("", "-")]
        units = {match.group(1) if (match := QUANTITY.match(cell)) else None for cell in cells}
        if len(units) == 1 and None not in units:
            unit = units.pop()
            names[at] = f"{names[at]} [{unit}]".strip()
            for row in rows:
                row[at] = row[at].removesuffix(f" {unit}")
        if cells and all(re.fullmatch(r"\d{1,3}(,\d{3})+|\d+", row[at]) for row in rows if row[at]):
            for row in rows:
                row[at] = row[at].replace(",", "")
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names, *rows])
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="Renders docs/benchmarks from its records.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", metavar="DATE-MACHINE/NAME")
    parser.add_argument("--title", default="")
    parser.add_argument("--command", default="")
    parser.add_argument("--names", default="")
    parser.add_argument("--table", type=int, default=1)
    args = parser.parse_args()
    if args.record:
        path = RECORDS / f"{args.record}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# title: {args.title}\n# command: {args.command}\n{as_record(sys.stdin.read(), args.table, args.names)}")
    elif args.check:
        wrong = stale()
        print("".join(f"{path}: differs from its records; run scripts/render_benchmarks.py\n" for path in wrong), file=sys.stderr, end="")
        sys.exit(1 if wrong else 0)
    else:
        CHARTS.mkdir(parents=True, exist_ok=True)
        for path, text in rendered().items():
            path.write_text(text)


if __name__ == "__main__":
    main()
