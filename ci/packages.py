#!/usr/bin/env python3
"""The packages of the workspace that are published, one a line, the core first: scripts that need the list ask here.

`--features` adds each package's features, after a `-` that stands for none of them; those that bring so many crates that only
the nightly script builds them (`metadata.ci.nightly` of the package) are left out. `--dependencies` adds what each package needs
when it is built: NAME=PACKAGE, where the sources use NAME.
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
    nightly = ((package["metadata"] or {}).get("ci") or {}).get("nightly", [])
    return ["-", *sorted(set(package["features"]) - {"default", *nightly})]


def dependencies_of(package):
    return [f"{it['rename'] or it['name']}={it['name']}" for it in package["dependencies"] if it["kind"] is None]


if __name__ == "__main__":
    columns = {"--features": features_of, "--dependencies": dependencies_of}
    more = columns[sys.argv[1]] if sys.argv[1:] else lambda package: []
    for package in published():
        print(package["name"], *more(package))
