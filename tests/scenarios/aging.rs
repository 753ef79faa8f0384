//! Prefixes that were not used for long are dropped; and the thread that drops them.

use std::time::{Duration, Instant};

use radixkv::{Clock, Eviction, PolicyKind, PrefixCache, Quota, Watermarks};

use crate::{Bench, sequence};

/// On a logical clock, idle after `ticks`.
fn aging(policy: PolicyKind, ticks: u64) -> Bench {
    let builder = PrefixCache::builder(4, 64).policy(policy).clock(Clock::Logical);
    let cache = builder.time_to_idle(Duration::from_nanos(ticks)).build().expect("a sound setting");
    Bench { session: cache.session(), space: cache.default_namespace(), cache }
}

// Holds: AG1.
#[test]
fn a_prefix_goes_when_it_was_idle_for_the_time() {
    for policy in PolicyKind::ALL.iter().copied() {
        let bench = aging(policy, 100);
        bench.serve_at(10, &sequence(1, 16));
        bench.serve_at(20, &sequence(2, 8));
        let peek = |key, len| bench.peek(&sequence(key, len));
        bench.cache.set_time(109);
        bench.cache.settle();
        assert_eq!((peek(1, 16), peek(2, 8)), (16, 8), "{policy}: one unit too early");
        bench.cache.set_time(110);
        bench.cache.settle();
        assert_eq!((peek(1, 16), peek(2, 8)), (0, 8), "{policy}");
        bench.cache.set_time(119);
        drop(bench.matched(&sequence(2, 4)));
        bench.cache.set_time(218);
        while bench.cache.run_once() {}
        assert_eq!(peek(2, 8), 4, "{policy}: what was matched stays a hundred more");
        bench.cache.set_time(219);
        bench.cache.settle();
        let stats = bench.stats();
        assert_eq!((stats.aged_blocks, stats.evicted_blocks, stats.free_blocks), (6, 0, 64), "{policy}");
    }
}

// Holds: QU13.
#[test]
fn a_namespace_may_have_a_time_of_its_own() {
    let bench = Bench::new(4, 64);
    let tenants = ["a", "b"].map(|name| bench.cache.namespace(&[name]));
    let serve = |space: &radixkv::Namespace| {
        let hit = bench.session.match_prefix(space, &sequence(1, 16));
        let missing = bench.session.reserve(4 - hit.blocks().len()).expect("room");
        drop(bench.session.insert(hit.lease(), &sequence(1, 16), missing).expect("fits"));
    };
    [&bench.space, &tenants[0], &tenants[1]].into_iter().for_each(serve);
    let left = |now| {
        bench.cache.set_time(now);
        bench.cache.settle();
        [&bench.space, &tenants[0], &tenants[1]].map(|space| bench.session.peek(space, &sequence(1, 16)))
    };
    let idle = |ticks| Quota::default().time_to_idle(Duration::from_nanos(ticks));
    tenants[0].set_quota(idle(10));
    tenants[1].set_quota(idle(20));
    assert_eq!((left(9), left(10), left(19), left(20)), ([16; 3], [16, 0, 16], [16, 0, 16], [16, 0, 0]));
    serve(&tenants[0]);
    // A longer one than that of all has no effect, and one that is taken away neither.
    bench.cache.settings().set_time_to_idle(Some(Duration::from_nanos(50)));
    tenants[0].set_quota(idle(100));
    assert_eq!((left(49), left(50), left(70)), ([16, 16, 0], [0, 16, 0], [0, 0, 0]));
    bench.cache.settings().set_time_to_idle(None);
    tenants[0].set_quota(Quota::default());
    serve(&tenants[0]);
    assert_eq!((left(1 << 40), tenants[1].stats().quota.time_to_idle), ([0, 16, 0], idle(20).time_to_idle));
    assert_eq!(bench.stats().aged_blocks, 16);
}

/// Far more than one slice, and all of it in one `settle`; and the time alone keeps a namespace
/// that no handle names.
// Holds: QU13.
#[test]
fn a_namespace_loses_all_that_is_too_old_at_once_and_keeps_its_time() {
    let bench = Bench::new(1, 2_000);
    let tenant = bench.cache.namespace(&["a"]);
    tenant.set_quota(Quota::default().time_to_idle(Duration::from_nanos(10)));
    for token in 0..1_000 {
        let start = bench.session.acquire(&tenant, &[token], 0).expect("room");
        drop(bench.session.insert(start.hit.lease(), &[token], start.blocks).expect("fits"));
    }
    bench.cache.set_time(10);
    bench.cache.settle();
    assert_eq!((bench.stats().aged_blocks, bench.stats().free_blocks), (1_000, 2_000));
    drop(tenant);
    bench.cache.settle();
    let again = bench.cache.namespace(&["a"]);
    assert_eq!(again.stats().quota.time_to_idle, Some(Duration::from_nanos(10)));
}

#[test]
fn the_thread_drops_what_is_idle_in_one_namespace() {
    let watermarks = Watermarks::new(0, 0);
    let cache = PrefixCache::builder(4, 64).eviction(Eviction::Background(watermarks)).build().expect("valid");
    let (session, tenant) = (cache.session(), cache.namespace(&["a"]));
    let tokens = sequence(1, 16);
    let start = session.acquire(&tenant, &tokens, 0).expect("room");
    drop(session.insert(start.hit.lease(), &tokens, start.blocks).expect("fits"));
    drop(start.hit);
    tenant.set_quota(Quota::default().time_to_idle(Duration::from_millis(20)));
    let end = Instant::now() + Duration::from_secs(60);
    while session.peek(&tenant, &tokens) > 0 {
        assert!(Instant::now() < end, "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    // The turn that has removed them publishes its counts at its end.
    cache.settle();
    assert_eq!(cache.stats().aged_blocks, 4);
}

// Holds: AG2.
#[test]
fn what_is_leased_does_not_age() {
    let bench = aging(PolicyKind::Lru, 10);
    bench.serve_at(1, &sequence(1, 16));
    bench.cache.set_time(2);
    let held = bench.matched(&sequence(1, 8));
    bench.cache.set_time(1_000);
    bench.cache.settle();
    assert_eq!((bench.peek(&sequence(1, 16)), bench.accounts()), (8, [62, 0, 0, 2]));
    drop(held);
    bench.cache.settle();
    assert_eq!((bench.accounts(), bench.stats().aged_blocks), ([64, 0, 0, 0], 4));
}

// Holds: AG2.
#[test]
fn no_lookup_and_no_insert_drops_what_is_old() {
    let bench = aging(PolicyKind::Lru, 10);
    bench.serve_at(1, &sequence(1, 16));
    for now in 100..1_000 {
        bench.serve_at(now, &sequence(2, 16));
    }
    assert_eq!(bench.peek(&sequence(1, 16)), 16);
    assert!(!bench.cache.run_once());
    assert_eq!((bench.peek(&sequence(1, 16)), bench.peek(&sequence(2, 16))), (0, 16));
}

/// Waits for a thread of the cache's own.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn with_thread() -> radixkv::Builder {
    PrefixCache::builder(4, 2_000).eviction(Eviction::Background(Watermarks::new(1, 2)))
}

// Holds: BE5.
#[test]
fn the_thread_drops_what_is_idle_on_either_clock() {
    for clock in [Clock::Monotonic, Clock::Logical] {
        let cache = with_thread().clock(clock).time_to_idle(Duration::from_millis(5)).build().expect("sound");
        let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
        let held = bench.insert(&sequence(1, 8));
        drop(bench.insert(&sequence(2, 8)));
        bench.cache.set_time(6_000_000);
        until("what is idle goes", || bench.peek(&sequence(2, 8)) == 0);
        assert_eq!(bench.peek(&sequence(1, 8)), 8, "what is leased stays");
        drop(held);
        bench.cache.set_time(7_000_000);
        until("what was leased goes", || bench.cache.stats().free_blocks == 2_000);
        assert_eq!((bench.cache.validate(), bench.cache.stats().aged_blocks), (Ok(()), 4));
    }
}

// Holds: EV14, BE5.
#[test]
fn the_thread_exchanges_the_policy_and_keeps_to_quotas() {
    let cache = with_thread().build().expect("sound");
    let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
    (0..1_000).for_each(|key| drop(bench.insert(&sequence(key, 4))));
    bench.cache.settings().set_policy(PolicyKind::Lfu);
    until("the policy is exchanged", || bench.cache.settings().policy() == PolicyKind::Lfu);
    bench.space.set_quota(Quota::default().cached_blocks(10));
    until("the quota is kept", || bench.space.stats().cached_blocks == 10);
    (0..1_000).for_each(|key| drop(bench.insert(&sequence(key, 4))));
    until("and kept", || bench.space.stats().cached_blocks == 10);
    assert_eq!(bench.cache.validate(), Ok(()));
}

/// In a cache that drops nothing for its age by itself: what was matched later stays, and so does
/// what is leased.
// Holds: QU14.
#[test]
fn what_of_one_namespace_was_idle_is_evicted_when_asked() {
    for policy in PolicyKind::ALL.iter().copied() {
        let cache = PrefixCache::builder(4, 2_000).policy(policy).clock(Clock::Logical).build().expect("valid");
        let other = cache.namespace(&["other"]);
        let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
        for key in 0..400 {
            bench.serve_at(10 + u64::from(key % 2) * 100, &sequence(key, 12));
        }
        bench.cache.set_time(50);
        let elsewhere = bench.session.acquire(&other, &sequence(900, 8), 0).expect("room");
        drop(bench.session.insert(elsewhere.hit.lease(), &sequence(900, 8), elsewhere.blocks).expect("fits"));
        let held = bench.session.match_prefix_untouched(&bench.space, &sequence(0, 8));
        bench.cache.set_time(200);
        drop(bench.matched(&sequence(2, 4)));
        assert_eq!(bench.space.evict_idle(Duration::from_nanos(191)), 0, "{policy}");
        // Of 200 old sequences, two blocks of one are leased, and one of another was used.
        assert_eq!(bench.space.evict_idle(Duration::from_nanos(190)), 600 - 2 - 1, "{policy}");
        assert_eq!([0, 1, 2, 4].map(|key| bench.peek(&sequence(key, 12))), [8, 12, 4, 0], "{policy}");
        assert_eq!(bench.session.peek(&other, &sequence(900, 8)), 8, "{policy}");
        assert_eq!((bench.stats().aged_blocks, bench.stats().evicted_blocks), (597, 0), "{policy}");
        drop(held);
        assert_eq!(bench.space.evict_idle(Duration::from_nanos(190)), 2, "{policy}");
        assert_eq!(bench.cache.validate(), Ok(()));
    }
}
