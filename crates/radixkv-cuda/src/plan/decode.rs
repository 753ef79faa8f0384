//! The plan of decode: one row for each sequence.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Merges, PlanParams, split};
use crate::abi::{DIRECT, DecodeItem};

/// The work of one decode step, the longest items first.
#[derive(Debug, Default)]
pub(in super::super) struct DecodePlan {
    pub(in super::super) items: Vec<DecodeItem>,
    pub(in super::super) merges: Merges,
}

/// A sequence, and the index of its first block in the block table.
#[derive(Debug, Clone, Copy)]
struct TableSpan {
    sequence: usize,
    table: u32,
    /// Tokens of the sequence.
    position: u32,
}

/// Cuts the contexts of a batch into parts; `tables` are the indices of each sequence's first block
/// in the block table.
pub(in super::super) fn plan(params: &PlanParams, contexts: &[u32], tables: &[u32]) -> DecodePlan {
    plan_within(params, contexts, tables, usize::MAX)
}

/// As [`plan`], with at most `most` items, or one for each head of each sequence if these are more.
pub(in super::super) fn plan_within(params: &PlanParams, contexts: &[u32], tables: &[u32], most: usize) -> DecodePlan {
    let keys = |context: &u32| params.first_seen(*context as usize)..*context as usize;
    let lengths: Vec<usize> = contexts.iter().map(|context| keys(context).len()).collect();
    let part = split::longest_part_within(&lengths, params.kv_heads, params.decode_slots, most);
    let mut plan = DecodePlan::default();
    for (sequence, (context, table)) in contexts.iter().zip(tables).enumerate() {
        add(params, &mut plan, TableSpan { sequence, table: *table, position: *context }, keys(context), part);
    }
    sort(&mut plan.items);
    plan
}

/// Adds the context of a sequence.
fn add(params: &PlanParams, plan: &mut DecodePlan, span: TableSpan, keys: Range<usize>, part: usize) {
    let parts = split::parts(keys, part);
    let count = parts.clone().count();
    if count == 1 {
        let whole = parts.clone().next().unwrap_or_default();
        plan.items.extend((0..params.kv_heads).map(|kv_head| item(span, kv_head, &whole, DIRECT)));
        return;
    }
    for kv_head in 0..params.kv_heads {
        let rows = add_parts(params, plan, span, kv_head, parts.clone());
        plan.merges.add(params.row(span.sequence, kv_head), params.group(), rows);
    }
}

/// Adds the parts of one head of a sequence; returns their partial rows.
fn add_parts(
    params: &PlanParams,
    plan: &mut DecodePlan,
    span: TableSpan,
    kv_head: usize,
    parts: impl Iterator<Item = Range<usize>>,
) -> Vec<u32> {
    let mut rows = Vec::new();
    for keys in parts {
        let part = plan.merges.take(params.group());
        plan.items.push(item(span, kv_head, &keys, part));
        rows.push(part);
    }
    rows
}

fn item(span: TableSpan, kv_head: usize, keys: &Range<usize>, part: u32) -> DecodeItem {
    let (first, end, kv_head) = (keys.start as u32, keys.end as u32, kv_head as u32);
    let TableSpan { sequence, table, position } = span;
    DecodeItem { sequence: sequence as u32, table, kv_head, first, end, part, position, pad: 0 }
}

/// Sorts the longest first; the heads of one range of keys are adjacent, as in memory.
fn sort(items: &mut [DecodeItem]) {
    items.sort_unstable_by_key(|item| (Reverse(item.end - item.first), item.sequence, item.first, item.kv_head));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: PlanParams =
        PlanParams { query_heads: 64, kv_heads: 8, decode_slots: 264, tile_slots: 132, tile_rows: 128, window: None };

    #[test]
    fn every_key_of_every_head_is_read_once() {
        for contexts in [&[32_768_u32][..], &[1, 15, 16, 17, 8192, 0], &[4096; 64]] {
            let tables: Vec<u32> = (0..contexts.len() as u32).map(|sequence| 100 * sequence).collect();
            let plan = plan(&PARAMS, contexts, &tables);
            assert!(plan.items.iter().all(|item| item.table == 100 * item.sequence));
            for (sequence, context) in contexts.iter().enumerate() {
                for kv_head in 0..8 {
                    let mine = |item: &&DecodeItem| (item.sequence, item.kv_head) == (sequence as u32, kv_head);
                    let mut ranges: Vec<_> =
                        plan.items.iter().filter(mine).map(|item| (item.first, item.end)).collect();
                    ranges.sort_unstable();
                    let mut at = 0;
                    for (first, end) in ranges {
                        assert_eq!(first, at);
                        at = end;
                    }
                    assert_eq!(at, *context);
                }
            }
        }
    }

    #[test]
    fn a_window_leaves_out_the_keys_before_it() {
        let params = PlanParams { window: Some(1000), ..PARAMS };
        let plan = plan(&params, &[100, 32_768], &[0; 2]);
        let firsts = |sequence| plan.items.iter().filter(move |item| item.sequence == sequence).map(|item| item.first);
        assert_eq!((firsts(0).min(), firsts(1).min()), (Some(0), Some(31_768)));
        let keys: u32 = plan.items.iter().map(|item| item.end - item.first).sum();
        assert_eq!(keys, 8 * (100 + 1000));
        assert!(plan.items.iter().all(|item| item.position == [100, 32_768][item.sequence as usize]));
    }

    #[test]
    fn parts_are_merged_and_wholes_are_not() {
        let plan = plan(&PARAMS, &[100, 32_768, 0], &[0; 3]);
        let direct = plan.items.iter().filter(|item| item.part == DIRECT);
        assert!(direct.clone().all(|item| item.sequence == 0) && direct.count() == 8);
        // The long one is merged from its parts, the empty one from none.
        assert_eq!(plan.merges.items.len(), 16);
        let parts: usize = plan.merges.items.iter().map(|item| item.count as usize).sum();
        assert_eq!(parts * PARAMS.group(), plan.merges.part_rows);
        assert!(plan.items.is_sorted_by_key(|item| Reverse(item.end - item.first)));
    }
}
