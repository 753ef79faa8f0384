use super::*;

fn params(query_heads: usize, kv_heads: usize) -> PlanParams {
    PlanParams { query_heads, kv_heads, decode_slots: 264, tile_slots: 132, tile_rows: 128, window: None }
}

/// Counts how often each query row and head meets each key, by the visibility in the tiles.
fn met(params: &PlanParams, tiles: &[Tile], rows: usize, keys: usize) -> Vec<u8> {
    let mut met = vec![0; rows * params.query_heads * keys];
    for tile in tiles {
        for row in 0..tile.rows as usize {
            let row = tile.row_first as usize + row;
            let (token, head) = (row / params.group(), row % params.group());
            let query = tile.query_first as usize + token;
            let head = tile.kv_head as usize * params.group() + head;
            let end = (tile.visible as usize + token).min(tile.end as usize);
            let first = params.first_seen(tile.visible as usize + token).max(tile.first as usize);
            for key in first..end {
                met[(query * params.query_heads + head) * keys + key] += 1;
            }
        }
    }
    met
}

#[test]
fn every_row_meets_every_key_up_to_itself_once() {
    for (query_heads, kv_heads) in [(4, 4), (8, 2), (14, 2), (16, 1)] {
        for window in [None, Some(1), Some(50)] {
            let params = PlanParams { window, ..params(query_heads, kv_heads) };
            for (rows, context) in [(1, 1), (1, 700), (33, 33), (40, 1000), (200, 200)] {
                let chunk = Chunk { table: 5, rows: 0..rows, context, is_tree: false };
                let plan = plan(&params, &[chunk]);
                let met = met(&params, &plan.tiles, rows, context);
                for (index, count) in met.iter().enumerate() {
                    let (row, key) = (index / context / query_heads, index % context);
                    let seen = context - rows + row + 1;
                    let sees = (params.first_seen(seen)..seen).contains(&key);
                    assert_eq!(*count, u8::from(sees), "window {window:?}, row {row}, key {key}");
                }
                let first = params.first_seen(context - rows + 1) as u32;
                assert!(plan.tiles.iter().all(|tile| tile.first >= first), "window {window:?}");
            }
        }
    }
}

#[test]
fn rows_that_lie_apart_meet_both_tables() {
    let params = params(8, 2);
    let chunk = |table, rows, context| Chunk { table, rows, context, is_tree: false };
    let before = [chunk(0, 0..70, 500), chunk(9, 70..75, 0)];
    let own = [chunk(20, 0..70, 70), chunk(30, 70..75, 5)];
    let (tiles, plan) = plan_apart(&params, &before, &own);
    assert!(tiles.iter().all(|tile| tile.visible == 501 && tile.table == 0 && tile.part != DIRECT));
    assert!(plan.tiles.iter().all(|tile| tile.part != DIRECT));
    let rows: u32 = tiles.iter().chain(&plan.tiles).map(|tile| tile.rows).sum();
    assert_eq!(rows as usize, plan.merges.part_rows);
    // Every output row is merged once.
    let mut outputs: Vec<u32> = plan.merges.items.iter().flat_map(|item| item.row..item.row + item.rows).collect();
    outputs.sort_unstable();
    assert!(outputs.into_iter().eq(0..75 * 8));
}
