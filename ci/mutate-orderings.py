#!/usr/bin/env python3
"""Weakens one memory ordering at a time and lists what no model minds.

    ci/mutate-orderings.py --files               fails if the list of files is not that of the files with orderings
    ci/mutate-orderings.py [FILE[:LINE]...]      e.g. src/tree/word.rs, or from a line on; all protocol files if none is named

A survivor is either too strong, or needs a comment that says why it stays: loom has no load buffering, so a Release that
only keeps a load above it is out of its reach.
"""

import os
import re
import sys
import time

from scratch import ROOT, Tree, absent

# The models that go through each file; cheap ones first.
TREE = ["point_word", "queue", "recycling", "creation_trim", "death", "together", "insert", "namespaces"]
FILES = {
    "src/tree/word.rs": [*TREE, "retention"],
    "src/tree/run.rs": ["creation_trim", "recycling", "together", "death"],
    "src/tree/queue.rs": ["queue", "together", "waiting"],
    "src/tree/map.rs": ["map", "creation_trim", "death", "insert"],
    "src/tree/lease.rs": ["namespaces"],
    "src/cache/namespaces/namespace.rs": ["namespaces"],
    "src/block/pool.rs": ["pool", "recycling", "waiting"],
    "src/tree/hot.rs": ["waiting", "hot_points"],
    "src/tree/word/slot.rs": ["waiting", "hot_points"],
    "src/sync/dekker.rs": ["hot_points"],
    "src/tree/marks.rs": ["retention"],
    "src/cache/line/publications.rs": ["publications"],
    "src/cache/eviction/kept.rs": ["waiting"],
    "src/cache/leases/strong_ref.rs": ["strong_ref"],
    "src/sync/bell.rs": ["bell"],
    "src/sync/arc.rs": ["forks", "strong_ref", "namespaces"],
    "src/reclaim/idle.rs": ["idle"],
    "src/reclaim/memory/depot.rs": ["memory"],
}
# Files whose orderings no model is for: they look at a cache at rest, or are compiled for models alone.
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
            # A failed exchange may not be stronger in name than what is imported; the full path always is.
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
        tests = FILES[path]
        for number, ordering, weaker, line, text in mutants(tree.read(path)):
            if number < int(first or 0):
                continue
            tree.write(path, text)
            outcome, killer = "SURVIVED", ""
            if tree.build(tests):
                outcome = "not compiled"
            else:
                for test in tests:
                    result, _, _ = tree.run(test, None, CAP, RADIXKV_LOADS="weak", LOOM_MAX_DURATION="8")
                    if result != "passed":
                        outcome, killer = result, test
                        break
            tree.restore(path)
            print(f"{outcome:<12} {path}:{number} {ordering}->{weaker} {killer:<14} {line[:90]}", flush=True)
            if outcome == "SURVIVED":
                survivors.append(f"{path}:{number} {ordering}->{weaker}")
    print(f"{len(survivors)} survivors in {time.time() - began:.0f} s", *survivors, sep="\n")


if __name__ == "__main__":
    main()
