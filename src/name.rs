//! Names of namespaces.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::sync::Arc;

/// The unit that a namespace compares: single tokens, or pairs of tokens.
///
/// # Examples
///
/// ```
/// use radixkv::{Keys, NamespaceName, PrefixCache};
///
/// let cache = PrefixCache::builder(16, 8).build()?;
/// let draft = cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams));
/// assert_eq!((draft.keys(), cache.default_namespace().keys()), (Keys::Bigrams, Keys::Tokens));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Keys {
    /// Single tokens.
    #[default]
    Tokens,
    /// Pairs of neighbouring tokens, for draft models (EAGLE) whose keys and values at a token also
    /// depend on the next token.
    ///
    /// Sequences are still given as tokens. `n` tokens make `n - 1` keys: block `k` is full once
    /// token `(k + 1) * block_size` (counted from 0) is known as well, and the last token of a
    /// sequence has no keys and values.
    Bigrams,
}

impl Keys {
    /// Number of tokens after its first that a key covers.
    pub(crate) fn offset(self) -> u32 {
        match self {
            Self::Tokens => 0,
            Self::Bigrams => 1,
        }
    }
}

/// The name of a namespace: its parts, and the unit that its lookups compare. Cloning it increments
/// a reference count.
///
/// Parts are not joined: `["bc", "a"]` and `["c", "ab"]` name two namespaces, and the same parts
/// with other [`Keys`] name a third. A name without parts and with `Keys::Tokens` names the default
/// namespace. A string or an array of strings converts into a name.
///
/// # Examples
///
/// ```
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let name = cache.namespace(&["tenant-7", "lora-3"]).name();
/// assert_eq!(name.parts().collect::<Vec<_>>(), ["tenant-7", "lora-3"]);
/// assert!(cache.namespace(&name) == cache.namespace(&["tenant-7", "lora-3"]));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Clone)]
pub struct NamespaceName(Arc<Name>);

/// The parts are separate strings, so `("bc", "a")` is not `("c", "ab")`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Name {
    parts: Box<[Box<str>]>,
    keys: Keys,
}

impl NamespaceName {
    /// Makes the name of a namespace that compares single tokens. The parts identify, for example,
    /// an adapter, a tenant's salt, a model version, or several of these.
    pub fn new<S: AsRef<str>>(parts: &[S]) -> Self {
        let parts = parts.iter().map(|part| Box::from(part.as_ref())).collect();
        Self(Arc::new(Name { parts, keys: Keys::default() }))
    }

    /// Changes the unit that the namespace compares to `keys`, with the same parts.
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        let parts = self.0.parts.clone();
        Self(Arc::new(Name { parts, keys }))
    }

    /// Whether this is the name of the default namespace.
    pub(crate) fn is_default(&self) -> bool {
        self.0.parts.is_empty() && self.0.keys == Keys::default()
    }

    /// The parts; none for the default namespace.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parts.iter().map(|part| &**part)
    }

    /// The unit that the namespace compares.
    pub fn keys(&self) -> Keys {
        self.0.keys
    }
}

impl From<&str> for NamespaceName {
    /// Makes a name of one part.
    fn from(part: &str) -> Self {
        Self::new(&[part])
    }
}

impl From<&String> for NamespaceName {
    /// Makes a name of one part.
    fn from(part: &String) -> Self {
        Self::new(&[part])
    }
}

impl<S: AsRef<str>> From<&Vec<S>> for NamespaceName {
    fn from(parts: &Vec<S>) -> Self {
        Self::new(parts)
    }
}

impl<S: AsRef<str>> From<&[S]> for NamespaceName {
    fn from(parts: &[S]) -> Self {
        Self::new(parts)
    }
}

impl<S: AsRef<str>, const N: usize> From<&[S; N]> for NamespaceName {
    fn from(parts: &[S; N]) -> Self {
        Self::new(parts)
    }
}

impl Default for NamespaceName {
    /// The name of the default namespace.
    fn default() -> Self {
        Self::new::<&str>(&[])
    }
}

impl From<&NamespaceName> for NamespaceName {
    fn from(name: &NamespaceName) -> Self {
        name.clone()
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamespaceName").field(&self.0.parts).field(&self.0.keys).finish()
    }
}

impl PartialEq for NamespaceName {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for NamespaceName {}

impl PartialOrd for NamespaceName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamespaceName {
    fn cmp(&self, other: &Self) -> Ordering {
        (*self.0).cmp(&*other.0)
    }
}

impl Hash for NamespaceName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (*self.0).hash(state);
    }
}
