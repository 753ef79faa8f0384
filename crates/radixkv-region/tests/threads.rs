//! Many threads, one region, blocks that displace each other all the time: never a wrong byte, and
//! nothing is left over.
#![cfg(not(radixkv_loom))]

mod common;

use std::{
    env, thread,
    time::{Duration, Instant},
};

use common::{Blocks, Place, layout, region};
use radixkv_region::{Region, Reserve};

/// One verb, chosen at random.
fn act(region: &Region, blocks: &Blocks, random: &mut fastrand::Rng) {
    let block = random.usize(..blocks.len());
    let (key, tokens, content) = (blocks.key(block), blocks.tokens(block), blocks.content(block));
    match random.u32(..100) {
        0..45 => {
            let _ = blocks.get(region, block);
        }
        45..80 => {
            let _ = region.put(&key, tokens, content);
        }
        80..84 => {
            let _ = region.put_expiring(&key, tokens, content, Duration::from_millis(random.u64(..3)));
        }
        84..90 => {
            region.remove(&key);
        }
        90..96 => {
            let Ok(Reserve::Room(mut room)) = region.reserve(&key, tokens, None) else { return };
            room.write(0, content);
            if random.bool() {
                room.publish();
            }
        }
        96 => {
            region.recover();
        }
        97 => {
            let stats = region.stats();
            assert!(stats.blocks + stats.in_flight <= stats.capacity);
        }
        98 => {
            region.clear_namespace(b"tests");
        }
        _ => {
            region.contains(&key, tokens);
        }
    }
}

/// After everything: what is there is right, and all room can be used.
fn check(region: &Region, blocks: &Blocks) {
    let stats = region.stats();
    assert_eq!((stats.in_flight, stats.processes), (0, 1));
    let there = (0..blocks.len()).filter(|block| blocks.get(region, *block).is_hit()).count();
    assert!(there <= stats.blocks);
    region.clear();
    for block in 0..blocks.len() {
        blocks.put(region, block);
    }
    assert_eq!(region.stats().blocks, stats.capacity.min(blocks.len()));
}

fn stress(capacity: usize, blocks: usize, time: Duration) {
    let seed = env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("SEED is a number"));
    println!("capacity {capacity}, SEED={seed}");
    let (region, blocks) = (region(capacity), Blocks::new(blocks));
    let until = Instant::now() + time;
    thread::scope(|scope| {
        for thread in 0..4 {
            let (region, blocks) = (&region, &blocks);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread);
                while Instant::now() < until {
                    (0..100).for_each(|_| act(region, blocks, &mut random));
                }
            });
        }
    });
    let stats = region.stats();
    println!("{stats:?}");
    check(&region, &blocks);
}

/// How long each stress runs: a part of a second, or as `STRESS_SECONDS` says.
fn time() -> Duration {
    let seconds = env::var("STRESS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(Duration::from_millis(300), Duration::from_secs_f64)
}

// Holds: RG1.
#[test]
fn threads_that_fight_over_one_entry_see_no_wrong_byte() {
    stress(1, 3, time());
}

// Holds: RG1.
#[test]
fn threads_that_fight_over_a_bucket_see_no_wrong_byte() {
    stress(4, 6, time());
}

// Holds: RG1.
#[test]
fn threads_that_turn_a_region_over_see_no_wrong_byte() {
    stress(64, 300, time());
}

// Holds: RG23.
#[test]
fn a_block_that_all_threads_put_is_stored_once() {
    let (region, blocks) = (region(256), Blocks::new(64));
    let stored: usize = thread::scope(|scope| {
        let put = |_| {
            let (region, blocks) = (&region, &blocks);
            scope.spawn(move || {
                (0..64).filter(|block| blocks.put(region, *block) == radixkv_region::Put::Stored).count()
            })
        };
        let threads: Vec<_> = (0..4).map(put).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((stored, region.stats().blocks), (64, 64));
}

// Holds: RG8.
#[test]
fn regions_of_one_process_are_processes_to_each_other() {
    let place = Place::new("handles");
    let one = Region::create(place.path(), &layout(16)).expect("created");
    let other = Region::open(place.path(), &layout(16)).expect("opened");
    let blocks = Blocks::new(16);
    blocks.put(&one, 0);
    assert!(blocks.get(&other, 0).is_hit());
    // What one of them is filling stays its own.
    let Ok(Reserve::Room(room)) = one.reserve(&blocks.key(1), blocks.tokens(1), None) else { panic!("there is room") };
    assert_eq!((other.recover(), other.stats().in_flight, other.stats().processes), (0, 1, 2));
    drop(room);
    drop(one);
    assert_eq!((other.stats().in_flight, other.stats().processes), (0, 1));
    assert!(blocks.get(&other, 0).is_hit());
}
