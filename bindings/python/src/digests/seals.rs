//! Counts the seals of encryption keys. All stores of this process with the same key share one
//! count, which the process keeps when they are closed. The keys themselves are not kept.

use std::collections::BTreeMap;
use std::sync::Mutex;

use radixkv_region::SealKey;
use sha2::{Digest, Sha256};

use super::engine::lock;

/// The keys that this process has used, by their digests.
static KEYS: Mutex<BTreeMap<[u8; 32], Use>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Use {
    /// The key, while stores use it.
    key: Option<SealKey>,
    stores: usize,
    /// The number of seals when the last store released the key.
    seals: u64,
}

/// A key that a store uses.
pub(super) struct CountedKey {
    pub(super) key: SealKey,
    digest: [u8; 32],
}

impl CountedKey {
    pub(super) fn new(bytes: &[u8; 32]) -> Self {
        let digest = Sha256::new_with_prefix("radixkv python key 1\0").chain_update(bytes).finalize().into();
        let mut keys = lock(&KEYS);
        let used: &mut Use = keys.entry(digest).or_default();
        let key = used.key.get_or_insert_with(|| SealKey::new(bytes).with_seals(used.seals)).clone();
        used.stores += 1;
        Self { key, digest }
    }
}

impl Drop for CountedKey {
    fn drop(&mut self) {
        let mut keys = lock(&KEYS);
        let Some(used) = keys.get_mut(&self.digest) else { return };
        used.stores -= 1;
        if used.stores == 0 {
            used.seals = self.key.seals();
            used.key = None;
        }
    }
}
