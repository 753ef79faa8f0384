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

fn order(mut index: Index) -> Vec<BlockKey> {
    let mut order = Vec::new();
    while let Some((_, key)) = index.oldest() {
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
    (0..4).for_each(|number| index.insert(key(number), alone(1), 0));
    let written = index.written(key(1));
    assert!(index.touch(key(0), alone(2)).is_some() && index.touch(key(9), alone(2)).is_none());
    assert!(index.touch(key(1), alone(2)) == written);
    index.insert(key(1), alone(3), 0);
    assert!(index.written(key(1)).is_some_and(|again| Some(again) != written));
    index.remove(key(9));
    assert_eq!(index.files(), 5);
    assert_eq!(order(index), [4, 2, 3, 0, 1].map(key));
}

#[test]
fn the_deepest_that_is_being_written_gives_its_room_to_a_beginning_and_to_nothing_deeper() {
    let mut index = Index::default();
    (0..3).for_each(|number| index.insert(key(number), of_sequence(1, number), 0));
    let [fourth, fifth, sixth] = [3, 4, 5].map(|number| index.rank(of_sequence(1, number)));
    index.reserve(key(5), fifth);
    assert!(!index.displace(sixth), "it would be the first to go itself");
    assert!(index.displace(fourth) && !index.displace(fourth));
    assert_eq!((index.taken(), index.end_reservation(fifth)), (3, false));
    index.reserve(key(4), fourth);
    index.insert(key(9), alone(0), 0);
    let newest = index.rank(alone(2));
    assert!(!index.displace(newest), "an older file goes before it");
    assert!(index.end_reservation(fourth));
}

#[test]
fn without_the_block_before_its_batch_a_block_is_worth_nothing() {
    let mut index = Index::default();
    (0..4).for_each(|number| index.insert(key(number), of_sequence(1, number), 0));
    index.leave_out(key(5), None);
    // Blocks 6 and 7 in one batch, and 7 comes first: nothing is known about 6.
    let before = Some(Before { key: key(5), number: 5 });
    assert!(index.lacks_beginning(Use { before, ..of_sequence(2, 7) }));
    assert!(!index.lacks_beginning(of_sequence(2, 7)));
}

#[test]
fn a_block_uses_what_is_before_its_batch() {
    let mut index = Index::default();
    (0..3).for_each(|number| index.insert(key(number), of_sequence(1, number), 0));
    // Blocks 3 and 4 in one batch, and 4 comes first.
    let fourth = Use { before: of_sequence(2, 3).before, ..of_sequence(2, 4) };
    index.touch_before(fourth);
    let rank = index.rank(fourth);
    assert!(index.oldest().is_some_and(|(oldest, _)| rank < oldest), "nothing goes for it");
    index.remove(key(2));
    assert_eq!(index.oldest().map(|(_, key)| key), Some(key(1)));
}

#[test]
fn of_a_sequence_the_deepest_is_the_oldest_whatever_order_it_came_in() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..100 {
        let mut index = Index::default();
        let mut numbers: Vec<u8> = (0..8).collect();
        // Another sequence, whose last use was earlier.
        index.insert(key(100), alone(0), 0);
        for batch in 1..4 {
            rng.shuffle(&mut numbers);
            for &number in &numbers[..rng.usize(1..=8)] {
                let used = of_sequence(batch, number);
                if rng.bool() || index.touch(key(number), used).is_none() {
                    index.insert(key(number), used, 0);
                    index.touch_before(used);
                }
            }
        }
        let order = order(index);
        let is_whole = order.len() == 9;
        let deepest_first: Vec<_> = [100, 7, 6, 5, 4, 3, 2, 1, 0].map(key).to_vec();
        assert!(!is_whole || order == deepest_first, "{order:?}");
    }
}
