use super::*;
use crate::{Dtype, Order};

const LAYOUT: Layout = Layout {
    layers: 1,
    blocks: 8,
    block_size: 4,
    kv_heads: 2,
    head_dim: 4,
    value_dim: 4,
    dtype: Dtype::F32,
    order: Order::Nhd,
};

/// Two sequences: one row on a context of 5, three on a context of 3.
const GOOD: Batch<'_> = Batch {
    query_heads: 4,
    scale: 0.5,
    scoring: Scoring { window: None, soft_cap: None, sinks: &[], alibi_slopes: &[], trees: &[] },
    tables: Tables { blocks: &[1, 7, 2], offsets: &[0, 2, 3] },
    contexts: &[5, 3],
    rows: &[0, 1, 4],
    save_kv: true,
    slots: &[28, 8, 9, 10],
};

// Holds: AT11.
#[test]
fn what_is_wrong_is_named() {
    assert_eq!(GOOD.check(&LAYOUT), Ok(()));
    let no_heads = Layout { kv_heads: 0, ..LAYOUT };
    assert_eq!(GOOD.check(&no_heads), Err(ShapeError::Zero { what: "kv_heads" }));
    let wrong = |batch: Batch<'_>, error| assert_eq!(batch.check(&LAYOUT), Err(error));
    for query_heads in [0, 3, 34] {
        wrong(Batch { query_heads, ..GOOD }, ShapeError::Heads { query_heads, kv_heads: 2 });
    }
    let latent = Layout { kv_heads: 1, order: Order::Latent, ..LAYOUT };
    for (query_heads, is_good) in [(0, false), (1, true), (128, true), (129, false)] {
        let refused = if is_good { Ok(()) } else { Err(ShapeError::LatentHeads { query_heads }) };
        assert_eq!(Batch { query_heads, ..GOOD }.check(&latent), refused);
    }
    wrong(Batch { scale: f32::INFINITY, ..GOOD }, ShapeError::Scale { scale: f32::INFINITY });
    let tables = Tables { offsets: &[0, 3], ..GOOD.tables };
    wrong(Batch { tables, ..GOOD }, ShapeError::Length { what: "table offsets", given: 2, needed: 3 });
    let tables = Tables { offsets: &[0, 2, 2], ..GOOD.tables };
    wrong(Batch { tables, ..GOOD }, ShapeError::Span { what: "table offsets", first: 0, last: 2, end: 3 });
    wrong(Batch { rows: &[0, 5, 4], ..GOOD }, ShapeError::Descending { what: "row offsets", index: 1 });
    wrong(Batch { rows: &[], ..GOOD }, ShapeError::Length { what: "row offsets", given: 0, needed: 3 });
    wrong(Batch { slots: &[], ..GOOD }, ShapeError::Length { what: "slots", given: 0, needed: 4 });
    wrong(Batch { slots: &[28, 8, 32, 10], ..GOOD }, ShapeError::Slot { row: 2, slot: 32, slots: 32 });
    wrong(Batch { slots: &[28, 8, 12, 10], ..GOOD }, ShapeError::Place { row: 2, slot: 12, needed: 9 });
    let tables = Tables { blocks: &[1, 7, 7], ..GOOD.tables };
    let twice = Batch { tables, slots: &[28, 28, 29, 30], ..GOOD };
    wrong(twice, ShapeError::SlotTwice { slot: 28 });
    let scoring = Scoring { window: Some(0), ..Scoring::default() };
    wrong(Batch { scoring, ..GOOD }, ShapeError::Zero { what: "window" });
    for soft_cap in [0.0, -1.0, f32::INFINITY] {
        let scoring = Scoring { soft_cap: Some(soft_cap), ..Scoring::default() };
        wrong(Batch { scoring, ..GOOD }, ShapeError::SoftCap { soft_cap });
    }
    // NaN equals nothing, so `wrong` cannot compare these errors.
    let nothing = Scoring { soft_cap: Some(f32::NAN), ..Scoring::default() };
    let refused = Batch { scoring: nothing, ..GOOD }.check(&LAYOUT);
    assert!(matches!(refused, Err(ShapeError::SoftCap { .. })), "{refused:?}");
    let refused = Batch { scale: f32::NAN, ..GOOD }.check(&LAYOUT);
    assert!(matches!(refused, Err(ShapeError::Scale { .. })), "{refused:?}");
    let scoring = Scoring { sinks: &[0.0; 3], ..Scoring::default() };
    wrong(Batch { scoring, ..GOOD }, ShapeError::Length { what: "sinks", given: 3, needed: 4 });
    let scoring = Scoring { alibi_slopes: &[0.5; 3], ..Scoring::default() };
    wrong(Batch { scoring, ..GOOD }, ShapeError::Length { what: "ALiBi slopes", given: 3, needed: 4 });
    let scoring = Scoring { alibi_slopes: &[f32::INFINITY; 4], ..Scoring::default() };
    wrong(Batch { scoring, ..GOOD }, ShapeError::Slope { slope: f32::INFINITY });
    let trees = |trees| Batch { scoring: Scoring { trees, ..Scoring::default() }, ..GOOD };
    assert_eq!(trees(&[1, 1, 0b10, 0b101]).check(&LAYOUT), Ok(()));
    wrong(trees(&[1, 1, 0b10]), ShapeError::Length { what: "tree masks", given: 3, needed: 4 });
    wrong(trees(&[1, 1, 0b01, 0b101]), ShapeError::Tree { row: 2 });
    let scoring = Scoring { trees: &[1, 1, 0b10, 0b101], window: Some(31), ..Scoring::default() };
    wrong(Batch { scoring, ..GOOD }, ShapeError::TreeScoring);
    wrong(trees(&[0b11, 1, 0b10, 0b101]), ShapeError::Tree { row: 0 });
    wrong(Batch { contexts: &[5, 2], ..GOOD }, ShapeError::Context { sequence: 1, context: 2, rows: 3 });
    wrong(Batch { contexts: &[9, 3], ..GOOD }, ShapeError::Table { sequence: 0, blocks: 2, needed: 3 });
    let tables = Tables { blocks: &[1, 8, 2], ..GOOD.tables };
    wrong(Batch { tables, ..GOOD }, ShapeError::Block { sequence: 0, block: 8, blocks: 8 });
}

#[test]
fn rows_that_are_not_kept_need_no_block() {
    let tables = Tables { blocks: &[1], offsets: &[0, 1, 1] };
    let batch = Batch { tables, save_kv: false, slots: &[], ..GOOD };
    assert_eq!(batch.check(&LAYOUT), Ok(()));
    assert_eq!(batch.check_decode(), Err(ShapeError::NotKept));
}

#[test]
fn decoding_is_one_row_a_sequence() {
    assert_eq!(GOOD.check_decode(), Err(ShapeError::DecodeRows { sequence: 1, rows: 3 }));
    let one = Batch { contexts: &[5, 3], rows: &[0, 1, 2], slots: &[28, 10], ..GOOD };
    assert_eq!((one.check(&LAYOUT), one.check_decode()), (Ok(()), Ok(())));
}

#[test]
fn nothing_to_compute_is_a_batch() {
    let tables = Tables { blocks: &[], offsets: &[0] };
    let none = Batch { tables, contexts: &[], rows: &[0], slots: &[], ..GOOD };
    assert_eq!((none.check(&LAYOUT), none.check_decode()), (Ok(()), Ok(())));
}
