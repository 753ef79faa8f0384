//! Work lists: which block of threads reads which keys for which rows.
//!
//! Attention over one long context would keep one block of threads busy and the rest of the device idle, so contexts
//! are cut into parts, each is summed by a block of threads of its own, and the parts are merged. What is not cut
//! writes its output directly. [`split`] chooses how long a part may be; [`decode`], [`extend`] and [`cascade`] lay out
//! the parts.
//!
//! Nothing here touches a device.

pub(super) mod cascade;
pub(super) mod decode;
pub(super) mod extend;
pub(super) mod split;

use super::abi::{DIRECT, MergeItem};

/// How many query heads there are to how many heads of keys and values, and what runs them at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    /// Query heads.
    pub(super) query_heads: usize,
    /// Heads of keys and values.
    pub(super) kv_heads: usize,
    /// Blocks of threads of `decode` that run at once.
    pub(super) decode_slots: usize,
    /// Blocks of threads of `extend` and `cascade` that run at once.
    pub(super) tile_slots: usize,
}

impl Machine {
    /// Query heads of one head of keys and values.
    pub(super) fn group(&self) -> usize {
        self.query_heads / self.kv_heads
    }

    /// The output row of a token's or sequence's first query head that `kv_head` serves.
    fn row(&self, token: usize, kv_head: usize) -> u32 {
        (token * self.query_heads + kv_head * self.group()) as u32
    }
}

/// Partial rows, and what is merged from them.
#[derive(Debug, Default)]
pub(super) struct Merges {
    pub(super) items: Vec<MergeItem>,
    pub(super) list: Vec<u32>,
    /// Partial rows taken.
    pub(super) part_rows: usize,
}

impl Merges {
    /// Takes `rows` partial rows; the first of them.
    fn take(&mut self, rows: usize) -> u32 {
        let first = self.part_rows as u32;
        self.part_rows += rows;
        first
    }

    /// Output rows `row..row + rows` become the merge of `parts`.
    fn add(&mut self, row: u32, rows: usize, parts: impl IntoIterator<Item = u32>) {
        let first = self.list.len();
        self.list.extend(parts);
        debug_assert!(!self.list[first..].contains(&DIRECT));
        let count = (self.list.len() - first) as u32;
        self.items.push(MergeItem { row, rows: rows as u32, first: first as u32, count });
    }

    /// Most rows of one item.
    pub(super) fn most_rows(&self) -> usize {
        self.items.iter().map(|item| item.rows as usize).max().unwrap_or(0)
    }
}
