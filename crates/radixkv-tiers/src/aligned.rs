//! Bytes that begin where a disk's block may begin.

/// What direct input and output ask of addresses, lengths and offsets, on every disk in use.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes at a multiple of [`ALIGNMENT`], with room up to the next one.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Zeros.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length.next_multiple_of(ALIGNMENT) + ALIGNMENT];
        let address = memory.as_ptr().addr();
        Self { start: address.next_multiple_of(ALIGNMENT) - address, memory, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }

    /// The bytes and zeros after them, up to a multiple of [`ALIGNMENT`].
    pub(crate) fn padded(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length.next_multiple_of(ALIGNMENT)]
    }

    /// As [`padded`](Self::padded), to write.
    pub(crate) fn padded_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length.next_multiple_of(ALIGNMENT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_begin_at_a_multiple() {
        for length in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut aligned = Aligned::new(length);
            assert_eq!(aligned.bytes_mut().len(), length);
            assert_eq!((aligned.bytes().as_ptr().addr() % ALIGNMENT, aligned.padded().len() % ALIGNMENT), (0, 0));
            assert!(aligned.padded().len() < length + ALIGNMENT);
        }
    }
}
