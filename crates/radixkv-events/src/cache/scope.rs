//! The default mapping of a cache's namespaces to scopes.

use radixkv::NamespaceName;

use crate::event::Scope;

/// Separates the parts of a name (ASCII's unit separator).
const SEPARATOR: char = '\u{1f}';
/// Escapes a separator or an escape inside a part (ASCII's data link escape).
const ESCAPE: char = '\u{10}';

impl Scope {
    /// The default scope of a namespace. The default namespace has the plain scope; the salt of any
    /// other namespace is its name.
    ///
    /// Several parts are joined by U+001F; inside a part, U+001F and U+0010 are escaped by a U+0010
    /// before them. So no two namespaces have the same scope, except one of tokens and one of
    /// pairs, whose blocks have different hashes. An empty salt would be none on the wire, so that
    /// of one empty part is U+0010.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_events::Scope;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// assert_eq!(Scope::of_namespace(&cache.default_namespace().name()), Scope::default());
    /// assert_eq!(Scope::of_namespace(&cache.namespace(&["tenant-7"]).name()), Scope::salted("tenant-7"));
    /// let both = cache.namespace(&["tenant-7", "lora-3"]);
    /// assert_eq!(Scope::of_namespace(&both.name()), Scope::salted("tenant-7\u{1f}lora-3"));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn of_namespace(name: &NamespaceName) -> Self {
        let mut parts = name.parts();
        let Some(first) = parts.next() else { return Self::default() };
        let mut salt = String::with_capacity(first.len());
        append(&mut salt, first);
        for part in parts {
            salt.push(SEPARATOR);
            append(&mut salt, part);
        }
        if salt.is_empty() {
            salt.push(ESCAPE);
        }
        Self::salted(salt)
    }
}

fn append(salt: &mut String, part: &str) {
    for letter in part.chars() {
        if [SEPARATOR, ESCAPE].contains(&letter) {
            salt.push(ESCAPE);
        }
        salt.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{Batch, Event, Stored, wire};

    #[test]
    fn no_two_names_are_one_scope() {
        let cache = radixkv::PrefixCache::builder(1, 8).build().expect("valid");
        let texts = ["", "a", "\u{1f}", "\u{10}", "a\u{1f}", "\u{10}\u{1f}"];
        let mut names: Vec<Vec<&str>> = vec![Vec::new()];
        for length in 0..3 {
            let longer: Vec<_> = names.iter().filter(|name| name.len() == length).cloned().collect();
            names.extend(longer.iter().flat_map(|name| texts.map(|text| [name.as_slice(), &[text]].concat())));
        }
        // As it is read from the wire, where an empty salt is none.
        let scope = |name: &Vec<&str>| {
            let scope = Scope::of_namespace(&cache.namespace(name).name());
            let stored = Event::Stored(Stored { scope, ..Stored::default() });
            let payload = wire::encode(&Batch { events: vec![stored], ..Batch::default() }, wire::Format::Maps);
            match wire::decode(&payload).expect("a batch").batch.events.remove(0) {
                Event::Stored(stored) => stored.scope,
                other => panic!("{other:?}"),
            }
        };
        let scopes: HashSet<Scope> = names.iter().map(scope).collect();
        assert_eq!((scopes.len(), names.len()), (1 + 6 + 36 + 216, 1 + 6 + 36 + 216));
    }
}
