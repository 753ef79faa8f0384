//! Prompts for measurements.

use std::{ops::Deref, sync::Arc};

use radixkv::Token;

const LINE: usize = 64 / size_of::<Token>();

/// Tokens that begin at a cache line, which is best for memcmp; all contenders share them.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    memory: Arc<[Token]>,
    skip: usize,
    len: usize,
}

impl Tokens {
    /// `len` tokens that `write` fills in.
    pub(crate) fn new(len: usize, write: impl FnOnce(&mut [Token])) -> Self {
        let mut memory: Arc<[Token]> = std::iter::repeat_n(0, len + LINE).collect();
        let skip = memory.as_ptr().align_offset(64) % LINE;
        write(&mut Arc::get_mut(&mut memory).expect("it is new")[skip..skip + len]);
        Self { memory, skip, len }
    }

    /// `len` tokens; different seeds give different tokens from the first block on.
    pub(crate) fn sequence(seed: u32, len: usize) -> Self {
        Self::new(len, |out| fill(seed, out))
    }

    /// A copy of the tokens in other memory.
    pub(crate) fn copy(&self) -> Self {
        Self::new(self.len, |out| out.copy_from_slice(self))
    }
}

impl Deref for Tokens {
    type Target = [Token];

    fn deref(&self) -> &[Token] {
        &self.memory[self.skip..self.skip + self.len]
    }
}

fn fill(seed: u32, out: &mut [Token]) {
    let seed = seed.wrapping_mul(0x9e37_79b9);
    for (at, token) in (0u32..).zip(out) {
        *token = (seed ^ at.wrapping_mul(0x85eb_ca6b)) | 1;
    }
}
