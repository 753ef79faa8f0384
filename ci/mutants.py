#!/usr/bin/env python3
"""Mutation testing of the protocol files: cargo-mutants says what to change, the tests and the models judge.

    ci/mutants.py [FILE...]      e.g. src/tree/map.rs; all protocol files if none is named
    ci/mutants.py --files        fails if a file or a model that it names is not there

EVERY=n takes every n-th mutant of each file, beginning with number FROM (0): a sample, or one of n shares.

Each mutant is put into a scratch copy (`target/mutants`). Unit tests, scenarios and the comparison with the reference
run first; what they let pass meets the models of its file, ten seconds each. A mutant that does not end is caught.

What nothing catches must stand in ci/mutants.txt, with the reason; the run fails otherwise.
"""

import json
import os
import re
import subprocess
import sys
import time

from scratch import ROOT, Tree, absent

# The models that go through each file; cheap ones first.
EVICTOR = ["queue", "creation_trim", "death", "insert", "together", "namespaces"]
FILES = {
    "src/tree/queue.rs": ["queue", "together"],
    "src/tree/walk.rs": ["recycling", "death", "insert"],
    "src/tree/insert.rs": ["insert", "death", "namespaces"],
    "src/tree/map.rs": ["map", "death", "insert"],
    "src/tree/run.rs": ["creation_trim", "recycling", "together", "death"],
    "src/tree/space.rs": ["namespaces"],
    "src/tree/arrays.rs": ["creation_trim"],
    "src/tree/points.rs": ["creation_trim", "death", "insert"],
    "src/tree/known.rs": EVICTOR,
    "src/block/pool.rs": ["pool", "recycling"],
    "src/block/hints.rs": ["pool", "recycling"],
    "src/cache/inner.rs": ["waiting", "exchange", "namespaces"],
    "src/cache/insert.rs": ["insert", "namespaces"],
    "src/cache/participant.rs": ["idle"],
    "src/cache/evictor/sweep.rs": ["namespaces"],
    "src/cache/evictor/trim.rs": EVICTOR,
    "src/cache/evictor/mod.rs": EVICTOR,
    "src/cache/evictor/ranking.rs": EVICTOR,
    "src/cache/evictor/accounts.rs": EVICTOR,
    "src/tree/word.rs": ["point_word", "queue", "creation_trim", "death", "insert", "namespaces"],
    "src/tree/word/snapshot.rs": ["point_word", "queue", "creation_trim", "death", "insert", "namespaces"],
    "src/tree/lease.rs": ["creation_trim", "death", "insert", "namespaces"],
    "src/tree/point.rs": ["creation_trim", "together"],
    "src/tree/hot.rs": ["hot_points"],
    "src/tree/word/slot.rs": ["hot_points", "waiting"],
    "src/tree/marks.rs": ["retention"],
    "src/tree/holdings.rs": ["exchange"],
    "src/cache/leases/strong_ref.rs": ["strong_ref"],
    "src/cache/line/wait_list.rs": ["waiting"],
    "src/cache/line/in_line.rs": ["waiting"],
    "src/cache/line/waiter.rs": ["waiting"],
    "src/cache/line/waiting.rs": ["waiting"],
    "src/cache/blocks/allocate.rs": ["waiting"],
    "src/cache/blocks/fork.rs": ["forks"],
    "src/cache/blocks/shared_blocks.rs": ["forks"],
    "src/cache/namespaces/namespace.rs": ["namespaces"],
    "src/cache/namespaces/namespace/clearing.rs": ["namespaces"],
    "src/cache/namespaces/quota.rs": ["exchange"],
    "src/cache/namespaces/quota/verbs.rs": ["exchange"],
    "src/cache/leases/retention.rs": ["retention"],
    "src/cache/evictor/retained.rs": ["retention"],
    "src/cache/evictor/due.rs": ["retention"],
    "src/cache/evictor/exchange.rs": ["exchange"],
    "src/cache/evictor/listeners/quota.rs": ["exchange"],
    "src/cache/evictor/aging.rs": [],
    "src/cache/evictor/upkeep.rs": ["exchange"],
    "src/policy/chain.rs": [],
    "src/policy/order.rs": [],
    "src/policy/ranked.rs": [],
    "src/policy/table.rs": [],
    "src/reclaim/idle.rs": ["idle"],
    "src/reclaim/memory.rs": ["memory"],
    "src/reclaim/memory/class.rs": ["memory"],
    "src/reclaim/memory/depot.rs": ["memory"],
    "src/reclaim/memory/segment.rs": ["memory"],
    "src/reclaim/memory/slab.rs": ["memory"],
    "src/sync/arc.rs": ["forks", "strong_ref", "namespaces"],
    "src/sync/bell.rs": ["bell"],
    "src/sync/lock.rs": [],
    "src/sync/signal.rs": ["waiting"],
    "src/sync/dekker.rs": ["hot_points"],
    "crates/radixkv-scheduler/src/claims.rs": ["claims"],
    "crates/radixkv-scheduler/src/sync/changes.rs": [],
}
FEATURES = {"radixkv": "async", "radixkv-scheduler": ""}
# Test targets of each package, and what they run; the reference compared with itself tells nothing.
SUITES = {
    "radixkv": [("scenarios", []), ("lib", ["--skip", "stalled_reader"]), ("model", ["agrees"])],
    "radixkv-scheduler": [("lib", []), ("scheduler", [])],
}
# What else goes through a file.
WAIT_LIST = ["wake_ups", "waiting", "reserve_async"]
MORE_SUITES = {
    "src/cache/line/wait_list.rs": WAIT_LIST,
    "src/cache/line/in_line.rs": WAIT_LIST,
    "src/cache/line/waiter.rs": WAIT_LIST,
    "src/cache/line/waiting.rs": WAIT_LIST,
    "src/cache/blocks/allocate.rs": WAIT_LIST,
    "src/sync/signal.rs": WAIT_LIST,
    "src/tree/marks.rs": ["retention_golden"],
    "src/cache/leases/retention.rs": ["retention_golden"],
    "src/cache/evictor/retained.rs": ["retention_golden", "wake_ups"],
}
# Seconds after which a suite or a file of models is endless. The longest takes a tenth of that.
SUITE_CAP, MODEL_CAP = 20, 300
KNOWN = os.path.join(ROOT, "ci", "mutants.txt")


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
        command = ["cargo", "test", "-q", "-p", package, "--no-default-features", "--features", FEATURES[package], "--no-run"]
        command += ["--message-format=json"]
        command += ["--lib"] if name == "lib" else ["--test", name]
        built = subprocess.run(command, cwd=self.tree.tree, env=self.unit, capture_output=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
        binaries = [message["executable"] for message in messages if message.get("executable")]
        return binaries[0] if built.returncode == 0 else None

    def verdict(self, path):
        """'unviable', 'caught', 'endless' or 'missed', and what found it."""
        models, package = FILES[path], package_of(path)
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
        if models and self.tree.build(models):
            return "unviable", ""
        for model in models:
            outcome, _, _ = self.tree.run(model, None, MODEL_CAP, LOOM_MAX_DURATION="10")
            if outcome != "passed":
                return {"failed": "caught"}.get(outcome, outcome), model
        return "missed", ""


def main():
    if sys.argv[1:] == ["--files"]:
        sys.exit("\n".join(absent(FILES)) or None)
    judge, began = Judge(), time.time()
    with open(KNOWN, encoding="utf-8") as file:
        known = {line.split("  #")[0].strip() for line in file if line.strip() and not line.startswith("#")}
    table, surprises = [], []
    for path in sys.argv[1:] or FILES:
        counts, start = dict.fromkeys(("caught", "endless", "unviable", "missed"), 0), time.time()
        text = judge.tree.read(path)
        for mutant in listed(path):
            name, line = mutant["name"], mutant["span"]["start"]["line"]
            judge.tree.write(path, patched(text, mutant))
            one = time.time()
            verdict, by = judge.verdict(path)
            counts[verdict] += 1
            if verdict == "missed" and name not in known:
                surprises.append(f"{name}  (line {line})")
            print(f"{verdict:<9} {by:<14} {time.time() - one:>5.1f} s  {name}  :{line}", flush=True)
        judge.tree.restore(path)
        table.append((path, counts, time.time() - start))
    print(f"\n{'file':<32} {'caught':>7} {'endless':>8} {'missed':>7} {'unviable':>9} {'s':>6}")
    for path, counts, seconds in table:
        print(f"{path:<32} {counts['caught']:>7} {counts['endless']:>8} {counts['missed']:>7} {counts['unviable']:>9} {seconds:>6.0f}")
    caught = sum(counts["caught"] + counts["endless"] for _, counts, _ in table)
    viable = caught + sum(counts["missed"] for _, counts, _ in table)
    print(f"{caught} of {viable} caught, {100 * caught / max(viable, 1):.1f} %, in {time.time() - began:.0f} s")
    if surprises:
        sys.exit("missed, and not in ci/mutants.txt:\n" + "\n".join(surprises))


if __name__ == "__main__":
    main()
