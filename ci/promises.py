#!/usr/bin/env python3
"""Every promise in docs/guarantees.md names the tests that hold it: each exists, is compiled, and is not set aside."""

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/guarantees.md"
HEADER = ("promise", "said at", "held by")
# Attributes and comments above a function, and its name.
FUNCTION = re.compile(r"((?:^[ \t]*(?:#\[.*\]|//.*)\n)+)^[ \t]*(?:pub )?(?:async )?fn (\w+)", re.MULTILINE)
TEST = re.compile(r"#\[(?:tokio::)?test\b")


def rows():
    """The rows of the tables that begin with HEADER: line number and cells."""
    inside = False
    for number, line in enumerate((ROOT / PAGE).read_text().splitlines(), 1):
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | ")) if line.startswith("|") else ()
        if not cells:
            inside = False
        elif cells == HEADER:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            yield number, cells


def place(path):
    """The file that a name in the table stands for."""
    folder, _, rest = path.partition("/")
    if folder == "loom":
        return ROOT / "loom_tests/tests" / rest
    if folder in ("src", "crates", "examples", "bindings"):
        return ROOT / path
    # A test of the core, or of another package.
    places = [ROOT / "tests" / path, *ROOT.glob(f"crates/*/tests/{path}")]
    return next((file for file in places if file.is_file()), places[0])


@cache
def tests(file):
    """The tests of a file that are not ignored."""
    found = FUNCTION.findall(file.read_text())
    return {name for above, name in found if TEST.search(above) and "#[ignore" not in above}


@cache
def is_compiled(file):
    """Whether the file is a crate's root, or a file beside or above it takes it in as a module."""
    folder = file.parent
    if folder.name == "tests" or file.name in ("main.rs", "lib.rs"):
        return True
    taken_in = re.compile(rf"^\s*(?:pub(?:\([^)]*\))? )?mod {file.parent.name if file.name == 'mod.rs' else file.stem};", re.MULTILINE)
    above = folder.parent if file.name == "mod.rs" else folder
    roots = [above / "mod.rs", above / "main.rs", above / "lib.rs", above.with_suffix(".rs")]
    return any(taken_in.search(root.read_text()) for root in roots if root.is_file())


@cache
def vocabulary():
    """Every word of the source, and the pages by name."""
    words = set()
    for file in [*ROOT.glob("src/**/*.rs"), *ROOT.glob("crates/*/src/**/*.rs")]:
        words.update(re.findall(r"\w+", file.read_text()))
    return words


def faults(cells):
    """What is wrong with a row."""
    if len(cells) != len(HEADER):
        yield f"{len(cells)} cells in place of {len(HEADER)}"
        return
    _, said, held = cells
    for name in re.findall(r"`(\w+)`", said):
        if name not in vocabulary():
            yield f"said at `{name}`, which is nowhere in the sources"
    names = re.findall(r"`([\w/.-]+)::(\w+)`", held)
    if re.match(r"by design: \w", held):
        return
    if not names:
        yield "no test, and no `by design: reason`"
    for path, name in names:
        file = place(path)
        if not file.is_file():
            yield f"there is no {file.relative_to(ROOT)}"
        elif name not in tests(file):
            yield f"no test {name} that is run stands in {file.relative_to(ROOT)}"
        elif not is_compiled(file):
            yield f"{file.relative_to(ROOT)} is no module of a crate"


def main():
    found, count, seen = [], 0, set()
    for number, cells in rows():
        count += 1
        found += [f"{PAGE}:{number}: {fault}" for fault in faults(cells)]
        if cells[0] in seen and not cells[0].startswith("the same"):
            found.append(f"{PAGE}:{number}: said twice")
        seen.add(cells[0])
    if count == 0:
        found.append(f"{PAGE}: no table of promises")
    print("\n".join(found) if found else f"holds:  each of {count} promises names tests that are run")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
