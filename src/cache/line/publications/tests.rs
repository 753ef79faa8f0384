use super::*;

/// Publications in which every thread publishes, and a pool whose 16 blocks are all taken.
fn list() -> (Publications, Pool) {
    (Publications::new(true), Pool::empty(16))
}

/// The blocks of a request that was served, or `None`.
fn taken(publication: &Publication<'_>) -> Option<Vec<BlockId>> {
    publication.withdraw().map(Vec::from_iter)
}

#[test]
fn what_is_served_is_taken_once() {
    let (list, pool) = list();
    let publication = list.publish(3, 2, &pool).expect("a free record");
    assert!(!publication.is_served());
    list.serve(|n, blocks| {
        blocks.extend(7..7 + n as BlockId);
        true
    });
    assert!(publication.is_served());
    list.serve(|_, _| panic!("it was served"));
    assert_eq!((taken(&publication), taken(&publication)), (Some(vec![7, 8]), None));
    drop(publication);
    assert_eq!(pool.free(), 0, "they were taken");
}

#[test]
fn a_request_that_was_taken_back_is_not_served() {
    let (list, pool) = list();
    let publication = list.publish(0, 1, &pool).expect("a free record");
    assert_eq!(taken(&publication), None);
    list.serve(|_, _| panic!("it was taken back"));
    drop(publication);
    list.serve(|_, _| panic!("it has gone"));
    assert!(list.publish(0, 1, &pool).is_some(), "its record is free");
}

#[test]
fn blocks_that_nobody_takes_go_to_the_pool() {
    let (list, pool) = list();
    let publication = list.publish(0, 2, &pool).expect("a free record");
    list.serve(|_, blocks| {
        blocks.extend([4, 9]);
        true
    });
    drop(publication);
    assert_eq!(pool.free(), 2);
}

#[test]
fn only_small_requests_beside_others_are_published() {
    let (list, pool) = list();
    assert!(list.publish(0, 0, &pool).is_none());
    assert!(list.publish(0, MOST + 1, &pool).is_none());
    let first = list.publish(1, MOST, &pool).expect("the most");
    assert!(list.publish(1 + RECORDS, 1, &pool).is_none(), "the record is in use");
    drop(first);
    assert!(list.publish(1 + RECORDS, 1, &pool).is_some());
    assert!(list.should_combine(false) && !list.has_any());
    let list = Publications::new(false);
    assert!(list.should_combine(true) && !list.should_combine(false), "no thread waits");
}

#[test]
fn the_first_that_cannot_be_served_ends_it_and_stays_published() {
    let (list, pool) = list();
    let all = [2, 1, 3].map(|n| list.publish(n, n, &pool).expect("a free record"));
    let mut asked = Vec::new();
    list.serve(|n, blocks| {
        asked.push(n);
        blocks.push(5);
        n == 1
    });
    assert_eq!(asked, [1, 2], "by their records");
    assert_eq!(all.map(|publication| taken(&publication)), [None, Some(vec![5]), None]);
}

#[test]
fn a_holder_that_breaks_leaves_the_request_to_its_thread() {
    let (list, pool) = list();
    let publication = list.publish(0, 1, &pool).expect("a free record");
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| list.serve(|_, _| panic!("broken"))));
    assert!(broken.is_err());
    assert_eq!(taken(&publication), None);
}

#[test]
fn a_turn_serves_so_many_blocks_and_no_more() {
    let (list, pool) = list();
    let all: Vec<_> = (0..RECORDS).map(|near| list.publish(near, MOST, &pool).expect("a free record")).collect();
    let mut served = 0;
    list.serve(|n, blocks| {
        served += n;
        blocks.extend((0..n as BlockId).map(|block| block + 100));
        true
    });
    assert_eq!(served, AT_ONCE.min(RECORDS * MOST));
    let taken: usize = all.iter().filter_map(taken).map(|blocks| blocks.len()).sum();
    assert_eq!(taken, served);
}
