#!/usr/bin/env python3
"""Each promise of docs/promises.md has a test that is compiled and run, or a reason by design.

A test names its promises in a comment above its attributes: `// Holds: MA1, LE3.`, on several lines if it is long.
`--table` prints every promise with its tests, as Markdown.
"""

import re
import subprocess
import sys

from orphans import ROOT, is_compiled

PAGE = "docs/promises.md"
HEADER = ("id", "promise", "said at")
ID = r"[A-Z]{2}[1-9][0-9]*"
# Anything that looks like the comment of a test.
COMMENT = re.compile(r"^[ \t]*//[/!]? *Holds:", re.MULTILINE)
# The comment, the attributes and comments below it, and the name of the test.
HOLDS = re.compile(
    rf"[ \t]*// Holds: (?P<ids>{ID}(?:,(?: |\n[ \t]*// ){ID})*)\.\n"
    r"(?P<attributes>(?:[ \t]*(?:#\[.*\]|#\[[^;{}]*?\]|//.*)\n)+)[ \t]*(?:pub )?(?:async )?fn (?P<name>\w+)"
)
TEST = re.compile(r"#\[(?:tokio::)?test\b")


def rows():
    """The rows of the tables that begin with HEADER: line number, section and cells."""
    section, inside = "", False
    for number, line in enumerate((ROOT / PAGE).read_text().splitlines(), 1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | ")) if line.startswith("|") else ()
        if not cells:
            inside = False
        elif cells == HEADER:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            yield number, section, cells


def sources():
    """Every Rust file of the repository, by its path."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {name: (ROOT / name).read_text() for name in sorted(set(names)) if (ROOT / name).is_file()}


def held(texts):
    """The comments at the tests: place, ids, name of the test, and what is wrong with it, if anything."""
    for path, text in texts.items():
        for comment in COMMENT.finditer(text):
            place = f"{path}:{text.count(chr(10), 0, comment.start()) + 1}"
            found = HOLDS.match(text, comment.start())
            if not found or not TEST.search(found["attributes"]):
                yield place, [], "", "`// Holds: ID, ID.` directly above the attributes of a test is expected"
                continue
            fault = None
            if "#[ignore" in found["attributes"]:
                fault = f"the test {found['name']} is ignored"
            elif not is_compiled(ROOT / path):
                fault = f"the test {found['name']} is not compiled: the file is no module of a crate"
            yield place, re.findall(ID, found["ids"]), f"{path}::{found['name']}", fault


def unknown(said, words):
    """What a cell `said at` names that is nowhere in the sources. ci/links.py checks the links."""
    rest = re.sub(r"\[[^\]]+\]\([^)]+\)", "", said)
    for name in re.findall(r"`([^`]+)`", rest):
        if not set(re.findall(r"\w+", name)) <= words:
            yield f"said at `{name}`, which is nowhere in the sources"
    if not said or re.sub(r"`[^`]+`", "", rest).strip(", "):
        yield "`said at` is a list of names in backticks and of links"


def check():
    """The rows, the tests of each promise, and every fault."""
    texts, promises, tests, faults = sources(), [], {}, []
    code = [text for path, text in texts.items() if "src" in path.split("/")]
    words = {word for text in code for word in re.findall(r"\w+", text)}
    for number, section, cells in rows():
        place = f"{PAGE}:{number}"
        if len(cells) != len(HEADER) or not re.fullmatch(ID, cells[0]):
            faults.append(f"{place}: a row has an id, a promise and where it is said")
            continue
        promises.append((place, section, cells))
        if cells[0] in tests:
            faults.append(f"{place}: the id {cells[0]} is given twice")
        tests[cells[0]] = []
        faults += [f"{place}: {fault}" for fault in unknown(cells[2], words)]
    for place, ids, name, fault in held(texts):
        faults += [f"{place}: {fault}"] if fault else []
        faults += [f"{place}: there is no promise {id}" for id in ids if id not in tests]
        for id in ids if not fault else []:
            tests.get(id, []).append(name)
    for place, _, (id, promise, _) in promises:
        if not tests[id] and not re.search(r"by design: \w", promise):
            faults.append(f"{place}: no test that is run holds {id}, and there is no `by design: reason`")
    return promises, tests, faults if promises else [f"{PAGE}: no table of promises"]


def main():
    promises, tests, faults = check()
    if faults:
        print("\n".join(faults))
    elif sys.argv[1:] == ["--table"]:
        before = None
        for _, section, cells in promises:
            if section != before:
                print(f"\n## {section}\n\n| {' | '.join(HEADER)} | held by |\n|---|---|---|---|")
            before = section
            print(f"| {' | '.join(cells)} | {', '.join(f'`{name}`' for name in tests[cells[0]])} |")
    else:
        print(f"holds:  each of {len(promises)} promises has tests that are run, or a reason by design")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
