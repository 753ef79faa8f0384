#!/usr/bin/env python3
"""Which module uses which, read from the sources, against what DESIGN.md says ("Layers").

Three things are checked: each module uses what its row says and nothing else; no two modules use each other; and the
circles of files are those that DESIGN.md names. `--print` shows what the sources say. What stands under `#[cfg(test)]`, and
files of tests, do not count: a test may look at everything.
"""

import re
import sys
from pathlib import Path

from packages import published

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\n]*\n(?:pub(?:\(\w+\))? )?mod \w+ \{.*", re.DOTALL)
# Built for model checkers alone, to reach inside.
OUTSIDE = {"internals"}


def source(file):
    """The text of a file without comments, strings and tests."""
    text = re.sub(r"//[^\n]*|\"(?:[^\"\\]|\\.)*\"", "", file.read_text())
    text = re.sub(r"\bpub\(in [\w:]+\)", "pub(crate)", text)
    return TESTS.sub("", text)


def module(file):
    """The path of a file's module: `tree/word/slot.rs` is (tree, word, slot), `tree/mod.rs` is (tree,)."""
    parts = file.relative_to(SRC).with_suffix("").parts
    return () if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts


def is_test(file):
    return any(part == "tests" for part in module(file))


def leaves(tree):
    """The paths that a `use` tree names: `a::{b, c::D as E}` names (a, b, b) and (a, c, D, E); the last is the name it gets here."""
    head, _, rest = tree.partition("{")
    if not rest:
        path, _, name = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::")]
        yield parts, (name.strip() or parts[-1])
        return
    head = [part.strip() for part in head.split("::") if part.strip()]
    depth, begin, inner = 0, 0, rest.rstrip().removesuffix("}")
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if inner[begin:at].strip():
                for parts, name in leaves(inner[begin:at].strip()):
                    yield ([*head] if parts == ["self"] else head + parts), (head[-1] if name == "self" else name)
            begin = at + 1


def absolute(parts, here):
    """A path from the crate's root; nothing if it leads out of the crate."""
    match parts[0]:
        case "crate":
            return tuple(parts[1:])
        case "self":
            return here + tuple(parts[1:])
        case "super":
            ups = next(i for i, part in enumerate([*parts, ""]) if part != "super")
            return here[: len(here) - ups] + tuple(parts[ups:])
    return None


class Crate:
    """The files of src, and which of them each one uses."""

    def __init__(self):
        self.files = {module(file): file for file in SRC.rglob("*.rs") if not is_test(file)}
        self.text = {path: source(file) for path, file in self.files.items()}
        self.imports = {path: dict(self.imported(path)) for path in self.files}
        self.uses = {path: self.used(path) - {path} for path in self.files}

    def imported(self, here):
        for tree in re.findall(r"\buse ([^;]+);", self.text[here]):
            for parts, name in leaves(" ".join(tree.split())):
                inside = absolute(parts, here)
                if inside is None and here + (parts[0],) in self.files:
                    inside = here + tuple(parts)
                if inside is not None:
                    yield name, inside

    def home(self, path):
        """The module where what a path names is defined, through any number of re-exports."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.files:
                place, rest = path[:length], path[length:]
                break
        if rest and rest[0] in self.imports[place] and self.imports[place][rest[0]] != path:
            return self.home(self.imports[place][rest[0]] + rest[1:])
        return place

    def used(self, here):
        paths = list(self.imports[here].values())
        body = re.sub(r"\buse [^;]+;", "", self.text[here])
        for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", body):
            paths.append(absolute(path.split("::"), here))
        for first, second in re.findall(r"(?<![\w:])(\w+)::(\w+)", body):
            if here + (first,) in self.files:
                paths.append(here + (first, second))
        # A re-export is no use: it leads to where a thing is defined.
        shown = set(re.findall(r"\bpub(?:\(\w+\))? use ([^;]+);", self.text[here]))
        shown = {absolute(parts, here) or here + tuple(parts) for tree in shown for parts, _ in leaves(" ".join(tree.split()))}
        named = lambda path: re.search(rf"\b{path[-1]}\b", body) if path else True
        return {self.home(path) for path in paths if path not in shown or named(path)}


def modules(crate):
    """What each top-level module uses of the others."""
    uses = {}
    for path, used in crate.uses.items():
        if path and path[0] not in OUTSIDE:
            uses.setdefault(path[0], set()).update(other[0] for other in used if other and other[0] != path[0])
    return uses


def packages():
    """What each package of the workspace uses of the others, in what it publishes."""
    listed = published()
    names = {package["name"] for package in listed}
    return {
        package["name"]: {needed["name"] for needed in package["dependencies"] if needed["kind"] is None} & names
        for package in listed
        if package["name"] != "radixkv"
    }


def circles(uses):
    """The sets of modules that use each other, directly or through others (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(uses.get(node, ())):
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(uses):
        if node not in number:
            visit(node)
    return sorted(found)


def table(name):
    """The rows between `<!-- NAME -->` and `<!-- /NAME -->` of DESIGN.md: the words in backticks of each cell."""
    page = (ROOT / "DESIGN.md").read_text()
    part = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)
    rows = [line.strip("|").split("|") for line in part[1].splitlines() if line.startswith("| `")] if part else []
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]


def main():
    crate = Crate()
    uses = modules(crate) | packages()
    rings = [[str(crate.files[path].relative_to(SRC)) for path in circle] for circle in circles(crate.uses)]
    if sys.argv[1:] == ["--print"]:
        for name, used in sorted(uses.items()):
            print(f"{name}: {', '.join(sorted(used)) or '-'}")
        for ring in rings:
            print("circle:", ", ".join(ring))
            if len(ring) > 3:
                inside = {path for path in crate.files if str(crate.files[path].relative_to(SRC)) in ring}
                for path in sorted(inside):
                    print("   ", "/".join(path), "->", ", ".join("/".join(p) for p in sorted(crate.uses[path] & inside)))
        return
    broken = []
    said = {row[0][0]: set(row[1]) for row in table("layers")}
    for name in sorted(uses.keys() | said.keys()):
        if uses.get(name) != said.get(name):
            more = sorted((uses.get(name) or set()) - (said.get(name) or set()))
            less = sorted((said.get(name) or set()) - (uses.get(name) or set()))
            broken.append(f"{name}: uses {more or 'nothing'} that its row does not name; its row names {less or 'nothing'} that it does not use")
    broken += [f"modules use each other: {circle}" for circle in circles(uses)]
    named = sorted(sorted(row[0]) for row in table("circles"))
    broken += [f"a circle of files that DESIGN.md does not name: {ring}" for ring in rings if sorted(ring) not in named]
    broken += [f"DESIGN.md names a circle of files that there is not: {ring}" for ring in named if ring not in [sorted(r) for r in rings]]
    if broken:
        sys.exit("\n".join(broken))
    print(f"holds:  {len(uses)} modules and packages use what DESIGN.md says, {len(rings)} circles of files")


if __name__ == "__main__":
    main()
