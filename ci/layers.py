#!/usr/bin/env python3
"""Which module uses which, read from the sources, against the tables of docs/layers.md.

Three things are checked: each module uses what its row says and nothing else; no two modules use each other; and the
circles of files are those that docs/layers.md names; the scheduler and the reference have none. `--print` shows what the sources say. Test modules do not count: a test may
look at everything. Text that hides where a path leads is refused (rust_source.py). ci/test_layers.py plants what must be found.
"""

import re
import sys

from packages import published
from rust_modules import ROOT, Crate, sources

# Built for model checkers alone, to reach inside.
OUTSIDE = {"internals"}
# Packages whose files use each other in no circle.
WITHOUT_CIRCLES = ("radixkv-reference", "radixkv-scheduler")


def layer(file):
    """The module that a file of src belongs to."""
    return file.removesuffix(".rs").split("/")[0]


def modules(files):
    """What each top-level module uses of the others, from what each file uses; what lib.rs shows is nobody's."""
    uses = {}
    for file, used in files.items():
        if layer(file) not in OUTSIDE | {"lib"}:
            uses.setdefault(layer(file), set()).update({layer(other) for other in used} - {layer(file)})
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


def path(uses, begin, end):
    """A shortest way from one module to another, along what each uses."""
    ways = [[begin]]
    seen = {begin}
    for way in ways:
        if way[-1] == end:
            return way
        for other in sorted(uses.get(way[-1], set()) - seen):
            seen.add(other)
            ways.append([*way, other])
    return None


def closed(uses, circle, named):
    """The shortest way round through an edge of a circle that lies in no circle of those named."""
    edges = [(one, other) for one in circle for other in sorted(uses[one] & set(circle))]
    new = [edge for edge in edges if not any(set(edge) <= set(known) for known in named)]
    ways = [[one, *path(uses, other, one)] for one, other in new or edges]
    return " -> ".join(min(ways, key=len))


def table(name):
    """The rows between `<!-- NAME -->` and `<!-- /NAME -->` of docs/layers.md: the words in backticks of each cell."""
    page = (ROOT / "docs/layers.md").read_text()
    part = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)
    rows = [line.strip("|").split("|") for line in part[1].splitlines() if line.startswith("| `")] if part else []
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]


def broken_rows(uses, said, files):
    """Where the modules and their rows part; for what a row does not name, the files that use it."""
    for name in sorted(uses.keys() | said.keys()):
        if name not in uses or name not in said:
            yield f"{name}: " + ("has no row in docs/layers.md" if name in uses else "has a row in docs/layers.md and is no module")
            continue
        for other in sorted(uses[name] - said[name]):
            by = [f"{one} -> {two}" for one in sorted(files) for two in sorted(files[one]) if (layer(one), layer(two)) == (name, other)]
            yield f"{name} uses {other}, which its row does not name: {', '.join(by) or 'a dependency'}"
        for other in sorted(said[name] - uses[name]):
            yield f"the row of {name} names {other}, which it does not use"


def broken_circles(files, named):
    """The circles of files that docs/layers.md does not name, and those that it names and there are not."""
    found = circles(files)
    for circle in found:
        if circle not in named:
            yield f"files use each other, and docs/layers.md does not name the circle: {closed(files, circle, named)}"
    for circle in named:
        if not any(set(circle) <= set(other) for other in found):
            yield f"docs/layers.md names a circle of files that there is not: {' '.join(circle)}"


def broken(crate, others):
    """What does not hold; circles are looked at only where the layers hold, because a broken layer makes circles too."""
    if crate.unread:
        return crate.unread
    files = crate.by_file()
    uses = modules(files) | others
    rows = list(broken_rows(uses, {row[0][0]: set(row[1]) for row in table("layers")}, files))
    rings = [f"modules use each other: {closed(uses, circle, [])}" for circle in circles(uses)]
    return rows or rings or list(broken_circles(files, sorted(sorted(row[0]) for row in table("circles"))))


def broken_packages():
    """Where the files of a package that has no circles use each other."""
    for package in WITHOUT_CIRCLES:
        crate = Crate(sources(f"crates/{package}"))
        files = crate.by_file()
        yield from [f"{package}: {text}" for text in crate.unread]
        yield from [f"{package}: files use each other: {closed(files, circle, [])}" for circle in circles(files)]


def show(files, uses):
    for name, used in sorted(uses.items()):
        print(f"{name}: {', '.join(sorted(used)) or '-'}")
    for circle in circles(files):
        print("circle:", ", ".join(circle))
        for file in circle:
            print("   ", file, "->", ", ".join(sorted(files[file] & set(circle))))


def main():
    crate, others = Crate(sources()), packages()
    files = crate.by_file()
    uses = modules(files) | others
    if sys.argv[1:] == ["--print"]:
        return show(files, uses)
    if found := broken(crate, others) + list(broken_packages()):
        sys.exit("broken: modules use what docs/layers.md says\n" + "\n".join(found))
    print(f"holds:  {len(uses)} modules and packages use what docs/layers.md says, {len(circles(files))} circles of files")


if __name__ == "__main__":
    main()
