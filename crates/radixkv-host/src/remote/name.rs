//! The names under which namespaces are stored in remote tiers.
//!
//! Remote tiers cannot remove a namespace as a whole. So a clear gives the namespace another name
//! there: older blocks are found only under the old name, and are evicted by age. The name contains
//! the number of the clear. Numbers are kept for the namespaces that were used or cleared most
//! recently; all others share the largest number of their bucket, of which there is a fixed number.
//! So short-lived namespaces take a bounded amount of memory, and only a namespace that was not
//! used for a long time may lose its remote blocks to the clear of another one.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use radixkv::NamespaceName;

/// How many namespaces have their own number.
const MAX_KNOWN: usize = 1 << 16;
/// How many numbers the other namespaces share.
const BUCKETS: usize = 1 << 12;

/// The name of a namespace in the remote tiers, since its last clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteName {
    bytes: Arc<[u8]>,
    /// The namespace's hash. Two namespaces with the same hash only share their clears.
    hash: u64,
    generation: u64,
}

/// The numbers of the last clears. They only grow, so no name is used twice.
#[derive(Debug)]
pub(crate) struct Generations {
    /// The number of clears so far.
    clears: u64,
    known: HashMap<u64, Known>,
    /// The hashes of the known namespaces, by last use.
    order: BTreeMap<u64, u64>,
    uses: u64,
    of_bucket: Vec<u64>,
    hasher: RandomState,
    /// 128 random bits in each name after a clear: no other tier, past or future, uses the name.
    nonce: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Known {
    generation: u64,
    used: u64,
}

impl RemoteName {
    /// The bytes from which keys are computed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Generations {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::new();
        let nonce = [hasher.hash_one(0_u64), RandomState::new().hash_one(std::process::id())];
        let (known, order, of_bucket) = (HashMap::new(), BTreeMap::new(), vec![0; BUCKETS]);
        Self { clears: 0, known, order, uses: 0, of_bucket, hasher, nonce }
    }

    /// The current name of a namespace. Counts as a use.
    pub(crate) fn name(&mut self, namespace: &NamespaceName) -> RemoteName {
        let hash = self.hasher.hash_one(namespace);
        let generation = self.generation(hash);
        self.set(hash, generation);
        let mut bytes = (namespace.parts().len() as u64).to_le_bytes().to_vec();
        for part in namespace.parts() {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        if generation > 0 {
            bytes.extend([self.nonce[0], self.nonce[1], generation].into_iter().flat_map(u64::to_le_bytes));
        }
        RemoteName { bytes: bytes.into(), hash, generation }
    }

    /// Whether the namespace was not cleared since it got this name.
    pub(crate) fn is_current(&self, name: &RemoteName) -> bool {
        self.generation(name.hash) == name.generation
    }

    pub(crate) fn clear(&mut self, namespace: &NamespaceName) {
        self.clears += 1;
        self.set(self.hasher.hash_one(namespace), self.clears);
    }

    pub(crate) fn clear_all(&mut self) {
        self.clears += 1;
        self.known.clear();
        self.order.clear();
        self.of_bucket.fill(self.clears);
    }

    fn generation(&self, hash: u64) -> u64 {
        self.known.get(&hash).map_or(self.of_bucket[bucket(hash)], |known| known.generation)
    }

    /// Sets a namespace's number, and makes the namespace the most recently used.
    fn set(&mut self, hash: u64, generation: u64) {
        self.uses += 1;
        let known = Known { generation, used: self.uses };
        if let Some(before) = self.known.insert(hash, known) {
            self.order.remove(&before.used);
        }
        self.order.insert(self.uses, hash);
        if self.known.len() > MAX_KNOWN {
            self.fold_oldest();
        }
    }

    fn fold_oldest(&mut self) {
        let oldest = self.order.pop_first().and_then(|(_, hash)| Some((hash, self.known.remove(&hash)?)));
        if let Some((hash, known)) = oldest {
            let of_bucket = &mut self.of_bucket[bucket(hash)];
            *of_bucket = known.generation.max(*of_bucket);
        }
    }
}

fn bucket(hash: u64) -> usize {
    (hash % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests;
