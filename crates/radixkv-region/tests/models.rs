//! Models of the protocol: every order of a few verbs, and every value that a weak memory may
//! return.
//!
//! Property: what is found is right in every word; a block that several put is stored once; what a
//! dead process held is given back once, and to one; a free entry is found before a block is evicted; each block is counted once.
//!
//! Edges: E1, E2, E4, E8 and E9. E3 and E5 forbid that a load returns, or a store comes before, what only a
//! later store of its own thread makes possible (load buffering), and loom keeps stores in the
//! order in which they were made: it can show nothing of them.
//!
//! Seeded bugs: `seeded_bugs.py` of the package.
#![cfg(radixkv_loom)]

use loom::{model::Builder, sync::Arc, thread};
use radixkv_region::{
    DigestKey, DigestLayout, DigestPut, DigestRegion, Get, Key, Layout, Memory, Put, Region, Token, explore_exact,
};

/// Two words of bytes, one of tokens.
fn layout(capacity: u32) -> Layout {
    Layout::new(2, 16, capacity)
}

fn block(number: u8) -> (Key, [Token; 2], [u8; 16]) {
    (Key::from_parts(1, 2, u128::from(number)), [number.into(), 7], [number; 16])
}

fn put(region: &Region, number: u8) -> Put {
    let (key, tokens, bytes) = block(number);
    region.put(&key, &tokens, &bytes).expect("room")
}

/// Looks for a block; what is found is right.
fn get(region: &Region, number: u8) -> bool {
    let (key, tokens, expected) = block(number);
    let mut bytes = [0; 16];
    let got = region.get_into(&key, &tokens, &mut bytes).expect("one block");
    assert!(got != Get::Hit || bytes == expected, "wrong bytes of block {number}");
    got == Get::Hit
}

fn memory(layout: &Layout) -> Memory {
    Memory::anonymous(layout.region_bytes().expect("a layout")).expect("words")
}

/// Explores a model, loads as loads and loads as read-modify-writes, with up to so many preemptions
/// each.
fn explore(name: &str, [weak, exact]: [usize; 2], model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    for (kind, preemptions) in [("exact", exact), ("weak", weak)] {
        explore_exact(kind == "exact");
        let mut builder = Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.map_or(preemptions, |most| most.min(preemptions)));
        builder.max_branches = 50_000;
        let executions = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (counted, model, began) = (executions.clone(), model.clone(), std::time::Instant::now());
        builder.check(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            model();
        });
        println!("{name}, {kind} loads: {executions:?} executions, {:.1?}", began.elapsed());
    }
}

#[test]
fn a_put_against_a_get() {
    explore("put vs get", [3, 4], || {
        let region = Arc::new(Region::model(&memory(&layout(1)), &layout(1), false));
        let reader = thread::spawn({
            let region = region.clone();
            move || get(&region, 1)
        });
        assert_eq!(put(&region, 1), Put::Stored);
        reader.join().unwrap();
        assert!(get(&region, 1));
    });
}

#[test]
fn a_block_that_is_overwritten_while_it_is_read() {
    explore("get vs put that evicts", [1, 4], || {
        let region = Arc::new(Region::model(&memory(&layout(1)), &layout(1), false));
        put(&region, 1);
        let reader = thread::spawn({
            let region = region.clone();
            move || get(&region, 1)
        });
        assert_eq!(put(&region, 2), Put::Stored);
        reader.join().unwrap();
        assert!(get(&region, 2) && !get(&region, 1));
    });
}

#[test]
fn a_block_that_is_removed_and_put_again_while_it_is_read() {
    explore("get vs remove, put", [1, 4], || {
        let region = Arc::new(Region::model(&memory(&layout(1)), &layout(1), false));
        put(&region, 1);
        let reader = thread::spawn({
            let region = region.clone();
            move || get(&region, 1)
        });
        assert!(region.remove(&block(1).0));
        assert_eq!(put(&region, 2), Put::Stored);
        reader.join().unwrap();
        assert!(!get(&region, 1));
    });
}

#[test]
fn a_block_that_two_threads_overwrite_while_it_is_read() {
    explore("get vs put vs put", [0, 2], || {
        let region = Arc::new(Region::model(&memory(&layout(1)), &layout(1), false));
        put(&region, 1);
        let others = [2, 3].map(|number| {
            let region = region.clone();
            thread::spawn(move || {
                let (key, tokens, bytes) = block(number);
                let _ = region.put(&key, &tokens, &bytes);
            })
        });
        for number in 1..4 {
            get(&region, number);
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((1..4).filter(|number| get(&region, *number)).count(), 1);
    });
}

#[test]
fn two_puts_of_one_block_store_it_once() {
    explore("put vs the same put", [3, 4], || {
        let region = Arc::new(Region::model(&memory(&layout(2)), &layout(2), false));
        let other = thread::spawn({
            let region = region.clone();
            move || put(&region, 1)
        });
        let puts = [put(&region, 1), other.join().unwrap()];
        assert_eq!(puts.iter().filter(|put| **put == Put::Stored).count(), 1, "{puts:?}");
        assert!(get(&region, 1));
        assert_eq!((region.stats().blocks, region.stats().in_flight), (1, 0));
    });
}

#[test]
fn two_puts_of_two_blocks_into_one_entry() {
    explore("put vs another put", [3, 4], || {
        let region = Arc::new(Region::model(&memory(&layout(1)), &layout(1), false));
        let other = thread::spawn({
            let region = region.clone();
            move || region.put(&block(1).0, &block(1).1, &block(1).2)
        });
        let (key, tokens, bytes) = block(2);
        let puts = [region.put(&key, &tokens, &bytes), other.join().unwrap()];
        let stored = puts.iter().filter(|put| **put == Ok(Put::Stored)).count();
        let found = [1, 2].map(|number| get(&region, number));
        assert!(stored >= 1 && found.iter().filter(|found| **found).count() == 1, "{puts:?} {found:?}");
        assert_eq!(region.stats().in_flight, 0);
    });
}

/// In the model a word of the tree has two bits: the put fills the word of the entry that is given
/// back meanwhile.
#[test]
fn an_entry_that_is_given_back_while_its_word_fills_is_found() {
    explore("put vs remove, then put", [1, 3], || {
        let region = Arc::new(Region::model(&memory(&layout(4)), &layout(4), false));
        (1..5).for_each(|number| assert_eq!(put(&region, number), Put::Stored));
        assert!(region.remove(&block(4).0));
        let other = thread::spawn({
            let region = region.clone();
            move || region.remove(&block(3).0)
        });
        assert_eq!(put(&region, 5), Put::Stored);
        assert!(other.join().unwrap());
        assert_eq!((put(&region, 6), region.stats().evicted, region.stats().blocks), (Put::Stored, 0, 4));
    });
}

/// A process that recovers another one begins an epoch while a put charges its block.
#[test]
fn an_entry_that_is_charged_while_an_epoch_begins_is_counted_once() {
    explore("put vs recount", [2, 2], || {
        let layout = DigestLayout::new(8, 1);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("words");
        let blocks = Arc::new(DigestRegion::model(&memory, &layout));
        let other = thread::spawn({
            let blocks = blocks.clone();
            move || blocks.region().recount()
        });
        let key = DigestKey::new(&[1; 32]).expect("a digest");
        assert_eq!(blocks.put_from(&[key], &[&[7; 8]], None).expect("a batch"), [DigestPut::Stored]);
        other.join().unwrap();
        assert_eq!(blocks.region().counted(), [1, 1]);
        assert_eq!(blocks.remove(&[key]), Ok(1));
        assert_eq!(blocks.region().counted(), [0, 0]);
    });
}

/// Two processes give back what a dead one held; one of them takes its slot and puts a block at
/// once.
#[test]
fn what_a_dead_process_held_is_given_back_once() {
    explore("recover vs recover, open, put", [3, 4], || {
        let (layout, memory) = (layout(1), memory(&layout(1)));
        let one = Region::model(&memory, &layout, false);
        let dead = Region::model(&memory, &layout, true);
        let (key, tokens, _) = block(1);
        std::mem::forget(dead.reserve(&key, &tokens, None).expect("room"));
        let other = thread::spawn({
            let (memory, layout) = (memory.clone(), layout.clone());
            move || {
                let other = Region::model(&memory, &layout, false);
                // There is no room while the other one is about to give it back.
                let (key, tokens, bytes) = block(2);
                let stored = other.put(&key, &tokens, &bytes) == Ok(Put::Stored);
                assert_eq!(get(&other, 2), stored);
                (other, stored)
            }
        });
        one.recover();
        let (other, stored) = other.join().unwrap();
        assert_eq!(get(&one, 2), stored);
        assert_eq!((one.stats().blocks, one.stats().in_flight), (usize::from(stored), 0));
        drop(other);
        assert_eq!(one.stats().processes, 1);
        std::mem::forget(dead);
    });
}
