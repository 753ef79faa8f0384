//! The plan of extend: chunks of prompts.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Merges, PlanParams, split};
use crate::abi::{DIRECT, Tile};

/// Work over one block table, the longest tiles first.
#[derive(Debug, Default)]
pub(in super::super) struct ExtendPlan {
    pub(in super::super) tiles: Vec<Tile>,
    pub(in super::super) merges: Merges,
}

/// Rows of one sequence and the keys that they see.
#[derive(Debug, Clone)]
pub(in super::super) struct Chunk {
    /// The index of the sequence's first block in the block table.
    pub(in super::super) table: u32,
    /// The rows of the sequence in the batch.
    pub(in super::super) rows: Range<usize>,
    /// Tokens that it attends to; its rows are the last of them.
    pub(in super::super) context: usize,
    /// Whether each row sees only those rows that its mask names, and not all rows up to itself.
    pub(in super::super) is_tree: bool,
}

/// Cuts rows into tiles and their keys into parts.
pub(in super::super) fn plan(params: &PlanParams, chunks: &[Chunk]) -> ExtendPlan {
    let step = params.tile_tokens();
    let tiles = || chunks.iter().flat_map(|chunk| chunk.rows.clone().step_by(step).map(move |first| (chunk, first)));
    let keys = |(chunk, first): (&Chunk, usize)| chunk.seen_by_tile(params, first, step);
    let lengths: Vec<usize> = tiles().map(|tile| keys(tile).len()).collect();
    let part = split::longest_part(&lengths, params.kv_heads, params.tile_slots);
    let mut plan = ExtendPlan::default();
    for (chunk, first) in tiles() {
        let tokens = first..(first + step).min(chunk.rows.end);
        let pieces = split::parts(keys((chunk, first)), part);
        for kv_head in 0..params.kv_heads {
            let tile = chunk.tile(params, kv_head, &tokens);
            add(params, &mut plan, tile, pieces.clone());
        }
    }
    sort(&mut plan.tiles);
    plan
}

/// Plans rows whose keys are not in the blocks of their sequence: tiles over two block tables,
/// whose parts are merged.
///
/// `before` are the chunks with the context that precedes their rows, `own` the same rows with only
/// themselves as context.
pub(in super::super) fn plan_apart(params: &PlanParams, before: &[Chunk], own: &[Chunk]) -> (Vec<Tile>, ExtendPlan) {
    let step = params.tile_tokens();
    let mut lengths = Vec::new();
    for (before, own) in before.iter().zip(own) {
        let tiles = own.rows.clone().step_by(step);
        lengths.extend(tiles.map(|first| before.context.max(own.seen_by_tile(params, first, step).len())));
    }
    let part = split::longest_part(&lengths, 2 * params.kv_heads, params.tile_slots);
    let mut plan = ExtendPlan::default();
    let mut tiles_before = Vec::new();
    for (before, own) in before.iter().zip(own) {
        for first in own.rows.clone().step_by(step) {
            let tokens = first..(first + step).min(own.rows.end);
            for kv_head in 0..params.kv_heads {
                let causal = own.tile(params, kv_head, &tokens);
                // The first of the rows' own keys follows the context before them.
                let visible = before.context as u32 + 1;
                let all = Tile { table: before.table, visible, ..causal };
                let seen = own.seen_by_tile(params, first, step);
                let position = before.context + if own.is_tree { 1 } else { own.seen_by(first) };
                let seen_before = params.first_seen(position).min(before.context)..before.context;
                let mut parts = take(&mut plan.merges, &mut plan.tiles, causal, split::parts(seen, part));
                parts.extend(take(&mut plan.merges, &mut tiles_before, all, split::parts(seen_before, part)));
                merge(params, &mut plan.merges, &causal, &tokens, &parts);
            }
        }
    }
    sort(&mut plan.tiles);
    sort(&mut tiles_before);
    (tiles_before, plan)
}

impl Chunk {
    /// The same rows, with the context that precedes them.
    pub(in super::super) fn before(&self) -> Self {
        Self { context: self.context - self.rows.len(), ..self.clone() }
    }

    /// Number of keys that the row sees: all up to itself.
    fn seen_by(&self, row: usize) -> usize {
        self.context + row + 1 - self.rows.end
    }

    /// The keys that some row of the tile sees; the tile has `step` rows from `first` on.
    fn seen_by_tile(&self, params: &PlanParams, first: usize, step: usize) -> Range<usize> {
        if self.is_tree {
            return params.first_seen(self.seen_by(self.rows.start))..self.context;
        }
        let last = (first + step).min(self.rows.end) - 1;
        params.first_seen(self.seen_by(first))..self.seen_by(last)
    }

    /// The tile of these rows, without its keys.
    fn tile(&self, params: &PlanParams, kv_head: usize, tokens: &Range<usize>) -> Tile {
        Tile {
            table: self.table,
            kv_head: kv_head as u32,
            part: DIRECT,
            row_first: ((tokens.start - self.rows.start) * params.group()) as u32,
            rows: (tokens.len() * params.group()) as u32,
            query_first: self.rows.start as u32,
            visible: self.seen_by(self.rows.start) as u32,
            ..Tile::default()
        }
    }
}

fn add(params: &PlanParams, plan: &mut ExtendPlan, tile: Tile, parts: impl Iterator<Item = Range<usize>> + Clone) {
    if parts.clone().count() == 1 {
        let keys = parts.clone().next().unwrap_or_default();
        plan.tiles.push(Tile { first: keys.start as u32, end: keys.end as u32, ..tile });
        return;
    }
    let first = tile.query_first as usize + tile.row_first as usize / params.group();
    let tokens = first..first + tile.rows as usize / params.group();
    let parts = take(&mut plan.merges, &mut plan.tiles, tile, parts);
    merge(params, &mut plan.merges, &tile, &tokens, &parts);
}

/// Adds a tile for each part; returns their partial rows.
pub(super) fn take(
    merges: &mut Merges,
    tiles: &mut Vec<Tile>,
    tile: Tile,
    parts: impl Iterator<Item = Range<usize>>,
) -> Vec<u32> {
    let mut rows = Vec::new();
    for keys in parts {
        let part = merges.take(tile.rows as usize);
        tiles.push(Tile { first: keys.start as u32, end: keys.end as u32, part, ..tile });
        rows.push(part);
    }
    rows
}

/// Merges the parts of a tile token by token: in the output, only the heads of one token are
/// adjacent.
fn merge(params: &PlanParams, merges: &mut Merges, tile: &Tile, tokens: &Range<usize>, parts: &[u32]) {
    for (index, token) in tokens.clone().enumerate() {
        let before = (index * params.group()) as u32;
        let row = params.row(token, tile.kv_head as usize);
        merges.add(row, params.group(), parts.iter().map(|part| part + before));
    }
}

/// Sorts the longest first; the heads of one range of keys are adjacent.
fn sort(tiles: &mut [Tile]) {
    tiles.sort_unstable_by_key(|tile| {
        (Reverse(tile.end - tile.first), tile.table, tile.query_first, tile.row_first, tile.first, tile.kv_head)
    });
}

#[cfg(test)]
mod tests;
