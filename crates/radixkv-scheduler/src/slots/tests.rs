use super::*;

#[test]
fn rows_are_taken_all_or_nothing_and_apart() {
    let mut slots = Slots::new(3, 2);
    let two = slots.take(2).expect("three are free");
    assert_eq!((two.as_slice(), slots.take(2), slots.free()), (&[0, 1][..], None, 1));
    slots.write(0, 0, &[7, 8]);
    slots.write(1, 1, &[9]);
    assert_eq!((slots.row(0), slots.row(1)), (&[7, 8][..], &[0, 9][..]));
    slots.give_back(1);
    assert_eq!(slots.take(2), Some(vec![1, 2]));
    assert_eq!((slots.take(1), slots.take(0)), (None, Some(vec![])));
}

#[test]
fn rows_that_are_not_used_cost_nothing() {
    let mut slots = Slots::new(u32::MAX, usize::MAX);
    assert_eq!((slots.free(), slots.take(1)), (u32::MAX as usize, Some(vec![0])));
    slots.write(0, 0, &[7]);
    assert_eq!((slots.rows.len(), slots.row(0)), (1, &[7][..]));
}

#[test]
#[should_panic(expected = "at most 2 blocks")]
fn a_row_does_not_reach_into_the_next() {
    let mut slots = Slots::new(2, 2);
    slots.take(1);
    slots.write(0, 1, &[1, 2]);
}
