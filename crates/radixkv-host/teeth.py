#!/usr/bin/env python3
"""Seeded bugs of the host tier, and the model or test that must find each. `teeth.py [WORDS]`: only bugs whose name has them.

As `ci/teeth.py` does for the core: exact text is replaced in a scratch copy (`target/teeth-host`), and only what is named for the
bug runs. `--texts` checks that each text stands in the sources, once.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../ci"))
from scratch import ROOT, Tree

HERE = "crates/radixkv-host/src"
OFFLOAD, SLOTS, OFFLOADING = f"{HERE}/offload.rs", f"{HERE}/slots.rs", f"{HERE}/tiered/offloading.rs"
CAP = 600

# (bug, what finds it, [(file, text, replacement)...]); `models` are loom's, the others are tests.
BUGS = [
    ("device blocks that are free before they are copied", "models the_place_of_a_block_on_its_way_is_wanted",
     [(OFFLOADING, "        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n        self.take_in(&offload, &pieces);\n        count\n",
       "        let copied = |it: &Evicted| (it.namespace.clone(), it.tokens.clone(), it.start, it.blocks.blocks().to_vec());\n"
       "        let copied: Vec<_> = evicted.iter().map(copied).collect();\n        drop(evicted);\n"
       "        let pieces: Vec<Piece<'_>> = copied\n            .iter()\n"
       "            .map(|it| Piece { namespace: &it.0, tokens: &it.1, start: it.2, blocks: &it.3 })\n            .collect();\n"
       "        self.take_in(&offload, &pieces);\n        count\n")]),
    ("an offload that begins after its eviction", "models the_namespace_of_a_block_on_its_way_is_cleared",
     [(OFFLOADING, "        // First: what is evicted from now on is of no clear that comes before this.\n        let offload = self.host.offload();\n", ""),
      (OFFLOADING, "        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n        self.take_in(&offload, &pieces);\n        count\n",
       "        let offload = self.host.offload();\n        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n"
       "        self.take_in(&offload, &pieces);\n        count\n")]),
    ("an arrival that comes in after a clear", "models the_namespace_of_a_block_on_its_way_is_cleared",
     [(OFFLOAD, "        if !state.eras.allows(self.namespace, self.began) {\n            let refused", "        if false {\n            let refused")]),
    ("a copy that failed and is found", "models a_block_that_was_not_copied_is_looked_for",
     [(OFFLOADING, "if !self.is_moved(|mover| mover.offload(&mut copies)) {", "if !self.is_moved(|mover| mover.offload(&mut copies)) && copies.is_empty() {")]),
    ("an arrival that keeps what it reserved", "models a_block_that_was_not_copied_is_looked_for",
     [(OFFLOAD, "        if self.reserved.iter().any(Option::is_some) {", "        if self.reserved.len() > 99 {")]),
    ("a block that is removed while it is read", "models a_block_on_its_way_up_is_cleared_in_the_host",
     [(SLOTS, "        if self.slot(block).pins > 0 {\n            self.slot(block).state = State::Detached;", "        if self.slot(block).pins > 9 {\n            self.slot(block).state = State::Detached;")]),
]


def strays():
    """The replacements whose text is not in its file exactly once, after those of the same bug before it."""
    found = []
    for bug, _, edits in BUGS:
        sources = {path: open(os.path.join(ROOT, path), encoding="utf-8").read() for path, _, _ in edits}
        for path, old, new in edits:
            if (count := sources[path].count(old)) != 1:
                found.append(f"{bug}: {count} times in {path}: {old!r}")
            sources[path] = sources[path].replace(old, new)
    return found


def command(level, target, test):
    """How the named model or test is run."""
    ours = [part for package in ("host", "region", "tiers") for part in ("--config", f"profile.loom.package.radixkv-{package}.opt-level=0")]
    models = [*level, *ours, "--config", "loom_tests/.cargo/config.toml"], ["--profile", "loom"]
    before, after = models if target == "models" else ([], [])
    return ["cargo", *before, "test", "-q", "-p", "radixkv-host", *after, "--test", target, "--", "--exact", test]


def main():
    if sys.argv[1:] == ["--texts"]:
        sys.exit("\n".join(strays()) or None)
    words = " ".join(sys.argv[1:])
    chosen = [bug for bug in BUGS if words in bug[0] or words in bug[1]]
    tree, missed, began = Tree("teeth-host", level=0), [], time.time()
    # What is built already is not built again.
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
    for bug, finder, edits in chosen:
        start = time.time()
        for path, old, new in edits:
            tree.write(path, tree.read(path).replace(old, new))
        env = dict(tree.env, CARGO_TARGET_DIR=os.path.join(target, "loom") if finder.startswith("models") else target)
        # `timeout` ends the processes that a test has started, too.
        finding = ["timeout", "--signal=KILL", str(CAP), *command(tree.level, *finder.split())]
        run = subprocess.run(finding, cwd=tree.tree, env=env, capture_output=True, text=True)
        output = run.stdout + run.stderr
        # A bug may end the process.
        outcome = "found" if run.returncode else "not found"
        if "running 1 test" not in output:
            outcome = "not run"
            print(output)
        for path, _, _ in edits:
            tree.restore(path)
        if outcome != "found":
            missed.append(bug)
        print(f"{bug:<52} {finder:<64} {outcome:<10} {time.time() - start:>5.1f}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found in {time.time() - began:.0f} s")
    if missed:
        sys.exit("not found: " + "; ".join(missed))


if __name__ == "__main__":
    main()
