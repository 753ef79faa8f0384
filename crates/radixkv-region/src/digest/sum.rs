//! Copies that also compute a checksum, for namespaces with checksums. They proceed piece by piece,
//! so that each byte is read from memory only once.

use twox_hash::XxHash3_64;

use crate::{copy, memory::WORD, sync::AtomicU64};

/// Bytes of a piece: it stays in the L1 cache between copy and checksum.
const PIECE: usize = 16 << 10;

/// Writes `bytes`, beginning at the first word; returns their checksum.
pub(crate) fn write(words: &[AtomicU64], bytes: &[u8], seed: u64) -> u64 {
    let pieces = bytes.chunks(PIECE).zip(words.chunks(PIECE / WORD));
    pieces.fold(seed, |sum, (bytes, words)| {
        copy::write(words, 0, bytes);
        XxHash3_64::oneshot_with_seed(sum, bytes)
    })
}

/// Fills `bytes`, beginning at the first word; returns their checksum.
pub(crate) fn read(words: &[AtomicU64], bytes: &mut [u8], seed: u64) -> u64 {
    let words = &words[..bytes.len().div_ceil(WORD)];
    let pieces = bytes.chunks_mut(PIECE).zip(words.chunks(PIECE / WORD));
    pieces.fold(seed, |sum, (bytes, words)| {
        copy::read(words, bytes);
        XxHash3_64::oneshot_with_seed(sum, bytes)
    })
}

/// The checksum of the first `len` bytes of the words.
pub(crate) fn of(words: &[AtomicU64], len: usize, seed: u64) -> u64 {
    let mut piece = vec![0; PIECE.min(len)];
    let pieces = words.chunks(PIECE / WORD).enumerate();
    pieces.fold(seed, |sum, (at, words)| {
        let piece = &mut piece[..PIECE.min(len - at * PIECE)];
        copy::read(words, piece);
        XxHash3_64::oneshot_with_seed(sum, piece)
    })
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_checksum_whichever_way_and_another_one_of_other_bytes() {
        let mut random = fastrand::Rng::with_seed(5);
        for len in [1, 7, 8, 100, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 13] {
            let words: Vec<_> = (0..len.div_ceil(WORD) + 3).map(|_| AtomicU64::new(u64::MAX)).collect();
            let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            let written = write(&words, &bytes, 9);
            let mut found = vec![0; len];
            assert_eq!(read(&words, &mut found, 9), written);
            assert_eq!(of(&words[..len.div_ceil(WORD)], len, 9), written);
            assert!(found == bytes && write(&words, &bytes, 8) != written);
            bytes[random.usize(..len)] ^= 1 << random.u32(..8);
            assert_ne!(write(&words, &bytes, 9), written);
        }
    }
}
