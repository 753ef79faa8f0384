#!/usr/bin/env python3
"""Source files that no module names: the compiler does not read them, and nothing says so."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parents(file):
    """The files in which the module of a file may be named."""
    folder = file.parent.parent if file.name == "mod.rs" else file.parent
    return [*(folder / name for name in ("lib.rs", "main.rs", "mod.rs")), folder.with_suffix(".rs")]


def is_named(file, src):
    name = file.parent.name if file.name == "mod.rs" else file.stem
    texts = [parent.read_text() for parent in parents(file) if parent.exists()]
    if any(re.search(rf"\bmod {name};", text) for text in texts):
        return True
    # By a path, from anywhere in the package.
    return any(f'{file.name}"]' in other.read_text() for other in src.parent.rglob("*.rs") if "target" not in other.parts)


def main():
    found = []
    for src in [ROOT / "src", *sorted(ROOT.glob("crates/*/src")), *sorted(ROOT.glob("bindings/*/src")), ROOT / "examples/engine/src"]:
        files = [file for file in src.rglob("*.rs") if file.name not in ("lib.rs", "main.rs")]
        found += [file.relative_to(ROOT).as_posix() for file in sorted(files) if not is_named(file, src)]
    if found:
        sys.exit("broken: every source file is a module\n" + "\n".join(found))
    print("holds:  every source file is a module")


if __name__ == "__main__":
    main()
