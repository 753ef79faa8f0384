//! Encryption of blocks at rest: AES-256-GCM with a key that the caller supplies. Used for
//! encrypted namespaces (`digest::sealed`), and by the package `radixkv-tiers`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, Tag, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use sha2::{Digest as _, Sha256};

/// The maximum number of seals of a key. Up to this, the probability that two random nonces of 96
/// bits are equal is below 2^-32.
pub(crate) const MOST_SEALS: u64 = 1 << 32;
/// Bytes that a seal adds: a nonce and a tag.
pub const SEAL_BYTES: usize = NONCE_LEN + MAX_TAG_LEN;

/// What is stored beside sealed bytes: the nonce and the tag.
pub type Seal = [u8; SEAL_BYTES];

/// A key of 256 bits that seals blocks with AES-GCM, and opens them.
///
/// Clones are the same key, and share one count of seals. When the last clone and the caller's own
/// copy are destroyed, nothing can read the sealed data, wherever it is stored: destroying the key
/// deletes the data.
///
/// Each seal has a fresh random nonce of 96 bits, and a key seals at most 2^32 times. The count
/// begins at 0 when the key is made. A program that uses one key again after a restart passes the
/// earlier count to [`with_seals`](Self::with_seals).
///
/// ```
/// use radixkv_region::SealKey;
///
/// let key = SealKey::new(&[7; 32]);
/// let mut bytes = *b"keys and values";
/// let seal = key.seal(b"block 1", &mut bytes)?;
/// assert_ne!(&bytes, b"keys and values");
/// assert!(SealKey::new(&[8; 32]).open(b"block 1", &mut bytes.clone(), &seal).is_err());
/// assert!(key.open(b"block 2", &mut bytes.clone(), &seal).is_err());
/// key.open(b"block 1", &mut bytes, &seal)?;
/// assert_eq!(&bytes, b"keys and values");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SealKey(Arc<Inner>);

struct Inner {
    key: LessSafeKey,
    /// Tells keys apart without revealing the key.
    id: [u8; 32],
    seals: AtomicU64,
    random: SystemRandom,
}

/// Why bytes were not sealed. The bytes are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key has reached its maximum number of seals: use a new key.
    #[error("the key has reached the safe maximum of {MOST_SEALS} seals: use a new key")]
    Exhausted,
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomNumbers,
}

/// The bytes were sealed with another key or other associated data, or were changed. The content of
/// the buffer is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes were sealed with another key, or were changed")]
pub struct NotOpened;

impl SealKey {
    /// Makes a key from 32 bytes, which should be random or derived from a random secret.
    pub fn new(key: &[u8; 32]) -> Self {
        let id = Sha256::new_with_prefix("radixkv key id 1\0").chain_update(key).finalize().into();
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("32 bytes are a key"));
        Self(Arc::new(Inner { key, id, seals: AtomicU64::new(0), random: SystemRandom::new() }))
    }

    /// Continues the count at `seals`, the number of seals that the key made in earlier runs of the
    /// program.
    pub fn with_seals(self, seals: u64) -> Self {
        self.0.seals.store(seals, Relaxed);
        self
    }

    /// How often the key has sealed.
    pub fn seals(&self) -> u64 {
        self.0.seals.load(Relaxed)
    }

    /// Encrypts bytes in place. `associated` says what they belong to: opening them requires the
    /// same value.
    ///
    /// # Errors
    ///
    /// [`SealError`].
    pub fn seal(&self, associated: &[u8], bytes: &mut [u8]) -> Result<Seal, SealError> {
        if self.0.seals.fetch_add(1, Relaxed) >= MOST_SEALS {
            self.0.seals.fetch_sub(1, Relaxed);
            return Err(SealError::Exhausted);
        }
        let mut nonce = [0; NONCE_LEN];
        self.0.random.fill(&mut nonce).map_err(|_| SealError::NoRandomNumbers)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.key.seal_in_place_separate_tag(unique, Aad::from(associated), bytes);
        let tag = tag.expect("less than 64 GiB are sealed at once");
        let mut seal = [0; SEAL_BYTES];
        seal[..NONCE_LEN].copy_from_slice(&nonce);
        seal[NONCE_LEN..].copy_from_slice(tag.as_ref());
        Ok(seal)
    }

    /// Decrypts bytes in place.
    ///
    /// # Errors
    ///
    /// [`NotOpened`].
    pub fn open(&self, associated: &[u8], bytes: &mut [u8], seal: &Seal) -> Result<(), NotOpened> {
        let (nonce, tag) = seal.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotOpened)?;
        let tag = Tag::try_from(tag).map_err(|_| NotOpened)?;
        let opened = self.0.key.open_in_place_separate_tag(nonce, Aad::from(associated), tag, bytes, 0..);
        opened.map(drop).map_err(|_| NotOpened)
    }
}

impl PartialEq for SealKey {
    /// Whether it is the same key.
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for SealKey {}

impl fmt::Debug for SealKey {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKey").field("seals", &self.seals()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;

    /// Test vectors of the GCM specification (test cases 13 and 14): this key opens what other
    /// implementations sealed.
    #[test]
    fn it_is_aes_256_gcm() {
        let key = SealKey::new(&[0; 32]);
        let seal = |tag: u128| {
            let mut seal = [0; SEAL_BYTES];
            seal[NONCE_LEN..].copy_from_slice(&tag.to_be_bytes());
            seal
        };
        assert_eq!(key.open(&[], &mut [], &seal(0x530f_8afb_c745_36b9_a963_b4f1_c4cb_738b)), Ok(()));
        let mut bytes = 0xcea7_403d_4d60_6b6e_074e_c5d3_baf3_9d18_u128.to_be_bytes();
        assert_eq!(key.open(&[], &mut bytes, &seal(0xd0d1_c8a7_9999_6bf0_265b_98b5_d48a_b919)), Ok(()));
        assert_eq!(bytes, [0; 16]);
    }

    // Holds: RG17.
    #[test]
    fn every_seal_has_another_nonce_and_no_changed_bit_is_opened() {
        let key = SealKey::new(&[3; 32]);
        let plain = [9; 40];
        let mut seals = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut bytes = plain;
            assert!(seals.insert(key.seal(b"a", &mut bytes).expect("sealed")[..NONCE_LEN].to_vec()));
        }
        assert_eq!(key.seals(), 1000);
        let mut sealed = plain;
        let seal = key.seal(b"a", &mut sealed).expect("sealed");
        assert!(sealed.windows(4).all(|window| window != [9; 4]));
        for bit in 0..8 * (sealed.len() + seal.len()) {
            let (mut bytes, mut seal) = (sealed, seal);
            let at = bit / 8;
            *bytes.iter_mut().chain(&mut seal).nth(at).expect("a byte") ^= 1 << (bit % 8);
            assert_eq!(key.open(b"a", &mut bytes, &seal), Err(NotOpened), "bit {bit}");
            assert!(bytes.windows(4).all(|window| window != [9; 4]), "plaintext of bytes that are not opened");
        }
        assert_eq!(key.open(b"b", &mut sealed.clone(), &seal), Err(NotOpened));
        assert_eq!((key.open(b"a", &mut sealed, &seal), sealed), (Ok(()), plain));
    }

    #[test]
    fn a_key_seals_no_more_often_than_is_safe() {
        let key = SealKey::new(&[3; 32]).with_seals(MOST_SEALS - 2);
        let other = key.clone();
        let mut bytes = *b"bytes";
        assert!(key.seal(&[], &mut bytes).is_ok() && other.seal(&[], &mut bytes).is_ok());
        let before = bytes;
        for _ in 0..3 {
            assert_eq!(key.seal(&[], &mut bytes), Err(SealError::Exhausted));
        }
        assert_eq!((bytes, key.seals()), (before, MOST_SEALS));
        assert!(!format!("{key:?}").contains('3'), "{key:?}");
    }
}
