use super::*;

#[test]
fn what_was_pushed_last_comes_first_over_many_pages() {
    let mut stack = Stack::default();
    assert_eq!((stack.pop(), stack.len()), (None, 0));
    (0..20_000).for_each(|value| stack.push(value));
    assert_eq!((stack.len(), stack.iter().count()), (20_000, 20_000));
    let room = stack.values.room();
    assert!((0..20_000).rev().all(|value| stack.pop() == Some(value)));
    assert_eq!((stack.pop(), stack.len()), (None, 0));
    assert!(stack.values.room() <= room / 2);
    stack.push(7);
    assert_eq!((stack.pop(), stack.len()), (Some(7), 0));
}
