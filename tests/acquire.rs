//! `acquire`, which takes a prompt's match and its blocks in one step: a request holds nothing
//! while it waits, and every request is served.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{Acquired, BlockRequest, Keys, NamespaceName, PrefixCache, Quota, ReserveError, Session, Token};

const FAR: Duration = Duration::from_secs(120);

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(4, blocks).build().expect("valid")
}

/// `len` tokens that share nothing with those of another `key`.
fn sequence(key: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| key << 16 | i).collect()
}

/// Caches what was acquired, as far as blocks are whole.
fn publish(session: &Session, cache: &PrefixCache, tokens: &[Token], start: Acquired) -> radixkv::Lease {
    let mut own = start.blocks;
    let whole = own.split(tokens.len() / cache.block_size() - start.hit.blocks().len());
    session.insert(start.hit.lease(), tokens, whole).expect("sound").lease
}

/// A match is not refused; what is longer than the limit and not cached is, for good.
// Holds: QU17.
#[test]
fn a_prompt_beyond_the_limit_is_acquired_where_it_is_cached() {
    let cache = PrefixCache::builder(2, 16).build().expect("valid");
    let (session, tenant) = (cache.session(), cache.namespace(&["tenant"]));
    tenant.set_quota(Quota::default().pinned_blocks(4));
    let prompt: Vec<u32> = (0..12).collect();
    for part in [6, 12] {
        // Before the match, which counts.
        let blocks = session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("nothing is leased");
        let hit = session.match_prefix(&tenant, &prompt[..part]);
        drop(session.insert(hit.lease(), &prompt[..part], blocks).expect("fits"));
    }
    assert_eq!(session.acquire(&tenant, &prompt, 0).expect("cached").hit.len_tokens(), 12);
    let refused = session.acquire(&tenant, &prompt, 1).expect_err("seven blocks, and four are the limit");
    assert_eq!(refused, ReserveError::OverQuota { requested: 7, pinned: 6, limit: 4 });
}

/// The last token of a sequence of pairs has no keys and values.
// Holds: QU17.
#[test]
fn bigrams_are_acquired_as_they_are_inserted() {
    let cache = PrefixCache::builder(1, 8).build().expect("valid");
    let (session, draft) = (cache.session(), cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams)));
    let start = session.acquire(&draft, &[1, 2, 3, 4], 0).expect("free");
    assert_eq!(start.blocks.len(), 3);
    assert_eq!(session.insert(start.hit.lease(), &[1, 2, 3, 4], start.blocks).expect("fits").lease.len_tokens(), 3);
}

// Holds: QU8.
#[test]
fn a_prompt_gets_its_match_and_the_missing_blocks_and_counts_once() {
    let cache = PrefixCache::builder(4, 16).policy(radixkv::PolicyKind::Lfu).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let [twice, once] = [1, 2].map(|key| sequence(key, 12));
    for tokens in [&twice, &once] {
        let start = session.acquire(&space, tokens, 3).expect("room");
        assert_eq!((start.hit.len_tokens(), start.blocks.len()), (0, 4));
        drop(publish(&session, &cache, tokens, start));
    }
    let again = session.acquire(&space, &twice, 1).expect("room");
    assert_eq!((again.hit.len_tokens(), again.blocks.len(), cache.stats().reserved_blocks), (12, 1, 1));
    drop(again);
    assert_eq!(cache.evict(3), 3);
    assert_eq!((session.peek(&space, &twice), session.peek(&space, &once)), (12, 0), "it was used more often");
    // A refusal counts as none, and holds nothing.
    let rest = session.reserve(13).expect("free");
    for _ in 0..3 {
        let refused = session.acquire(&space, &[&twice[..], &once].concat(), 0).unwrap_err();
        assert_eq!(refused, ReserveError::Exhausted { requested: 3, available: 0 });
    }
    assert_eq!(cache.stats().protected_blocks, 0);
    drop(rest);
    assert_eq!(
        session.acquire(&space, &[0; 60], 5).unwrap_err(),
        ReserveError::TooLarge { requested: 17, capacity: 16 }
    );
}

/// Each has half of the pool cached, and needs one block more.
// Holds: QU8.
#[test]
fn two_that_grow_beyond_their_matches_are_both_served() {
    let cache = cache(8);
    let space = cache.default_namespace();
    let prompts = [1, 2].map(|key| sequence(key, 20));
    let held: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let session = cache.session();
            let start = session.acquire(&space, &prompt[..16], 0).expect("room");
            publish(&session, &cache, &prompt[..16], start)
        })
        .collect();
    std::thread::scope(|scope| {
        for prompt in &prompts {
            let (cache, space) = (&cache, &space);
            scope.spawn(move || {
                let session = cache.session();
                let start = session.acquire_until(space, prompt, 0, Instant::now() + FAR).expect("served");
                assert_eq!(start.hit.blocks().len() + start.blocks.len(), 5);
            });
        }
        while cache.stats().waiting_requests < 2 {
            std::thread::yield_now();
        }
        drop(held);
    });
    assert_eq!((cache.stats().protected_blocks, cache.stats().reserved_blocks), (0, 0));
}

#[test]
fn at_the_deadline_it_says_what_it_waited_for() {
    let cache = cache(8);
    let (session, tenant) = (cache.session(), cache.namespace(&["tenant"]));
    tenant.set_quota(Quota::default().pinned_blocks(4));
    let soon = || Instant::now() + Duration::from_millis(3);
    let held = session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("within");
    let refused = session.acquire_until(&tenant, &[7; 8], 0, soon()).unwrap_err();
    assert_eq!(refused, ReserveError::OverQuota { requested: 2, pinned: 3, limit: 4 });
    let refused = session.acquire_until(&tenant, &[7; 20], 0, Instant::now() + FAR).unwrap_err();
    assert_eq!(refused, ReserveError::OverQuota { requested: 5, pinned: 3, limit: 4 });
    let rest = session.reserve(5).expect("free");
    let refused = session.acquire_until(&tenant, &[7; 4], 0, soon()).unwrap_err();
    assert_eq!(refused, ReserveError::TimedOut { requested: 1, available: 0 });
    drop((held, rest));
    assert_eq!(cache.stats().free_blocks, 8);
}

/// A request of one prompt: acquired, sometimes given up, computed in a moment, published.
async fn client(cache: PrefixCache, key: usize, served: Arc<AtomicUsize>, cancelled: Arc<AtomicUsize>) {
    let (space, mut dice) = (cache.namespace(&[["a", "b", "c"][key % 3]]), Rng::with_seed(key as u64));
    for _ in 0..ROUNDS {
        // Some share their beginnings.
        let tokens = [sequence(dice.u32(..8), 16), sequence(100 + dice.u32(..64), dice.usize(1..24))].concat();
        let mut acquiring = Box::pin(cache.acquire_async(&space, &tokens[..], dice.usize(..8)));
        if dice.u8(..3) == 0 {
            // Given up after a poll, or one more.
            for _ in 0..dice.u8(1..3) {
                if acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(acquiring);
            cancelled.fetch_add(1, Relaxed);
            continue;
        }
        let start = acquiring.await.expect("it fits");
        for _ in 0..dice.u8(..3) {
            tokio::task::yield_now().await;
        }
        {
            let session = cache.session();
            drop(publish(&session, &cache, &tokens, start));
        }
        served.fetch_add(1, Relaxed);
    }
}

/// Rounds of each client.
const ROUNDS: usize = 480;
const CLIENTS: usize = 64;

/// Requests of many tasks in a pool that holds few of them, given up at any moment: each is served,
/// and nothing is lost.
// Holds: QU8.
#[test]
fn tasks_that_are_cancelled_anywhere_keep_none_waiting() {
    let cache = cache(40);
    cache.namespace(&["a"]).set_quota(Quota::default().pinned_blocks(16).cached_blocks(12));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    let (served, cancelled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..CLIENTS).map(|key| runtime.spawn(client(cache.clone(), key, served.clone(), cancelled.clone())));
    let clients: Vec<_> = clients.collect();
    runtime.block_on(async {
        for client in clients {
            client.await.expect("no panic");
        }
    });
    assert_eq!(served.load(Relaxed) + cancelled.load(Relaxed), CLIENTS * ROUNDS);
    assert!(cancelled.load(Relaxed) >= 10_000);
    cache.settle();
    cache.validate().expect("sound");
    let stats = cache.stats();
    assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.waiting_requests), (0, 0, 0));
}

/// A task keeps its session, whichever thread runs it.
// Holds: LE5.
#[test]
fn a_session_goes_with_its_task() {
    let cache = cache(64);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    let tasks: Vec<_> = (0..16)
        .map(|key| {
            let cache = cache.clone();
            runtime.spawn(async move {
                let (session, space) = (cache.session(), cache.default_namespace());
                for round in 0..50 {
                    let tokens = sequence(key + round % 3, 12);
                    let start = session.acquire(&space, &tokens, 0).expect("room for all");
                    tokio::task::yield_now().await;
                    let lease = publish(&session, &cache, &tokens, start);
                    tokio::task::yield_now().await;
                    assert_eq!(session.resume(lease, &tokens).len_tokens(), 12);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    cache.settle();
    cache.validate().expect("sound");
}
