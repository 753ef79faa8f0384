//! Listeners that come, go, panic and are forgotten, and caches that end before them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use fastrand::Rng;
use radixkv::{Namespace, PrefixCache, Session, Token};

const BLOCK: usize = 4;

fn insert(session: &Session, space: &Namespace, tokens: &[Token]) {
    let hit = session.match_prefix(space, tokens);
    let missing = tokens.len() / BLOCK - hit.blocks().len();
    drop(session.insert(hit.lease(), tokens, session.reserve(missing).expect("room")).expect("it fits"));
}

/// Some read a little, some end while they read, by a panic or without one; those that have gone
/// keep nothing.
// Holds: CE5.
#[test]
fn listeners_that_come_and_go_keep_nothing() {
    let cache = PrefixCache::builder(BLOCK, 256).build().expect("sound");
    let at_work = AtomicBool::new(true);
    thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            let (session, space, mut dice) = (cache.session(), cache.default_namespace(), Rng::with_seed(1));
            while at_work.load(Relaxed) {
                let tokens: Vec<Token> = (0..dice.usize(4..40)).map(|_| dice.u32(..3)).collect();
                insert(&session, &space, &tokens);
                cache.evict(dice.usize(..4));
            }
        });
        let listening = (0..3).map(|seed| {
            let cache = &cache;
            scope.spawn(move || {
                let (mut dice, mut kept) = (Rng::with_seed(seed), Vec::new());
                for round in 0..1_000 {
                    let mut events = cache.subscribe([1, 3, usize::MAX][round % 3]);
                    let reads = dice.usize(..4);
                    let ended = catch_unwind(AssertUnwindSafe(|| {
                        let batches: Vec<_> = (0..reads).filter_map(|_| events.try_next()).collect();
                        if dice.u32(..4) == 0 {
                            resume_unwind(Box::new(batches));
                        }
                        (batches, events)
                    }));
                    kept.extend(ended.ok());
                    if kept.len() == 50 {
                        kept.clear();
                    }
                }
            })
        });
        let listening: Vec<_> = listening.collect();
        let listening: Vec<_> = listening.into_iter().map(thread::ScopedJoinHandle::join).collect();
        at_work.store(false, Relaxed);
        inserting.join().expect("no panic");
        assert!(listening.iter().all(Result::is_ok));
    });
    cache.clear();
    // What listeners kept goes a little with each turn.
    (0..500).for_each(|_| cache.settle());
    let events = cache.subscribe(1);
    cache.clear();
    // A listener that was stopped for long has kept more.
    let is_much = || cache.stats().index_bytes >= 32 << 10;
    (0..100_000).take_while(|turn| *turn < 8 || is_much()).for_each(|_| cache.settle());
    assert!(!is_much(), "{:?}", cache.stats());
    assert_eq!(cache.validate(), Ok(()));
    drop((cache, events));
}

/// A subscription that is forgotten keeps what its channel has room for, and no more.
// Holds: CE5.
#[test]
fn a_forgotten_listener_keeps_its_channel() {
    let cache = PrefixCache::builder(BLOCK, 256).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    (0..20).for_each(|_| std::mem::forget(cache.subscribe(1)));
    let mut most = [0; 3];
    for (round, most) in most.iter_mut().enumerate() {
        for i in 0..2_000 {
            insert(&session, &space, &[round as u32, i, 2, 3, 4, 5, 6, i]);
            cache.evict(2);
            *most = cache.stats().index_bytes.max(*most);
        }
    }
    assert!(most[2] < most[0] + (32 << 10) && most[2] < 160 << 10, "{most:?}");
}

/// The cache ends on the thread that listens, or on another one while that reads.
// Holds: CE4.
#[test]
fn a_cache_may_end_while_it_is_listened_to() {
    for round in 0..200 {
        let cache = PrefixCache::builder(BLOCK, 64).build().expect("sound");
        let mut events = [cache.subscribe(1), cache.subscribe(usize::MAX), cache.subscribe(usize::MAX)];
        let session = cache.session();
        (0..50).for_each(|token| insert(&session, &cache.default_namespace(), &[token, round, 2, 3]));
        drop(session);
        let [narrow, wide, unread] = &mut events;
        thread::scope(|scope| {
            scope.spawn(|| while narrow.try_next().is_some() {});
            scope.spawn(move || drop(cache));
        });
        while !narrow.has_ended() {
            _ = narrow.try_next();
        }
        let told: usize = std::iter::from_fn(|| wide.try_next()).map(|batch| batch.events().len()).sum();
        assert_eq!((told, wide.has_ended(), wide.lost_batches()), (50, true, 0));
        _ = unread.try_next();
        drop(events);
    }
}
