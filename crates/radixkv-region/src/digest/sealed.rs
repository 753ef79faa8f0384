//! Encryption of a namespace's blocks before they are written to the region, and decryption after
//! they are copied out of it.

use sha2::{Digest as _, Sha256};

use super::{
    key::{DigestKey, WORDS},
    namespace::Namespace,
};
use crate::{
    counts::Miss,
    seal::{Seal, SealKey},
    sync::Mutex,
};

/// The maximum number of buffers kept for later blocks.
const SPARE: usize = 8;

/// Seals and opens the blocks of a namespace.
#[derive(Debug)]
pub(crate) struct Sealer {
    key: SealKey,
    /// A digest of all fields of the namespace.
    namespace: [u8; 32],
    /// Buffers of this process in which blocks are encrypted.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Sealer {
    #[cfg_attr(not(feature = "encryption"), expect(dead_code, reason = "there is no key"))]
    pub(crate) fn new(key: SealKey, namespace: &Namespace) -> Self {
        let mut all = Sha256::new_with_prefix("radixkv-region sealed 1\0");
        for text in &namespace.texts {
            all.update((text.len() as u64).to_le_bytes());
            all.update(text);
        }
        namespace.numbers().into_iter().for_each(|number| all.update(number.to_le_bytes()));
        Self { key, namespace: all.finalize().into(), spare: Mutex::default() }
    }

    /// How often the key has sealed.
    pub(crate) fn seals(&self) -> u64 {
        self.key.seals()
    }

    /// Encrypts a block in a buffer, and passes it to `write`; `None` if the key cannot seal any
    /// more.
    pub(crate) fn seal<T>(&self, key: &DigestKey, bytes: &[u8], write: impl FnOnce(&[u8], &Seal) -> T) -> Option<T> {
        let mut sealed = self.spare.try_lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default();
        sealed.clear();
        sealed.extend_from_slice(bytes);
        let seal = self.key.seal(&self.associated(key), &mut sealed);
        let written = seal.ok().map(|seal| write(&sealed, &seal));
        if let Ok(mut spare) = self.spare.try_lock() {
            if spare.len() < SPARE {
                spare.push(sealed);
            }
        }
        written
    }

    /// Decrypts a block in place, after it was copied.
    pub(crate) fn open(&self, key: &DigestKey, bytes: &mut [u8], seal: &Seal) -> Result<(), Miss> {
        self.key.open(&self.associated(key), bytes, seal).map_err(|_| Miss::Undecryptable)
    }

    /// The associated data of a block: no other block can be taken for it.
    fn associated(&self, key: &DigestKey) -> [u8; 32 + 8 * WORDS] {
        let mut associated = [0; 32 + 8 * WORDS];
        let (namespace, words) = associated.split_at_mut(32);
        namespace.copy_from_slice(&self.namespace);
        for (bytes, word) in words.chunks_exact_mut(8).zip(key.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        associated
    }
}
