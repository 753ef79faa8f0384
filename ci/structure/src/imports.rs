//! Which modules of the core and of the scheduler may name what comes from outside the crate. Nothing
//! comes in without a row here, so the models and the sanitizers see every atomic, lock and thread.

use crate::source::{Module, Source, parts};
use crate::uses::{ROOTS, is_under};

const EVERYWHERE: &[&str] = &[""];
const ENTRIES: [(&str, &[&str]); 15] = [
    ("std", EVERYWHERE),
    ("std::sync", &["sync"]),
    ("std::thread", &["sync"]),
    ("std::hint::spin_loop", &["sync"]),
    // The model reclaimer hides its state from the checker: all threads of a model are one thread.
    ("std::thread_local", &["sync", "reclaim::model"]),
    ("loom", &["sync"]),
    ("shuttle", &["sync"]),
    ("fail", &["sync"]),
    ("arc_swap", &["sync::swap"]),
    ("crossbeam_epoch", &["reclaim"]),
    ("memmap2", &["reclaim::memory", "sync::mapped"]),
    // It pads cache lines, no more.
    ("crossbeam_utils::CachePadded", EVERYWHERE),
    ("smallvec", EVERYWHERE),
    ("tracing", &["cache::spans"]),
    // What the scheduler is built on.
    ("radixkv", EVERYWHERE),
];
/// The module that may re-export what comes from outside.
const HALL: &str = "sync";
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32", "u64", "u128",
    "usize",
];

fn has_row(name: &str) -> bool {
    ENTRIES.iter().any(|(row, _)| is_under(row, name))
}

/// Whether a module may name a path: its nearest row and the rows below the path allow it.
fn may_enter(path: &str, here: &str) -> bool {
    let nearest = ENTRIES.iter().filter(|(row, _)| is_under(path, row)).max_by_key(|(row, _)| row.len());
    let mut rows = ENTRIES.iter().filter(|(row, _)| is_under(row, path)).chain(nearest);
    nearest.is_some() && rows.all(|(_, modules)| modules.iter().any(|module| is_under(here, module)))
}

/// The paths that a module names and that lead out of the crate, and whether it re-exports them.
fn from_outside<'a>(source: &'a Source, here: &str, module: &'a Module) -> Vec<(&'a str, bool)> {
    let renamed = module.uses.iter().filter(|item| Some(item.name.as_str()) != parts(&item.path).next());
    let children = source.modules.keys().filter_map(|path| path.rsplit_once("::").filter(|(above, _)| *above == here));
    let macros = module.tokens.windows(3).filter(|part| part[0] == "macro_rules").map(|part| part[2].as_str());
    let names = renamed.map(|item| item.name.as_str()).chain(children.map(|(_, name)| name)).chain(macros);
    let known: Vec<_> = names.chain(ROOTS).chain(PRIMITIVES).collect();
    let is_outside = |path: &str| {
        let first = parts(path).next().unwrap_or_default();
        // A type's name begins with a capital; its import leads to where the type comes from.
        let is_local = known.contains(&first) || first.starts_with(char::is_uppercase);
        ["alloc", "core"].contains(&first) || has_row(first) || !is_local
    };
    let used = module.uses.iter().map(|item| (item.path.as_str(), item.is_public));
    let local = module.tokens.iter().any(|token| token == "thread_local").then_some("std::thread_local");
    let paths = module.paths().chain(local).map(|path| (path, false));
    used.chain(paths).filter(|(path, _)| is_outside(path)).collect()
}

/// Whether a module asks for sequential consistency of more than a fence.
fn is_sequential(module: &Module) -> bool {
    let is_named = |path: &str| parts(path).next_back() == Some("SeqCst");
    let is_fence = |before: &[String], after: Option<&String>| {
        matches!(before, [.., fence, open] if parts(fence).next_back() == Some("fence") && open == "(")
            && after.is_some_and(|sign| sign == ")")
    };
    let tokens = &module.tokens;
    module.uses.iter().any(|item| is_named(&item.path) && item.name != "SeqCst")
        || (0..tokens.len()).any(|at| is_named(&tokens[at]) && !is_fence(&tokens[..at], tokens.get(at + 1)))
}

pub fn broken(source: &Source) -> Vec<String> {
    let mut found = source.faults.clone();
    for (here, module) in &source.modules {
        let (place, file) = (here.trim_start_matches("crate").trim_start_matches("::"), &module.file);
        let is_hall = is_under(place, HALL);
        for (path, is_public) in from_outside(source, here, module) {
            let first = parts(path).next().unwrap_or_default();
            let root = if ["alloc", "core"].contains(&first) { "std" } else { first };
            if !may_enter(&format!("{root}{}", &path[first.len()..]), place) {
                found.push(format!("src/{file}: `{path}` does not come in here"));
            } else if is_public && !is_hall {
                found.push(format!("src/{file}: `{path}` is shown to other modules, which only {HALL} may do"));
            }
        }
        if !is_hall && is_sequential(module) {
            found.push(format!("src/{file}: `SeqCst` is for fences"));
        }
    }
    found
}

/// The dependencies of a package that have no row.
pub fn unlisted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let names = names.into_iter().map(|name| name.replace('-', "_")).filter(|name| !has_row(name));
    names.map(|name| format!("Cargo.toml: {name} has no row in ci/structure/src/imports.rs")).collect()
}
