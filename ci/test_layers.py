#!/usr/bin/env python3
"""Seeded faults for ci/layers.py, ci/import_rules.py and ci/links.py: text planted into a copy of the sources, or a page, must be refused, or must not."""

import sys
import tempfile
from pathlib import Path

import import_rules
import layers
import links
from rust_modules import Crate, sources

# Planted at the end of src/tree/walk.rs, which stands below the cache; refused by the layers.
UPWARD = [
    "use crate::cache::Lease;",
    "use crate::{block::Grid as G, cache::{self, Lease}};",
    "use self::super::super::cache::Lease;",
    "use crate::Lease;",
    "type Z = super::super::cache::Lease;",
    "pub use crate::cache::Lease;",
    "pub(crate) use crate::cache::Lease as Zork; type Z = Zork;",
    "pub(crate) use crate::cache::*; type Z = Lease;",
    "#[cfg(unix)] use crate::cache::Lease as Either; #[cfg(not(unix))] use super::run::Run as Either;",
    "mod inner { use super::super::super::cache::Lease; }",
    "macro_rules! lease { () => { $crate::cache::Lease } }",
    # One path, written in other ways.
    "type Z = crate :: cache :: Lease;",
    "type Z = crate::\n    cache::Lease;",
    "type Z = crate::r#cache::Lease;",
    "type Z = crate::/* /* */ */cache::Lease;",
    "type Z = crate:: // a comment\n cache::Lease;",
    # Other names for the roots, and all names of a module.
    "use crate as c; type Z = c::cache::Lease;",
    "use {crate as c}; type Z = c::cache::Lease;",
    "use crate::{self as c}; type Z = c::cache::Lease;",
    "use crate::{{self as c}}; type Z = c::cache::Lease;",
    "use super::super as up; type Z = up::cache::Lease;",
    "use super::{super as up}; type Z = up::cache::Lease;",
    "use super::super::{self as up}; type Z = up::cache::Lease;",
    "use crate::*;",
    "use super::super::*;",
    "use super::run::*;",
    "extern crate self as me; type Z = me::cache::Lease;",
    "macro_rules! path { ($a:ident) => { crate::$a::Lease } } type Z = path!(cache);",
    "macro_rules! path { ($a:tt) => { $a::cache::Lease } } type Z = path!(crate);",
    # Text from other files.
    'include!("../cache/clock.rs");',
    'std::include!("../cache/clock.rs");',
    '#[path = "../cache/clock.rs"] mod clock;',
    '#[cfg_attr(unix, path = "../cache/clock.rs")] mod clock;',
    "mod nowhere;",
    "macro_rules! named { ($a:ident) => { mod $a; } } named!(clock);",
    # Behind what looks like a string, a comment or the end of the code.
    "const QUOTE: char = '\"'; type Z = crate::cache::Lease; const END: char = '\"';",
    "const QUOTE: u8 = b'\"'; type Z = crate::cache::Lease; const END: &str = \"\";",
    'const RAW: &str = r"\\"; type Z = crate::cache::Lease; const END: &str = "";',
    'const RAW: &str = r#"""#; type Z = crate::cache::Lease; const END: &str = "";',
    'const LINE: &str = "// "; type Z = crate::cache::Lease;',
    'const OPEN: &str = "/*"; type Z = crate::cache::Lease;',
    "fn quoted<'a>(_: &'a str) -> char { '\\'' } type Z = crate::cache::Lease;",
    "#[cfg(test)]\nmod x { fn f() { if true {} } }\nuse crate::cache::Lease;",
    "#[cfg(test)]\nmod x { const END: char = '}'; const OPEN: &str = \"{\"; }\nuse crate::cache::Lease;",
    "#[cfg(test)]\nmod x;\nmod y { use crate::cache::Lease; }",
    "#[cfg(not(test))]\nmod x { use crate::cache::Lease; }",
    "#[cfg(any(test, unix))]\nmod x { use crate::cache::Lease; }",
]

# Planted there too; refused at the import_rules.
OUTSIDE = [
    "use std::sync::Mutex;",
    "use core::sync::atomic::AtomicU64;",
    "static S: std::sync::Mutex<u8> = std::sync::Mutex::new(0);",
    "use std::{fmt,\n    sync as s};",
    "use std::{fmt, sync::{self as s}};",
    "use std as s; type Z = s::sync::Mutex<u8>;",
    "use std::{self as s}; type Z = s::sync::Mutex<u8>;",
    "use ::std::sync::Mutex;",
    "fn f() -> ::std::sync::Mutex<u8> { return ::std::sync::Mutex::new(0) }",
    "type Z = std::r#sync::Mutex<u8>;",
    "type Z = std ::\n sync::Mutex<u8>;",
    "type Z = std::/* */sync::Mutex<u8>;",
    "macro_rules! path { ($a:ident) => { $a::sync::Mutex<u8> } } type Z = path!(std);",
    "macro_rules! path { ($a:ident $b:ident) => { $a::$b::Mutex<u8> } } type Z = path!(std sync);",
    "extern crate alloc; type Z = alloc::sync::Arc<u8>;",
    "type Z = alloc::sync::Arc<u8>;",
    "fn f() { std::thread::yield_now() }",
    "thread_local! { static X: u8 = const { 0 }; }",
    "use std::thread_local as local;",
    "fn f() { std::hint::spin_loop() }",
    "use std::hint; fn f() { hint::spin_loop() }",
    "type Z = parking_lot::Mutex<u8>;",
    "use parking_lot::Mutex as Lock;",
    "use parking_lot; type Z = parking_lot::Mutex<u8>;",
    "type Z = crossbeam_queue::SegQueue<u8>;",
    "use crossbeam_channel::bounded;",
    "use crossbeam_epoch::pin;",
    "type Z = crossbeam_utils::sync::Parker;",
    "use crossbeam_utils as cu; type Z = cu::sync::Parker;",
    "use crossbeam_utils::{CachePadded, sync::Parker};",
    "extern crate crossbeam_utils as cu; type Z = cu::sync::Parker;",
    "use loom::sync::Arc;",
    "pub(crate) use smallvec::SmallVec as Shown;",
    "fn f(a: &AtomicU64) { a.load(SeqCst); }",
    "fn f(a: &AtomicU64) { a.load(\n    SeqCst); }",
    "fn f(a: &AtomicU64) { a.load(Ordering::SeqCst); }",
    "use crate::sync::atomic::Ordering::SeqCst as S;",
    "const S: Ordering = Ordering::SeqCst;",
]

# Planted there too; nothing is wrong with it.
FINE = [
    "// use crate::cache::Lease;",
    "/* use crate::cache::Lease; /* nested */ use std::sync::Mutex; */",
    'const TEXT: &str = "use crate::cache::Lease; std::sync::Mutex \\" SeqCst"; const RAW: &str = r#"crate::*; ""#;',
    "#[cfg(test)]\nmod x { use super::*; use crate::cache::Lease; use std::sync::Mutex; }",
    "#[cfg(all(test, not(radixkv_loom)))]\n#[allow(unused)]\npub(crate) mod x { use crate::cache::Lease; }",
    "type Z = crate::r#block :: Grid;",
    "use super::run::Run as Other; use std::{collections::BTreeMap, fmt}; type Z = fmt::Error;",
    "use crossbeam_utils::CachePadded; use smallvec::SmallVec;",
    "fn f() { fence(SeqCst); crate::sync::atomic::fence(crate::sync::atomic::Ordering::SeqCst); }",
    "mod inner { use super::super::run::Run; use crate::block::Grid; }",
    "pub(in crate::tree) fn f<'a>(c: char) -> bool { c == '\\'' || c == '\"' || u8::MAX == b'x' }",
]

# What is said of texts planted into several files: the whole of it.
SAID = [
    (
        {"tree/walk.rs": "use crate::cache::Lease;"},
        ["tree uses cache, which its row does not name: tree/walk.rs -> cache/leases/lease.rs"],
    ),
    (
        {"lib.rs": "mod shown { pub(crate) use crate::cache::Lease; }", "tree/walk.rs": "use crate::shown::Lease;"},
        ["tree uses cache, which its row does not name: tree/walk.rs -> cache/leases/lease.rs"],
    ),
    (
        {
            "lib.rs": "#[cfg(unix)] pub use crate::cache::Lease as Either; #[cfg(not(unix))] pub use crate::key::Token as Either;",
            "tree/walk.rs": "use crate::Either;",
        },
        ["tree uses cache, which its row does not name: tree/walk.rs -> cache/leases/lease.rs"],
    ),
    (
        {"tree/word.rs": '#[path = "../cache/clock.rs"] mod slot;'},
        ["src/tree/word.rs: `[path=`: `path` puts a module into another file"],
    ),
    (
        {"lib.rs": "struct Root;", "tree/walk.rs": "use crate::Root;"},
        ["tree uses lib, which its row does not name: tree/walk.rs -> lib.rs"],
    ),
    (
        {"block/grid.rs": "use super::hints::A;", "block/hints.rs": "use super::grid::B;"},
        ["files use each other, and docs/layers.md does not name the circle: block/grid.rs -> block/hints.rs -> block/grid.rs"],
    ),
    (
        {"tree/word.rs": "use super::lease::A;"},
        ["files use each other, and docs/layers.md does not name the circle: tree/lease.rs -> tree/word.rs -> tree/lease.rs"],
    ),
]


def planted(texts):
    files = dict(FILES)
    for file, text in texts.items():
        files[file] += "\n" + text
    return Crate(files)


# Planted as a page beside b.md, which has the heading "One two"; whether a link of it leads nowhere.
LINKED = {
    "[a](b.md)": False,
    "[a](b.md#one-two)": False,
    "[a](<b.md>)": False,
    "`[a](c.md)`": False,
    "```\n[a](c.md)\n```": False,
    "[a](crate::Lease)": False,
    "[a](https://example.org/c.md#no)": False,
    "# Own\n[a](#own)": False,
    "[a](c.md)": True,
    "[a](b.md#two)": True,
    "[a](#own)": True,
    "[a](../outside.md)": True,
    "![a](c.svg)": True,
    "[a]\n\n[a]: c.md": True,
}


def unlinked():
    """The planted pages that ci/links.py judges wrongly."""
    with tempfile.TemporaryDirectory() as folder:
        links.ROOT = Path(folder).resolve() / "repository"
        links.ROOT.mkdir()
        (links.ROOT.parent / "outside.md").touch()
        (links.ROOT / "b.md").write_text("# One two\n")
        page = links.ROOT / "a.md"
        for text, is_broken in LINKED.items():
            page.write_text(text)
            links.anchors.cache_clear()
            if bool([*links.broken(page, links.ROOT)]) != is_broken:
                yield text


def main():
    wrong = [f"ci/links.py judges wrongly: {text!r}" for text in unlinked()]
    for text in UPWARD:
        if not layers.broken(planted({"tree/walk.rs": text}), OTHERS):
            wrong.append(f"ci/layers.py lets through: {text!r}")
    for text in OUTSIDE:
        if not import_rules.broken(planted({"tree/walk.rs": text})):
            wrong.append(f"ci/import_rules.py lets through: {text!r}")
    for text in FINE:
        crate = planted({"tree/walk.rs": text})
        if found := layers.broken(crate, OTHERS) + import_rules.broken(crate):
            wrong.append(f"refused, and nothing is wrong with it: {text!r}: {found}")
    for texts, expected in SAID:
        if (found := layers.broken(planted(texts), OTHERS)) != expected:
            wrong.append(f"of {texts} is said {found}")
    if not import_rules.unlisted([{"name": "smallvec", "rename": "parking_lot", "kind": None}]):
        wrong.append("ci/import_rules.py lets through a dependency under another name")
    if wrong:
        sys.exit("broken: the guards find what is planted\n" + "\n".join(wrong))
    print(f"holds:  the guards find what is planted, {len(UPWARD) + len(OUTSIDE) + len(SAID) + sum(LINKED.values())} texts, and pass {len(FINE) + len(LINKED) - sum(LINKED.values())} others")


FILES, OTHERS = sources(), layers.packages()

if __name__ == "__main__":
    main()
