#!/usr/bin/env python3
"""Checks imports between modules: no circle of more than a few files within a crate.

An import is a `use` or a path that begins with `crate`, `self` or `super`, outside of tests. Imports between a module and
the modules below it do not count.
"""

import pathlib
import re
import sys

MOST = 4
# Crates with larger circles, and the size of the largest.
CEILINGS = {"codec": 7, "netem": 6, "store": 13}

USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))? )?use ([^;]+);", re.M)
PATH = re.compile(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+")
TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub(?:\([^)]*\))? )?mod \w+ \{", re.M)
TEST_FILE = re.compile(r"(^|/)(tests?|\w+_tests?|testing|memory_disk)(/|\.rs$)")


def leaves(tree: str) -> list[list[str]]:
    """The paths of a `use`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path = tree.split(" as ")[0].strip()
        return [[]] if path == "self" else [[part.strip() for part in path.split("::")]]
    head = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    parts, depth, part = [], 0, ""
    for char in tree[brace + 1 : tree.rindex("}")]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts, part = [*parts, part], ""
        else:
            part += char
    return [head + leaf for part in [*parts, part] if part.strip() for leaf in leaves(part)]


class Crate:
    """The modules of a crate, by path, with their imports."""

    def __init__(self, src: pathlib.Path):
        self.texts = {}
        for file in src.rglob("*.rs"):
            name = file.relative_to(src).as_posix()
            if TEST_FILE.search(name):
                continue
            path = tuple(name.removesuffix(".rs").split("/"))
            if path[-1] in ("mod", "lib", "main"):
                path = path[:-1]
            text = re.sub(r"//[^\n]*", "", file.read_text())
            tests = TESTS.search(text)
            self.texts[path] = text[: tests.start()] if tests else text
        self.reexports = {}
        for module, text in self.texts.items():
            for match in USE.finditer(text):
                for leaf in leaves(match[2]) if match[1] else []:
                    if target := self.absolute(module, leaf):
                        self.reexports[module, leaf[-1]] = target

    def absolute(self, module: tuple, path: list[str]) -> tuple | None:
        """A path from the root of the crate; none if it leads elsewhere."""
        match path:
            case ["crate", *rest]:
                return tuple(rest)
            case ["self", *rest]:
                return module + tuple(rest)
            case ["super", *_]:
                while path and path[0] == "super":
                    module, path = module[:-1], path[1:]
                return module + tuple(path)
            case [first, *_] if module + (first,) in self.texts:
                return module + tuple(path)
        return None

    def module(self, path: tuple, depth: int = 0) -> tuple:
        """The module with an item, through re-exports."""
        length = next(n for n in range(len(path), -1, -1) if path[:n] in self.texts or n == 0)
        module, rest = path[:length], path[length:]
        if rest and depth < 5 and (module, rest[0]) in self.reexports:
            return self.module(self.reexports[module, rest[0]] + rest[1:], depth + 1)
        return module

    def imports(self) -> dict[tuple, set[tuple]]:
        """The modules imported by each, apart from those above and below it."""
        found = {}
        for module, text in self.texts.items():
            paths = [leaf for match in USE.finditer(text) for leaf in leaves(match[2])]
            paths += [match[0].split("::") for match in PATH.finditer(USE.sub("", text))]
            targets = [self.absolute(module, path) for path in paths if path]
            used = {self.module(target) for target in targets if target is not None} & self.texts.keys()
            related = {other for other in used if other[: len(module)] == module or module[: len(other)] == other}
            found[module] = used - related
        return found


def circles(graph: dict[tuple, set[tuple]]) -> list[list[tuple]]:
    """The sets of modules with a way from each to each."""

    def reach(start: tuple) -> set[tuple]:
        seen, open_ = set(), [start]
        while open_:
            for other in graph[open_.pop()] - seen:
                seen.add(other)
                open_.append(other)
        return seen

    reached = {module: reach(module) for module in graph}
    found, done = [], set()
    for module in graph:
        circle = [other for other in reached[module] if module in reached[other]]
        if circle and module not in done:
            done.update(circle)
            found.append(sorted(circle))
    return found


def main() -> int:
    wrong = []
    for src in sorted(pathlib.Path("crates").glob("*/src")):
        crate = src.parent.name
        ceiling = CEILINGS.get(crate, MOST)
        sizes = []
        for circle in circles(Crate(src).imports()):
            sizes.append(len(circle))
            if len(circle) > ceiling:
                names = " ".join("/".join(module) or "lib" for module in circle)
                wrong.append(f"{src}: {len(circle)} modules import each other in a circle, at most {ceiling}: {names}")
        if crate in CEILINGS and max(sizes, default=0) < ceiling:
            wrong.append(f"{src}: no circle has {ceiling} modules any more; lower its ceiling in {sys.argv[0]}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
