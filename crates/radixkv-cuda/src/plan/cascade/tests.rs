use super::*;
use crate::abi::DIRECT;
use radixkv_attention::plan::Group;

#[test]
fn prefix_and_rest_make_the_context() {
    let params =
        PlanParams { query_heads: 14, kv_heads: 2, decode_slots: 264, tile_slots: 132, tile_rows: 128, window: None };
    let contexts: Vec<u32> = (0..40).map(|sequence| 2048 + sequence).chain([300]).collect();
    let groups = vec![
        Group { sequences: (0..40).collect(), shared_tokens: 2048 },
        Group { sequences: vec![40], shared_tokens: 0 },
    ];
    let tables: Vec<u32> = (0..41).map(|sequence| 1000 * sequence).collect();
    let plan = plan(&params, &contexts, &tables, &Sharing { groups });
    assert_eq!(plan.members, (0..41).collect::<Vec<u32>>());
    let (rests, prefixes): (Vec<&Tile>, _) = plan.tiles.iter().partition(|tile| tile.rows == 7);
    assert!(prefixes.iter().all(|tile| tile.table == 0 && tile.end <= 2048));
    assert!(rests.iter().all(|tile| tile.table == 1000 * tile.query_first));
    // Keys read for each sequence and head: in tiles of all sharers, and in tiles of its own.
    for sequence in 0..41_u32 {
        for kv_head in 0..2 {
            let has = |tile: &&Tile| {
                tile.kv_head == kv_head && (tile.query_first..tile.query_first + tile.rows / 7).contains(&sequence)
            };
            let keys: u32 = plan.tiles.iter().filter(has).map(|tile| tile.end - tile.first).sum();
            assert_eq!(keys, contexts[sequence as usize]);
        }
    }
    let in_parts = plan.tiles.iter().filter(|tile| tile.part != DIRECT);
    let rows: u32 = in_parts.map(|tile| tile.rows).sum();
    assert_eq!(rows as usize, plan.merges.part_rows);
}

#[test]
fn a_sequence_that_ends_with_its_prefix_has_no_rest() {
    let params =
        PlanParams { query_heads: 8, kv_heads: 1, decode_slots: 264, tile_slots: 132, tile_rows: 128, window: None };
    let groups = vec![Group { sequences: vec![0, 1], shared_tokens: 64 }];
    let plan = plan(&params, &[64, 65], &[0, 0], &Sharing { groups });
    assert_eq!(plan.tiles.iter().filter(|tile| tile.rows == 8).count(), 1);
    assert_eq!(plan.merges.items.iter().map(|item| item.count).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn rests_start_beside_prefixes() {
    let params =
        PlanParams { query_heads: 64, kv_heads: 8, decode_slots: 264, tile_slots: 264, tile_rows: 128, window: None };
    let order = |prefix: usize, sharers: u32| {
        let tables: Vec<u32> = (0..sharers).collect();
        let contexts = vec![prefix as u32 + 256; sharers as usize];
        let groups = vec![Group { sequences: tables.clone(), shared_tokens: prefix }];
        let plan = plan(&params, &contexts, &tables, &Sharing { groups });
        let runs = plan.tiles.chunk_by(|a, b| a.rows == b.rows);
        runs.map(|run| (run[0].rows, run.len())).collect::<Vec<_>>()
    };
    assert_eq!(order(8192, 64), [(128, 132), (8, 240), (128, 124), (8, 272)]);
    // A prefix that takes less than half of the slots has all rests beside it.
    assert_eq!(order(1024, 16), [(128, 64), (8, 256)]);
}
