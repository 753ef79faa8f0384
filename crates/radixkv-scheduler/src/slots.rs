//! Request slots: a scheduler's table of block ids, with a row for each running sequence.

use radixkv::BlockId;

/// Up to `most` rows of up to `max_blocks` block ids. A row is allocated when it is first taken,
/// and grows when written, so unused rows cost nothing.
#[derive(Debug)]
pub(super) struct Slots {
    rows: Vec<Vec<BlockId>>,
    most: u32,
    max_blocks: usize,
    /// Released rows. The last one is taken first; a new row is made when none is left.
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(most: u32, max_blocks: usize) -> Self {
        Self { rows: Vec::new(), most, max_blocks, free: Vec::new() }
    }

    pub(super) fn free(&self) -> usize {
        self.most as usize - self.rows.len() + self.free.len()
    }

    /// Takes `n` rows, or none.
    pub(super) fn take(&mut self, n: usize) -> Option<Vec<u32>> {
        (n <= self.free()).then(|| (0..n).map(|_| self.take_one()).collect())
    }

    fn take_one(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.rows.push(Vec::new());
            self.rows.len() as u32 - 1
        })
    }

    pub(super) fn give_back(&mut self, row: u32) {
        self.free.push(row);
    }

    /// The content of a row; it may end with stale entries of earlier owners.
    pub(super) fn row(&self, row: u32) -> &[BlockId] {
        &self.rows[row as usize]
    }

    /// Writes `blocks` into a row, from index `at`.
    pub(super) fn write(&mut self, row: u32, at: usize, blocks: &[BlockId]) {
        let end = at + blocks.len();
        assert!(end <= self.max_blocks, "a request has at most {} blocks", self.max_blocks);
        let row = &mut self.rows[row as usize];
        if row.len() < end {
            row.resize(end, 0);
        }
        row[at..end].copy_from_slice(blocks);
    }
}

#[cfg(test)]
mod tests;
