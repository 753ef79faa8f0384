//! Tests of the sources: which module uses which, and which may name what comes from outside.
//! Text that hides where a path leads is refused.
#![cfg(test)]

mod imports;
mod layers;
mod planted;
mod source;
mod uses;

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf, process::Command, sync::LazyLock};

use source::Source;
use uses::{Graph, by_file};

/// Packages that models explore as a whole.
const EXPLORED: [&str; 2] = ["radixkv", "radixkv-scheduler"];
/// Packages whose files use each other in no circle.
const WITHOUT_CIRCLES: [&str; 2] = ["radixkv-reference", "radixkv-scheduler"];
/// The page whose tables say which module uses which.
const PAGE: &str = include_str!("../../../docs/layers.md");

/// The dependencies of each published package: the name in its sources, and the package.
type Dependencies = BTreeMap<String, Vec<(String, String)>>;

static CORE: LazyLock<Source> = LazyLock::new(|| read("radixkv"));

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

fn read_file(package: &str, file: &str) -> Option<String> {
    let folder = if package == "radixkv" { root() } else { root().join("crates").join(package) };
    fs::read_to_string(folder.join("src").join(file)).ok()
}

fn read(package: &str) -> Source {
    Source::read(&|file| read_file(package, file))
}

fn dependencies() -> Result<Dependencies, Box<dyn Error>> {
    let listed = Command::new("python3").arg(root().join("ci/packages.py")).arg("--dependencies").output()?;
    let pair = |word: &str| word.split_once('=').map(|(name, package)| (name.into(), package.into()));
    let row = |line: &str| {
        line.split_once(' ').map(|(name, words)| (name.into(), words.split(' ').filter_map(pair).collect()))
    };
    Ok(String::from_utf8(listed.stdout)?.lines().filter_map(row).collect())
}

/// What each package but the core uses of the others.
fn packages() -> Result<Graph, Box<dyn Error>> {
    let all = dependencies()?;
    let of_others = |needed: &[(String, String)]| {
        needed.iter().map(|(_, name)| name.clone()).filter(|name| all.contains_key(name)).collect()
    };
    Ok(all
        .iter()
        .filter(|(name, _)| *name != "radixkv")
        .map(|(name, needed)| (name.clone(), of_others(needed)))
        .collect())
}

#[test]
fn modules_use_what_the_page_says() -> Result<(), Box<dyn Error>> {
    let packages = packages()?;
    let mut found = layers::broken(&CORE, &packages, PAGE);
    for package in WITHOUT_CIRCLES {
        let source = read(package);
        found.extend(layers::rings(&format!("{package}: files"), &by_file(&source)));
        found.extend(source.faults);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

#[test]
fn things_from_outside_come_in_where_they_may() -> Result<(), Box<dyn Error>> {
    let dependencies = dependencies()?;
    let unlisted = |package| imports::unlisted(dependencies[package].iter().map(|(name, _)| name.as_str()));
    let found: Vec<_> =
        EXPLORED.iter().flat_map(|package| [imports::broken(&read(package)), unlisted(*package)].concat()).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}
