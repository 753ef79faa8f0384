use super::*;

// Holds: NU3.
#[test]
fn a_record_that_is_left_goes_on_with_its_counts() {
    let records = Records::new();
    let first = records.hold();
    first.add([(0, 5), (3, 1)]);
    records.leave(&first);
    let second = records.hold();
    second.add([(0, 2)]);
    assert_eq!(second.counts().number, 0, "the same one");
    assert_eq!((records.sum()[0], records.sum()[3]), (7, 1));
}

#[test]
fn participants_beyond_the_records_share_one() {
    let records = Records::new();
    let held: Vec<_> = (0..RECORDS + 2).map(|_| records.hold()).collect();
    assert_eq!(held.iter().filter(|record| record.counts().number == SHARED).count(), 2);
    held.iter().for_each(|record| record.add([(1, 1)]));
    assert_eq!(records.sum()[1], RECORDS as u64 + 2);
    held.iter().for_each(|record| records.leave(record));
    assert_ne!(records.hold().counts().number, SHARED);
}

#[test]
fn rows_are_added_up_one_by_one_and_all_together() {
    let records = Records::new();
    let held: Vec<_> = (0..RECORDS + 2).map(|_| records.hold()).collect();
    for (i, record) in held.iter().enumerate() {
        record.add_in(RowId { number: i % 3, serial: i }, [(0, 1), (ROW_COUNTS - 1, 2)]);
    }
    let rows: Vec<_> = (0..4).map(|row| records.sum_of_row(row)[0]).collect();
    assert_eq!(rows, [49, 49, 48, 0]);
    assert_eq!((records.sum_of_rows()[0], records.sum_of_rows()[ROW_COUNTS - 1]), (146, 292));
    assert_eq!(records.sum(), [0; COUNTS]);
}
