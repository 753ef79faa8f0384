use super::*;

// Holds: NU5.
#[test]
fn a_row_that_is_given_back_is_taken_with_its_counts() {
    let free = Arc::new(FreeRows::new());
    let first = FreeRows::take(&free, |_| [0; ROW_COUNTS]);
    let second = FreeRows::take(&free, |_| [0; ROW_COUNTS]);
    assert_eq!((first.id.number, second.id.number), (0, 1));
    drop(first);
    let third = FreeRows::take(&free, |row| [10 + row as u64; ROW_COUNTS]);
    assert_eq!((third.id.number, third.id.serial), (0, 2));
    assert_eq!(third.since([12; ROW_COUNTS]), [2; ROW_COUNTS]);
}

// Holds: NU5.
#[test]
fn those_that_find_none_share_the_last() {
    let free = Arc::new(FreeRows::new());
    let mut rows: Vec<_> = (0..ROWS + 5).map(|_| FreeRows::take(&free, |_| [0; ROW_COUNTS])).collect();
    assert_eq!(rows.iter().filter(|row| !row.id.is_own()).count(), 6);
    assert!(rows[..OTHERS].iter().all(|row| row.id.is_own()));
    rows.drain(3..5);
    let numbers: Vec<_> = (0..3).map(|_| FreeRows::take(&free, |_| [0; ROW_COUNTS])).collect();
    assert_eq!(numbers.iter().filter(|row| row.id.is_own()).count(), 2);
}
