//! Any mix of verbs from several threads, with evictions, quotas, clears and drops of namespaces.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use radixkv::{Clock, Eviction, PrefixCache, Quota, Session, Watermarks};
use radixkv_events::{CacheRecorder, Follower, HashScheme, Token, Verdict};

use super::truth::{BLOCK, feed, namespaces, of_cache, of_follower};

const THREADS: u64 = 4;
/// Longer than any turn of the background evictor takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One of the verbs that change what is cached.
pub(crate) fn verb(cache: &PrefixCache, session: &Session, dice: &mut Rng) {
    let names = namespaces(cache);
    let namespace = &names[dice.usize(..names.len())];
    match dice.u32(..100) {
        0 => namespace.clear(),
        1 => namespace.remove(),
        2 => namespace.set_quota(Quota::default().cached_blocks(dice.usize(4..40))),
        3 => _ = cache.evict(dice.usize(..20)),
        4 => _ = namespace.evict(dice.usize(..8)),
        5 if dice.u32(..10) == 0 => cache.clear(),
        6 => cache.settle(),
        _ => {
            // Few different tokens: sequences part in the middle of blocks, and at many depths.
            let prompt: Vec<Token> = (0..dice.usize(..40)).map(|at| u32::from(dice.usize(..at + 8) == 0)).collect();
            let hit = session.match_prefix(namespace, &prompt);
            let missing = (prompt.len() / BLOCK).saturating_sub(hit.len_tokens() / BLOCK);
            if let Ok(blocks) = session.reserve(missing) {
                drop(session.insert(hit.lease(), &prompt, blocks));
            }
        }
    }
}

/// Whether a follower of everything, and one that began with a snapshot, come to know what the
/// cache holds.
fn agrees(cache: &PrefixCache, recorder: &mut CacheRecorder, known: &mut Follower, copy: &mut Follower) -> bool {
    // A background evictor may be at work for a moment longer.
    let end = Instant::now() + PATIENCE;
    loop {
        while let Some(numbered) = recorder.next().expect("events that follow from one another") {
            assert_eq!(feed(known, &numbered), Verdict::Applied);
            assert!(matches!(feed(copy, &numbered), Verdict::Applied | Verdict::Duplicate));
        }
        let truth = of_cache(cache);
        let agrees = of_follower(known.holdings()) == truth && of_follower(copy.holdings()) == truth;
        if agrees || Instant::now() > end {
            return agrees;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn follow(eviction: Eviction, scheme: HashScheme) {
    let cache = PrefixCache::builder(BLOCK, 96).clock(Clock::Logical).eviction(eviction).build().expect("valid");
    let mut recorder = CacheRecorder::builder(&cache, scheme).channel(1 << 20).build();
    let (mut snapshots, mut known, mut applied) = (recorder.snapshots(), Follower::new(), 0);
    for round in 0..25 {
        let (start, mut copy) = (Barrier::new(THREADS as usize + 1), Follower::new());
        thread::scope(|scope| {
            for worker in 0..THREADS {
                let (cache, start) = (&cache, &start);
                scope.spawn(move || {
                    let (session, mut dice) = (cache.session(), Rng::with_seed(round * THREADS + worker));
                    start.wait();
                    (0..150).for_each(|_| verb(cache, &session, &mut dice));
                });
            }
            start.wait();
            // In every second round some batches are taken while the verbs go on, before the
            // snapshot and after it.
            for _ in 0..round % 2 * 20 {
                if let Some(numbered) = recorder.next().expect("events that follow from one another") {
                    assert_eq!(feed(&mut known, &numbered), Verdict::Applied);
                }
            }
            let snapshot = snapshots();
            copy.restore(snapshot.next, snapshot.epoch, &snapshot.events).expect("of one block size");
        });
        cache.settle();
        assert!(agrees(&cache, &mut recorder, &mut known, &mut copy), "round {round}");
        assert!(known.is_complete() && copy.is_complete());
        assert_eq!(known.holdings().unrooted(), 0);
        applied = known.counts().batches;
    }
    assert_eq!((recorder.lost_batches(), recorder.resets(), cache.validate()), (0, 1, Ok(())));
    assert!(applied > 100, "there were many changes");
}

// Holds: WE5.
#[test]
fn what_is_followed_is_what_is_cached() {
    follow(Eviction::Inline, HashScheme::sha256_cbor("0").digests());
}

// Holds: WE5.
#[test]
fn what_is_followed_is_what_is_cached_with_a_background_evictor() {
    follow(Eviction::Background(Watermarks::new(8, 24)), HashScheme::xxh3());
}
