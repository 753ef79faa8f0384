use super::*;

#[test]
fn every_token_has_its_slot() {
    let mut batch = Batch::new(4);
    batch.push(SequenceId(7), 2, 3, &[30, 31, 32], &[9, 5, 8], false);
    batch.push(SequenceId(8), 0, 8, &[80], &[1, 2, 3], true);
    assert_eq!(batch.slot_mapping(), [9 * 4 + 3, 5 * 4, 5 * 4 + 1, 3 * 4]);
    assert_eq!((batch.positions(), batch.token_offsets()), (&[3, 4, 5, 8][..], &[0, 3, 4][..]));
    assert_eq!((batch.block_tables(), batch.block_offsets()), (&[9, 5, 1, 2, 3][..], &[0, 2, 5][..]));
    assert_eq!((batch.logits_rows(), batch.sampling().collect::<Vec<_>>()), (&[3][..], vec![SequenceId(8)]));
    let first = batch.sequence(0);
    assert_eq!((first.start, first.tokens, first.block_table), (3, &[30, 31, 32][..], &[9, 5][..]));
    assert_eq!((first.wants_logits, first.context_len(), first.slot), (false, 6, 2));
    batch.clear();
    assert_eq!(batch, Batch::new(4));
}

#[test]
#[should_panic(expected = "out of range")]
fn a_table_that_is_too_short_is_refused() {
    Batch::new(4).push(SequenceId(0), 0, 3, &[1, 2], &[6], true);
}
