//! Compares each row of a tree of drafted tokens with the definition on the sequence of its path.

use super::*;

/// Draws masks: a row sees itself, and mostly a random earlier row with everything that that row
/// sees.
fn tree(rows: usize, dice: &mut Rng) -> Vec<u32> {
    let mut masks: Vec<u32> = Vec::new();
    for row in 0..rows {
        let parent = if row > 0 && dice.u8(..5) > 0 { masks[dice.usize(..row)] } else { 0 };
        masks.push(1 << row | parent);
    }
    masks
}

/// The sequence of the tokens before a tree and those of the tree that a row sees.
fn path(model: &Model, text: &Text, before: usize, mask: u32, rows: usize) -> Text {
    let tokens = || (0..before).chain((0..rows).filter(move |row| mask >> row & 1 == 1).map(move |row| before + row));
    let pick = |of: &[f32], row: usize| tokens().flat_map(|token| of[token * row..][..row].to_vec()).collect();
    Text {
        queries: pick(&text.queries, model.query_heads * model.head_dim),
        keys: pick(&text.keys, model.kv_heads * model.head_dim),
        values: pick(&text.values, model.value_row()),
    }
}

#[test]
fn a_row_of_a_tree_sees_its_path() {
    for seed in 1..=24 {
        let dice = &mut Rng::with_seed(seed);
        let drawn = Model::draw(dice);
        let model = Model { slopes: Vec::new(), window: drawn.window.map(|window| window.max(32)), ..drawn };
        let (before, rows) = (dice.usize(..150), dice.usize(1..=32));
        let texts = [model.text(before + rows, dice)];
        let block_size = dice.choice([1, 5, 16, 64]).expect("one of them");
        let bed = Bed::new(model.clone(), block_size, Order::Nhd, &[before + rows], dice);
        if before > 0 {
            bed.step(any(dice), &vec![(0, 0..before)], &texts, How::Extend);
        }
        let masks = tree(rows, dice);
        let chunk: Chunks = vec![(0, before..before + rows)];
        let how = if dice.bool() { How::Extend } else { How::Discard };
        let (out, lse) = bed.step_of_tree(any(dice), &chunk, &masks, &texts, how);
        for (row, mask) in masks.iter().enumerate() {
            let path = path(&model, &texts[0], before, *mask, rows);
            let position = before + mask.count_ones() as usize - 1;
            for head in 0..model.query_heads {
                let (defined, defined_lse) = model.defined(&path, bed.layer, position, head);
                let (place, by) =
                    (row * model.query_heads + head, 4e-6 + f64::from(model.soft_cap.unwrap_or(0.0)) * 5e-7);
                let context = format!("seed {seed}, {model:?}, row {row}, mask {mask:#b}, head {head}");
                for (defined, computed) in defined.iter().zip(&out[place * model.value_dim..]) {
                    assert!(close(*defined, *computed, by), "{defined} {computed}: {context}");
                }
                assert!(close(defined_lse, lse[place], 2.0 * by * defined_lse.abs().max(1.0)), "{context}");
            }
        }
    }
}
