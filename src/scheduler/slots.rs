//! Request slots: a fixed table of block ids, a row for each running sequence.

use crate::block::BlockId;

/// `rows` rows of `max_blocks` block ids each; taken all or nothing, never grown.
#[derive(Debug)]
pub(super) struct Slots {
    table: Box<[BlockId]>,
    max_blocks: usize,
    /// The lowest last: it is taken first.
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(rows: u32, max_blocks: usize) -> Self {
        let table = vec![0; rows as usize * max_blocks].into_boxed_slice();
        Self { table, max_blocks, free: (0..rows).rev().collect() }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// `n` rows, or none.
    pub(super) fn take(&mut self, n: usize) -> Option<Vec<u32>> {
        let left = self.free.len().checked_sub(n)?;
        let mut taken = self.free.split_off(left);
        taken.reverse();
        Some(taken)
    }

    pub(super) fn give_back(&mut self, row: u32) {
        self.free.push(row);
    }

    pub(super) fn row(&self, row: u32) -> &[BlockId] {
        &self.table[row as usize * self.max_blocks..][..self.max_blocks]
    }

    /// Writes `blocks` into a row from its `at`-th place on.
    pub(super) fn write(&mut self, row: u32, at: usize, blocks: &[BlockId]) {
        let start = row as usize * self.max_blocks + at;
        assert!(at + blocks.len() <= self.max_blocks, "a request has at most {} blocks", self.max_blocks);
        self.table[start..start + blocks.len()].copy_from_slice(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_all_or_nothing_and_apart() {
        let mut slots = Slots::new(3, 2);
        let two = slots.take(2).expect("three are free");
        assert_eq!((two.as_slice(), slots.take(2), slots.free()), (&[0, 1][..], None, 1));
        slots.write(0, 0, &[7, 8]);
        slots.write(1, 1, &[9]);
        assert_eq!((slots.row(0), slots.row(1), slots.row(2)), (&[7, 8][..], &[0, 9][..], &[0, 0][..]));
        slots.give_back(1);
        assert_eq!(slots.take(2).map(|rows| rows.len()), Some(2));
        assert_eq!((slots.take(1), slots.take(0)), (None, Some(vec![])));
    }

    #[test]
    #[should_panic(expected = "at most 2 blocks")]
    fn a_row_does_not_reach_into_the_next() {
        Slots::new(2, 2).write(0, 1, &[1, 2]);
    }
}
