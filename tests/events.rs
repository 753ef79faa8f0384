//! The events of a cache agree with its content: for any mix of operations, and for listeners from
//! the beginning or from a snapshot on.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

use std::collections::HashMap;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use radixkv::{
    BlockId, CacheEvent, Clock, EventBatch, Eviction, EvictionReason, Keys, Namespace, NamespaceName, PrefixCache,
    Quota, Subscription, Token, Watermarks,
};

const BLOCK: usize = 3;

/// A block as a listener knows it: the block before it, and its place and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    parent: Option<BlockId>,
    start: usize,
    tokens: Vec<Token>,
}

/// The cache as a listener knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listener(HashMap<NamespaceName, HashMap<BlockId, Held>>);

impl Listener {
    fn take(&mut self, batch: &EventBatch) {
        batch.events().for_each(|event| self.apply(event));
        self.0.retain(|_, blocks| !blocks.is_empty());
    }

    fn apply(&mut self, event: CacheEvent<'_>) {
        match event {
            CacheEvent::Stored { namespace, parent, start, tokens, blocks, .. } => {
                let ahead = usize::from(namespace.keys() == Keys::Bigrams);
                assert_eq!(tokens.len(), blocks.len() * BLOCK + ahead, "{event:?}");
                let held = self.0.entry(namespace.clone()).or_default();
                let mut parent = parent;
                assert_eq!(parent.map_or(0, |block| held[&block].start + BLOCK), start, "{event:?}");
                for (i, &block) in blocks.iter().enumerate() {
                    let tokens = tokens[i * BLOCK..][..BLOCK + ahead].to_vec();
                    let before = held.insert(block, Held { parent, start: start + i * BLOCK, tokens });
                    assert_eq!(before, None, "{event:?}");
                    parent = Some(block);
                }
            }
            CacheEvent::Removed { namespace, start, blocks, .. } => {
                let held = self.0.get_mut(namespace).expect("it has blocks");
                for (i, block) in blocks.iter().enumerate().rev() {
                    let gone = held.remove(block).expect("it was stored");
                    assert_eq!(gone.start, start + i * BLOCK, "{event:?}");
                    assert!(held.values().all(|child| child.parent != Some(*block)), "children go first: {event:?}");
                }
            }
            CacheEvent::Cleared { namespace, .. } => _ = self.0.remove(namespace),
            other => panic!("unknown: {other:?}"),
        }
    }

    /// What the cache says by itself, with no other thread at work.
    fn of(_cache: &PrefixCache, namespaces: &[Namespace]) -> Self {
        let mut listener = Self::default();
        for namespace in namespaces {
            let ahead = usize::from(namespace.keys() == Keys::Bigrams);
            let mut paths: Vec<(Vec<Token>, Vec<BlockId>)> = Vec::new();
            let mut held = HashMap::new();
            namespace.walk(|run| {
                let (mut tokens, mut blocks) = run.parent.map_or_else(Default::default, |parent| paths[parent].clone());
                tokens.truncate(run.start);
                blocks.truncate(run.start.saturating_sub(ahead) / BLOCK);
                tokens.extend(run.tokens);
                let first = blocks.len();
                blocks.extend(run.blocks);
                for i in first..blocks.len() {
                    let tokens = tokens[i * BLOCK..][..BLOCK + ahead].to_vec();
                    let parent = i.checked_sub(1).map(|before| blocks[before]);
                    held.insert(blocks[i], Held { parent, start: i * BLOCK, tokens });
                }
                paths.push((tokens, blocks));
            });
            if !held.is_empty() {
                listener.0.insert(namespace.name(), held);
            }
        }
        listener
    }
}

fn names(cache: &PrefixCache) -> Vec<Namespace> {
    let named = ["a", "b"].map(|name| cache.namespace(&[name]));
    [cache.default_namespace(), cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams))]
        .into_iter()
        .chain(named)
        .collect()
}

/// One of the verbs that change what is cached.
fn verb(cache: &PrefixCache, session: &radixkv::Session, dice: &mut Rng) {
    let names = names(cache);
    let namespace = &names[dice.usize(..names.len())];
    match dice.u32(..100) {
        0 => namespace.clear(),
        1 => namespace.remove(),
        2 => namespace.set_quota(Quota::default().cached_blocks(dice.usize(4..40))),
        3 => _ = cache.evict(dice.usize(..20)),
        4 => _ = namespace.evict(dice.usize(..8)),
        5 => {
            let mut evicted = Vec::new();
            cache.evict_into(dice.usize(..8), &mut evicted);
            for victim in evicted {
                let found = session.match_prefix(&victim.namespace_of(cache), &victim.tokens);
                // Another thread may have cached the same again, or dropped the namespace.
                drop(session.insert(found.lease(), &victim.tokens, victim.blocks));
            }
        }
        6 => cache.settle(),
        7 => _ = cache.invalidate_blocks(&[dice.u32(..96), dice.u32(..96)]),
        _ => {
            // Few tokens, so that sequences part in the middle of blocks, and at many depths.
            let prompt: Vec<Token> = (0..dice.usize(..40)).map(|at| u32::from(dice.usize(..at + 8) == 0)).collect();
            let hit = session.match_prefix(namespace, &prompt);
            let missing = (prompt.len() / BLOCK).saturating_sub(hit.len_tokens() / BLOCK);
            if let Ok(blocks) = session.reserve(missing) {
                drop(session.insert(hit.lease(), &prompt, blocks));
            }
        }
    }
}

trait Names {
    fn namespace_of(&self, cache: &PrefixCache) -> Namespace;
}

impl Names for radixkv::Evicted {
    fn namespace_of(&self, cache: &PrefixCache) -> Namespace {
        let parts: Vec<&str> = self.namespace.parts().collect();
        cache.namespace(NamespaceName::new(&parts).with_keys(self.namespace.keys()))
    }
}

fn follow(eviction: Eviction) {
    let cache = PrefixCache::builder(BLOCK, 96).clock(Clock::Logical).eviction(eviction).build().expect("valid");
    let mut events = cache.subscribe(1 << 20);
    let mut known = Listener::default();
    // Handles that keep namespaces from being forgotten; those that were dropped are made again by
    // name.
    for round in 0..40 {
        let start = Barrier::new(5);
        let (mut copy, mut from) = (Listener::default(), 0);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let (cache, start) = (&cache, &start);
                    scope.spawn(move || {
                        let (session, mut dice) = (cache.session(), Rng::with_seed(round * 4 + worker));
                        start.wait();
                        (0..150).for_each(|_| verb(cache, &session, &mut dice));
                    })
                })
                .collect();
            let (cache, start) = (&cache, &start);
            let snapshot = scope.spawn(move || {
                start.wait();
                thread::sleep(Duration::from_micros(round * 50));
                cache.snapshot()
            });
            let snapshot = snapshot.join().expect("taken");
            from = snapshot.number();
            copy.take(&snapshot);
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        cache.settle();
        // A background evictor may be at work for a moment longer.
        let agree = (0..60_000).any(|_| {
            while let Some(batch) = events.try_next() {
                known.take(&batch);
                if batch.number() >= from {
                    copy.take(&batch);
                }
            }
            let truth = Listener::of(&cache, &names(&cache));
            let agree = known == truth && copy == truth;
            if !agree {
                thread::sleep(Duration::from_millis(1));
            }
            agree
        });
        assert!(agree, "round {round}, with a snapshot at {from}");
    }
    assert_eq!((events.lost_batches(), cache.validate()), (0, Ok(())));
    assert!(events.next_number() > 100, "there were many changes");
}

// Holds: IV5, CE1, CE2.
#[test]
fn events_make_up_what_is_cached() {
    follow(Eviction::Inline);
}

// Holds: CE1.
#[test]
fn events_make_up_what_is_cached_with_a_background_evictor() {
    follow(Eviction::Background(Watermarks::new(8, 24)));
}

/// Caches a sequence; all its blocks.
fn insert(cache: &PrefixCache, namespace: &Namespace, tokens: &[Token]) -> Vec<BlockId> {
    let session = cache.session();
    let hit = session.match_prefix(namespace, tokens);
    let missing = (tokens.len() - hit.len_tokens()) / cache.block_size();
    let inserted = session.insert(hit.lease(), tokens, session.reserve(missing).expect("room")).expect("fitting");
    hit.blocks().iter().chain(&inserted.blocks).copied().collect()
}

// Holds: CE3.
#[test]
fn a_subscriber_that_falls_behind_sees_what_it_lost() {
    let cache = PrefixCache::builder(1, 4096).build().expect("valid");
    let space = cache.default_namespace();
    let (mut slow, mut fast) = (cache.subscribe(2), cache.subscribe(64));
    let mut all = 0;
    for part in 0..8 {
        (0..100).for_each(|token| _ = insert(&cache, &space, &[part * 100 + token]));
        cache.settle();
        while let Some(batch) = fast.try_next() {
            all += batch.events().len();
        }
    }
    assert_eq!((all, fast.lost_batches()), (800, 0));
    let before: Vec<u64> = std::iter::from_fn(|| slow.try_next()).map(|batch| batch.number()).collect();
    assert_eq!(before, [0, 1]);
    assert!(slow.try_next().is_none(), "and it is known at once what was lost");
    assert_eq!((slow.next_number(), slow.lost_batches()), (fast.next_number(), fast.next_number() - 2));
    let lost = slow.lost_batches();
    insert(&cache, &space, &[u32::MAX]);
    let next = slow.try_next().expect("there is room again");
    assert_eq!((next.number(), slow.lost_batches()), (fast.next_number(), lost));
    drop(cache);
    assert!(slow.try_next().is_none() && slow.has_ended());
}

// Holds: CE7.
#[test]
fn a_subscriber_learns_why() {
    let builder = PrefixCache::builder(1, 8).clock(Clock::Logical).time_to_idle(Duration::from_nanos(100));
    let cache = builder.build().expect("valid");
    let (space, tenant) = (cache.default_namespace(), cache.namespace(&["tenant"]));
    let mut events = cache.subscribe(8);
    let old = insert(&cache, &space, &[1, 1]);
    cache.set_time(150);
    let [own, new] = [(&tenant, 2), (&space, 3)].map(|(namespace, token)| insert(&cache, namespace, &[token, token]));
    tenant.set_quota(Quota::default().cached_blocks(1));
    cache.settle();
    assert_eq!(cache.evict(1), 1);
    cache.clear();
    let batches: Vec<EventBatch> = std::iter::from_fn(|| events.try_next()).collect();
    let removals = |event| match event {
        CacheEvent::Removed { blocks, reason, .. } => Some((blocks.to_vec(), reason)),
        _ => None,
    };
    let told: Vec<_> = batches.iter().flat_map(EventBatch::events).filter_map(removals).collect();
    assert_eq!(
        told,
        [
            (old, EvictionReason::Age),
            (own[1..].to_vec(), EvictionReason::Quota),
            (own[..1].to_vec(), EvictionReason::Capacity)
        ]
    );
    let is_clear = |event: &CacheEvent<'_>| matches!(event, CacheEvent::Cleared { .. });
    assert_eq!((batches.iter().flat_map(EventBatch::events).filter(is_clear).count(), new.len()), (2, 2));
    let stats = cache.stats();
    assert_eq!((stats.evicted_blocks, stats.evicted_for_quota_blocks), (2, 1));
    assert_eq!((stats.aged_blocks, stats.cleared_blocks), (2, 2));
}

/// A channel costs what waits in it, and a subscriber that has gone costs nothing.
#[test]
fn a_channel_of_any_length_may_be_asked_for_and_dropped() {
    let cache = PrefixCache::builder(1, 512).build().expect("valid");
    let space = cache.default_namespace();
    let mut gone: Vec<_> = [0, 1, usize::MAX].map(|batches| cache.subscribe(batches)).into();
    let mut listening = cache.subscribe(usize::MAX);
    for token in 0..400 {
        insert(&cache, &space, &[token]);
        if token == 200 {
            gone.clear();
        }
    }
    let told: usize = std::iter::from_fn(|| listening.try_next()).map(|batch| batch.events().len()).sum();
    assert_eq!((told, listening.lost_batches()), (400, 0));
}

/// From many runs, over several turns of the evictor, beside leases that keep some.
// Holds: CE8.
#[test]
fn evicted_blocks_stay_until_they_are_dropped() {
    let cache = PrefixCache::builder(2, 4096).clock(Clock::Logical).build().expect("valid");
    let (session, space) = (cache.session(), cache.namespace(&["tenant"]));
    let mut blocks = HashMap::new();
    for prompt in 0..500 {
        let tokens: Vec<Token> = [7, 7, 7, prompt / 10, prompt % 10, 1, 2, 3].into();
        insert(&cache, &space, &tokens).into_iter().enumerate().for_each(|(i, block)| {
            blocks.insert(block, tokens[..i * 2 + 2].to_vec());
        });
    }
    let held = session.match_prefix(&space, &[7, 7, 7, 3]);
    let (mut evicted, total) = (Vec::new(), blocks.len());
    assert_eq!(cache.evict_into(usize::MAX, &mut evicted), total - 2);
    assert_eq!(cache.stats().reserved_blocks, total - 2);
    for victim in &evicted {
        assert_eq!(victim.namespace, space.name());
        assert_eq!(victim.tokens.len(), victim.start + 2 * victim.blocks.len());
        for (i, block) in victim.blocks.blocks().iter().enumerate() {
            assert_eq!(blocks[block], victim.tokens[..victim.start + 2 * i + 2]);
        }
    }
    // From the end of each sequence towards its beginning.
    let place = |block| evicted.iter().position(|victim| victim.blocks.blocks().contains(&block));
    for (&block, tokens) in blocks.iter().filter(|(block, _)| !held.blocks().contains(block)) {
        let parent = blocks.iter().find(|(_, before)| before.len() + 2 == tokens.len() && tokens.starts_with(before));
        let parent = parent.map(|(block, _)| *block).filter(|block| !held.blocks().contains(block));
        assert!(parent.is_none_or(|parent| place(parent) >= place(block)));
    }
    assert_eq!((cache.evict_into(1, &mut Vec::new()), cache.validate()), (0, Ok(())));
    drop((evicted, held));
    assert_eq!((cache.evict(2), cache.stats().free_blocks), (2, 4096));
    assert_eq!(cache.validate(), Ok(()));
}

/// Snapshots and walks of several threads at once, beside everything: each is whole, and parents
/// come first.
// Holds: CE2.
#[test]
fn several_lists_at_once_are_each_of_one_moment() {
    let cache = PrefixCache::builder(BLOCK, 400).clock(Clock::Logical).build().expect("sound");
    let run = std::sync::atomic::AtomicBool::new(true);
    thread::scope(|scope| {
        for worker in 0..2 {
            let (cache, run) = (&cache, &run);
            scope.spawn(move || {
                let (session, mut dice) = (cache.session(), Rng::with_seed(worker));
                while run.load(std::sync::atomic::Ordering::Relaxed) {
                    verb(cache, &session, &mut dice);
                }
            });
        }
        let lists = (0..3).map(|list| {
            let cache = &cache;
            scope.spawn(move || {
                for _ in 0..150 {
                    if list == 0 {
                        Listener::default().take(&cache.snapshot());
                    } else {
                        // No block stands in two runs of a moment.
                        for held in Listener::of(cache, &names(cache)).0.values() {
                            assert!(
                                held.values().all(|block| block.parent.is_none_or(|parent| held.contains_key(&parent)))
                            );
                        }
                    }
                }
            })
        });
        let lists: Vec<_> = lists.collect();
        let lists: Vec<_> = lists.into_iter().map(thread::ScopedJoinHandle::join).collect();
        run.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(lists.iter().all(Result::is_ok), "each is whole");
    });
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
}

/// The stores of the batches that are there: their tokens.
fn stored(events: &mut radixkv::Subscription) -> Vec<Vec<Token>> {
    let batches: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    let stores = batches.iter().flat_map(EventBatch::events).filter_map(|event| match event {
        CacheEvent::Stored { tokens, .. } => Some(tokens.to_vec()),
        _ => None,
    });
    stores.collect()
}

/// Sequences of many lengths, each of whole blocks; every third one leaves the one before it inside
/// a block.
fn sequences(count: u32) -> Vec<Vec<Token>> {
    let of = |i: u32| {
        let len = BLOCK * (1 + i as usize % 40);
        let own = (0..len as u32).map(move |at| if i % 3 == 1 && at < 1 { i - 1 } else { i } << 8 | at);
        own.collect()
    };
    (0..count).map(of).collect()
}

/// What the batches name has left the tree long before they are read, and its memory would have
/// been used again.
// Holds: CE4.
#[test]
fn a_batch_that_is_read_late_says_what_was_stored() {
    let cache = PrefixCache::builder(BLOCK, 2_000).build().expect("sound");
    let mut events = cache.subscribe(usize::MAX);
    let (space, sequences) = (cache.default_namespace(), sequences(600));
    for (sequence, round) in sequences.iter().zip(1..) {
        insert(&cache, &space, sequence);
        if round % 10 == 0 {
            // From the ends: runs are shortened before they go.
            cache.evict(150);
            cache.evict(usize::MAX);
        }
    }
    cache.settle();
    let whole =
        |tokens: &Vec<Token>| tokens.len().is_multiple_of(BLOCK) && tokens.windows(2).all(|two| two[1] == two[0] + 1);
    let stored = stored(&mut events);
    assert_eq!(stored.len(), sequences.len());
    for (stored, sequence) in stored.iter().zip(&sequences) {
        assert_eq!(stored, sequence);
    }
    assert!(stored.iter().filter(|tokens| !whole(tokens)).count() > 100, "those that begin on another run");
}

// Holds: CE4.
#[test]
fn batches_are_read_after_the_cache_has_gone() {
    let cache = PrefixCache::builder(BLOCK, 2_000).build().expect("sound");
    let (mut one, mut two) = (cache.subscribe(usize::MAX), cache.subscribe(usize::MAX));
    let (space, sequences) = (cache.default_namespace(), sequences(300));
    for sequence in &sequences {
        insert(&cache, &space, sequence);
        cache.evict(20);
    }
    cache.settle();
    assert_eq!(one.try_next().expect("many").number(), 0);
    drop((space, cache));
    let rest = stored(&mut one).len();
    let all = stored(&mut two);
    assert_eq!(all, sequences);
    assert!(rest < all.len() && rest > 0 && one.has_ended() && two.has_ended());
}

/// A subscriber that does not read keeps what the batches in its channel name, and no more; all of
/// it goes with the subscription.
// Holds: CE5.
#[test]
fn a_subscriber_that_does_not_read_keeps_little() {
    let cache = PrefixCache::builder(BLOCK, 4_000).build().expect("sound");
    let (dead, mut live) = (cache.subscribe(2), cache.subscribe(usize::MAX));
    let (space, sequences) = (cache.default_namespace(), sequences(2_000));
    let turn_over = |live: &mut radixkv::Subscription| {
        for sequence in &sequences {
            insert(&cache, &space, sequence);
            cache.evict(usize::MAX);
        }
        assert_eq!(stored(live).len(), sequences.len());
        cache.settle();
        (0..4).for_each(|_| cache.settle());
        cache.stats().index_bytes
    };
    let once = turn_over(&mut live);
    let often = (0..4).map(|_| turn_over(&mut live)).max().expect("four");
    assert!(often < once + 64 * 1024, "{once}, {often}");
    drop((dead, live));
    insert(&cache, &space, &sequences[0]);
    cache.evict(usize::MAX);
    (0..4).for_each(|_| cache.settle());
    let left = cache.stats().index_bytes;
    assert!(left < once && left < 16 * 1024, "{left} of {once}");
}

/// The last handle may go at any moment of a call.
#[test]
fn a_cache_that_ends_during_a_call_loses_no_batch() {
    const ROUNDS: usize = 3_000;
    let (sender, receiver) = channel::<Subscription>();
    let (begins, has_begun) = channel();
    thread::scope(|scope| {
        let listener = scope.spawn(move || {
            for mut events in receiver {
                begins.send(()).expect("it waits");
                let mut batches = 0;
                while !events.has_ended() {
                    batches += u64::from(events.try_next().is_some());
                }
                assert_eq!((batches, events.lost_batches()), (events.next_number(), 0));
            }
        });
        for round in 0..ROUNDS {
            let cache = PrefixCache::builder(BLOCK, 8).build().expect("a sound configuration");
            sender.send(cache.subscribe(8)).expect("it listens");
            let (session, space) = (cache.session(), cache.default_namespace());
            let lease = session.match_prefix(&space, &[1, 2, 3]).into_lease();
            drop(session.insert(&lease, &[1, 2, 3], session.reserve(1).expect("room")).expect("it fits"));
            drop((lease, session, space));
            if has_begun.recv().is_err() {
                break;
            }
            (0..round % 200).for_each(|_| spin_loop());
            drop(cache);
        }
        drop(sender);
        listener.join().expect("no panic");
    });
}
