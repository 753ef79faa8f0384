//! Which files of a package use each other, through any number of re-exports.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, parts};

/// What each node uses: files, or modules and packages.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

pub const ROOTS: [&str; 3] = ["crate", "self", "super"];

struct Resolver<'a> {
    source: &'a Source,
    /// For each module, the imported paths by their names; several for a name if `cfg` chooses.
    imports: BTreeMap<&'a str, Graph>,
}

/// The files that each file uses, by their paths in src.
pub fn by_file(source: &Source) -> Graph {
    let mut resolver = Resolver { source, imports: BTreeMap::new() };
    for (here, module) in &source.modules {
        let mut names = Graph::new();
        for item in &module.uses {
            names.entry(item.name.clone()).or_default().extend(resolver.absolute(&item.path, here));
        }
        resolver.imports.insert(here, names);
    }
    let mut uses = Graph::new();
    for (here, module) in &source.modules {
        let files = resolver.used(here).into_iter().map(|path| source.modules[&path].file.clone());
        uses.entry(module.file.clone()).or_default().extend(files.filter(|file| *file != module.file));
    }
    uses
}

/// Whether a path is another one or leads on from it.
pub fn is_under(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || above.is_empty() || rest.starts_with("::"))
}

impl Resolver<'_> {
    /// The absolute form of a path that begins with a root or with a child module of `here`.
    fn absolute(&self, path: &str, here: &str) -> Option<String> {
        let mut parts = parts(path).peekable();
        let first = *parts.peek()?;
        if !ROOTS.contains(&first) && !self.source.modules.contains_key(&format!("{here}::{first}")) {
            return None;
        }
        Some(parts.fold(here.to_string(), |place, part| match part {
            "crate" => part.into(),
            "super" => place.rsplit_once("::").map_or(place.clone(), |(above, _)| above.into()),
            "self" => place,
            _ => format!("{place}::{part}"),
        }))
    }

    /// The absolute paths of a path that begins with a name that `here` imports.
    fn imported(&self, path: &str, here: &str) -> impl Iterator<Item = String> {
        let (first, rest) = path.split_at(path.find("::").unwrap_or(path.len()));
        self.imports[here].get(first).into_iter().flatten().map(move |target| format!("{target}{rest}"))
    }

    /// The absolute paths that a path may mean in `here`; none if it leads out of the crate.
    fn inside(&self, path: &str, here: &str) -> BTreeSet<String> {
        let absolute = self.absolute(path, here).into_iter();
        if absolute.len() > 0 { absolute.collect() } else { self.imported(path, here).collect() }
    }

    /// The modules where what a path names is defined.
    fn homes(&self, path: &str, seen: &[&str]) -> BTreeSet<String> {
        let mut place = path;
        while !self.source.modules.contains_key(place) {
            place = place.rsplit_once("::").expect("the root is a module").0;
        }
        let rest = path[place.len()..].trim_start_matches("::");
        let seen = [seen, &[path]].concat();
        let further = self.imported(rest, place).filter(|target| !seen.contains(&target.as_str()));
        let homes: BTreeSet<_> = further.flat_map(|target| self.homes(&target, &seen)).collect();
        if homes.is_empty() { BTreeSet::from([place.into()]) } else { homes }
    }

    /// The other modules that a module uses.
    fn used(&self, here: &str) -> BTreeSet<String> {
        let module = &self.source.modules[here];
        let named = |name: &str| module.tokens.iter().any(|token| parts(token).any(|part| part == name));
        let mut paths: BTreeSet<_> = module.paths().flat_map(|path| self.inside(path, here)).collect();
        for item in &module.uses {
            let targets = self.inside(&item.path, here);
            // A re-export of a child is no use: a path through it is resolved to the definition.
            if !item.is_public || !targets.iter().all(|path| is_under(path, here)) || named(&item.name) {
                paths.extend(targets);
            }
        }
        let homes = paths.iter().flat_map(|path| self.homes(path, &[]));
        homes.filter(|home| home != here).collect()
    }
}
