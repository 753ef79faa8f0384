#!/usr/bin/env python3
"""Mutation testing of the protocol files: cargo-mutants says what to change, the tests and the models judge.

    mutants.py [FILE...]      e.g. src/tree/map.rs; all protocol files if none is named
    mutants.py --files        fails if a file or a model that it names is not there

EVERY=n takes every n-th mutant of each file, beginning with number FROM (0): a sample, or one of n shares.

Each mutant is put into a scratch copy (`target/mutants`). Unit tests, scenarios and the comparison with the reference
run first; what they let pass meets the models of its file, ten seconds each. A mutant that does not end is caught.

What nothing catches must stand in loom_tests/mutants.txt, with the reason; the run fails otherwise.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter

from scratch import ROOT, Tree, absent, by_file

# The files that models go through, by the models; cheap ones first.
FILES = by_file({
    "queue together": "tree/queue",
    "recycling death insert": "tree/walk",
    "insert death namespaces": "tree/insert",
    "map death insert": "tree/map",
    "creation_trim recycling together death": "tree/run",
    "namespaces": "tree/space cache/evictor/sweep cache/namespaces/namespace cache/namespaces/namespace/clearing",
    "creation_trim": "tree/arrays",
    "creation_trim death insert": "tree/points",
    "queue creation_trim death insert together namespaces":
        "tree/known cache/evictor/trim cache/evictor/mod cache/evictor/ranking cache/evictor/accounts",
    "pool recycling": "block/pool block/hints",
    "waiting exchange namespaces": "cache/inner",
    "insert namespaces": "cache/insert",
    "idle": "cache/participant reclaim/idle",
    "point_word queue creation_trim death insert namespaces": "tree/word tree/word/snapshot",
    "creation_trim death insert namespaces": "tree/lease",
    "creation_trim together": "tree/point",
    "hot_points": "tree/hot sync/dekker",
    "hot_points waiting": "tree/word/slot",
    "retention": "tree/marks cache/leases/retention cache/evictor/retained cache/evictor/due",
    "exchange":
        "tree/namespace_account cache/namespaces/quota cache/namespaces/quota/verbs cache/evictor/exchange "
        "cache/evictor/listeners/quota cache/evictor/upkeep",
    "strong_ref": "cache/leases/strong_ref",
    "waiting": "cache/line/wait_list cache/line/in_line cache/line/waiter cache/line/waiting cache/blocks/allocate sync/signal",
    "forks": "cache/blocks/fork cache/blocks/shared_blocks",
    "": "cache/evictor/aging policy/chain policy/order policy/ranked policy/table sync/lock crates/radixkv-scheduler/src/sync/changes",
    "memory": "reclaim/memory reclaim/memory/class reclaim/memory/depot reclaim/memory/segment reclaim/memory/slab",
    "forks strong_ref namespaces": "sync/arc",
    "bell": "sync/bell",
    "claims": "crates/radixkv-scheduler/src/claims",
})
FEATURES = {"radixkv": "async", "radixkv-scheduler": ""}
# Test targets of each package, and what they run; the reference compared with itself tells nothing.
SUITES = {
    "radixkv": [("scenarios", []), ("lib", ["--skip", "stalled_reader"]), ("model", ["agrees"])],
    "radixkv-scheduler": [("lib", []), ("scheduler", [])],
}
# What else goes through a file.
MORE_SUITES = by_file({
    "wake_ups waiting reserve_async": "cache/line/wait_list cache/line/in_line cache/line/waiter cache/line/waiting cache/blocks/allocate "
        "sync/signal",
    "retention_golden": "tree/marks cache/leases/retention",
    "retention_golden wake_ups": "cache/evictor/retained",
})
# Seconds after which a suite or a file of models is endless. The longest takes a tenth of that.
SUITE_CAP, MODEL_CAP = 20, 300
KNOWN = os.path.join(ROOT, "loom_tests", "mutants.txt")


def package_of(path):
    """The package that has a file."""
    return path.split("/")[1] if path.startswith("crates/") else "radixkv"


def listed(path):
    """The mutants of a file, as cargo-mutants lists them; printing for debuggers left out."""
    every, first = int(os.environ.get("EVERY", "1")), int(os.environ.get("FROM", "0"))
    package = package_of(path)
    command = ["cargo", "mutants", "--list", "--json", "--diff", "--package", package, "--no-default-features"]
    command += ["--features", FEATURES[package], "-f", path]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    mutants, seen = [mutant for mutant in json.loads(found) if "Debug" not in mutant["name"]], {}
    for mutant in mutants:
        # Without its place, which moves; a number tells equal ones in one function apart.
        name = re.sub(r":\d+:\d+: ", ": ", mutant["name"])
        seen[name] = seen.get(name, 0) + 1
        mutant["name"] = name + (f" ({seen[name]})" if seen[name] > 1 else "")
    return mutants[first::every]


def patched(text, mutant):
    """The text with the mutant in it."""
    lines = text.split("\n")
    start, end = mutant["span"]["start"], mutant["span"]["end"]
    at = [sum(len(line) + 1 for line in lines[:place["line"] - 1]) + place["column"] - 1 for place in (start, end)]
    return text[:at[0]] + mutant["replacement"] + text[at[1]:]


class Judge:
    def __init__(self):
        self.tree = Tree("mutants")
        self.unit = dict(self.tree.env, CARGO_PROFILE_DEV_DEBUG="0", CARGO_TARGET_DIR=os.path.join(self.tree.home, "unit"))

    def suite(self, package, name):
        """The test binary of this name, or nothing if the mutant does not compile."""
        command = ["cargo", "test", "-q", "-p", package, "--no-default-features", "--features", FEATURES[package]]
        command += ["--no-run", "--message-format=json", *(["--lib"] if name == "lib" else ["--test", name])]
        built = subprocess.run(command, cwd=self.tree.tree, env=self.unit, capture_output=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
        binaries = [message["executable"] for message in messages if message.get("executable")]
        return binaries[0] if built.returncode == 0 else None

    def verdict(self, path):
        """'unviable', 'caught', 'endless' or 'missed', and what found it."""
        package = package_of(path)
        for name, arguments in SUITES[package] + [(name, []) for name in MORE_SUITES.get(path, [])]:
            binary = self.suite(package, name)
            if binary is None:
                return "unviable", ""
            try:
                run = subprocess.run([binary, "-q", *arguments], cwd=self.tree.tree, env=self.unit,
                                     capture_output=True, timeout=SUITE_CAP)
            except subprocess.TimeoutExpired:
                return "endless", name
            if run.returncode:
                return "caught", name
        outcome, model = self.tree.judge(FILES[path], MODEL_CAP, LOOM_MAX_DURATION="10")
        return {"failed": "caught", "passed": "missed", "not compiled": "unviable"}.get(outcome, outcome), model


def main():
    if sys.argv[1:] == ["--files"]:
        sys.exit("\n".join(absent(FILES)) or None)
    judge, began = Judge(), time.time()
    with open(KNOWN, encoding="utf-8") as file:
        known = {line.split("  #")[0].strip() for line in file if line.strip() and not line.startswith("#")}
    verdicts, surprises = {}, []
    for path in sys.argv[1:] or FILES:
        counts, text = verdicts.setdefault(path, Counter()), judge.tree.read(path)
        for mutant in listed(path):
            name, line, start = mutant["name"], mutant["span"]["start"]["line"], time.time()
            judge.tree.write(path, patched(text, mutant))
            verdict, by = judge.verdict(path)
            counts[verdict] += 1
            if verdict == "missed" and name not in known:
                surprises.append(f"{name}  (line {line})")
            print(f"{verdict:<9} {by:<14} {time.time() - start:>5.1f} s  {name}  :{line}", flush=True)
        judge.tree.restore(path)
    print()
    for path, counts in verdicts.items():
        print(f"{path:<40}", ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("caught", "endless", "missed", "unviable")))
    total = sum(verdicts.values(), Counter())
    caught = total["caught"] + total["endless"]
    viable = caught + total["missed"]
    print(f"{caught} of {viable} caught, {100 * caught / max(viable, 1):.1f} %, in {time.time() - began:.0f} s")
    if surprises:
        sys.exit("missed, and not in loom_tests/mutants.txt:\n" + "\n".join(surprises))


if __name__ == "__main__":
    main()
