use super::*;
use crate::index::Index;

/// Positions in an index that nothing else uses.
fn places(number: usize) -> Vec<Place> {
    let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
    let tokens: Vec<u32> = (0..number as u32).collect();
    let path = Index::new(1).make_path(&cache.default_namespace().name(), &tokens);
    (0..number).map(|block| path.place(block).expect("it was made")).collect()
}

#[test]
fn the_oldest_goes_first_and_a_use_makes_new() {
    let (mut slots, places) = (Slots::new(4, 3), places(3));
    let blocks: Vec<_> = places
        .iter()
        .map(|&place| {
            let block = slots.reserve().expect("room");
            slots.publish(block, place);
            block
        })
        .collect();
    assert_eq!(slots.reserve(), None, "one is free, and the capacity is reached");
    slots.refresh(blocks[0]);
    assert_eq!(slots.replace(), Some((blocks[1], places[1])));
    assert_eq!(slots.replace(), Some((blocks[2], places[2])));
    assert_eq!(slots.replace(), Some((blocks[0], places[0])));
    assert_eq!(slots.replace(), None);
    blocks.iter().for_each(|&block| slots.give_back(block));
    assert_eq!(slots.counts(), SlotCounts { free: 4, ..SlotCounts::default() });
}

#[test]
fn what_is_pinned_stays_and_does_not_count_for_the_capacity() {
    let (mut slots, places) = (Slots::new(2, 1), places(2));
    let first = slots.reserve().expect("room");
    slots.publish(first, places[0]);
    slots.pin(first);
    slots.pin(first);
    assert_eq!((slots.replace(), slots.detach_oldest()), (None, None));
    let second = slots.reserve().expect("the pinned one does not count");
    slots.publish(second, places[1]);
    assert_eq!(slots.unpin(first), Unpinned::Done);
    assert_eq!(slots.unpin(first), Unpinned::Listed);
    assert!(slots.is_over(0));
    assert_eq!(slots.detach_oldest(), Some((second, places[1])), "the pinned one was used later");
    assert_eq!((slots.is_over(0), slots.counts().free), (false, 0));
    assert_eq!(slots.unpin(second), Unpinned::Done);
    assert_eq!(slots.counts().free, 1);
}

#[test]
fn a_blocks_age_is_counted_from_its_arrival() {
    let (mut slots, places) = (Slots::new(1, 1), places(1));
    std::thread::sleep(Duration::from_millis(20));
    let block = slots.reserve().expect("room");
    let before = Instant::now();
    slots.publish(block, places[0]);
    let age = slots.age(block);
    // Both times are truncated to milliseconds.
    assert!(age <= before.elapsed() + Duration::from_millis(1), "{age:?}");
}

#[test]
fn a_detached_block_is_free_when_its_pins_end() {
    let (mut slots, places) = (Slots::new(1, 1), places(1));
    let block = slots.reserve().expect("room");
    slots.publish(block, places[0]);
    slots.pin(block);
    assert_eq!(slots.detach(block), Some(places[0]));
    assert_eq!(slots.detach(block), None);
    assert_eq!(slots.counts().free, 0);
    assert_eq!(slots.unpin(block), Unpinned::Done);
    assert_eq!(slots.counts().free, 1);
}

#[test]
fn more_pins_than_can_be_counted_keep_a_block_pinned() {
    let (mut slots, places) = (Slots::new(1, 1), places(1));
    let block = slots.reserve().expect("room");
    slots.publish(block, places[0]);
    slots.pin(block);
    // Pins that were forgotten.
    slots.slot(block).pins = u32::MAX - 1;
    (0..3).for_each(|_| slots.pin(block));
    (0..4).for_each(|_| assert_eq!(slots.unpin(block), Unpinned::Done));
    assert_eq!((slots.detach(block), slots.counts().pinned), (Some(places[0]), 1));
    assert_eq!((slots.replace(), slots.reserve()), (None, None), "it is never written to again");
}
