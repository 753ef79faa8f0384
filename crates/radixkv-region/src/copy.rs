//! Copies bytes and tokens to the atomic words of a region and back.
//!
//! A reader may copy words while another process writes them. It sees old and new words, never a
//! part of one, and detects the race afterwards (edge E2). So every access is atomic and relaxed.

#[cfg(all(target_arch = "x86_64", not(any(radixkv_loom, miri))))]
use crate::lines;
use crate::{
    key::Token,
    memory::WORD,
    sync::{AtomicU64, Relaxed},
};

/// The substitute for `lines` without vector instructions: it copies nothing.
#[cfg(not(all(target_arch = "x86_64", not(any(radixkv_loom, miri)))))]
mod lines {
    use crate::sync::AtomicU64;

    pub(super) fn store(_: &[AtomicU64], _: &[u8]) -> usize {
        0
    }

    pub(super) fn load(_: &[AtomicU64], _: &mut [u8]) -> usize {
        0
    }
}

/// Writes `bytes` from byte `at` on. Neighbouring bytes in the first and the last word are kept.
pub(crate) fn write(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (first, offset) = (at / WORD, at % WORD);
    let head = if offset == 0 { 0 } else { (WORD - offset).min(bytes.len()) };
    if head > 0 {
        patch(&words[first], offset, &bytes[..head]);
    }
    let words = &words[first + usize::from(offset > 0)..];
    let lines = lines::store(words, &bytes[head..]);
    let words = &words[lines / WORD..];
    let whole = bytes[head + lines..].chunks_exact(WORD);
    let (rest, after) = (whole.remainder(), whole.len());
    for (word, bytes) in words.iter().zip(whole) {
        // Relaxed: E1, E2.
        word.store(u64::from_ne_bytes(bytes.try_into().expect("a word")), Relaxed);
    }
    if !rest.is_empty() {
        patch(&words[after], 0, rest);
    }
}

/// Fills `bytes` from the words; the rest of the last word is ignored.
pub(crate) fn read(words: &[AtomicU64], bytes: &mut [u8]) {
    let lines = lines::load(words, bytes);
    let words = &words[lines / WORD..];
    let mut whole = bytes[lines..].chunks_exact_mut(WORD);
    for (word, bytes) in words.iter().zip(&mut whole) {
        // Relaxed: E1, E2.
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        // Relaxed: as above.
        rest.copy_from_slice(&words[words.len() - 1].load(Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

/// Writes the tokens of a block.
pub(crate) fn write_tokens(words: &[AtomicU64], tokens: &[Token]) {
    for (word, tokens) in words.iter().zip(tokens.chunks(2)) {
        // Relaxed: E1, E2.
        word.store(pair(tokens), Relaxed);
    }
}

/// Whether the words hold these tokens.
pub(crate) fn are_tokens(words: &[AtomicU64], tokens: &[Token]) -> bool {
    // Relaxed: E1, E2.
    words.iter().zip(tokens.chunks(2)).all(|(word, tokens)| word.load(Relaxed) == pair(tokens))
}

fn pair(tokens: &[Token]) -> u64 {
    tokens.iter().rev().fold(0, |word, token| word << 32 | u64::from(*token))
}

fn patch(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    // Relaxed: only the entry's owner writes.
    let mut patched = word.load(Relaxed).to_ne_bytes();
    patched[offset..offset + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(patched), Relaxed);
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong_and_nowhere_else() {
        for len in (0..40).chain(60..200) {
            for at in 0..40 {
                let words: Vec<_> = (0..32).map(|_| AtomicU64::new(u64::from_ne_bytes([0xee; WORD]))).collect();
                let bytes: Vec<_> = (1..=len).collect();
                write(&words, at, &bytes);
                let (mut seen, mut expected) = ([0; 253], [0xee; 253]);
                read(&words, &mut seen);
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
                assert_eq!(seen, expected, "{len} at {at}");
            }
        }
    }

    #[test]
    fn large_blocks_are_copied_whole_wherever_they_begin() {
        let mut random = fastrand::Rng::with_seed(3);
        for len in [16_383, 16_384, 16_385, 70_001] {
            for at in [0, 1, 8, 16, 24, 64] {
                let words: Vec<_> = (0..10_000).map(|_| AtomicU64::new(0)).collect();
                let bytes: Vec<_> = (0..len).map(|_| random.u8(..)).collect();
                write(&words, at, &bytes);
                let mut seen = vec![0; 80_000];
                read(&words, &mut seen);
                assert!(
                    seen[at..at + len] == bytes && seen[..at].iter().chain(&seen[at + len..]).all(|byte| *byte == 0)
                );
            }
        }
    }

    #[test]
    fn tokens_are_compared_to_the_last() {
        let words: Vec<_> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let tokens = [1, 2, 3, 4, u32::MAX];
        write_tokens(&words, &tokens);
        assert!(are_tokens(&words, &tokens));
        for at in 0..tokens.len() {
            let mut other = tokens;
            other[at] ^= 1 << 31;
            assert!(!are_tokens(&words, &other));
        }
    }
}
