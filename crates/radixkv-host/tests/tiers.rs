//! A cache over a host tier: what moves where, what stays out, and what waits.

mod common;

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use common::gated::gated;
use radixkv::{Eviction, Keys, Namespace, NamespaceName, PrefixCache, Watermarks};
use radixkv_host::{
    DeviceMemory, HostTier, Memory, NoCopies, TierMode, TieredBuildError, TieredCache, TieredStart, WritePolicy,
};

/// A cache of `device` blocks over a tier of `host`, both of two tokens.
fn tiers(device: usize, host: usize, mode: TierMode) -> (TieredCache, Namespace) {
    let cache = PrefixCache::builder(2, device).build().expect("a cache");
    let host = HostTier::builder(2, host).build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(mode).build().expect("they go together");
    (tiers, cache.default_namespace())
}

/// Serves a prompt; the tokens that were found on the device, and in the host.
fn serve(tiers: &TieredCache, namespace: &Namespace, prompt: &[u32]) -> (usize, usize) {
    let session = tiers.session();
    let start = session.acquire(namespace, prompt, 0).expect("room");
    let found = (start.device_tokens, start.host_tokens);
    let TieredStart { lease, cached, mut blocks, .. } = start;
    let whole = prompt.len() / tiers.cache().block_size() - cached.len();
    drop(session.insert(namespace, &lease, prompt, blocks.split(whole)).expect("it is inserted"));
    found
}

const A: &[u32] = &[1, 2, 3, 4];
const B: &[u32] = &[11, 12, 13, 14];

#[test]
fn exclusive_tiers_have_a_block_once_and_shared_ones_keep_it() {
    for (mode, left) in [(TierMode::Exclusive, 2), (TierMode::Shared, 4)] {
        let (tiers, space) = tiers(2, 8, mode);
        assert_eq!([A, B, A].map(|prompt| serve(&tiers, &space, prompt)), [(0, 0), (0, 0), (0, 4)]);
        assert_eq!(tiers.host().stats().cached_blocks, left, "{mode:?}");
        assert_eq!(tiers.host().leftovers()[0].blocks, left);
    }
}

// Holds: HT30.
#[test]
fn a_tier_outlives_its_caches() {
    let (first, space) = tiers(2, 8, TierMode::Exclusive);
    let host = first.host().clone();
    serve(&first, &space, A);
    first.evict(2);
    drop((first, space));
    let cache = PrefixCache::builder(2, 2).build().expect("a cache");
    let second = TieredCache::builder(&cache, &host, NoCopies).build().expect("they go together");
    assert_eq!(serve(&second, &cache.default_namespace(), A), (0, 4));
}

#[test]
fn namespaces_share_nothing() {
    let (tiers, space) = tiers(2, 8, TierMode::Shared);
    let tenant = tiers.cache().namespace(&["tenant"]);
    let pairs = tiers.cache().namespace(NamespaceName::new(&["tenant"]).with_keys(Keys::Bigrams));
    serve(&tiers, &space, A);
    tiers.evict(2);
    let found = [&space, &tenant, &pairs].map(|space| tiers.host().peek(&space.name(), A, 0));
    assert_eq!(found, [4, 0, 0]);
}

// Holds: HT12.
#[test]
fn what_must_not_be_stored_is_not() {
    let (tiers, space) = tiers(2, 8, TierMode::Shared);
    serve(&tiers, &space, A);
    tiers.evict(1);
    let kept_out = tiers.host().keep_out(&space.name());
    assert_eq!(tiers.host().stats().cached_blocks, 0);
    tiers.evict(1);
    assert_eq!((tiers.host().stats().cached_blocks, tiers.host().stats().kept_out_blocks), (0, 1));
    drop(kept_out);
    serve(&tiers, &space, A);
    tiers.evict(2);
    assert_eq!(tiers.host().stats().cached_blocks, 2);
}

// Holds: HT12.
#[test]
fn what_left_before_a_clear_does_not_come_in_after_it() {
    let cache = PrefixCache::builder(2, 2).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    let (mover, is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).build().expect("they go together");
    let space = cache.default_namespace();
    serve(&tiers, &space, A);
    thread::scope(|scope| {
        let evicting = scope.spawn(|| tiers.evict(2));
        is_called.recv().expect("the copy began");
        tiers.clear_namespace(&space);
        go.send(()).expect("the mover waits");
        assert_eq!(evicting.join().expect("no panic"), 2);
    });
    assert_eq!((host.peek(&space.name(), A, 0), host.stats().kept_out_blocks), (0, 2));
    assert_eq!(cache.stats().free_blocks, 2);
}

// Holds: HT14.
#[test]
fn a_request_need_not_wait_for_its_copies() {
    let cache = PrefixCache::builder(2, 4).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    let (mover, is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).mover_thread(4).build().expect("they go together");
    let (session, space) = (tiers.session(), cache.default_namespace());
    serve(&tiers, &space, A);
    go.send(()).expect("the mover waits");
    assert_eq!(tiers.evict(2), 2);
    is_called.recv().expect("they were copied");

    let onboarding = session.begin(&space, A, 2, session.match_prefix(&space, A)).expect("room");
    is_called.recv().expect("the copy began");
    let onboarding = onboarding.poll().expect_err("the mover waits");
    assert_eq!(cache.stats().reserved_blocks, 3, "both ends are held");
    assert_eq!(host.stats().pinned_blocks, 2);
    go.send(()).expect("the mover waits");
    let start = onboarding.wait();
    assert_eq!((start.len_tokens(), start.lease.len_tokens(), start.blocks.len()), (4, 4, 1));
}

// Holds: HT13.
#[test]
fn a_mover_that_fails_costs_a_hit_and_no_block() {
    let cache = PrefixCache::builder(2, 2).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    let (mover, _is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).build().expect("they go together");
    let space = cache.default_namespace();
    serve(&tiers, &space, A);
    go.send(()).expect("the mover waits");
    tiers.evict(2);
    drop(go); // From now on it fails.
    assert_eq!(serve(&tiers, &space, A), (0, 0));
    assert_eq!((tiers.stats().failed_onboard_tokens, host.stats().cached_blocks), (4, 2), "the host keeps its blocks");
    assert_eq!(serve(&tiers, &space, B), (0, 0));
    assert_eq!((tiers.stats().failed_offload_blocks, host.stats().reserved_blocks), (0, 0), "it has them already");
    serve(&tiers, &space, A);
    assert_eq!((tiers.stats().failed_offload_blocks, host.stats().reserved_blocks), (2, 0));
    host.validate().expect("a valid tier");
}

// Holds: HT11, HT14.
#[test]
fn where_too_much_is_on_its_way_the_thread_evicts_without_copying() {
    let ahead = Eviction::Background(Watermarks::new(4, 4));
    let cache = PrefixCache::builder(2, 8).eviction(ahead).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    let (mover, is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).mover_thread(1).build();
    let (tiers, space) = (tiers.expect("they go together"), cache.default_namespace());
    for prompt in [A, B, &[21, 22, 23, 24]] {
        serve(&tiers, &space, prompt);
    }
    // Two blocks are free: two more are evicted, and their copy waits.
    is_called.recv().expect("the copy began");
    let session = tiers.session();
    let _held = session.acquire(&space, &[31, 32, 33, 34], 0).expect("two are free");
    // No block is free now, two are on their way, and the line is full. Blocks are counted before
    // they are free.
    while tiers.stats().dropped_blocks < 2 || cache.stats().free_blocks < 2 {
        thread::yield_now();
    }
    assert_eq!((tiers.stats().dropped_blocks, cache.stats().free_blocks), (2, 2));
    drop(go);
}

#[test]
fn a_prompt_that_will_come_is_copied_ahead() {
    let (tiers, space) = tiers(4, 8, TierMode::Exclusive);
    let session = tiers.session();
    serve(&tiers, &space, A);
    assert!(!session.prefetch(&space, A), "it is on the device");
    tiers.evict(2);
    assert!(session.prefetch(&space, A));
    assert_eq!((session.device().peek(&space, A), tiers.host().stats().cached_blocks), (4, 0));
    tiers.evict(2);
    let _held = session.device().reserve(3).expect("three of four");
    assert!(!session.prefetch(&space, A), "one block is free, two are missing");
}

#[test]
fn a_prefetch_evicts_nothing() {
    let (tiers, space) = tiers(4, 8, TierMode::Exclusive);
    serve(&tiers, &space, A);
    tiers.evict(2);
    serve(&tiers, &space, B);
    serve(&tiers, &space, &[21, 22, 23, 24]);
    let session = tiers.session();
    assert!(!session.prefetch(&space, A), "no block is free");
    assert_eq!((session.device().peek(&space, B), tiers.stats().evicted_blocks), (4, 2));
}

#[test]
fn of_what_leaves_at_once_the_newest_stays_in_a_host_that_is_too_small() {
    let (tiers, space) = tiers(4, 2, TierMode::Exclusive);
    serve(&tiers, &space, A);
    serve(&tiers, &space, B);
    assert_eq!(tiers.evict(4), 4);
    assert_eq!([A, B].map(|prompt| tiers.host().peek(&space.name(), prompt, 0)), [0, 4]);
    assert_eq!((tiers.stats().lacking_blocks, tiers.host().stats().evicted_blocks), (0, 2));
}

#[test]
fn what_is_on_its_way_to_the_host_counts_for_the_blocks_that_are_kept_free() {
    let ahead = Eviction::Background(Watermarks::new(4, 4));
    let cache = PrefixCache::builder(2, 8).eviction(ahead).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    let (mover, is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).mover_thread(64).build();
    let (tiers, space) = (tiers.expect("they go together"), cache.default_namespace());
    for prompt in [A, B, &[21, 22, 23, 24]] {
        serve(&tiers, &space, prompt);
    }
    is_called.recv().expect("the copy of two blocks began");
    // Time for a thread that does not count them to evict more.
    thread::sleep(Duration::from_millis(50));
    assert_eq!((tiers.stats().evicted_blocks, cache.stats().free_blocks), (2, 2));
    go.send(()).expect("the mover waits");
}

// Holds: HT12.
#[test]
fn what_was_on_its_way_when_everything_was_cleared_does_not_come_in() {
    let (tiers, space) = tiers(4, 8, TierMode::Exclusive);
    let (host, name) = (tiers.host(), space.name());
    let (offload, later) = (host.offload(), host.offload());
    let arrival = offload.reserve(&name, A, 0);
    host.clear();
    assert_eq!((arrival.publish(), later.reserve(&name, A, 0).numbers().count()), (0, 0));
    assert_eq!((host.peek(&name, A, 0), host.stats().kept_out_blocks), (0, 4));
    assert_eq!(host.offload().reserve(&name, A, 0).publish(), 2, "what leaves from now on comes in");
}

#[test]
fn a_prompt_that_went_goes_first_and_is_copied_before() {
    for (mode, in_host) in [(TierMode::Shared, 2), (TierMode::Exclusive, 0)] {
        let (tiers, space) = tiers(4, 8, mode);
        let session = tiers.session();
        serve(&tiers, &space, A);
        serve(&tiers, &space, B);
        assert_eq!((session.demote(&space, B), session.demote(&space, &[9, 9])), (4, 0));
        assert_eq!(tiers.host().stats().cached_blocks, in_host, "{mode:?}");
        tiers.evict(2);
        assert_eq!([A, B].map(|prompt| session.device().peek(&space, prompt)), [4, 0], "{mode:?}");
        assert_eq!((tiers.stats().offloaded_tokens, tiers.host().stats().arrived_blocks), (4, 2), "{mode:?}");
    }
}

#[test]
fn write_through_copies_when_it_inserts() {
    let (host, device) = (HostTier::builder(2, 8).block_bytes(8), Arc::new(DeviceMemory::new(2, 8, 4)));
    let host = host.build().expect("a tier");
    let caches = [(); 2].map(|()| PrefixCache::builder(2, 4).build().expect("a cache"));
    let tiers = caches.each_ref().map(|cache| {
        let tiers = TieredCache::builder(cache, &host, Arc::clone(&device)).mode(TierMode::Shared);
        tiers.write_policy(WritePolicy::Through).build().expect("they go together")
    });
    let spaces = caches.each_ref().map(PrefixCache::default_namespace);
    serve(&tiers[0], &spaces[0], A);
    assert_eq!(serve(&tiers[1], &spaces[1], A), (0, 4));
    tiers[0].evict(2);
    assert_eq!(tiers[0].stats().offloaded_tokens, 4, "what is evicted is there already");
}

#[test]
fn a_full_host_keeps_what_came_or_was_used_last() {
    let (tiers, space) = tiers(2, 4, TierMode::Shared);
    let prompts: [&[u32]; 3] = [A, B, &[21, 22, 23, 24]];
    for prompt in [prompts[0], prompts[1], prompts[0], prompts[2]] {
        serve(&tiers, &space, prompt);
    }
    tiers.evict(2);
    let found = prompts.map(|prompt| tiers.host().peek(&space.name(), prompt, 0));
    assert_eq!(found, [4, 0, 4], "the second one was used the longest time ago");
}

#[test]
fn what_does_not_go_together_says_why() {
    let cache = PrefixCache::builder(4, 8).build().expect("a cache");
    let host = |size| HostTier::builder(size, 8).block_bytes(6).build().expect("a tier");
    let refused = |tiers: Result<TieredCache, TieredBuildError>| tiers.expect_err("refused").to_string();
    let of = |size| TieredCache::builder(&cache, &host(size), NoCopies);
    let sizes = "device blocks of 4 tokens and host blocks of 6: one size must be a multiple of the other";
    assert_eq!(refused(of(6).build()), sizes);
    assert!(refused(of(8).build()).starts_with("exclusive tiers need host blocks that are no larger (8 tokens)"));
    let uneven = refused(of(16).mode(TierMode::Shared).build());
    assert_eq!(uneven, "host blocks of 6 bytes do not divide into 4 device blocks");
    assert!(refused(of(4).write_policy(WritePolicy::Through).build()).starts_with("write-through"));
    assert!(refused(of(4).mover_thread(0).build()).starts_with("0 blocks in flight requested"));
    let external = PrefixCache::builder(4, 8).external().build().expect("a cache");
    let external = TieredCache::builder(&external, &host(4), NoCopies).build();
    assert!(refused(external).contains("the cache has an external pool"));
    let first = of(4).build().expect("the first over this cache");
    assert!(refused(of(4).build()).starts_with("the cache has an eviction sink already"));
    drop(first);
    drop(of(4).build().expect("the only one"));
}

#[test]
fn memory_of_the_callers_own_is_dropped_with_the_tier() {
    struct Owned(Vec<u8>, Sender<()>);
    impl AsMut<[u8]> for Owned {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Owned {
        fn drop(&mut self) {
            self.1.send(()).expect("the test waits");
        }
    }
    let (dropped, is_dropped) = mpsc::channel();
    let host = HostTier::builder(2, 4).memory(8, Memory::new(Owned(vec![0; 32], dropped))).build().expect("a tier");
    let again = host.clone();
    drop(host);
    assert!(is_dropped.try_recv().is_err());
    drop(again);
    assert!(is_dropped.try_recv().is_ok());
}

// Holds: HT11.
#[test]
fn what_the_cache_evicts_by_itself_is_copied() {
    let (tiers, space) = tiers(4, 16, TierMode::Exclusive);
    let counts = || (tiers.stats().evicted_blocks, tiers.host().stats().cached_blocks);
    serve(&tiers, &space, A);
    serve(&tiers, &space, B);
    tiers.evict(1);
    drop(tiers.session().device().reserve(3).expect("one is free, the others are evicted"));
    assert_eq!(counts(), (3, 3), "for a reservation");
    tiers.cache().evict(1);
    assert_eq!(counts(), (4, 4), "by a verb of the cache");
    let tenant = tiers.cache().namespace(&["tenant"]);
    tenant.set_quota(radixkv::Quota::default().cached_blocks(1));
    serve(&tiers, &tenant, A);
    tiers.cache().settle();
    assert_eq!(counts(), (5, 5), "for a quota");
    tiers.cache().settings().set_time_to_idle(Some(Duration::ZERO));
    tiers.cache().settle();
    assert_eq!(counts(), (6, 6), "for its age");
    assert_eq!((tiers.stats().bypassed_blocks, tiers.stats().dropped_blocks), (0, 0));
    assert_eq!([&space, &tenant].map(|space| tiers.host().peek(&space.name(), A, 0)), [4, 4]);
}

/// With the cache's own thread the host has what it has without it, once a turn of that thread has
/// ended: a request that looks while a prefix is on its way finds it nowhere.
// Holds: HT11.
#[test]
fn a_thread_that_evicts_ahead_copies_what_a_request_would() {
    const WATERMARKS: Watermarks = Watermarks::new(8, 16);
    for mode in [TierMode::Exclusive, TierMode::Shared] {
        let [without, with] = [Eviction::Inline, Eviction::Background(WATERMARKS)].map(|eviction| {
            let ahead = matches!(eviction, Eviction::Background(_));
            let cache = PrefixCache::builder(2, 64).eviction(eviction).build().expect("a cache");
            let host = HostTier::builder(2, 256).build().expect("a tier");
            let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(mode).build().expect("they go together");
            let (space, mut found) = (cache.default_namespace(), 0);
            for round in 0..2_000_u32 {
                let key = round * 7919 % 31;
                let prompt: Vec<u32> = (0..8 + key % 5 * 2).map(|at| key << 8 | at).collect();
                let evicted = tiers.stats().evicted_blocks;
                let (device, host) = serve(&tiers, &space, &prompt);
                found += device + host;
                // A turn has begun if too few are free, or if one has evicted; it ends with 16 free.
                while ahead
                    && cache.free_blocks() < 16
                    && (cache.free_blocks() < 8 || tiers.stats().evicted_blocks > evicted)
                {
                    thread::yield_now();
                }
                cache.settle();
            }
            assert!(tiers.stats().evicted_blocks > 1_000, "{:?}", tiers.stats());
            assert_eq!((tiers.stats().dropped_blocks, tiers.stats().bypassed_blocks), (0, 0));
            found
        });
        assert_eq!(with, without, "{mode:?}");
    }
}

#[test]
fn a_tiered_cache_that_is_gone_receives_nothing() {
    let (tiers, space) = tiers(4, 8, TierMode::Exclusive);
    serve(&tiers, &space, A);
    let (cache, host) = (tiers.cache().clone(), tiers.host().clone());
    drop(tiers);
    assert_eq!((cache.evict(2), host.stats().cached_blocks), (2, 0));
}

/// Waits in line for device blocks, and begins with what is in the host by then.
#[test]
fn a_request_that_waits_for_blocks_begins_with_what_the_host_has() {
    for has_thread in [false, true] {
        let cache = PrefixCache::builder(2, 2).build().expect("a cache");
        let host = HostTier::builder(2, 8).build().expect("a tier");
        let tiers = TieredCache::builder(&cache, &host, NoCopies);
        let tiers = if has_thread { tiers.mover_thread(4) } else { tiers }.build().expect("they go together");
        let space = cache.default_namespace();
        serve(&tiers, &space, A);
        let held = tiers.session().reserve(2).expect("the prompt goes to the host");
        let far = Instant::now() + Duration::from_secs(60);
        let start = thread::scope(|scope| {
            let waiting = scope.spawn(|| tiers.session().acquire_until(&space, A, 0, far));
            while cache.stats().waiting_requests == 0 {
                thread::yield_now();
            }
            assert_eq!(host.stats().pinned_blocks, 0, "it holds nothing");
            drop(held);
            waiting.join().expect("no panic").expect("two blocks")
        });
        assert_eq!((start.device_tokens, start.host_tokens, start.lease.len_tokens()), (0, 4, 4));
        drop(start);
        let late = tiers.session().acquire_until(&space, &[9; 6], 0, far);
        assert!(matches!(late, Err(radixkv::ReserveError::TooLarge { requested: 3, capacity: 2 })));
        tiers.evict(2);
        let mut request = pin!(tiers.acquire_async(&space, A, 0));
        let mut context = Context::from_waker(Waker::noop());
        let start = loop {
            if let Poll::Ready(start) = request.as_mut().poll(&mut context) {
                break start.expect("room");
            }
            thread::yield_now();
        };
        assert_eq!((start.device_tokens, start.host_tokens), (0, 4), "by a task");
    }
}
