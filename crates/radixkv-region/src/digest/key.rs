//! The keys of digest-keyed blocks: digests that the engine computes.

/// Bytes of the shortest and of the longest digest.
pub(crate) const MIN_BYTES: usize = 16;
pub(crate) const MAX_BYTES: usize = 36;
/// Words of a key: the digest, padded with zeros, and its length.
pub(crate) const WORDS: usize = 5;

const LENGTH_AT: u32 = 32;

/// The key of a block: a digest that the engine computed over the block and everything before it.
///
/// Equal digests mean the same block; nothing else is compared. Use a hash without known
/// collisions, such as SHA-256, over everything that the namespace does not specify.
///
/// ```
/// use radixkv_region::DigestKey;
///
/// let key = DigestKey::new(&[7; 32])?;
/// assert_eq!(key.to_vec(), [7; 32]);
/// let refused = DigestKey::new(&[7; 8]).unwrap_err();
/// assert_eq!(refused.to_string(), "a key of 8 bytes, 16 to 36 are allowed");
/// # Ok::<_, radixkv_region::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DigestKey([u64; WORDS]);

/// The key is too short or too long for a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of {got} bytes, {MIN_BYTES} to {MAX_BYTES} are allowed")]
pub struct KeyError {
    /// Bytes of the key.
    pub got: usize,
}

impl DigestKey {
    /// Makes a key from the bytes of a digest.
    ///
    /// # Errors
    ///
    /// [`KeyError`], for fewer than 16 or more than 36 bytes.
    pub fn new(digest: &[u8]) -> Result<Self, KeyError> {
        let got = digest.len();
        if !(MIN_BYTES..=MAX_BYTES).contains(&got) {
            return Err(KeyError { got });
        }
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(digest.chunks(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        words[WORDS - 1] |= (got as u64) << LENGTH_AT;
        Ok(Self(words))
    }

    /// Bytes of the digest.
    #[allow(clippy::len_without_is_empty, reason = "no key is empty")]
    pub fn len(&self) -> usize {
        (self.0[WORDS - 1] >> LENGTH_AT) as usize
    }

    /// The digest.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).take(self.len()).collect()
    }

    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    pub(crate) fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// The seed of the block's checksum: the bytes of another block do not match it.
    pub(crate) fn seed(&self, namespace: u64) -> u64 {
        self.hash(namespace)[0]
    }

    /// The hash of the key and its namespace, which selects buckets and tag. The whole key is
    /// compared at the entry.
    pub(crate) fn hash(&self, namespace: u64) -> [u64; 2] {
        [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344_u64].map(|seed| {
            self.0.iter().chain([&namespace]).fold(seed, |hash, word| {
                let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed ^ mixed >> 32
            })
        })
    }
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_bytes_and_their_number() {
        for len in 0..100 {
            let digest: Vec<u8> = (1..=len as u8).collect();
            match DigestKey::new(&digest) {
                Ok(key) => assert!((16..=36).contains(&len) && key.to_vec() == digest && key.len() == len),
                Err(refused) => assert!(!(16..=36).contains(&len) && refused.got == len),
            }
        }
        let [short, long] = [16, 17].map(|len| DigestKey::new(&vec![0; len]).expect("a digest"));
        assert_ne!(short, long, "zeros at the end count");
        assert_ne!(short.hash(1), short.hash(2));
    }
}
