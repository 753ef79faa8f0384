//! A run that grows between two steps of the trim of its end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use radixkv::{Clock, PrefixCache, Token};

use crate::gate::{arm, as_victim};
use crate::{BLOCK_SIZE, BLOCKS, User, accounts, sequence};

/// Requests that inserted the tokens from there on, or matched up to their end and no further.
fn uses(user: &User, start: usize) -> u64 {
    let mut uses = None;
    user.space.walk(|part| uses = uses.or((part.start == start).then_some(part.uses)));
    uses.expect("it is cached")
}

#[test]
fn the_end_of_a_run_that_grows_while_it_is_trimmed_keeps_its_uses() {
    let cache = PrefixCache::builder(BLOCK_SIZE, 4096).build().expect("a sound setting");
    let (user, tokens) = (User::of(&cache), sequence(7, 3 * BLOCKS));
    let part = |number: usize| -> &[Token] { &tokens[..number * BLOCKS * BLOCK_SIZE] };
    drop(user.insert(part(1)));
    drop(user.insert(part(2)));
    (0..5).for_each(|_| drop(user.matched(part(2))));
    let before = uses(&user, part(1).len());
    assert!(before > 5);
    let armed = arm("trim::begun", {
        let (cache, whole) = (cache.clone(), tokens.clone());
        // The evictor's lock is taken: blocks are free, so no thread needs it.
        move || thread::scope(|scope| _ = scope.spawn(|| drop(User::of(&cache).insert(&whole))).join())
    });
    assert_eq!(as_victim(|| cache.evict(1)), 1, "of the part that came meanwhile");
    drop(armed);
    assert_eq!(user.matched(&tokens).len_tokens(), tokens.len() - BLOCK_SIZE);
    assert!(uses(&user, part(1).len()) >= before);
    accounts(&cache);
    cache.evict(usize::MAX);
    assert_eq!((cache.validate(), cache.stats().runs), (Ok(()), 0));
}

/// What is appended to a run while another one is trimmed in the same turn is trimmed before the
/// evictor has heard of it.
#[test]
fn what_was_appended_since_the_turn_began_is_counted_before_it_goes() {
    let builder = PrefixCache::builder(BLOCK_SIZE, 4096).clock(Clock::Logical);
    let cache = builder.build().expect("a sound setting");
    let user = User::of(&cache);
    let chains = [7, 8].map(|key| sequence(key, 3 * BLOCKS));
    for chain in &chains {
        (1..=2).for_each(|parts| drop(user.insert(&chain[..parts * BLOCKS * BLOCK_SIZE])));
    }
    let came = AtomicBool::new(false);
    let armed = arm("trim::begun", {
        let (cache, chains) = (cache.clone(), chains.clone());
        move || {
            if !came.swap(true, Relaxed) {
                let append = || chains.iter().for_each(|chain| drop(User::of(&cache).insert(chain)));
                thread::scope(|scope| _ = scope.spawn(append).join());
            }
        }
    });
    let freed = as_victim(|| user.space.evict_idle(Duration::ZERO));
    drop(armed);
    accounts(&cache);
    assert!(freed > 0 && cache.evict(usize::MAX) + freed <= 6 * BLOCKS);
    assert_eq!((cache.validate(), cache.stats().free_blocks), (Ok(()), 4096));
}
