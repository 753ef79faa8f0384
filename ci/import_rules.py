#!/usr/bin/env python3
"""Through which modules of the core, and of the scheduler, each thing from outside comes in; nothing comes in that has no row here.

So the models and the sanitizers see every atomic, lock and thread. Test modules do not count. ci/test_layers.py plants what must
be found.
"""

import re
import sys
from functools import cache

from packages import published
from rust_modules import ROOTS, Crate, sources

EVERYWHERE = ("",)
ENTRIES = {
    "std": EVERYWHERE,
    "std::sync": ("sync",),
    "std::thread": ("sync",),
    "std::hint::spin_loop": ("sync",),
    # The model reclaimer keeps its state where the checker does not look: all threads of a model are one thread of the system.
    "std::thread_local": ("sync", "reclaim::model"),
    "loom": ("sync",),
    "shuttle": ("sync",),
    "fail": ("sync",),
    "arc_swap": ("sync::swap",),
    "crossbeam_epoch": ("reclaim",),
    "memmap2": ("reclaim::memory", "sync::mapped"),
    # It pads cache lines, no more.
    "crossbeam_utils::CachePadded": EVERYWHERE,
    "smallvec": EVERYWHERE,
    "tracing": ("cache::spans",),
    # What the scheduler is built on.
    "radixkv": EVERYWHERE,
}
# The packages that models explore as a whole, and their folders.
PACKAGES = {"radixkv": ".", "radixkv-scheduler": "crates/radixkv-scheduler"}
# Its modules show on what comes from outside.
HALL = "sync"
PRIMITIVES = set("bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize".split())


def under(path, row):
    return f"{path}::".startswith(f"{row}::")


def may_enter(path, here):
    """Whether a module may name the path: neither its nearest row nor one that it leads on to forbids it."""
    nearest = max((row for row in ENTRIES if under(path, row)), key=len, default=None)
    beyond = [row for row in ENTRIES if under(row, path)]
    module = "::".join(here)
    return nearest is not None and all(any(not entry or under(module, entry) for entry in ENTRIES[row]) for row in [nearest, *beyond])


@cache
def defined(body):
    """The types and macros that a module's code defines."""
    return set(re.findall(r"\b(?:(?:struct|enum|trait|type|union) |macro_rules!)(\w+)", body))


@cache
def roots(body):
    """The roots that stand alone in a module's code: they go to a macro, which may go on from there."""
    return [[root] for root in re.findall(r"\b(?:std|core|alloc)\b(?!::|\()", body)]


def from_outside(crate, here):
    """The paths that a module names and that lead out of the crate, and whether it shows them on."""
    source = crate.modules[here]
    outside = {row.split("::")[0] for row in ENTRIES} | {"alloc", "core"}
    known = {use.name for use in source.uses if use.name != use.parts[0]} | defined(source.body) | {*ROOTS, "Self"}
    known |= {module[-1] for module in crate.modules if module and module[:-1] == here}
    for use in source.uses:
        if use.parts[0] in outside or use.parts[0] not in known:
            yield use.parts, use.shown
    for parts in source.paths:
        if parts[0] in outside or (parts[0][0].islower() and parts[0] not in known | PRIMITIVES):
            yield parts, False
    for root in roots(source.body):
        yield root, False
    if "thread_local" in source.words:
        yield ["std", "thread_local"], False


def sequential(source):
    """Whether a module asks for sequential consistency of more than a fence."""
    renamed = any(use.parts[-1] == "SeqCst" != use.name for use in source.uses)
    return renamed or ("SeqCst" in source.words and "SeqCst" in re.sub(r"\bfence\((?:\w+::)*SeqCst\)", "", source.body))


def broken(crate):
    if crate.unread:
        return crate.unread
    found = []
    for here, source in crate.modules.items():
        file = f"src/{crate.files[here]}"
        for parts, shown in from_outside(crate, here):
            path = "::".join(parts)
            if not may_enter(re.sub(r"^(alloc|core)\b", "std", path), here):
                found.append(f"{file}: `{path}` does not come in here")
            elif shown and here[:1] != (HALL,):
                found.append(f"{file}: `{path}` is shown to other modules, which {HALL} alone may do")
        if here[:1] != (HALL,) and sequential(source):
            found.append(f"{file}: `SeqCst` is for fences")
    return found


def unlisted(dependencies):
    """The crates that a package depends on and that have no row, by the names that the sources would use."""
    names = {(needed["rename"] or needed["name"]).replace("-", "_") for needed in dependencies if needed["kind"] is None}
    return [f"Cargo.toml: {name} has no row in ci/import_rules.py" for name in sorted(names - {row.split("::")[0] for row in ENTRIES})]


def main():
    found = []
    for package in published():
        if folder := PACKAGES.get(package["name"]):
            faults = broken(Crate(sources(folder))) + unlisted(package["dependencies"])
            found += [f"{package['name']}: {fault}" for fault in faults]
    if found:
        sys.exit("broken: atomics, locks, threads and crates come in where ci/import_rules.py says\n" + "\n".join(found))
    print("holds:  atomics, locks, threads and crates come in where ci/import_rules.py says, and sequential consistency is for fences")


if __name__ == "__main__":
    main()
