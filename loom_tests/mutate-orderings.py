#!/usr/bin/env python3
"""Weakens one memory ordering at a time and lists what no model minds.

    mutate-orderings.py --files               fails if the list of files is not that of the files with orderings
    mutate-orderings.py [FILE[:LINE]...]      e.g. src/tree/word.rs, or from a line on; all protocol files if none is named

A survivor is either too strong, or needs a comment that says why it stays: loom has no load buffering, so a Release that
only keeps a load above it is out of its reach.
"""

import os
import re
import sys
import time

from scratch import ROOT, Tree, absent, by_file

# The files that models go through, by the models; cheap ones first.
FILES = by_file({
    "point_word queue recycling creation_trim death together insert namespaces retention": "tree/word",
    "creation_trim recycling together death": "tree/run",
    "queue together waiting": "tree/queue",
    "map creation_trim death insert": "tree/map",
    "namespaces": "tree/lease cache/namespaces/namespace",
    "pool recycling waiting": "block/pool",
    "waiting hot_points": "tree/hot tree/word/slot",
    "hot_points": "sync/dekker",
    "retention": "tree/marks",
    "publications": "cache/line/publications",
    "waiting": "cache/eviction/kept",
    "strong_ref": "cache/leases/strong_ref",
    "bell": "sync/bell",
    "forks strong_ref namespaces": "sync/arc",
    "idle": "reclaim/idle",
    "memory": "reclaim/memory/depot",
})
# Files whose orderings no model is for: they look at a cache at rest, or are compiled for models
# alone.
NO_PROTOCOL = ("src/cache/checks/validate/", "src/internals.rs", "src/reclaim/model.rs")
WEAKER = {"Acquire": ["Relaxed"], "Release": ["Relaxed"], "AcqRel": ["Acquire", "Release"]}
CAP = 120


def mutants(text):
    """(line, ordering, weaker, text with it) for each ordering in code, not in comments, imports and tests."""
    code = re.split(r"#\[cfg\(test\)\]\n *(?:mod \w+ \{|pub.* fn )", text)[0]
    for match in re.finditer(r"(?<![\w:])(Acquire|Release|AcqRel)\b", code):
        start = code.rfind("\n", 0, match.start()) + 1
        line = code[start:code.find("\n", match.start())]
        before = code[:match.start()]
        imported = re.search(r"\buse [^;]*$", before)
        if "//" in code[start:match.start()] or imported:
            continue
        for weaker in WEAKER[match.group(1)]:
            # A failed exchange may not be stronger in name than what is imported; the full path
            # always is.
            path = "std::sync::atomic::Ordering::" + weaker
            yield before.count("\n") + 1, match.group(1), weaker, line.strip(), before + path + text[match.end():]


def unlisted():
    """Files with orderings that are not in the list, and listed files without any."""
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if not name.endswith(".rs") or "tests" in path or (path.startswith(NO_PROTOCOL) and path not in FILES):
                continue
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                has = any(True for _ in mutants(file.read()))
            if has != (path in FILES):
                yield f"{path}: " + ("not in the list of files" if has else "has no ordering")


def main():
    if sys.argv[1:] == ["--files"]:
        sys.exit("\n".join([*absent(FILES), *unlisted()]) or None)
    tree, survivors, began = Tree("mutants"), [], time.time()
    for argument in sys.argv[1:] or FILES:
        path, _, first = argument.partition(":")
        for number, ordering, weaker, line, text in mutants(tree.read(path)):
            if number < int(first or 0):
                continue
            tree.write(path, text)
            outcome, killer = tree.judge(FILES[path], CAP, RADIXKV_LOADS="weak", LOOM_MAX_DURATION="8")
            tree.restore(path)
            place = f"{path}:{number} {ordering}->{weaker}"
            if outcome == "passed":
                outcome = "SURVIVED"
                survivors.append(place)
            print(f"{outcome:<12} {place} {killer:<14} {line[:90]}", flush=True)
    print(f"{len(survivors)} survivors in {time.time() - began:.0f} s", *survivors, sep="\n")


if __name__ == "__main__":
    main()
