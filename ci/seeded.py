"""Seeded bugs of a package, and the models and tests that must find them: what the `seeded_bugs.py` of packages share.

A bug is a name, what finds it ("models NAME", "lib NAME" or "TEST NAME"; "TEST+FEATURE NAME" with a feature), and edits: (file, text, replacement). The text stands in its
file exactly once, after the edits of the same bug before it.
"""

import os
import subprocess
import sys
import time

from scratch import ROOT, Tree


def strays(bugs):
    """The replacements whose text is not in its file exactly once."""
    found = []
    for bug, _, edits in bugs:
        sources = {path: open(os.path.join(ROOT, path), encoding="utf-8").read() for path, _, _ in edits}
        for path, old, new in edits:
            if (count := sources[path].count(old)) != 1:
                found.append(f"{bug}: {count} times in {path}: {old!r}")
            sources[path] = sources[path].replace(old, new)
    return found


def command(package, profile, target, test):
    """What runs the model or test that finds a bug."""
    models = [*profile, "--config", "loom_tests/.cargo/config.toml"], ["--profile", "loom"]
    before, after = models if target == "models" else ([], [])
    target, _, feature = target.partition("+")
    where = ["--lib"] if target == "lib" else ["--test", target]
    after += ["--features", feature] if feature else []
    return ["cargo", *before, "test", "-q", "-p", package, *after, *where, "--", "--exact", test]


def outcome(run, seconds, cap):
    output = run.stdout + run.stderr
    if "running 1 test" not in output:
        print(output)
        return "not run"
    if run.returncode == 0:
        return "not found"
    # A bug may end the process; one that only makes it endless is not found.
    return "endless" if seconds >= cap else "found"


def main(package, bugs, cap, level=None):
    """Puts the bugs that were asked for into a scratch copy, one after another, and runs what must find each, `cap` seconds at most.

    `level`: the optimization of our own code in the models; as the models have it if it is left out.
    """
    if sys.argv[1:] == ["--texts"]:
        sys.exit("\n".join(strays(bugs)) or None)
    words = " ".join(sys.argv[1:])
    chosen = [bug for bug in bugs if words in bug[0] or words in bug[1]]
    if not chosen:
        sys.exit(f"no seeded bug has these words in its name or test: {words}")
    tree, missed, began = Tree(f"seeded-{package.removeprefix('radixkv-')}", level=level or 0), [], time.time()
    ours = [f"profile.loom.package.radixkv-{part}.opt-level={level}" for part in ("host", "region", "tiers")]
    profile = [] if level is None else [*tree.level, *(word for setting in ours for word in ("--config", setting))]
    # A folder of its own: cargo takes what was built of the copy for what is built of the sources.
    target = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), f"seeded-{package}")
    widths = [max((len(bug[column]) for bug in chosen), default=0) for column in (0, 1)]
    for bug, finder, edits in chosen:
        start = time.time()
        for path, old, new in edits:
            tree.write(path, tree.read(path).replace(old, new))
        env = dict(tree.env, CARGO_TARGET_DIR=os.path.join(target, "loom") if finder.startswith("models") else target)
        # `timeout` ends the processes that a test has started, too.
        finding = ["timeout", "--signal=KILL", str(cap), *command(package, profile, *finder.split())]
        run = subprocess.run(finding, cwd=tree.tree, env=env, capture_output=True, text=True)
        ended = outcome(run, time.time() - start, cap)
        for path, _, _ in edits:
            tree.restore(path)
        if ended != "found":
            missed.append(bug)
        print(f"{bug:<{widths[0]}} {finder:<{widths[1]}} {ended:<10} {time.time() - start:>5.1f}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found in {time.time() - began:.0f} s")
    if missed:
        sys.exit("not found: " + "; ".join(missed))
