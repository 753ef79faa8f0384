//! The plan of cascade: one row for each sequence. A shared prefix is read once for its sharers,
//! and then the rest of each sequence.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Merges, PlanParams, extend, split};
use crate::abi::{DIRECT, Tile};
use radixkv_attention::plan::Sharing;

/// The work of one decode step with shared prefixes.
#[derive(Debug, Default)]
pub(in super::super) struct CascadePlan {
    /// Tiles of the sharers of a prefix, over the prefix; and tiles of one sequence, over the rest
    /// of its context.
    pub(in super::super) tiles: Vec<Tile>,
    /// The sequences of all groups, one group after another: the rows of the tiles.
    pub(in super::super) members: Vec<u32>,
    /// Tokens of each member.
    pub(in super::super) contexts: Vec<u32>,
    pub(in super::super) merges: Merges,
}

/// Cuts prefixes and rests into parts; `tables` are the indices of each sequence's first block in
/// the block table.
pub(in super::super) fn plan(params: &PlanParams, contexts: &[u32], tables: &[u32], sharing: &Sharing) -> CascadePlan {
    let (prefix_part, rest_part) = longest_parts(params, contexts, sharing);
    let step = params.tile_tokens();
    let (mut prefixes, mut rests) = (Vec::new(), Vec::new());
    let (mut members, mut merges) = (Vec::new(), Merges::default());
    for group in &sharing.groups {
        for sharers in group.sequences.chunks(step) {
            let first = members.len();
            members.extend(sharers);
            let all = first..members.len();
            let seen = sharers.iter().map(|sequence| params.first_seen(contexts[*sequence as usize] as usize)).min();
            let seen = seen.unwrap_or(0).min(group.shared_tokens)..group.shared_tokens;
            for kv_head in 0..params.kv_heads {
                let shared = tile(params, tables[group.sequences[0] as usize], kv_head, &all);
                let keys = split::parts(seen.clone(), prefix_part);
                let prefix = extend::take(&mut merges, &mut prefixes, shared, keys);
                for (index, &sequence) in sharers.iter().enumerate() {
                    let (member, sequence) = (first + index, sequence as usize);
                    let own = tile(params, tables[sequence], kv_head, &(member..member + 1));
                    let context = contexts[sequence] as usize;
                    let first_seen = params.first_seen(context).max(group.shared_tokens);
                    let keys = split::parts(first_seen..context, rest_part);
                    if prefix.is_empty() && keys.clone().count() == 1 {
                        rests.extend(keys.map(|keys| Tile { first: keys.start as u32, end: keys.end as u32, ..own }));
                        continue;
                    }
                    let rest = extend::take(&mut merges, &mut rests, own, keys);
                    let before = (index * params.group()) as u32;
                    let parts = prefix.iter().map(|part| part + before).chain(rest);
                    merges.add(params.row(sequence, kv_head), params.group(), parts);
                }
            }
        }
    }
    sort(&mut prefixes);
    sort(&mut rests);
    let of_members = members.iter().map(|member| contexts[*member as usize]).collect();
    CascadePlan { tiles: side_by_side(prefixes, rests, params.tile_slots), members, contexts: of_members, merges }
}

/// The tile of these members, without its keys.
fn tile(params: &PlanParams, table: u32, kv_head: usize, members: &Range<usize>) -> Tile {
    let rows = (members.len() * params.group()) as u32;
    let (kv_head, query_first) = (kv_head as u32, members.start as u32);
    Tile { table, kv_head, rows, query_first, part: DIRECT, ..Tile::default() }
}

/// Sorts the longest first; tiles that read the same keys are adjacent, so that the cache has these
/// keys for all tiles but the first.
fn sort(tiles: &mut [Tile]) {
    tiles.sort_unstable_by_key(|tile| {
        (Reverse(tile.end - tile.first), tile.table, tile.first, tile.kv_head, tile.query_first)
    });
}

/// The order in which tiles start. Prefixes keep the tensor cores busy and rests the memory, so
/// half of the slots begin with prefixes and half with rests. The prefixes that are left follow
/// after half of the rests, and the other rests are last, beside these prefixes. If few prefixes
/// are left, fewer rests precede them.
fn side_by_side(mut prefixes: Vec<Tile>, mut rests: Vec<Tile>, slots: usize) -> Vec<Tile> {
    let half = slots / 2;
    let left = prefixes.split_off(half.min(prefixes.len()));
    let last = rests.split_off(rests.len() * left.len().min(half) / slots);
    [prefixes, rests, left, last].concat()
}

/// How long the parts of prefixes and of rests may be.
fn longest_parts(params: &PlanParams, contexts: &[u32], sharing: &Sharing) -> (usize, usize) {
    let step = params.tile_tokens();
    let (mut prefixes, mut rests) = (Vec::new(), Vec::new());
    for group in &sharing.groups {
        let tiles = if group.shared_tokens == 0 { 0 } else { group.sequences.len().div_ceil(step) };
        prefixes.extend(std::iter::repeat_n(group.shared_tokens, tiles));
        let rest = |sequence: &u32| contexts[*sequence as usize] as usize - group.shared_tokens;
        rests.extend(group.sequences.iter().map(rest));
    }
    let longest = |lengths: &[usize]| split::longest_part(lengths, params.kv_heads, params.tile_slots);
    (longest(&prefixes), longest(&rests))
}

#[cfg(test)]
mod tests;
