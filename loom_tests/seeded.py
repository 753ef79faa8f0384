"""Seeded bugs of a package, and the models and tests that must find them: what the `seeded_bugs.py` of packages share.

A bug is a name, what finds it, and edits: (file, text, replacement). The text is in its file exactly once, after the edits of
the same bug before it.
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


def chosen(bugs):
    """The bugs that the command line selects. `--texts` only checks all texts, and exits."""
    if sys.argv[1:] == ["--texts"]:
        sys.exit("\n".join(strays(bugs)) or None)
    words = " ".join(sys.argv[1:])
    found = [bug for bug in bugs if words in bug[0] or words in bug[1]]
    return found or sys.exit(f"no seeded bug has these words in its name, model or test: {words}")


def run(tree, bugs, find):
    """Puts bugs into a scratch copy, one at a time, and calls `find`; exits if it does not return 'found'."""
    missed, began = [], time.time()
    widths = [max(len(bug[column]) for bug in bugs) for column in (0, 1)]
    for bug, finder, edits in bugs:
        start = time.time()
        for path, old, new in edits:
            tree.write(path, tree.read(path).replace(old, new))
        outcome = "not its text" if strays([(bug, finder, edits)]) else find(finder)
        for path, _, _ in edits:
            tree.restore(path)
        if outcome != "found":
            missed.append(bug)
        print(f"{bug:<{widths[0]}} {finder:<{widths[1]}} {outcome:<12} {time.time() - start:>5.1f}", flush=True)
    print(f"{len(bugs) - len(missed)} of {len(bugs)} found in {time.time() - began:.0f} s")
    if missed:
        sys.exit("not found: " + "; ".join(missed))


def main(package, bugs, cap, level=None):
    """Runs the model or test that must find each bug of a package, `cap` seconds at most.

    It is "models NAME", "lib NAME" or "TEST NAME"; "TEST+FEATURE NAME" with a feature. `level` is the
    optimization of our own code in the models; the profile's if it is left out.
    """
    bugs = chosen(bugs)
    tree = Tree(f"seeded-{package.removeprefix('radixkv-')}", level=level or 0)
    ours = [f"profile.loom.package.radixkv-{part}.opt-level={level}" for part in ("host", "region", "tiers")]
    profile = [] if level is None else [*tree.level, *(word for setting in ours for word in ("--config", setting))]
    # A folder of its own: cargo takes what was built of the copy for what is built of the sources.
    target = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), f"seeded-{package}")

    def find(finder):
        target_of_test, test = finder.split()
        file, _, feature = target_of_test.partition("+")
        is_model = file == "models"
        # `timeout` also ends the processes that a test has started.
        command = ["timeout", "--signal=KILL", str(cap), "cargo"]
        command += [*profile, "--config", "loom_tests/.cargo/config.toml"] if is_model else []
        command += ["test", "-q", "-p", package, *(["--profile", "loom"] if is_model else [])]
        command += ["--features", feature] if feature else []
        command += ["--lib"] if file == "lib" else ["--test", file]
        env = dict(tree.env, CARGO_TARGET_DIR=os.path.join(target, "loom") if is_model else target)
        began = time.time()
        run = subprocess.run([*command, "--", "--exact", test], cwd=tree.tree, env=env, capture_output=True, text=True)
        if "running 1 test" not in run.stdout + run.stderr:
            print(run.stdout + run.stderr)
            return "not run"
        # A bug may end the process; one that only makes it endless is not found.
        return "not found" if run.returncode == 0 else "endless" if time.time() - began >= cap else "found"

    run(tree, bugs, find)
