//! Which goes first where ranks are equal, and what time says at its edges.

use std::time::Duration;

use radixkv::{Clock, PolicyKind, PrefixCache, Priority, Token};

use crate::{Bench, sequence};

/// The keys `0..n`, of one block each, in the order in which they are evicted.
fn order(bench: &Bench, n: u32) -> Vec<u32> {
    let mut gone: Vec<u32> = Vec::new();
    while bench.cache.evict(1) == 1 {
        let lost = (0..n).find(|key| bench.peek(&sequence(*key, 4)) == 0 && !gone.contains(key));
        gone.push(lost.expect("one is evicted"));
    }
    gone
}

/// Whoever looks in between, and however often: `stats` and `settle` take changes in and choose nothing.
#[test]
fn equal_ranks_go_in_the_order_in_which_they_were_inserted() {
    for policy in PolicyKind::ALL {
        for look_at in 0..5 {
            let bench = Bench::with_policy(4, 8, policy);
            for key in 0..4 {
                drop(bench.insert(&sequence(key, 4)));
                if key == look_at {
                    bench.cache.stats();
                }
            }
            assert_eq!(order(&bench, 4), [0, 1, 2, 3], "{policy}, looked at {look_at}");
        }
    }
}

/// The moment at which a prefix became a candidate says nothing.
#[test]
fn equal_ranks_keep_their_order_whatever_was_leased_and_whatever_policy_was_before() {
    for (at, policy) in PolicyKind::ALL.into_iter().enumerate() {
        let first = PolicyKind::ALL[(at + 1) % PolicyKind::ALL.len()];
        let bench = Bench::with_policy(4, 8, first);
        let leases: Vec<_> = (0..4).map(|key| bench.insert(&sequence(key, 4))).collect();
        bench.cache.settle();
        for lease in leases.into_iter().rev() {
            drop(lease);
            bench.cache.settle();
        }
        bench.cache.set_policy(policy);
        bench.cache.settle();
        assert_eq!(order(&bench, 4), [0, 1, 2, 3], "{policy} after {first}");
    }
}

/// Every namespace in one order, so that the ids handed out afterwards are the same from run to run.
#[test]
fn clearing_many_namespaces_gives_blocks_back_in_one_order() {
    let run = || {
        let bench = Bench::new(4, 8_192);
        let spaces: Vec<_> = (0..40).map(|i| bench.cache.namespace(&[&i.to_string()])).collect();
        for (key, space) in (0..).zip(&spaces) {
            let tokens = sequence(key, 4 * 200);
            let miss = bench.session.match_prefix(space, &tokens).into_lease();
            drop(bench.insert_from(&miss, &tokens));
        }
        bench.cache.clear();
        let ids = bench.session.reserve(100).expect("all are free");
        ids.blocks().to_vec()
    };
    let first = run();
    assert!((0..8).all(|_| run() == first));
}

#[test]
fn a_use_after_it_undoes_a_demotion_at_the_same_time_too() {
    for now in [0, 5, u64::MAX >> 1, u64::MAX - 1] {
        let bench = Bench::new(4, 8);
        bench.cache.set_time(now);
        let leases = [0, 1].map(|key| bench.insert(&sequence(key, 4)));
        bench.session.demote(&leases[1]);
        drop(leases);
        drop(bench.matched(&sequence(1, 4)));
        assert_eq!(order(&bench, 2), [0, 1], "used after it at {now}");

        let leases = [0, 1].map(|key| bench.insert(&sequence(key, 4)));
        bench.session.demote(&leases[1]);
        drop(leases);
        assert_eq!(order(&bench, 2), [1, 0], "not used after it at {now}");
    }
}

/// Nanoseconds since 1970 are times like any other.
#[test]
fn priorities_expire_under_times_beyond_2_to_the_56() {
    for start in [1_800_000_000_000_000_000, (1 << 56) - 1, (1 << 63) - 1] {
        let bench = Bench::with_policy(4, 8, PolicyKind::Priority);
        bench.cache.set_time(start);
        let lease = bench.insert(&sequence(0, 4));
        let high = Priority::new(90).expect("up to 100").expiring_after(Duration::from_nanos(10));
        bench.session.prioritize(&lease, high);
        drop(lease);
        drop(bench.insert(&sequence(1, 4)));
        bench.cache.set_time(start + 9);
        assert_eq!(bench.cache.evict(1), 1);
        assert_eq!((bench.peek(&sequence(0, 4)), bench.peek(&sequence(1, 4))), (4, 0), "it counts, from {start}");
        drop(bench.insert(&sequence(1, 4)));
        bench.cache.set_time(start + 10);
        assert_eq!(bench.cache.evict(1), 1);
        assert_eq!((bench.peek(&sequence(0, 4)), bench.peek(&sequence(1, 4))), (0, 4), "it has expired, from {start}");
    }
}

/// The machine's clock goes on by itself.
#[test]
fn setting_the_time_of_another_clock_does_nothing() {
    let cache = PrefixCache::builder(4, 8).clock(Clock::Monotonic).build().expect("sound");
    let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
    bench.cache.set_time(u64::MAX);
    drop(bench.insert(&sequence(0, 4)));
    bench.cache.set_time(0);
    drop(bench.insert(&sequence(1, 4)));
    assert_eq!(order(&bench, 2), [0, 1]);
}

/// A logical clock may be set back: what was used then counts as used then.
#[test]
fn a_logical_clock_may_be_set_back() {
    let bench = Bench::new(4, 8);
    bench.serve_at(10, &sequence(0, 4));
    bench.serve_at(3, &sequence(1, 4));
    bench.cache.validate().expect("sound");
    assert_eq!(order(&bench, 2), [1, 0]);
}

#[test]
fn of_namespaces_over_their_quotas_the_one_that_was_limited_first_pays_first() {
    let bench = Bench::new(4, 16);
    let spaces = ["late", "early"].map(|name| bench.cache.namespace(&[name]));
    for (key, space) in (0..).zip([&spaces[0], &spaces[0], &spaces[1], &spaces[1]]) {
        bench.cache.set_time(u64::from(key));
        let tokens: Vec<Token> = sequence(key, 4);
        let miss = bench.session.match_prefix(space, &tokens).into_lease();
        drop(bench.insert_from(&miss, &tokens));
    }
    let limit = radixkv::Quota { cached_blocks: Some(1), pinned_blocks: None };
    bench.cache.set_quota(&spaces[1], limit);
    bench.cache.set_quota(&spaces[0], limit);
    let cached = || spaces.each_ref().map(|space| bench.cache.namespace_stats(space).cached_blocks);
    assert_eq!(cached(), [2, 2], "a limit that comes evicts nothing by itself");
    assert_eq!((bench.cache.evict(1), cached()), (1, [2, 1]));
    assert_eq!((bench.cache.evict(1), cached()), (1, [1, 1]));
}
