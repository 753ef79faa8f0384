#!/usr/bin/env python3
"""The packages of the workspace that are published, one a line, the core first: scripts that need the list ask here.

With `--features` each line has the package's features too, after a `-` that stands for none of them; but for those that bring
so many crates that they are built in the nightly script alone (`metadata.ci.nightly` of the package).
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def published():
    """What cargo says of each package that is published, the core first."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["packages"]
    return sorted((package for package in found if package["publish"] is None), key=lambda package: package["name"])


def features_of(package):
    """The features that every change is checked with."""
    nightly = ((package["metadata"] or {}).get("ci") or {}).get("nightly", [])
    return sorted(set(package["features"]) - {"default", *nightly})


def main():
    for package in published():
        features = ["-", *features_of(package)] if sys.argv[1:] == ["--features"] else []
        print(package["name"], *features)


if __name__ == "__main__":
    main()
