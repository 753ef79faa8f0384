#!/usr/bin/env python3
"""The seeded bugs, and for each the model that must find it. `--edges` prints what weakens each edge of docs/proofs.md;
`--texts` checks that every text that a bug replaces is in the sources, once. `--part K/N` runs one of so many parts of them;
other arguments are a phrase: only bugs whose name or model contains it literally run.

A bug is one or more replacements of exact text; where the text is no longer present the run fails, so the table follows
the code. Each is put into a scratch copy (`target/seeded`), and only the model that is named for it runs.
"""

import sys

import seeded
from bugs import BUGS, MARGINS
from scratch import Tree

# Seconds that a model may take to find its bug.
CAP = 240


def edges():
    """The table of docs/proofs.md: for each edge the bugs that weaken it, or why it is margin."""
    rows = {}
    for bug, model, _, _, *edge in BUGS:
        for name in edge:
            rows.setdefault(name, []).append(f"{bug} (`{model.split('::')[0]}`)")
    for name, reason in MARGINS.items():
        edge, *rest = name.split(maxsplit=1)
        rows.setdefault(edge, []).append(f"{' '.join(['margin', *rest])}: {reason}")
    # E2 before E10, and those without a number last.
    order = sorted(rows, key=lambda edge: (not edge[1:].isdigit(), len(edge), edge))
    header = ["| edge | weakened so, a model fails (its file); or why it is margin |", "|---|---|"]
    return "\n".join([*header, *(f"| {edge} | {'; '.join(rows[edge])} |" for edge in order)])


def part(bugs, number, parts):
    """One of so many parts of the bugs: by the files of their models, so that few are built."""
    files = [model.split("::")[0] for _, model, _ in bugs]
    # The files with the most bugs are spread over the parts.
    drawn = sorted(set(files), key=lambda file: (-files.count(file), file))[number::parts]
    return [bug for bug, file in zip(bugs, files) if file in drawn]


def main():
    if sys.argv[1:] == ["--edges"]:
        return print(edges())
    bugs = [(bug, f"{model} {loads}", edits) for bug, model, loads, edits, *_ in BUGS]
    if sys.argv[1:2] == ["--part"]:
        chosen = part(bugs, *map(int, sys.argv[2].split("/")))
    else:
        chosen = seeded.chosen(bugs)
    tree = Tree("seeded", level=0)
    if refused := tree.build(sorted({model.split("::")[0] for _, model, _ in chosen})):
        sys.exit(refused)

    def find(finder):
        model, loads = finder.split()
        test, name = model.split("::")
        if refused := tree.build([test]):
            print(refused)
            return "not compiled"
        outcome, _ = tree.run(test, name, CAP, RADIXKV_LOADS=loads)
        return {"failed": "found", "passed": "not found"}.get(outcome, outcome)

    seeded.run(tree, chosen, find)


if __name__ == "__main__":
    main()
