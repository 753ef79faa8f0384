#!/usr/bin/env python3
"""The packages of the workspace that are published, one a line, the core first: scripts that need the list ask here.

With `--features` each line has the package's features too, after a `-` that stands for none of them.
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


def main():
    for package in published():
        features = ["-", *sorted(set(package["features"]) - {"default"})] if sys.argv[1:] == ["--features"] else []
        print(package["name"], *features)


if __name__ == "__main__":
    main()
