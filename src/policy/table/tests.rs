use super::*;

#[test]
fn values_stay_where_they_were_put_until_their_page_goes() {
    let mut table = <Table<_>>::default();
    for index in (0..3 * PAGE).step_by(2) {
        assert_eq!(table.set(index, index), None);
    }
    assert_eq!((table.len(), table.get(PAGE), table.get(PAGE + 1)), (3 * PAGE - 1, Some(&PAGE), None));
    assert_eq!((table.take(PAGE), table.take(PAGE), table.get(9 * PAGE)), (Some(PAGE), None, None));
    assert_eq!(table.iter().count(), 3 * PAGE / 2 - 1);
    assert!(table.iter().all(|(index, value)| index == *value));
    assert!(table.free_last(1) && table.free_last(PAGE));
    assert_eq!((table.len(), table.get(2)), (PAGE, Some(&2)));
    assert!(!table.free_last(1));
    assert_eq!((table.len(), table.iter().count()), (0, 0));
}

// Holds: NU10.
#[test]
fn pages_without_values_have_no_memory() {
    let mut table = <Table<_>>::default();
    (0..9 * PAGE).for_each(|index| _ = table.set(index, ()));
    assert_eq!(table.room(), 9 * PAGE);
    for index in (0..9 * PAGE).rev() {
        assert!(table.take(index).is_some());
        assert!(table.room() <= (index.div_ceil(PAGE) + 2) * PAGE, "{} at {index}", table.room());
    }
    assert!(table.room() <= 2 * PAGE);
    // Setting and taking a value at a page's edge again and again does not allocate each time.
    for _ in 0..3 {
        table.set(5 * PAGE, ());
        table.take(5 * PAGE);
        assert_eq!((table.room(), table.kept), (2 * PAGE, 5));
    }
    assert_eq!((table.set(5 * PAGE, ()), table.set(5 * PAGE, ())), (None, Some(())));
    assert_eq!(table.iter().count(), 1);
}
