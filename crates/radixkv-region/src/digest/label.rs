//! The label of a digest-keyed block, which is stored in place of tokens.
//!
//! | words | field |
//! |---|---|
//! | 0 to 4 | the key |
//! | 5 | checksum of the bytes, in a namespace that has them |
//! | 6, 7 | hints, reserved for future eviction policies |
//! | 8 to 11 | nonce and tag, in a namespace that is encrypted; then four empty bytes |
//! | 12 | when the block was stored, in milliseconds since the boot |
//! | 13 | the charge: who counts the block (`charge`) |
//! | 14, 15 | empty |

use super::{
    charge::Charge,
    key::{DigestKey, WORDS},
};
use crate::{
    copy,
    counts::Miss,
    entry::{Claimed, Entry, NAMESPACE},
    process,
    seal::{SEAL_BYTES, Seal},
    state::State,
    sync::{AtomicU64, Relaxed, Release},
};

/// Words of a label: two cache lines.
pub(crate) const LABEL: usize = 16;

const CHECKSUM: usize = 5;
const SEAL: usize = 8;
const STORED: usize = 12;
const CHARGE: usize = 13;

impl Entry<'_> {
    /// Why the entry, in this state, does not hold the block of a digest; `None` if it does. To be
    /// confirmed by [`is_still`](Self::is_still).
    pub(crate) fn lacks_digest(&self, state: State, key: &DigestKey, namespace: u64, boot: u64) -> Option<Miss> {
        self.is_unfit(state, boot).or_else(|| {
            let is_other = self.namespace() != namespace || self.key_words() != *key.words();
            is_other.then_some(Miss::OtherTokens)
        })
    }

    /// The checksum of the block's bytes.
    pub(crate) fn checksum(&self) -> u64 {
        // Relaxed: E1, E2.
        self.label()[CHECKSUM].load(Relaxed)
    }

    /// When the block was stored, in milliseconds since the boot.
    pub(crate) fn stored_at(&self) -> u64 {
        // Relaxed: E1, E2.
        self.label()[STORED].load(Relaxed)
    }

    /// The nonce and the tag of the block's bytes.
    pub(crate) fn seal_of_bytes(&self) -> Seal {
        let mut seal = [0; SEAL_BYTES];
        copy::read(seal_words(self), &mut seal);
        seal
    }

    /// The number of the namespace.
    pub(crate) fn namespace(&self) -> u64 {
        self.read(NAMESPACE)
    }

    /// The word that says who counts the block.
    pub(crate) fn charge(&self) -> &AtomicU64 {
        &self.label()[CHARGE]
    }

    pub(crate) fn key_words(&self) -> [u64; WORDS] {
        // Relaxed: E1, E2.
        std::array::from_fn(|at| self.label()[at].load(Relaxed))
    }
}

impl Claimed<'_> {
    /// Writes the label of a block, with the current time as the time of storing.
    pub(crate) fn write_label(&self, key: &DigestKey, charge: Charge) {
        let mut words = [0; LABEL];
        words[..WORDS].copy_from_slice(key.words());
        words[STORED] = process::now();
        for (at, (word, value)) in self.entry().label().iter().zip(words).enumerate() {
            if at != CHARGE {
                // Relaxed: E1, E2.
                word.store(value, Relaxed);
            }
        }
        // Release: a process that sees the charge sees its epoch.
        self.entry().label()[CHARGE].store(charge.word(), Release);
    }

    /// Writes the nonce and the tag of the block's bytes.
    pub(crate) fn write_seal(&self, seal: &Seal) {
        copy::write(seal_words(&self.entry()), 0, seal);
    }

    /// Writes the checksum of the block's bytes.
    pub(crate) fn write_checksum(&self, checksum: u64) {
        // Relaxed: E1, E2.
        self.entry().label()[CHECKSUM].store(checksum, Relaxed);
    }
}

fn seal_words<'a>(entry: &Entry<'a>) -> &'a [AtomicU64] {
    &entry.label()[SEAL..STORED]
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DigestLayout, DigestPut, DigestRegion, Get, Memory, Namespace};

    /// No two keys with the same hash are known, so the test changes the label instead.
    // Holds: RG12.
    #[test]
    fn an_entry_of_the_same_hash_and_another_key_is_a_miss() {
        let layout = DigestLayout::new(8, 1);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
        let region = Arc::new(DigestRegion::format(memory, &layout).expect("formatted"));
        let blocks = region.namespace(&Namespace::new("", 36, 8)).expect("opened");
        let keys = [DigestKey::new(&[1; 36]).expect("a digest")];
        for word in 0..WORDS {
            for bit in [0, 31, 32, 37, 63] {
                assert_eq!(blocks.put_from(&keys, &[&[7; 8]], None), Ok(vec![DigestPut::Stored]));
                let label = &region.region.entry(0).label()[word];
                label.store(label.load(Relaxed) ^ 1 << bit, Relaxed);
                let gets = blocks.get_into(&keys, &mut [&mut [0; 8]]);
                assert_eq!(gets, Ok(vec![Get::Miss(Miss::OtherTokens)]), "word {word}, bit {bit}");
                region.clear();
            }
        }
    }
}
