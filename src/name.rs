//! Names of namespaces.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::sync::Arc;

/// What a namespace compares.
///
/// # Examples
///
/// ```
/// use radixkv::{Keys, PrefixCache};
///
/// let cache = PrefixCache::builder(16, 8).build()?;
/// let draft = cache.namespace_with(&["draft"], Keys::Bigrams);
/// assert_eq!((draft.keys(), cache.default_namespace().keys()), (Keys::Bigrams, Keys::Tokens));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Keys {
    /// Single tokens.
    #[default]
    Tokens,
    /// Pairs of neighbouring tokens, for draft models (EAGLE) whose keys and values at a token depend on the next token
    /// too.
    ///
    /// Sequences are still given as tokens. `n` tokens are `n - 1` keys: block `k` is full once token
    /// `(k + 1) * block_size` (counted from 0) is known too, and the last token of a sequence has no keys and values.
    Bigrams,
}

impl Keys {
    /// Tokens that a key needs beyond its own.
    pub(crate) fn offset(self) -> u32 {
        match self {
            Self::Tokens => 0,
            Self::Bigrams => 1,
        }
    }
}

/// The name of a namespace: its parts, and what it compares. A clone costs a count.
///
/// A namespace that was dropped and made again has the same name.
///
/// # Examples
///
/// ```
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let name = cache.namespace(&["tenant-7", "lora-3"]).name();
/// assert_eq!(name.parts().collect::<Vec<_>>(), ["tenant-7", "lora-3"]);
/// assert!(cache.namespace(&["tenant-7", "lora-3"]).name() == name);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Clone)]
pub struct NamespaceName(Arc<Name>);

/// Each part with its length: `("bc", "a")` is not `("c", "ab")`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Name {
    parts: Box<[Box<str>]>,
    keys: Keys,
}

impl NamespaceName {
    pub(crate) fn new(parts: &[&str], keys: Keys) -> Self {
        Self(Arc::new(Name { parts: parts.iter().map(|part| Box::from(*part)).collect(), keys }))
    }

    /// The parts by which [`PrefixCache::namespace`](crate::PrefixCache::namespace) was asked for it; none for the default
    /// namespace.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parts.iter().map(|part| &**part)
    }

    /// What the namespace compares.
    pub fn keys(&self) -> Keys {
        self.0.keys
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
