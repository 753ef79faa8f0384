#!/usr/bin/env python3
"""Source files that no module names: the compiler does not read them, and nothing says so."""

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def is_compiled(file):
    """Whether a file is a crate's root, or the modules above it lead to one."""
    folder = file.parent
    is_target = folder.name == "tests" and (folder.parent / "Cargo.toml").is_file()
    if is_target or file.name in ("main.rs", "lib.rs"):
        return True
    above, name = (folder.parent, folder.name) if file.name == "mod.rs" else (folder, file.stem)
    parents = [above / "mod.rs", above / "main.rs", above / "lib.rs", above.with_suffix(".rs")]
    declared = re.compile(rf"^\s*(?:pub(?:\([^)]*\))? )?mod {name};", re.MULTILINE)
    return any(declared.search(parent.read_text()) and is_compiled(parent) for parent in parents if parent.is_file())


def is_named_by_path(file, package):
    return any(f'{file.name}"]' in other.read_text() for other in package.rglob("*.rs") if "target" not in other.parts)


def main():
    found = []
    for src in [ROOT / "src", *sorted(ROOT.glob("crates/*/src")), *sorted(ROOT.glob("bindings/*/src")), ROOT / "examples/engine/src"]:
        for file in sorted(src.rglob("*.rs")):
            if not is_compiled(file) and not is_named_by_path(file, src.parent):
                found.append(file.relative_to(ROOT).as_posix())
    if found:
        sys.exit("broken: every source file is a module\n" + "\n".join(found))
    print("holds:  every source file is a module")


if __name__ == "__main__":
    main()
