use super::*;
use crate::queue::Before;

fn key(number: u8) -> BlockKey {
    BlockKey::from_bytes([number; 32])
}

/// A use of a sequence of one block.
fn alone(batch: u64) -> Use {
    Use { batch, number: 0, parent: None, before: None }
}

/// A use of block `number` of one sequence.
fn of_sequence(batch: u64, number: u8) -> Use {
    let parent = number.checked_sub(1);
    let before = parent.map(|number| Before { key: key(number), number: number.into() });
    Use { batch, number: number.into(), parent: parent.map(key), before }
}

/// A put from begin to end.
fn insert(index: &mut Index, number: u8, used: Use) {
    let id = index.begin(key(number), used);
    index.reserve(id);
    index.publish(id, 0);
}

fn order(mut index: Index) -> Vec<BlockKey> {
    let mut order = Vec::new();
    while let Some(key) = index.oldest() {
        order.push(key);
        index.remove(key);
    }
    assert_eq!((index.files(), index.taken()), (0, 0));
    order
}

#[test]
fn the_least_recently_used_is_the_oldest() {
    let mut index = Index::default();
    index.found(key(4));
    (0..4).for_each(|number| insert(&mut index, number, alone(1)));
    let written = index.written(key(1));
    assert!(index.touch(key(0), alone(2)).is_some() && index.touch(key(9), alone(2)).is_none());
    assert!(index.touch(key(1), alone(2)) == written);
    insert(&mut index, 1, alone(3));
    assert!(index.written(key(1)).is_some_and(|again| Some(again) != written));
    index.remove(key(9));
    assert_eq!(index.files(), 5);
    assert_eq!(order(index), [4, 2, 3, 0, 1].map(key));
}

#[test]
fn the_deepest_that_is_being_written_gives_its_room_to_a_beginning_and_to_nothing_deeper() {
    let mut index = Index::default();
    (0..3).for_each(|number| insert(&mut index, number, of_sequence(1, number)));
    let [fourth, fifth, sixth] = [3, 4, 5].map(|number| index.begin(key(number), of_sequence(1, number)));
    index.reserve(fifth);
    assert_eq!((index.first_below(key(5)), index.first_below(key(4))), (None, None), "it would be the first to go");
    assert_eq!(index.first_below(key(3)), Some(key(4)));
    index.displace(key(4), of_sequence(1, 3));
    assert_eq!((index.taken(), index.has_room(fifth)), (3, false));
    index.reserve(fourth);
    insert(&mut index, 9, alone(0));
    index.begin(key(10), alone(2));
    assert_eq!(index.first_below(key(10)), Some(key(9)), "an older file goes before it");
    index.end(sixth, of_sequence(1, 5));
    assert!(index.has_room(fourth));
}

/// Two threads put one block, and one of them fails.
#[test]
fn a_block_is_missing_when_its_last_put_has_failed() {
    let mut index = Index::default();
    let [one, two] = [alone(1), alone(2)].map(|used| index.begin(key(0), used));
    let next = of_sequence(3, 1);
    index.end(one, alone(1));
    assert!(!index.lacks_beginning(next));
    index.end(two, alone(2));
    assert!(index.lacks_beginning(next));
    let three = index.begin(key(0), alone(3));
    assert!(!index.lacks_beginning(next));
    index.reserve(three);
    index.publish(three, 0);
    index.end(three, alone(3));
    assert!(index.contains(key(0)) && !index.lacks_beginning(next));
    assert!(index.evict(key(0), Some(alone(4))) && index.lacks_beginning(next));
}

#[test]
fn a_use_of_a_block_that_is_being_written_is_kept_when_it_is_written() {
    let mut index = Index::default();
    let first = index.begin(key(0), of_sequence(1, 0));
    let again = index.begin(key(0), of_sequence(1, 0));
    [first, again].iter().for_each(|&id| index.reserve(id));
    insert(&mut index, 9, alone(2));
    assert_eq!(index.touch(key(0), alone(3)), None, "it is not written yet");
    index.touch(key(0), alone(1));
    index.publish(again, 0);
    index.publish(first, 0);
    assert_eq!(index.written(key(0)), Some(first));
    assert_eq!(order(index), [9, 0].map(key));
}

#[test]
fn without_the_block_before_its_batch_a_block_is_worth_nothing() {
    let mut index = Index::default();
    (0..4).for_each(|number| insert(&mut index, number, of_sequence(1, number)));
    insert(&mut index, 5, alone(0));
    index.evict(key(5), None);
    // Blocks 6 and 7 in one batch, and 7 comes first: nothing is known about 6.
    let before = Some(Before { key: key(5), number: 5 });
    assert!(index.lacks_beginning(Use { before, ..of_sequence(2, 7) }));
    assert!(!index.lacks_beginning(of_sequence(2, 7)));
}

#[test]
fn a_block_uses_what_is_before_its_batch() {
    let mut index = Index::default();
    (0..3).for_each(|number| insert(&mut index, number, of_sequence(1, number)));
    // Blocks 3 and 4 in one batch, and 4 comes first.
    let fourth = Use { before: of_sequence(2, 3).before, ..of_sequence(2, 4) };
    index.begin(key(4), fourth);
    assert_eq!(index.first_below(key(4)), None, "nothing goes for it");
    index.remove(key(2));
    assert_eq!(index.oldest(), Some(key(1)));
}

#[test]
fn of_a_sequence_the_deepest_is_the_oldest_whatever_order_it_came_in() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..100 {
        let mut index = Index::default();
        let mut numbers: Vec<u8> = (0..8).collect();
        // Another sequence, whose last use was earlier.
        insert(&mut index, 100, alone(0));
        for batch in 1..4 {
            rng.shuffle(&mut numbers);
            for &number in &numbers[..rng.usize(1..=8)] {
                let used = of_sequence(batch, number);
                if rng.bool() || index.touch(key(number), used).is_none() {
                    insert(&mut index, number, used);
                }
            }
        }
        let order = order(index);
        let is_whole = order.len() == 9;
        let deepest_first: Vec<_> = [100, 7, 6, 5, 4, 3, 2, 1, 0].map(key).to_vec();
        assert!(!is_whole || order == deepest_first, "{order:?}");
    }
}
