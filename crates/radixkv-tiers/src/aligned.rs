//! Buffers that are aligned for direct I/O.

/// The alignment that direct I/O requires of addresses, lengths and offsets, on every disk in use.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGNMENT`], with room up to the next multiple.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Creates a buffer of zeros.
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

    /// As [`padded`](Self::padded), for writing.
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
