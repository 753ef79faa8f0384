//! What is told, scripted on one thread: from when on, why, and how much of it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use radixkv::{
    BlockId, CacheEvent, Clock, EventBatch, EvictionReason, Namespace, PrefixCache, Quota, Subscription, Token,
};

use crate::log::Log;

fn insert(cache: &PrefixCache, space: &Namespace, tokens: &[Token]) -> Vec<BlockId> {
    let session = cache.session();
    let hit = session.match_prefix(space, tokens);
    let missing = tokens.len() / cache.block_size() - hit.blocks().len();
    session.insert(hit.lease(), tokens, session.reserve(missing).expect("room")).expect("it fits").blocks
}

fn batches(events: &mut Subscription) -> Vec<EventBatch> {
    std::iter::from_fn(|| events.try_next()).collect()
}

/// Why blocks were removed, in the order in which that was told.
fn reasons(batches: &[EventBatch]) -> Vec<(EvictionReason, Vec<BlockId>)> {
    let removals = batches.iter().flat_map(EventBatch::events).filter_map(|event| match event {
        CacheEvent::Removed { blocks, reason, .. } => Some((reason, blocks.to_vec())),
        _ => None,
    });
    removals.collect()
}

/// What was taken in before it listens is not told, though no batch of it was full.
// Holds: CE1.
#[test]
fn a_listener_is_told_of_what_comes_after_it() {
    let cache = PrefixCache::builder(2, 64).build().expect("sound");
    let (space, mut first) = (cache.default_namespace(), cache.subscribe(8));
    insert(&cache, &space, &[1, 2, 3, 4]);
    cache.settle();
    let mut second = cache.subscribe(8);
    let later = insert(&cache, &space, &[5, 6]);
    let told = batches(&mut second);
    assert_eq!((told.len(), told[0].number()), (1, 1));
    assert!(
        matches!(told[0].events().collect::<Vec<_>>()[..], [CacheEvent::Stored { blocks, .. }] if *blocks == later)
    );
    let numbers: Vec<u64> = batches(&mut first).iter().map(EventBatch::number).collect();
    assert_eq!((numbers, first.next_number(), second.next_number()), (vec![0, 1], 2, 2));
}

/// One after the other, so that none of them is that of the removal before it by chance.
// Holds: CE7.
#[test]
fn each_removal_has_its_own_reason() {
    let cache = PrefixCache::builder(1, 64).clock(Clock::Logical).build().expect("sound");
    let (space, tenant, mut events) = (cache.default_namespace(), cache.namespace(&["tenant"]), cache.subscribe(64));
    for round in 0..3_u64 {
        let ids = insert(&cache, &space, &[1, 2, 3, 4]);
        cache.invalidate_blocks(&ids[3..]);
        cache.evict(1);
        cache.set_time(round * 100 + 50);
        assert_eq!(space.evict_idle(Duration::from_nanos(1)), 2);
        let own = insert(&cache, &tenant, &[round as Token, 9]);
        tenant.set_quota(Quota::default().cached_blocks(1));
        cache.settle();
        tenant.set_quota(Quota::default());
        let again = insert(&cache, &space, &[5]);
        cache.invalidate_blocks(&again);
        tenant.evict(1);
        use EvictionReason::{Age, Capacity, Invalidated, Quota as OverQuota};
        let expected = [
            (Invalidated, ids[3..].to_vec()),
            (Capacity, ids[2..3].to_vec()),
            (Age, ids[..2].to_vec()),
            (OverQuota, own[1..].to_vec()),
            (Invalidated, again),
            (Capacity, own[..1].to_vec()),
        ];
        assert_eq!(reasons(&batches(&mut events)), expected);
    }
    let stats = cache.stats();
    assert_eq!((stats.invalidated_blocks, stats.aged_blocks), (6, 6));
    assert_eq!((stats.evicted_blocks, stats.evicted_for_quota_blocks), (9, 3));
}

/// Blocks that are asked for go by the quota first, and say so.
// Holds: CE7.
#[test]
fn evicted_blocks_say_why_they_went() {
    let cache = PrefixCache::builder(1, 64).clock(Clock::Logical).build().expect("sound");
    let (space, tenant, mut events) = (cache.default_namespace(), cache.namespace(&["tenant"]), cache.subscribe(64));
    insert(&cache, &space, &[1, 2]);
    insert(&cache, &tenant, &[3, 4, 5]);
    cache.settings().set_policy(radixkv::PolicyKind::Fifo);
    let mut evicted = Vec::new();
    tenant.set_quota(Quota::default().cached_blocks(1));
    cache.evict_into(4, &mut evicted);
    let told = reasons(&batches(&mut events));
    let said: Vec<_> = evicted.iter().map(|victim| (victim.reason, victim.blocks.blocks().to_vec())).collect();
    assert_eq!(told.iter().map(|(_, blocks)| blocks.len()).sum::<usize>(), 4);
    assert!(told.iter().any(|(reason, _)| *reason == EvictionReason::Quota));
    assert!(said.iter().all(|victim| told.contains(victim)), "{said:?}, {told:?}");
}

/// More runs than a slice of any work under the lock has.
// Holds: CE2.
#[test]
fn a_list_of_many_runs_is_whole() {
    let cache = PrefixCache::builder(2, 4096).build().expect("sound");
    let spaces: Vec<_> = (0..4).map(|i: u32| cache.namespace(&[i.to_string().as_str()])).collect();
    let mut ids = HashSet::new();
    for i in 0..400 {
        let tokens: Vec<Token> = (0..2 + 2 * (i % 5)).map(|at| if at < 2 { at } else { i }).collect();
        spaces.iter().for_each(|space| ids.extend(insert(&cache, space, &tokens)));
    }
    let snapshot = cache.snapshot();
    let listed: Vec<BlockId> = snapshot
        .events()
        .flat_map(|event| match event {
            CacheEvent::Stored { blocks, .. } => blocks.to_vec(),
            other => panic!("not a store: {other:?}"),
        })
        .collect();
    assert_eq!((listed.len(), listed.into_iter().collect::<HashSet<_>>()), (ids.len(), ids));
    assert_eq!(Log::walked(&cache, &spaces), Log::of(2, &snapshot));
}

/// No batch more, and with room for none one at least.
// Holds: CE3.
#[test]
fn a_channel_has_room_for_what_was_asked() {
    let cache = PrefixCache::builder(1, 64).build().expect("sound");
    let space = cache.default_namespace();
    let channels = [(0, 1), (1, 1), (2, 2), (7, 7), (50, 50)];
    let mut listening = channels.map(|(batches, room)| (cache.subscribe(batches), room));
    for token in 0..50 {
        insert(&cache, &space, &[token]);
        // It ends a batch.
        drop(cache.snapshot());
    }
    for (events, room) in &mut listening {
        let read: Vec<u64> = batches(events).iter().map(EventBatch::number).collect();
        assert_eq!(read, (0..*room).collect::<Vec<_>>());
        assert_eq!((events.lost_batches(), events.next_number()), (50 - *room, 50));
    }
}

/// A thread inserts while another clears: what it stores after a clear is not in that clear.
// Holds: CE1.
#[test]
fn a_clear_is_told_before_what_comes_after_it() {
    let cache = PrefixCache::builder(1, 256).build().expect("sound");
    let (space, mut events, mut log) = (cache.namespace(&["space"]), cache.subscribe(usize::MAX), Log::new(1));
    let at_work = AtomicBool::new(true);
    let agree = thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            while at_work.load(Relaxed) {
                let session = cache.session();
                for token in 0..100 {
                    let hit = session.match_prefix(&space, &[token]);
                    let blocks = session.reserve(1 - hit.blocks().len()).expect("room");
                    // It may be refused: the space was cleared meanwhile.
                    drop(session.insert(hit.lease(), &[token], blocks));
                }
            }
        });
        let agree = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..1_500 {
                space.clear();
                let snapshot = cache.snapshot();
                log.take_until(&mut events, snapshot.number());
                assert_eq!(log, Log::of(1, &snapshot));
            }
        }));
        at_work.store(false, Relaxed);
        inserting.join().expect("no panic");
        agree
    });
    assert!(agree.is_ok());
}

/// Of all places on a run together, whichever of them was used last.
// Holds: CE2.
#[test]
fn a_walk_shows_uses_and_the_last_of_them() {
    let cache = PrefixCache::builder(4, 64).clock(Clock::Logical).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens: Vec<Token> = (0..16).collect();
    insert(&cache, &space, &tokens);
    let seen = || {
        let mut seen = Vec::new();
        space.walk(|run| seen.push((run.uses, run.last_used)));
        seen
    };
    assert_eq!(seen(), [(1, 0)]);
    for (time, (len, uses)) in (1..).zip([(16, 2), (16, 3), (8, 4), (4, 5), (12, 6), (8, 7), (16, 8), (4, 9)]) {
        cache.set_time(time);
        drop(session.match_prefix(&space, &tokens[..len]));
        assert_eq!(seen(), [(uses, time)], "{len}");
    }
}
