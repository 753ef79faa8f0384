//! Text planted into a copy of the sources must be refused, or must not.

use super::*;
use source::ReadFile;

/// Planted in a copy of src/tree/walk.rs, which is below the cache; refused by the layers.
const UPWARD: &[&str] = &[
    "use crate::cache::Lease;",
    "use crate::{block::BlockLayout as G, cache::{self, Lease}};",
    "use self::super::super::cache::Lease;",
    "use crate::Lease;",
    "type Z = super::super::cache::Lease;",
    "pub use crate::cache::Lease;",
    "pub(crate) use crate::cache::Lease as Zork; type Z = Zork;",
    "pub(crate) use crate::cache::*; type Z = Lease;",
    "#[cfg(unix)] use crate::cache::Lease as Either; #[cfg(not(unix))] use super::run::Run as Either;",
    "mod inner { use super::super::super::cache::Lease; }",
    "macro_rules! lease { () => { $crate::cache::Lease } }",
    // One path, written in other ways.
    "type Z = crate :: cache :: Lease;",
    "type Z = crate::\n    cache::Lease;",
    "type Z = crate::r#cache::Lease;",
    "type Z = crate::/* /* */ */cache::Lease;",
    "type Z = crate:: // a comment\n cache::Lease;",
    // Other names for the roots, and all names of a module.
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
    // Text from other files.
    r#"include!("../cache/clock.rs");"#,
    r#"std::include!("../cache/clock.rs");"#,
    r#"#[path = "../cache/clock.rs"] mod clock;"#,
    r#"#[cfg_attr(unix, path = "../cache/clock.rs")] mod clock;"#,
    "mod nowhere;",
    "macro_rules! named { ($a:ident) => { mod $a; } } named!(clock);",
    // Behind what looks like a string, a comment or the end of the code.
    r#"const QUOTE: char = '"'; type Z = crate::cache::Lease; const END: char = '"';"#,
    r#"const QUOTE: u8 = b'"'; type Z = crate::cache::Lease; const END: &str = "";"#,
    r#"const RAW: &str = r"\"; type Z = crate::cache::Lease; const END: &str = "";"#,
    r##"const RAW: &str = r#"""#; type Z = crate::cache::Lease; const END: &str = "";"##,
    r#"const LINE: &str = "// "; type Z = crate::cache::Lease;"#,
    r#"const OPEN: &str = "/*"; type Z = crate::cache::Lease;"#,
    r#"fn quoted<'a>(_: &'a str) -> char { '\'' } type Z = crate::cache::Lease;"#,
    "#[cfg(test)]\nmod x { fn f() { if true {} } }\nuse crate::cache::Lease;",
    "#[cfg(test)]\nmod x { const END: char = '}'; const OPEN: &str = \"{\"; }\nuse crate::cache::Lease;",
    "#[cfg(test)]\nmod x;\nmod y { use crate::cache::Lease; }",
    "#[cfg(not(test))]\nmod x { use crate::cache::Lease; }",
    "#[cfg(any(test, unix))]\nmod x { use crate::cache::Lease; }",
];

/// Planted there too; refused by the import rules.
const OUTSIDE: &[&str] = &[
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
];

/// Planted there too; nothing is wrong with it.
const FINE: &[&str] = &[
    "// use crate::cache::Lease;",
    "/* use crate::cache::Lease; /* nested */ use std::sync::Mutex; */",
    r##"const TEXT: &str = "use crate::cache::Lease; std::sync::Mutex \" SeqCst"; const RAW: &str = r#"crate::*; ""#;"##,
    "#[cfg(test)]\nmod x { use super::*; use crate::cache::Lease; use std::sync::Mutex; }",
    "#[cfg(all(test, not(radixkv_loom)))]\n#[allow(unused)]\npub(crate) mod x { use crate::cache::Lease; }",
    "type Z = crate::r#block :: BlockLayout;",
    "use super::run::Run as Other; use std::{collections::BTreeMap, fmt}; type Z = fmt::Error;",
    "use ::std::fmt as shown; type Z = shown::Error; fn f() -> ::std::fmt::Result { Ok(()) }",
    "use crossbeam_utils::CachePadded; use smallvec::SmallVec;",
    "fn f() { fence(SeqCst); crate::sync::atomic::fence(crate::sync::atomic::Ordering::SeqCst); }",
    "mod inner { use super::super::run::Run; use crate::block::BlockLayout; }",
    r#"pub(in crate::tree) fn f<'a>(c: char) -> bool { c == '\'' || c == '"' || u8::MAX == b'x' }"#,
];

/// Lines planted in files, and the only fault that they cause.
const SAID: &[(&[&str], &str)] = &[
    (&["tree/walk.rs: use crate::cache::Lease;"], UP),
    (&["lib.rs: mod shown { pub(crate) use crate::cache::Lease; }", "tree/walk.rs: use crate::shown::Lease;"], UP),
    (
        &[
            "lib.rs: #[cfg(unix)] pub use crate::cache::Lease as Either;",
            "lib.rs: #[cfg(not(unix))] pub use crate::key::Token as Either;",
            "tree/walk.rs: use crate::Either;",
        ],
        UP,
    ),
    (
        &[r#"tree/word.rs: #[path = "../cache/clock.rs"] mod slot;"#],
        "src/tree/word.rs: `path =`: puts a module into another file",
    ),
    (
        &["lib.rs: struct Root;", "tree/walk.rs: use crate::Root;"],
        "tree uses lib, which its row does not name: tree/walk.rs -> lib.rs",
    ),
    (
        &["block/block_layout.rs: use super::hints::A;", "block/hints.rs: use super::block_layout::B;"],
        "files use each other, and docs/layers.md does not name the circle: block/block_layout.rs -> block/hints.rs -> block/block_layout.rs",
    ),
    (
        &["tree/word.rs: use super::lease::A;"],
        "files use each other, and docs/layers.md does not name the circle: tree/lease.rs -> tree/word.rs -> tree/lease.rs",
    ),
];
const UP: &str = "tree uses cache, which its row does not name: tree/walk.rs -> cache/leases/lease.rs";

/// The core with the files `at`, and their child modules, read again with `read`.
fn changed(at: &[&str], read: ReadFile) -> Source {
    let mut core = CORE.clone();
    for file in at {
        let here = CORE.modules.iter().find(|(_, module)| module.file == *file).unwrap().0;
        core.read_file(here, file, read);
    }
    assert!(!core.faults.iter().any(|fault| fault.contains("does not parse")), "{:?}", core.faults);
    core
}

/// The core with a copy of src/tree/walk.rs for each text, which ends with it: walk0.rs, walk1.rs...
fn planted(texts: &[&str]) -> Source {
    let read = |file: &str| read_file("radixkv", file);
    let names: String = (0..texts.len()).map(|number| format!("mod walk{number};\n")).collect();
    changed(&["tree/mod.rs"], &|file| match file.strip_prefix("tree/walk").and_then(|rest| rest.strip_suffix(".rs")) {
        Some(number) if !number.is_empty() => {
            Some(read("tree/walk.rs")? + "\n" + texts.get(number.parse::<usize>().ok()?)?)
        }
        _ if file == "tree/mod.rs" => Some(read(file)? + "\n" + &names),
        _ => read(file),
    })
}

/// The planted texts that no fault names.
fn missed<'a>(texts: &[&'a str], faults: &[String]) -> Vec<&'a str> {
    let is_said = |number| {
        ['.', '/'].iter().any(|end| faults.iter().any(|fault| fault.contains(&format!("tree/walk{number}{end}"))))
    };
    (0..texts.len()).filter(|number| !is_said(*number)).map(|number| texts[number]).collect()
}

/// What the layers say of a source.
fn layered(source: &Source) -> Vec<String> {
    static PACKAGES: LazyLock<Graph> = LazyLock::new(|| packages().unwrap());
    layers::broken(source, &PACKAGES, PAGE)
}

#[test]
fn uses_of_modules_above_are_found() {
    assert_eq!(missed(UPWARD, &layered(&planted(UPWARD))), [""; 0]);
}

#[test]
fn things_from_outside_are_found() {
    assert_eq!(missed(OUTSIDE, &imports::broken(&planted(OUTSIDE))), [""; 0]);
    assert_eq!(imports::unlisted(["smallvec", "parking_lot"]).len(), 1);
}

#[test]
fn what_is_fine_is_not_refused() {
    let source = planted(FINE);
    assert_eq!([layered(&source), imports::broken(&source)].concat(), [""; 0]);
}

#[test]
fn faults_name_files_and_the_shortest_way_round() {
    for (lines, expected) in SAID {
        let lines: Vec<_> = lines.iter().map(|line| line.split_once(": ").unwrap()).collect();
        let source = changed(&lines.iter().map(|(file, _)| *file).collect::<Vec<_>>(), &|file| {
            let added = lines.iter().filter(|(at, _)| *at == file).map(|(_, text)| *text);
            Some([&*read_file("radixkv", file)?].into_iter().chain(added).collect::<Vec<_>>().join("\n"))
        });
        assert_eq!(layered(&source), [*expected], "{lines:?}");
    }
}
