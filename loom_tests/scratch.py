"""A scratch copy of the sources that bugs can be put into: `target/seeded`, built beside the models."""

import json
import os
import shutil
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def by_file(groups):
    """The names for each file. `groups` maps names to files, which lack `.rs`, and in the core `src/`."""
    found = {file: names.split() for names, files in groups.items() for file in files.split()}
    return {f"{file}.rs" if file.startswith("crates/") else f"src/{file}.rs": names for file, names in found.items()}


def absent(files):
    """What a table of files and their models names and is not there."""
    paths = {*files, *(f"loom_tests/tests/{model}.rs" for models in files.values() for model in models)}
    return [f"{path}: no such file" for path in sorted(paths) if not os.path.exists(os.path.join(ROOT, path))]


class Tree:
    def __init__(self, name, level=1):
        # At level 0 our own code is built in a fraction of the time and runs a few times slower;
        # loom itself does not, which is built once for these trees and the models as they are.
        ours = [f"profile.loom.package.{package}.{setting}" for package in ("radixkv", "radixkv-scheduler", "loom_tests")
                for setting in (f"opt-level={level}", "debug=0")]
        self.level = [part for setting in ours for part in ("--config", setting)]
        self.home = os.path.join(ROOT, "target", name)
        self.tree = os.path.join(self.home, "tree")
        target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target", "loom")
        self.env = dict(os.environ, CARGO_INCREMENTAL="1", RUST_BACKTRACE="0", CARGO_TARGET_DIR=target)
        self.binaries = {}
        for variable in ("RUSTFLAGS", "LOOM_CHECKPOINT_FILE"):
            self.env.pop(variable, None)
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.tree)
        for part in ("src", "crates", "bindings/c", "loom_tests", "tests", "benches", "examples", "docs", ".cargo"):
            shutil.copytree(os.path.join(ROOT, part), os.path.join(self.tree, part), symlinks=True)
        for part in ("Cargo.toml", "Cargo.lock", "README.md"):
            shutil.copy2(os.path.join(ROOT, part), self.tree)
        # What was built last may hold the last bug of an earlier run, and be younger than the
        # sources.
        for package in ("", "crates/radixkv-scheduler"):
            os.utime(os.path.join(self.tree, package, "src", "lib.rs"))

    def read(self, path):
        with open(os.path.join(self.tree, path), encoding="utf-8") as file:
            return file.read()

    def write(self, path, text):
        with open(os.path.join(self.tree, path), "w", encoding="utf-8") as file:
            file.write(text)

    def restore(self, path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            self.write(path, file.read())

    def build(self, tests):
        """Builds the named test files; what the compiler said if it refused."""
        command = ["cargo", *self.level, "--config", "loom_tests/.cargo/config.toml", "test", "-q", "-p", "loom_tests",
                   "--profile", "loom", "--no-run", "--message-format=json"]
        for test in tests:
            command += ["--test", test]
        built = subprocess.run(command, cwd=self.tree, env=self.env, capture_output=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
        if built.returncode:
            said = [message["message"]["rendered"] for message in messages if message["reason"] == "compiler-message"]
            return "".join(said) + built.stderr
        self.binaries |= {message["target"]["name"]: message["executable"] for message in messages
                          if message.get("executable")}
        return None

    def judge(self, models, seconds, **env):
        """Runs models: 'not compiled', 'failed', 'endless' or 'passed', and the model that ended it."""
        if models and self.build(models):
            return "not compiled", ""
        for model in models:
            outcome, _ = self.run(model, None, seconds, **env)
            if outcome != "passed":
                return outcome, model
        return "passed", ""

    def run(self, test, name, seconds, **env):
        """Runs one model (or a file of them): 'passed', 'failed' or 'endless', and the seconds."""
        began = time.time()
        arguments = [self.binaries[test], "--test-threads=1"] + (["--exact", name] if name else [])
        try:
            run = subprocess.run(arguments, env=dict(self.env, **env), capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "endless", time.time() - began
        if name and "1 passed" not in run.stdout and run.returncode == 0:
            raise SystemExit(f"there is no model {test}::{name}")
        return "failed" if run.returncode else "passed", time.time() - began
