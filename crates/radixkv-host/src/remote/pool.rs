//! Buffers for blocks on their way, no more than a bound.

#[derive(Debug)]
pub(super) struct Pool {
    block_bytes: usize,
    most: usize,
    /// Buffers that are with others.
    taken: usize,
    spare: Vec<Vec<u8>>,
}

impl Pool {
    pub(super) fn new(block_bytes: usize, most: usize) -> Self {
        Self { block_bytes, most, taken: 0, spare: Vec::new() }
    }

    /// Buffers of a block's bytes, which may hold anything: as many as asked for, or as the bound allows.
    pub(super) fn take(&mut self, buffers: usize) -> Vec<Vec<u8>> {
        let count = buffers.min(self.most - self.taken);
        self.taken += count;
        (0..count).map(|_| self.spare.pop().unwrap_or_else(|| vec![0; self.block_bytes])).collect()
    }

    /// Takes a buffer back.
    ///
    /// A tier of another package may have changed it, or give it back after a panic: what does not belong here is dropped.
    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        let is_own = self.taken > 0;
        self.lose(1);
        if is_own && buffer.len() == self.block_bytes {
            self.spare.push(buffer);
        }
    }

    /// Buffers that do not come back: a tier dropped them.
    pub(super) fn lose(&mut self, buffers: usize) {
        self.taken = self.taken.saturating_sub(buffers);
    }

    /// Buffers that are with others.
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
        let mut out = pool.take(2);
        assert_eq!((out.len(), pool.take(2).len(), pool.take(1).len()), (2, 1, 0));
        pool.lose(1);
        out[0].fill(7);
        pool.give(out.swap_remove(0));
        pool.give(Vec::new());
        assert_eq!(pool.take(9).iter().map(|buffer| buffer[0]).collect::<Vec<_>>(), [7, 0, 0]);
    }
}
