//! Work lists: which thread block reads which keys for which rows.
//!
//! Attention over one long context in one thread block would leave the rest of the device idle. So
//! contexts are cut into parts, each part is summed by its own thread block, and the parts are
//! merged. A context that is not cut writes its output directly. [`split`] chooses how long a part
//! may be; [`decode`], [`extend`] and [`cascade`] lay out the parts.
//!
//! `prepared` and `reserved` call it. All of it is arithmetic: nothing here calls the driver.

pub(super) mod cascade;
pub(super) mod decode;
pub(super) mod extend;
pub(super) mod split;

use super::abi::{DIRECT, MergeItem};

/// The parameters of plans besides the batch: heads, and how many thread blocks run concurrently.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanParams {
    /// Query heads.
    pub(super) query_heads: usize,
    /// KV heads, or other groups of query heads, each decoded by its own thread blocks.
    pub(super) kv_heads: usize,
    /// Thread blocks of `decode` that the device runs concurrently.
    pub(super) decode_slots: usize,
    /// Thread blocks of `extend` and `cascade` that the device runs concurrently.
    pub(super) tile_slots: usize,
    /// The most query rows of a tile.
    pub(super) tile_rows: usize,
    /// Tokens that a row sees; `None` for all before it.
    pub(super) window: Option<u32>,
}

impl PlanParams {
    /// Query heads of one KV head.
    pub(super) fn group(&self) -> usize {
        self.query_heads / self.kv_heads
    }

    /// The first token seen by a row that sees no token from `position` on.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| position.saturating_sub(window as usize))
    }

    /// Query tokens of a tile.
    fn tile_tokens(&self) -> usize {
        self.tile_rows / self.group()
    }

    /// The output row of the first query head of `kv_head`, for a row of the batch.
    fn row(&self, row: usize, kv_head: usize) -> u32 {
        (row * self.query_heads + kv_head * self.group()) as u32
    }
}

/// Partial rows, and the output rows that are merged from them.
#[derive(Debug, Default)]
pub(super) struct Merges {
    pub(super) items: Vec<MergeItem>,
    pub(super) list: Vec<u32>,
    /// Number of partial rows.
    pub(super) part_rows: usize,
}

impl Merges {
    /// Adds `rows` partial rows; returns the number of the first.
    fn take(&mut self, rows: usize) -> u32 {
        let first = self.part_rows as u32;
        self.part_rows += rows;
        first
    }

    /// Adds the merging of the output rows `row..row + rows` from `parts`.
    fn add(&mut self, row: u32, rows: usize, parts: impl IntoIterator<Item = u32>) {
        let first = self.list.len();
        self.list.extend(parts);
        debug_assert!(!self.list[first..].contains(&DIRECT));
        let count = (self.list.len() - first) as u32;
        self.items.push(MergeItem { row, rows: rows as u32, first: first as u32, count });
    }

    /// The largest number of rows of an item.
    pub(super) fn most_rows(&self) -> usize {
        self.items.iter().map(|item| item.rows as usize).max().unwrap_or(0)
    }
}
