#!/usr/bin/env python3
"""The seeded bugs, and for each the model that must find it. `--edges` prints what weakens each edge of docs/proofs.md;
`--texts` checks that every text that a bug replaces stands in the sources, once. `--part K/N` runs one of so many parts of them.

A bug is one or more replacements of exact text; where the text is no longer present the run fails, so the table follows
the code. Each is put into a scratch copy (`target/seeded`), and only the model that is named for it runs.
"""

import os
import subprocess
import sys
import time

from scratch import ROOT, Tree
from seeded import strays

sys.path.insert(0, os.path.join(ROOT, "loom_tests"))
from bugs import BUGS, MARGINS

# Seconds that a model may take to find its bug.
CAP = 240


def edges():
    """The table of docs/proofs.md: for each edge the bugs that weaken it, or why it is margin."""
    weakened = {}
    for bug, model, _, _, *edge in BUGS:
        for name in edge:
            weakened.setdefault(name, []).append(f"{bug} (`{model.split('::')[0]}`)")
    margins = {}
    for name, reason in MARGINS.items():
        margins.setdefault(name.split()[0], []).append(f"margin{name[len(name.split()[0]):]}: {reason}")
    # E2 before E10, and those without a number last.
    order = sorted(weakened.keys() | margins, key=lambda edge: (not edge[1:].isdigit(), len(edge), edge))
    rows = [f"| {edge} | {'; '.join(weakened.get(edge, []) + margins.get(edge, []))} |" for edge in order]
    return "\n".join(["| edge | weakened so, a model fails (its file); or why it is margin |", "|---|---|", *rows])


def part(number, parts):
    """One of so many parts of the bugs: by their models, so that few are built."""
    models = {}
    for bug in BUGS:
        models.setdefault(bug[1].split("::")[0], []).append(bug)
    # The models with the most bugs are spread over the parts.
    drawn = sorted(models, key=lambda model: (-len(models[model]), model))[number::parts]
    return [bug for bug in BUGS if bug[1].split("::")[0] in drawn]


def main():
    if sys.argv[1:] == ["--edges"]:
        print(edges())
        return
    if sys.argv[1:] == ["--texts"]:
        sys.exit("\n".join(strays([(bug, model, edits) for bug, model, _, edits, *_ in BUGS])) or None)
    if sys.argv[1:2] == ["--part"]:
        number, parts = map(int, sys.argv[2].split("/"))
        chosen = part(number, parts)
    else:
        words = " ".join(sys.argv[1:])
        chosen = [bug for bug in BUGS if words in bug[0] or words in bug[1]][int(os.environ.get("SEEDED_FROM", "0")):]
    if not chosen:
        sys.exit(f"no seeded bug has these words in its name or model: {words}")
    tree, missed, began = Tree("seeded", level=0), [], time.time()
    files = sorted({bug[1].split("::")[0] for bug in chosen})
    refused = tree.build(files)
    if refused:
        sys.exit(refused)
    print(f"{'bug':<48} {'model':<66} {'loads':<6} {'outcome':<12} {'s':>5}", flush=True)
    for bug, model, loads, edits, *_ in chosen:
        test, name = model.split("::")
        start, outcome = time.time(), None
        for path, old, new in edits:
            text = tree.read(path)
            if text.count(old) != 1:
                outcome = "no such text" if old not in text else "text not unique"
                break
            tree.write(path, text.replace(old, new))
        if outcome is None:
            refused = tree.build([test])
            if refused:
                outcome = "not compiled"
                print(refused)
            else:
                outcome, _, seconds = tree.run(test, name, CAP, RADIXKV_LOADS=loads)
        for path, _, _ in edits:
            tree.restore(path)
        found = outcome == "failed"
        if not found:
            missed.append(bug)
        shown = f"found {seconds:.1f}" if found else outcome.upper()
        print(f"{bug:<48} {model:<66} {loads:<6} {shown:<12} {time.time() - start:>5.1f}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found in {time.time() - began:.0f} s")
    if missed:
        sys.exit("not found: " + "; ".join(missed))


if __name__ == "__main__":
    main()
