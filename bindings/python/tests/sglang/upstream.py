"""Runs SGLang's own tests of its prefix cache on radixkv: `python upstream.py FOLDER`.

FOLDER is `test/registered/unit/mem_cache` of SGLang's repository; the environment variable
`RADIXKV_SGLANG` names the folder that has `sglang`. torch must be there. Each test runs on SGLang's
own tree and on ours, each file in a process of its own. The table says how many

    passed        on both, with the interface of the cache only
    FAILED        on ours only, with the interface only: then the exit status is 1
    private       look into nodes or use other private parts of SGLang's tree
    feature       use what SGLang gives to its own tree only: HiCache, sessions, ...
    SWA, Mamba    build a cache with the state of sliding windows or of Mamba layers
    no cache      pass on both and build no cache: they test other classes
    skipped       skip themselves, for their configuration or without a GPU
    does not fit  fail on SGLang's own tree, or use names that this version does not have
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import traceback
import unittest
from pathlib import Path

import loader

PATTERNS = (
    "test_unified_radix_cache*.py",
    "test_session_unified_radix_cache.py",
    "test_radix_*.py",
    "test_decode_radix_lock_ref.py",
    "test_tree_core_registry.py",
    "test_registry.py",
    "test_evict_policy*.py",
)
# Benchmarks and the tree in C++.
LEFT_OUT = ("test_unified_radix_cache_bench.py", "test_radix_cache_cpp_unit.py")
COLUMNS = ("passed", "FAILED", "private", "feature", "SWA, Mamba", "no cache", "skipped", "does not fit")
# Columns of which the names that the tests use are listed.
NAMED = ("private", "feature", "SWA, Mamba")
SECONDS = 900


class Outcomes(unittest.TestResult):
    """Prints a line of JSON for each test."""

    def startTest(self, test):
        import upstream_trees

        super().startTest(test)
        self._trees = upstream_trees
        self._trees.built.clear()
        self._outcome, self._kind, self._why = "passed", None, ""

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self._failed(error)

    def addError(self, test, error):
        super().addError(test, error)
        self._failed(error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._failed(error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._outcome = "skipped"

    def _failed(self, error):
        if self._outcome == "failed" and self._kind is None:
            # A failure of the interface outweighs later ones.
            return
        self._outcome, self._kind, raised = "failed", None, error[1]
        last = traceback.extract_tb(error[2])[-1]
        said = str(raised).partition("\n")[0]
        self._why = f"{error[0].__name__}: {said} ({Path(last.filename).name}:{last.lineno})"
        while raised is not None:
            if isinstance(raised, self._trees.Missing):
                self._kind, self._why = raised.kind, raised.name
            raised = raised.__cause__ or raised.__context__

    def stopTest(self, test):
        super().stopTest(test)
        outcome = {"outcome": self._outcome, "kind": self._kind, "why": self._why, "built": len(self._trees.built)}
        print("\nOUTCOME " + json.dumps({"test": test.id().split(".", 1)[1], **outcome}), flush=True)


def run_here(tree, path):
    import upstream_trees

    upstream_trees.load(tree)
    module = upstream_trees.import_test(path)
    unittest.defaultTestLoader.loadTestsFromModule(module).run(Outcomes())


def run(tree, path):
    """The outcomes of a file's tests by name."""
    command = [sys.executable, __file__, "--tree", tree, str(path)]
    environment = {**os.environ, "RADIXKV_TORCH": "real"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS)
    if done.returncode:
        raise SystemExit(f"{path.name} cannot be run on {tree}:\n{done.stderr[-3000:]}")
    lines = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    return {line["test"]: line for line in lines}


def column(theirs, ours):
    if "skipped" in (theirs["outcome"], ours["outcome"]):
        return "skipped"
    if ours["kind"]:
        return ours["kind"]
    if theirs["outcome"] == "failed":
        return "does not fit"
    if ours["outcome"] == "failed":
        return "FAILED"
    return "passed" if theirs["built"] else "no cache"


def print_table(rows):
    width = max(len(name) for name in rows)
    print(" " * width, *COLUMNS, sep="  ")
    for name, counts in rows.items():
        print(name.ljust(width), *(str(counts[title]).rjust(len(title)) for title in COLUMNS), sep="  ")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path, help="test/registered/unit/mem_cache of SGLang's repository")
    arguments.add_argument("--tree", choices=("ours", "theirs"), help="run one file on one tree, and print outcomes")
    arguments.add_argument("--details", action="store_true", help="list the tests that build a cache and do not pass")
    options = arguments.parse_args()
    if loader.sources() is None:
        raise SystemExit("RADIXKV_SGLANG does not name a folder that has sglang/srt/mem_cache")
    if options.tree:
        return run_here(options.tree, options.folder)
    paths = {path for pattern in PATTERNS for path in options.folder.glob(pattern) if path.name not in LEFT_OUT}
    if not paths:
        raise SystemExit(f"{options.folder} has no tests of the prefix cache: name test/registered/unit/mem_cache")
    rows, failed, names = {}, [], {title: collections.Counter() for title in COLUMNS if title in NAMED}
    for path in sorted(paths):
        theirs, ours = run("theirs", path), run("ours", path)
        counts = rows[path.name] = collections.Counter()
        for name, outcome in theirs.items():
            title = column(outcome, ours[name])
            counts[title] += 1
            why = ours[name]["why"] or outcome["why"]
            if title == "FAILED":
                failed.append(f"FAILED {name}: {why}")
            elif title in NAMED:
                names[title][why] += 1
            if options.details and title not in ("passed", "no cache", "skipped"):
                print(title, name, why, sep=" | ")
    total = rows["all"] = sum(rows.values(), collections.Counter())
    print_table(rows)
    judged = total["passed"] + total["FAILED"] + total["private"]
    share = total["passed"] / max(judged, 1)
    print(f"{total['passed']} of the {judged} that are for a tree of plain attention pass ({share:.0%}).")
    for title, used in names.items():
        print(f"{title}:", ", ".join(f"{name} {count}" for name, count in used.most_common()))
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
