//! Which module uses which, against the tables of docs/layers.md: each module uses what its row says
//! and nothing else, no two modules use each other, and circles of files are those of the second table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::Source;
use crate::uses::{Graph, by_file};

/// Built for model checkers only, to reach inside.
const OUTSIDE: &str = "internals";

/// The rows between `<!-- NAME -->` and `<!-- /NAME -->`: the words in backticks of each cell.
fn table(page: &str, name: &str) -> Vec<Vec<Vec<String>>> {
    let part = page.split(&format!("<!-- {name} -->")).nth(1).and_then(|rest| rest.split("<!-- /").next());
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect();
    let rows = part.unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(words).collect()).collect()
}

/// The module that a file of src belongs to.
fn layer(file: &str) -> String {
    file.trim_end_matches(".rs").split('/').next().unwrap_or_default().to_string()
}

/// Which other modules each top-level module uses. What lib.rs re-exports does not count.
fn modules(files: &Graph) -> Graph {
    let mut uses = Graph::new();
    for (file, used) in files {
        let name = layer(file);
        if name != OUTSIDE && name != "lib" {
            let others = used.iter().map(|other| layer(other)).filter(|other| *other != name);
            uses.entry(name.clone()).or_default().extend(others);
        }
    }
    uses
}

/// A shortest way from one node to another, along what each uses.
fn way(uses: &Graph, begin: &str, end: &str) -> Option<Vec<String>> {
    let (mut ways, mut seen) = (VecDeque::from([vec![begin.to_string()]]), BTreeSet::new());
    while let Some(way) = ways.pop_front() {
        let last = &way[way.len() - 1];
        if last == end {
            return Some(way);
        }
        let others = uses.get(last).into_iter().flatten().filter(|other| seen.insert(*other));
        ways.extend(others.map(|other| [&way[..], std::slice::from_ref(other)].concat()));
    }
    None
}

/// The sets of nodes that use each other, directly or through others.
fn circles(uses: &Graph) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeMap::new();
    for node in uses.keys() {
        let (mut all, mut open) = (BTreeSet::new(), vec![node]);
        while let Some(one) = open.pop() {
            open.extend(uses.get(one).into_iter().flatten().filter(|other| all.insert(*other)));
        }
        reached.insert(node, all);
    }
    let is_round = |one: &String, other: &String| reached.get(one).is_some_and(|all| all.contains(other));
    let circle = |node: &String| -> Vec<String> {
        uses.keys().filter(|other| is_round(node, other) && is_round(other, node)).cloned().collect()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// The shortest way round through an edge of a circle that is in no circle of those named.
fn round(uses: &Graph, circle: &[String], named: &[Vec<String>]) -> String {
    let is_named = |one, other| named.iter().any(|known| known.contains(one) && known.contains(other));
    let edges = circle.iter().flat_map(|one| uses[one].iter().map(move |other| (one, other)));
    let ways = edges.filter_map(|(one, other)| {
        Some((is_named(one, other), [std::slice::from_ref(one), &way(uses, other, one)?].concat()))
    });
    ways.min_by_key(|(is_named, way)| (*is_named, way.len())).unwrap_or_default().1.join(" -> ")
}

/// Where the modules and their rows differ; for what a row does not name, the files that use it.
fn broken_rows(uses: &Graph, rows: &Graph, files: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for name in uses.keys().chain(rows.keys()).collect::<BTreeSet<_>>() {
        let (Some(used), Some(said)) = (uses.get(name), rows.get(name)) else {
            let is_module = uses.contains_key(name);
            found.push(format!(
                "{name} {} docs/layers.md",
                if is_module { "has no row in" } else { "is no module, but in" }
            ));
            continue;
        };
        for other in used - said {
            let edges = files.iter().flat_map(|(one, used)| used.iter().map(move |two| (one, two)));
            let by = edges.filter(|(one, two)| layer(one) == *name && layer(two) == other);
            let by: Vec<_> = by.map(|(one, two)| format!("{one} -> {two}")).collect();
            let by = if by.is_empty() { "a dependency".into() } else { by.join(", ") };
            found.push(format!("{name} uses {other}, which its row does not name: {by}"));
        }
        let unused = said - used;
        found.extend(unused.iter().map(|other| format!("the row of {name} names {other}, which it does not use")));
    }
    found
}

/// The circles of files that docs/layers.md does not name, and those that it names and do not exist.
fn broken_circles(files: &Graph, mut named: Vec<Vec<String>>) -> Vec<String> {
    named.iter_mut().for_each(|circle| circle.sort());
    let found = circles(files);
    let unnamed = found.iter().filter(|circle| !named.contains(circle)).map(|circle| {
        format!("files use each other, and docs/layers.md does not name the circle: {}", round(files, circle, &named))
    });
    let is_there = |circle: &[String]| found.iter().any(|other| circle.iter().all(|file| other.contains(file)));
    let absent = named.iter().filter(|circle| !is_there(circle)).map(|circle| circle.join(" "));
    let absent = absent.map(|circle| format!("docs/layers.md names a circle of files that there is not: {circle}"));
    unnamed.chain(absent).collect()
}

/// All faults. Circles are checked only if the rows hold, because a broken row also makes circles.
pub fn broken(core: &Source, packages: &Graph, page: &str) -> Vec<String> {
    let files = by_file(core);
    let uses: Graph = modules(&files).into_iter().chain(packages.clone()).collect();
    let rows =
        table(page, "layers").into_iter().map(|row| (row[0][0].clone(), row[1].iter().cloned().collect())).collect();
    let mut found = [core.faults.clone(), broken_rows(&uses, &rows, &files)].concat();
    if found.is_empty() {
        found = rings("modules", &uses);
    }
    if found.is_empty() {
        found = broken_circles(&files, table(page, "circles").into_iter().map(|row| row[0].clone()).collect());
    }
    found
}

/// The nodes that use each other, where none may.
pub fn rings(what: &str, uses: &Graph) -> Vec<String> {
    circles(uses).iter().map(|circle| format!("{what} use each other: {}", round(uses, circle, &[]))).collect()
}
