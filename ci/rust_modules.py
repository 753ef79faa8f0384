"""The modules of a package, read from src/lib.rs on along `mod`, and which of them each one uses; test modules are left out."""

import re
from pathlib import Path

import rust_source

ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("crate", "self", "super")


def sources(package="."):
    """The text of each file in the src of a package, of the core if none is named, by its path from there."""
    src = ROOT / package / "src"
    return {file.relative_to(src).as_posix(): file.read_text() for file in src.rglob("*.rs")}


def absolute(parts, here):
    """A path from the crate's root, of one that begins with `crate`, `self` or `super`."""
    path = here
    for part in parts:
        path = () if part == "crate" else path[:-1] if part == "super" else path if part == "self" else (*path, part)
    return path


class Crate:
    """The modules by their paths, the file of each, what they import from the crate, and which modules they use.

    The path of `tree/word/slot.rs` is (tree, word, slot), that of `tree/mod.rs` (tree,); lib.rs is ().
    """

    def __init__(self, files):
        self.files, self.modules, self.unread = {}, {}, []
        self.read((), "lib.rs", files)
        self.imports = {here: self.imported(here) for here in self.modules}
        self.uses = {here: self.used(here) for here in self.modules}

    def read(self, here, file, files):
        """Takes in the modules of a file, and those of the files that it names."""
        for inside, source in rust_source.modules(rust_source.without_tests(rust_source.code(files[file]))).items():
            path = here + inside
            self.files[path], self.modules[path] = file, source
            self.unread += [f"src/{file}: {text}" for text in source.hidden]
            for name in re.findall(r"\bmod (\w+);", source.body):
                stem = "/".join((*path, name))
                child = next((child for child in (f"{stem}.rs", f"{stem}/mod.rs") if child in files), None)
                if child:
                    self.read((*path, name), child, files)
                else:
                    self.unread.append(f"src/{file}: the file of `mod {name}` is not where its name says")

    def imported(self, here):
        """The paths inside the crate by the names that they get here: more than one where `cfg` chooses."""
        names = {}
        for use in self.modules[here].uses:
            if use.parts[0] in ROOTS:
                names.setdefault(use.name, set()).add(absolute(use.parts, here))
            elif (*here, use.parts[0]) in self.modules:
                names.setdefault(use.name, set()).add((*here, *use.parts))
        return names

    def inside(self, parts, here):
        """The paths from the crate's root that a path may mean here; none if it leads out of the crate."""
        if parts[0] in ROOTS:
            return {absolute(parts, here)}
        if (*here, parts[0]) in self.modules:
            return {(*here, *parts)}
        return {(*path, *parts[1:]) for path in self.imports[here].get(parts[0], ())}

    def homes(self, path, seen=()):
        """The modules where what a path names is defined, through any number of re-exports."""
        place = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in self.modules)
        rest = path[len(place) :]
        targets = self.imports[place].get(rest[0], ()) if rest else ()
        further = {(*target, *rest[1:]) for target in targets} - {path, *seen}
        if not further:
            return {place}
        return set().union(*(self.homes(target, (*seen, path)) for target in further))

    def used(self, here):
        """The other modules that a module uses."""
        source = self.modules[here]
        paths = set().union(*(self.inside(parts, here) for parts in source.paths))
        for use in source.uses:
            targets = self.inside(use.parts, here)
            # What a module shows of its own children is no use of them: a path through it leads to where a thing is defined.
            child = use.shown and all(path[: len(here)] == here for path in targets)
            if not child or use.name in source.words:
                paths |= targets
        return set().union(*(self.homes(path) for path in paths)) - {here}

    def by_file(self):
        """The files that each file uses, by their paths in src."""
        uses = {file: set() for file in self.files.values()}
        for here, used in self.uses.items():
            uses[self.files[here]] |= {self.files[path] for path in used} - {self.files[here]}
        return uses
