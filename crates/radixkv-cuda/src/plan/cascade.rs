//! Cascade: one row for each sequence; a shared prefix is read once for its sharers, then the rest of each sequence.

use super::decode::{self, TableSpan};
use super::{PlanParams, extend, split};
use crate::abi::{ALL, Tile};
use crate::kernel::TILE_ROWS;
use radixkv_attention::plan::Sharing;

/// The work of one decode step with shared prefixes.
#[derive(Debug, Default)]
pub(in super::super) struct CascadePlan {
    /// Tiles of the sharers of a prefix, over the prefix.
    pub(in super::super) tiles: Vec<Tile>,
    /// The sequences of all groups, one group after another: the rows of the tiles.
    pub(in super::super) members: Vec<u32>,
    /// The items over the rest of each sequence, and all merges.
    pub(in super::super) rest: decode::DecodePlan,
}

/// Cuts prefixes and rests into parts; `tables` are where the blocks of each sequence begin.
pub(in super::super) fn plan(params: &PlanParams, contexts: &[u32], tables: &[u32], sharing: &Sharing) -> CascadePlan {
    let (prefix_part, rest_part) = longest_parts(params, contexts, sharing);
    let step = TILE_ROWS / params.group();
    let span = |sequence: u32| TableSpan { sequence: sequence as usize, table: tables[sequence as usize] };
    let mut plan = CascadePlan::default();
    for group in &sharing.groups {
        if group.shared_tokens == 0 {
            for &sequence in &group.sequences {
                let keys = 0..contexts[sequence as usize] as usize;
                decode::add(params, &mut plan.rest, span(sequence), keys, rest_part);
            }
            continue;
        }
        let table = tables[group.sequences[0] as usize];
        for members in group.sequences.chunks(step) {
            let first = plan.members.len();
            plan.members.extend(members);
            for kv_head in 0..params.kv_heads {
                let tile = Tile {
                    table,
                    kv_head: kv_head as u32,
                    rows: (members.len() * params.group()) as u32,
                    query_first: first as u32,
                    visible: ALL,
                    ..Tile::default()
                };
                let keys = split::parts(0..group.shared_tokens, prefix_part);
                let prefix = extend::take(&mut plan.rest.merges, &mut plan.tiles, tile, keys);
                for (index, &sequence) in members.iter().enumerate() {
                    let keys = group.shared_tokens..contexts[sequence as usize] as usize;
                    let keys = split::parts(keys, rest_part);
                    let rest = decode::add_parts(params, &mut plan.rest, span(sequence), kv_head, keys);
                    let before = (index * params.group()) as u32;
                    let parts = prefix.iter().map(|part| part + before).chain(rest);
                    plan.rest.merges.add(params.row(sequence as usize, kv_head), params.group(), parts);
                }
            }
        }
    }
    extend::sort(&mut plan.tiles);
    decode::sort(&mut plan.rest.items);
    plan
}

/// How long the parts of prefixes and of rests may be.
fn longest_parts(params: &PlanParams, contexts: &[u32], sharing: &Sharing) -> (usize, usize) {
    let step = TILE_ROWS / params.group();
    let (mut prefixes, mut rests) = (Vec::new(), Vec::new());
    for group in &sharing.groups {
        let tiles = if group.shared_tokens == 0 { 0 } else { group.sequences.len().div_ceil(step) };
        prefixes.extend(std::iter::repeat_n(group.shared_tokens, tiles));
        let rest = |sequence: &u32| contexts[*sequence as usize] as usize - group.shared_tokens;
        rests.extend(group.sequences.iter().map(rest));
    }
    (
        split::longest_part(&prefixes, params.kv_heads, params.tile_slots),
        split::longest_part(&rests, params.kv_heads, params.decode_slots),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use radixkv_attention::plan::Group;

    #[test]
    fn prefix_and_rest_make_the_context() {
        let params = PlanParams { query_heads: 14, kv_heads: 2, decode_slots: 264, tile_slots: 132 };
        let contexts: Vec<u32> = (0..40).map(|sequence| 2048 + sequence).chain([300]).collect();
        let groups = vec![
            Group { sequences: (0..40).collect(), shared_tokens: 2048 },
            Group { sequences: vec![40], shared_tokens: 0 },
        ];
        let tables: Vec<u32> = (0..41).map(|sequence| 1000 * sequence).collect();
        let plan = plan(&params, &contexts, &tables, &Sharing { groups });
        assert_eq!(plan.members, (0..40).collect::<Vec<u32>>());
        assert!(plan.tiles.iter().all(|tile| tile.table == 0 && tile.end <= 2048));
        // Keys read for each sequence and head: in its tile, and in items of its own.
        for sequence in 0..41_u32 {
            for kv_head in 0..2 {
                let rest = plan.rest.items.iter().filter(|item| (item.sequence, item.kv_head) == (sequence, kv_head));
                let rest: u32 = rest.map(|item| item.end - item.first).sum();
                let in_tile = |tile: &&Tile| {
                    tile.kv_head == kv_head && (tile.query_first..tile.query_first + tile.rows / 7).contains(&sequence)
                };
                let prefix: u32 = plan.tiles.iter().filter(in_tile).map(|tile| tile.end - tile.first).sum();
                assert_eq!(prefix + rest, contexts[sequence as usize]);
            }
        }
        let rows: u32 = plan.tiles.iter().map(|tile| tile.rows).sum();
        let rest = plan.rest.items.iter().filter(|item| item.part != crate::abi::DIRECT).count();
        assert_eq!(rows as usize + rest * 7, plan.rest.merges.part_rows);
    }

    #[test]
    fn a_sequence_that_ends_with_its_prefix_has_no_rest() {
        let params = PlanParams { query_heads: 8, kv_heads: 1, decode_slots: 264, tile_slots: 132 };
        let groups = vec![Group { sequences: vec![0, 1], shared_tokens: 64 }];
        let plan = plan(&params, &[64, 65], &[0, 0], &Sharing { groups });
        assert_eq!(plan.rest.items.len(), 1);
        assert_eq!(plan.rest.merges.items.iter().map(|item| item.count).collect::<Vec<_>>(), [1, 2]);
    }
}
