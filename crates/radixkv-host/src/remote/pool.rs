//! A bounded pool of buffers for blocks in flight.
//!
//! All threads share the lock of a pool, so callers allocate and free buffers outside it.

#[derive(Debug)]
pub(super) struct Pool {
    block_bytes: usize,
    most: usize,
    /// Buffers that are in use.
    taken: usize,
    spare: Vec<Vec<u8>>,
}

/// Buffers that were taken from a pool; some of them may still have to be allocated.
#[must_use]
pub(super) struct Taken {
    count: usize,
    block_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Taken {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The buffers, each of a block's size, with arbitrary content.
    pub(super) fn buffers(self) -> Vec<Vec<u8>> {
        let Self { count, block_bytes, mut spare } = self;
        spare.resize_with(count, || vec![0; block_bytes]);
        spare
    }
}

impl Pool {
    pub(super) fn new(block_bytes: usize, most: usize) -> Self {
        Self { block_bytes, most, taken: 0, spare: Vec::new() }
    }

    /// Takes `buffers` buffers, or as many as the bound allows.
    pub(super) fn take(&mut self, buffers: usize) -> Taken {
        let count = buffers.min(self.most - self.taken);
        self.taken += count;
        let spare = self.spare.split_off(self.spare.len().saturating_sub(count));
        Taken { count, block_bytes: self.block_bytes, spare }
    }

    /// Returns a buffer to the pool; a buffer that does not belong there goes back to the caller,
    /// who drops it.
    ///
    /// A tier of another package may have changed the buffer, or return it after a panic.
    pub(super) fn give(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let is_own = self.taken > 0;
        self.lose(1);
        if is_own && buffer.len() == self.block_bytes {
            self.spare.push(buffer);
            return None;
        }
        Some(buffer)
    }

    /// Writes off buffers that a tier dropped.
    pub(super) fn lose(&mut self, buffers: usize) {
        self.taken = self.taken.saturating_sub(buffers);
    }

    /// The number of buffers in use.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_are_out_and_buffers_are_used_again() {
        let mut pool = Pool::new(8, 3);
        let mut out = pool.take(2).buffers();
        assert_eq!((out.len(), pool.take(2).buffers().len(), pool.take(1).buffers().len()), (2, 1, 0));
        pool.lose(1);
        out[0].fill(7);
        assert_eq!(pool.give(out.swap_remove(0)), None);
        assert_eq!(pool.give(Vec::new()), Some(Vec::new()));
        assert_eq!(pool.take(9).buffers().iter().map(|buffer| buffer[0]).collect::<Vec<_>>(), [7, 0, 0]);
    }
}
