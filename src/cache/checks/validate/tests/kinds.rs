//! Every kind of violation is planted.

use std::collections::BTreeSet;
use std::path::Path;

/// Kinds that no test plants: a run gets its tree from its parent, and it never changes.
const NOT_PLANTED: [&str; 1] = ["a run links to another tree than the one it is in"];

/// The string literals of `source`, each with the code before it; without comments.
fn literals(source: &str) -> Vec<(String, String)> {
    let code: String = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let parts: Vec<&str> = code.split('"').collect();
    parts.chunks_exact(2).map(|pair| (pair[0].trim_end().to_owned(), pair[1].to_owned())).collect()
}

/// In `validate`, each literal is a kind, except formats and empty details.
fn used() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cache/checks/validate");
    let files = folder.read_dir().expect("the sources").map(|file| file.expect("a file").path());
    let sources = files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).expect("text"));
    let all: Vec<(String, String)> = sources.flat_map(|source| literals(&source)).collect();
    let kinds = all.into_iter().filter(|(before, text)| !before.ends_with("format_args!(") && !text.is_empty());
    kinds.map(|(_, text)| text).collect()
}

/// In `planted`, kinds are the first arguments of `broken`.
fn planted() -> BTreeSet<String> {
    let all = literals(include_str!("planted.rs"));
    all.into_iter().filter(|(before, _)| before.ends_with("broken(")).map(|(_, text)| text).collect()
}

#[test]
fn every_kind_is_planted_or_listed() {
    let (used, planted) = (used(), planted());
    assert!(used.len() > 60, "{used:?}");
    let missing: Vec<&str> = used.difference(&planted).map(String::as_str).collect();
    assert_eq!(missing, NOT_PLANTED);
    assert_eq!(planted.difference(&used).collect::<Vec<_>>(), [""; 0]);
}
