//! Under which names the blocks of namespaces lie in remote tiers.
//!
//! Remote tiers remove no namespace as a whole. So a clear gives the namespace another name there: what was put before is found
//! under the old one alone, and goes by its age. Names are counted in buckets, so that a clear of each of any number of namespaces takes
//! no memory; another namespace of the bucket loses what it has in the remote tiers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use radixkv::NamespaceName;

/// A clear of one namespace makes about one of so many others be looked for in vain.
const BUCKETS: usize = 4096;

/// The name of a namespace in the remote tiers, as of the last clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteName {
    bytes: Arc<[u8]>,
    bucket: usize,
    generation: u64,
}

/// How often namespaces were cleared.
#[derive(Debug)]
pub(crate) struct Generations {
    of_bucket: Vec<u64>,
    cleared: u64,
    hasher: RandomState,
    /// Names of this tier alone, after a clear: of all tiers that ever were, by 128 bits of chance.
    nonce: [u64; 2],
}

impl RemoteName {
    /// What keys are made from.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Generations {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::new();
        let nonce = [hasher.hash_one(0_u64), RandomState::new().hash_one(std::process::id())];
        Self { of_bucket: vec![0; BUCKETS], cleared: 0, hasher, nonce }
    }

    /// The name of a namespace now.
    pub(crate) fn name(&self, namespace: &NamespaceName) -> RemoteName {
        let bucket = self.bucket(namespace);
        let generation = self.generation(bucket);
        let mut bytes = (namespace.parts().len() as u64).to_le_bytes().to_vec();
        for part in namespace.parts() {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        if generation > 0 {
            bytes.extend([self.nonce[0], self.nonce[1], generation].into_iter().flat_map(u64::to_le_bytes));
        }
        RemoteName { bytes: bytes.into(), bucket, generation }
    }

    /// Whether no clear came since.
    pub(crate) fn is_current(&self, name: &RemoteName) -> bool {
        self.generation(name.bucket) == name.generation
    }

    pub(crate) fn clear(&mut self, namespace: &NamespaceName) {
        let bucket = self.bucket(namespace);
        self.of_bucket[bucket] += 1;
    }

    pub(crate) fn clear_all(&mut self) {
        self.cleared += 1;
    }

    fn bucket(&self, namespace: &NamespaceName) -> usize {
        (self.hasher.hash_one(namespace) % BUCKETS as u64) as usize
    }

    /// Both numbers only grow, so their sum changes with each.
    fn generation(&self, bucket: usize) -> u64 {
        self.of_bucket[bucket] + self.cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_gives_a_namespace_a_name_that_no_other_tier_has() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let [one, two] = [&["a", "bc"], &["ab", "c"]].map(|parts| cache.namespace(parts).name());
        let (mut here, there) = (Generations::new(), Generations::new());
        let before = here.name(&one);
        assert_eq!(before.bytes(), there.name(&one).bytes(), "tiers agree as long as nothing is cleared");
        assert_ne!(before.bytes(), here.name(&two).bytes(), "parts have their lengths");
        here.clear(&one);
        assert!(!here.is_current(&before));
        let after = here.name(&one);
        assert!(here.is_current(&after) && after.bytes() != before.bytes());
        here.clear_all();
        assert!(!here.is_current(&after) && !here.is_current(&there.name(&two)));
    }
}
