//! What the verbs of a region do, called by one thread.
#![cfg(not(radixkv_loom))]

mod common;

use std::{thread, time::Duration};

use common::{Blocks, region};
use radixkv_region::{Get, Key, Layout, LayoutError, Memory, Miss, Put, PutError, ReadError, Region, Reserve};

#[test]
fn what_is_put_is_found_until_it_is_removed() {
    let (region, blocks) = (region(8), Blocks::new(8));
    for block in 0..8 {
        assert_eq!(blocks.get(&region, block), Get::Miss(Miss::Absent));
        assert_eq!(blocks.put(&region, block), Put::Stored);
        assert_eq!(blocks.put(&region, block), Put::Present);
        assert_eq!(blocks.get(&region, block), Get::Hit);
    }
    let stats = region.stats();
    assert_eq!((stats.blocks, stats.bytes, stats.in_flight, stats.processes), (8, 8 * blocks.bytes(), 0, 1));
    assert_eq!((stats.hits, stats.stored, stats.evicted, stats.missed(Miss::Absent)), (8, 8, 0, 8));
    assert!(region.remove(&blocks.key(3)) && !region.remove(&blocks.key(3)));
    assert_eq!(blocks.get(&region, 3), Get::Miss(Miss::Absent));
    assert!(blocks.is_there(&region, 4) && !blocks.is_there(&region, 3));
    assert_eq!(region.clear(), 7);
    assert_eq!(region.stats().blocks, 0);
}

// Holds: RG9.
#[test]
fn an_empty_region_is_filled_before_anything_is_evicted() {
    for capacity in [1, 2, 15, 16, 17, 100, 1000] {
        let (region, blocks) = (region(capacity), Blocks::new(2 * capacity));
        for block in 0..capacity {
            assert_eq!(blocks.put(&region, block), Put::Stored);
        }
        assert_eq!((region.stats().blocks, region.stats().evicted), (capacity, 0));
        for block in capacity..2 * capacity {
            assert_eq!(blocks.put(&region, block), Put::Stored);
        }
        assert_eq!((region.stats().blocks, region.stats().evicted), (capacity, capacity as u64));
    }
}

// Holds: RG9.
#[test]
fn blocks_in_use_stay_when_others_are_evicted() {
    let (region, blocks) = (region(256), Blocks::new(4096));
    for block in 0..4096 {
        blocks.put(&region, block);
        // A system prompt of eight blocks, asked for by every request.
        if block >= 8 && block % 8 == 0 {
            assert!((0..8).all(|block| blocks.get(&region, block).is_hit()), "at block {block}");
        }
    }
}

/// How many of the requests the least recently used blocks would answer, and how many the region
/// does.
fn hits(capacity: usize, requests: &[usize]) -> (usize, usize) {
    let (region, blocks) = (region(capacity), Blocks::new(requests.iter().max().expect("some") + 1));
    let (mut exact, mut order) = (0, Vec::new());
    let mut got = 0;
    for &block in requests {
        match order.iter().position(|other| *other == block) {
            Some(at) => {
                exact += 1;
                order.remove(at);
            }
            None if order.len() == capacity => drop(order.remove(0)),
            None => {}
        }
        order.push(block);
        if blocks.get(&region, block).is_hit() {
            got += 1;
        } else {
            blocks.put(&region, block);
        }
    }
    (exact, got)
}

// Holds: RG9.
#[test]
fn it_answers_nearly_what_the_least_recently_used_blocks_would() {
    let mut random = fastrand::Rng::with_seed(11);
    for capacity in [16, 100, 400] {
        // Skewed: the tenth part of the blocks gets half of the requests, and so on.
        let requests: Vec<_> = (0..20_000).map(|_| (1000.0 * random.f64().powf(3.3)) as usize).collect();
        let (exact, got) = hits(capacity, &requests);
        println!("{capacity} of 1000 blocks: {got} hits, {exact} of exact recency");
        assert!(got * 100 >= exact * 97, "{got} of {exact}, {capacity} blocks");
    }
}

// Holds: RG2.
#[test]
fn a_hash_that_is_shared_is_a_miss_and_never_another_block() {
    let (region, blocks) = (region(8), Blocks::new(2));
    blocks.put(&region, 0);
    let mut bytes = vec![0; blocks.bytes()];
    let other = Key::from_parts(1, 2, 3);
    assert_eq!(region.put(&other, blocks.tokens(0), blocks.content(0)), Ok(Put::Stored));
    assert_eq!(region.get_into(&other, blocks.tokens(0), &mut bytes), Ok(Get::Hit));
    // The same hash with another block, another parent, another namespace.
    for (key, tokens) in [
        (other, blocks.tokens(1)),
        (Key::from_parts(1, 9, 3), blocks.tokens(0)),
        (Key::from_parts(9, 2, 3), blocks.tokens(0)),
    ] {
        assert_eq!(region.get_into(&key, tokens, &mut bytes), Ok(Get::Miss(Miss::OtherTokens)));
        assert_eq!(region.put(&key, tokens, blocks.content(1)), Ok(Put::Collision));
        assert!(!region.contains(&key, tokens));
    }
    assert_eq!(region.stats().missed(Miss::OtherTokens), 3);
}

// Holds: RG9.
#[test]
fn a_time_to_live_ends() {
    let (region, blocks) = (region(4), Blocks::new(8));
    let put = |block: usize, millis| {
        let time = Duration::from_millis(millis);
        region.put_expiring(&blocks.key(block), blocks.tokens(block), blocks.content(block), time).expect("of its size")
    };
    assert_eq!((put(0, 0), put(1, 3_600_000), put(2, u64::MAX)), (Put::Stored, Put::Stored, Put::Stored));
    assert_eq!(blocks.get(&region, 0), Get::Miss(Miss::Expired));
    assert_eq!(blocks.get(&region, 0), Get::Miss(Miss::Absent));
    assert!(blocks.get(&region, 1).is_hit() && blocks.get(&region, 2).is_hit());
    // The one whose time is over makes room, not those that are older.
    assert_eq!((put(3, 20), put(4, 3_600_000)), (Put::Stored, Put::Stored));
    thread::sleep(Duration::from_millis(30));
    assert_eq!(blocks.put(&region, 5), Put::Stored);
    assert!([1, 2, 4, 5].iter().all(|block| blocks.get(&region, *block).is_hit()));
    assert_eq!((region.stats().expired, region.stats().evicted), (2, 0));
    // And it can be put again.
    assert_eq!(put(3, 0), Put::Stored);
    assert_eq!(put(3, 60_000), Put::Stored);
    assert!(blocks.get(&region, 3).is_hit());
}

#[test]
fn a_namespace_is_cleared_and_others_stay() {
    let region = region(64);
    let layout = region.layout().clone();
    let tokens: Vec<u32> = (0..16).collect();
    let bytes = vec![7; 4 * layout.block_bytes()];
    for namespace in [b"one", b"two"] {
        let keys = layout.chain(namespace).keys(&tokens);
        assert_eq!(region.put_run(&keys, &tokens, &bytes).map(|run| run.stored), Ok(4));
    }
    assert_eq!((region.clear_namespace(b"one"), region.clear_namespace(b"one")), (4, 0));
    let found = |namespace| region.contains_run(&layout.chain(namespace).keys(&tokens), &tokens);
    assert_eq!((found(b"one"), found(b"two")), (Ok(0), Ok(4)));
}

#[test]
fn a_run_is_found_up_to_its_first_gap() {
    let region = region(64);
    let layout = region.layout().clone();
    let tokens: Vec<u32> = (0..40).collect();
    let keys = layout.chain(b"").keys(&tokens);
    let bytes: Vec<u8> = (0..10 * layout.block_bytes()).map(|at| at as u8).collect();
    assert_eq!(region.put_run(&keys, &tokens, &bytes).map(|run| run.stored), Ok(10));
    assert!(region.remove(&keys[6]));
    let mut found = vec![0; bytes.len()];
    assert_eq!(region.get_run_into(&keys, &tokens, &mut found), Ok(6));
    assert_eq!(found[..6 * layout.block_bytes()], bytes[..6 * layout.block_bytes()]);
    assert_eq!(region.contains_run(&keys, &tokens), Ok(6));
    assert_eq!(region.put_run(&keys, &tokens, &bytes).map(|run| (run.stored, run.present)), Ok((1, 9)));
    assert_eq!(region.get_run_into(&[], &[], &mut []), Ok(0));
}

#[test]
fn a_reservation_is_filled_in_place_or_gives_its_room_back() {
    let (region, blocks) = (region(1), Blocks::new(2));
    let reserve = |block: usize| region.reserve(&blocks.key(block), blocks.tokens(block), None);
    let Ok(Reserve::Room(mut room)) = reserve(0) else { panic!("there is room") };
    assert_eq!(room.as_mut_ptr().addr() % 64, 0);
    // It is on its way: seen, not read, not put twice; and there is no other room.
    assert_eq!(blocks.get(&region, 0), Get::Miss(Miss::BeingWritten));
    assert_eq!(blocks.put(&region, 0), Put::InFlight);
    assert_eq!(reserve(1).err(), Some(PutError::Full { in_flight: 1, capacity: 1 }));
    for (at, bytes) in blocks.content(0).chunks(5).enumerate() {
        room.write(5 * at, bytes);
    }
    room.publish();
    assert!(blocks.get(&region, 0).is_hit());
    // Dropped, or forgotten: at the latest the region's end gives it back.
    drop(reserve(1));
    assert_eq!((region.stats().blocks, region.stats().in_flight), (0, 0));
    std::mem::forget(reserve(1));
    assert_eq!(region.stats().in_flight, 1);
}

#[test]
fn a_source_says_whether_it_was_overwritten() {
    let (region, blocks) = (region(1), Blocks::new(2));
    blocks.put(&region, 0);
    let source = region.locate(&blocks.key(0), blocks.tokens(0)).expect("it is there");
    assert!(source.is_intact() && source.len() == blocks.bytes() && source.as_ptr().addr() % 64 == 0);
    blocks.put(&region, 1);
    assert!(!source.is_intact());
    assert_eq!(region.locate(&blocks.key(0), blocks.tokens(0)).err(), Some(Miss::Absent));
}

#[test]
fn lengths_that_are_not_a_block_are_refused_with_both_numbers() {
    let (region, blocks) = (region(4), Blocks::new(1));
    let (key, tokens, bytes) = (blocks.key(0), blocks.tokens(0), blocks.bytes());
    let few = ReadError::Tokens { expected: tokens.len(), got: 1 };
    let short = ReadError::Bytes { expected: bytes, got: bytes - 1 };
    let mut buffer = vec![0; bytes - 1];
    assert_eq!(region.get_into(&key, &tokens[..1], &mut buffer), Err(few));
    assert_eq!(region.get_into(&key, tokens, &mut buffer), Err(short));
    assert_eq!(region.put(&key, &tokens[..1], &buffer), Err(PutError::Lengths(few)));
    assert_eq!(region.put(&key, tokens, &buffer), Err(PutError::Lengths(short)));
    assert_eq!(
        region.get_run_into(&[key; 3], tokens, &mut buffer).map_err(|e| e.to_string()),
        Err("4 tokens given, 12 expected".into())
    );
    assert!(!region.contains(&key, &tokens[..1]));
    assert_eq!(region.stats().blocks, 0);
}

#[test]
fn layouts_of_nothing_or_too_much_are_refused() {
    let refused = |layout: Layout| layout.region_bytes().expect_err("no layout");
    assert_eq!(refused(Layout::new(0, 1, 1)), LayoutError::Zero { field: "block_size" });
    assert_eq!(refused(Layout::new(1, 0, 1)), LayoutError::Zero { field: "block_bytes" });
    assert_eq!(refused(Layout::new(1, 1, 0)), LayoutError::Zero { field: "capacity" });
    assert_eq!(
        refused(Layout::new(1, 1, 1).model("m".repeat(121))),
        LayoutError::TextTooLong { field: "model", len: 121 }
    );
    for layout in
        [Layout::new(1, usize::MAX, 1), Layout::new(u32::MAX, usize::MAX / 2, 1 << 31), Layout::new(1, 1, u32::MAX)]
    {
        assert!(matches!(refused(layout), LayoutError::TooLarge { .. }));
    }
    // Four decades of sizes, all of which work.
    for (block_size, block_bytes, capacity) in [(1, 1, 1), (1, 9, 7), (3, 63, 100), (17, 4097, 33), (4096, 1 << 20, 2)]
    {
        let layout = Layout::new(block_size, block_bytes, capacity);
        let memory = Memory::anonymous(layout.region_bytes().expect("fits")).expect("memory");
        let region = Region::format(memory, &layout).expect("formatted");
        let tokens: Vec<u32> = (0..block_size).collect();
        let key = layout.chain(b"").next(&tokens);
        let bytes: Vec<u8> = (0..block_bytes).map(|at| at as u8 ^ 0x5a).collect();
        assert_eq!(region.put(&key, &tokens, &bytes), Ok(Put::Stored));
        let mut found = vec![0; block_bytes];
        assert_eq!(region.get_into(&key, &tokens, &mut found), Ok(Get::Hit));
        assert_eq!(found, bytes);
    }
}

// Holds: RG9.
#[test]
fn a_put_finds_a_free_entry_anywhere_before_it_evicts() {
    let (region, blocks) = (common::region(5000), Blocks::new(8000));
    (0..5000).for_each(|block| assert_eq!(blocks.put(&region, block), Put::Stored));
    let mut random = fastrand::Rng::with_seed(9);
    let mut next = 5000;
    for removed in [1, 2, 70, 500] {
        let before = region.stats().blocks;
        let gone = (0..removed).filter(|_| region.remove(&blocks.key(random.usize(..5000)))).count();
        assert_eq!(region.stats().blocks, before - gone);
        (next..next + gone).for_each(|block| assert_eq!(blocks.put(&region, block), Put::Stored));
        next += gone;
        assert_eq!((region.stats().blocks, region.stats().evicted), (5000, 0), "{removed} removed");
    }
    assert_eq!((blocks.put(&region, next), region.stats().evicted), (Put::Stored, 1));
}
