//! Equal ranks, one time for many verbs, and late times: the order is a function of what was done,
//! and of nothing else.

use std::time::Duration;

use fastrand::Rng;
use radixkv::{PolicyKind, Priority, Token};

use crate::{Bench, sequence};

/// Which of the keys are cached, each of one block.
fn cached(bench: &Bench, keys: std::ops::Range<u32>) -> Vec<u32> {
    keys.filter(|key| bench.peek(&sequence(*key, 4)) > 0).collect()
}

/// The keys in the order in which they are evicted.
fn evicted(bench: &Bench, keys: std::ops::Range<u32>) -> Vec<u32> {
    let mut order = Vec::new();
    while bench.cache.evict(1) == 1 {
        let left = cached(bench, keys.clone());
        order.extend(keys.clone().filter(|key| !left.contains(key) && !order.contains(key)).collect::<Vec<_>>());
    }
    order
}

// Holds: EV3.
#[test]
fn equal_ranks_go_in_the_order_in_which_they_were_inserted() {
    for policy in PolicyKind::ALL.iter().copied() {
        for looks in [false, true] {
            let bench = Bench::with_policy(4, 16, policy);
            let leases: Vec<_> = (0..8).map(|key| bench.insert(&sequence(key, 4))).collect();
            // Let go of in another order, looked at in between or not.
            for lease in leases.into_iter().rev() {
                drop(lease);
                if looks {
                    _ = bench.cache.stats();
                }
            }
            assert_eq!(evicted(&bench, 0..8), (0..8).collect::<Vec<_>>(), "{policy}, looks: {looks}");
        }
    }
}

/// What a random log at few times leaves, in the order in which it goes; `looks` says after which
/// steps the numbers are read.
fn order_of(log: u64, policy: PolicyKind, looks: impl Fn(usize) -> bool) -> Vec<u32> {
    let bench = Bench::with_policy(4, 48, policy);
    let mut dice = Rng::with_seed(log);
    let mut leases = Vec::new();
    for step in 0..dice.usize(5..80) {
        let key = dice.u32(..12);
        match dice.u8(..8) {
            0..3 if bench.stats().free_blocks > 0 => leases.push(bench.insert(&sequence(key, 4))),
            0..5 => leases.push(bench.matched(&sequence(key, 4))),
            5..7 if !leases.is_empty() => drop(leases.swap_remove(dice.usize(..leases.len()))),
            _ => bench.cache.set_time(step as u64 / 16),
        }
        if looks(step) {
            _ = bench.cache.stats();
            _ = bench.cache.run_once();
        }
    }
    leases.clear();
    evicted(&bench, 0..12)
}

// Holds: EV4.
#[test]
fn where_one_looks_changes_no_order() {
    for log in 0..400 {
        let policy = PolicyKind::ALL[log as usize % PolicyKind::ALL.len()];
        let without = order_of(log, policy, |_| false);
        assert_eq!(order_of(log, policy, |_| true), without, "log {log}, {policy}");
        assert_eq!(order_of(log, policy, |step| step % 3 == 0), without, "log {log}, {policy}");
    }
}

/// Another policy and back again.
// Holds: EV4.
#[test]
fn an_exchange_of_the_policy_changes_no_order_of_equals() {
    let bench = Bench::new(4, 16);
    (0..8).for_each(|key| drop(bench.insert(&sequence(key, 4))));
    for policy in [PolicyKind::Mru, PolicyKind::Lfu, PolicyKind::Lru] {
        bench.cache.settings().set_policy(policy);
        bench.cache.settle();
    }
    assert_eq!(evicted(&bench, 0..8), (0..8).collect::<Vec<_>>());
}

/// Ids that are handed out after a clear are the same in every run: here in two caches of one
/// process.
// Holds: AG4.
#[test]
fn clearing_many_namespaces_leaves_the_same_blocks_to_be_taken_first() {
    let ids = || {
        let bench = Bench::new(4, 4096);
        let spaces: Vec<_> = (0..40).map(|i| bench.cache.namespace(&[&format!("tenant {i}")])).collect();
        for (i, space) in spaces.iter().enumerate() {
            let tokens = sequence(1, 4 * (1 + 7 * i % 90));
            let cold = bench.session.match_prefix(space, &tokens);
            let blocks = bench.session.reserve(tokens.len() / 4).expect("room");
            drop(bench.session.insert(cold.lease(), &tokens, blocks).expect("fitting"));
        }
        bench.cache.clear();
        bench.session.reserve(100).expect("free").blocks().to_vec()
    };
    let first = ids();
    (0..8).for_each(|_| assert_eq!(ids(), first));
}

/// Times at which fewer bits than a time has would not do.
const LATE: [u64; 6] = [0, (1 << 56) - 1, 1_800_000_000_000_000_000, (1 << 63) - 2, (1 << 63) - 1, u64::MAX - 20];

// Holds: AG8, PR11.
#[test]
fn a_use_undoes_a_demotion_at_any_time_and_at_the_same_one() {
    let (used, other) = (sequence(1, 4), sequence(2, 4));
    for time in LATE {
        let bench = Bench::new(4, 8);
        bench.cache.set_time(time);
        drop(bench.insert(&other));
        drop(bench.insert(&used));
        // The match before the demotion undoes nothing, the one after it does.
        bench.session.demote(&bench.matched(&used));
        drop(bench.matched(&used));
        assert_eq!((bench.cache.evict(1), bench.peek(&used), bench.peek(&other)), (1, 4, 0), "{time}");
        drop(bench.insert(&other));
        bench.session.demote(&bench.matched(&other));
        assert_eq!((bench.cache.evict(1), bench.peek(&used), bench.peek(&other)), (1, 4, 0), "{time}");
    }
}

/// What uses a prefix: in each way it is demoted no longer.
// Holds: PR11.
#[test]
fn every_use_undoes_a_demotion_for_all_blocks_that_it_passes() {
    let uses: [fn(&Bench, &[Token]); 5] = [
        |bench, tokens| drop(bench.matched(tokens)),
        |bench, tokens| drop(bench.session.resume(bench.matched(&[]), tokens)),
        |bench, tokens| drop(bench.insert(tokens)),
        // Without a match before it.
        |bench, tokens| {
            let (nothing, blocks) = (bench.matched(&[]), bench.session.reserve(tokens.len() / 4).expect("room"));
            drop(bench.session.insert(&nothing, tokens, blocks).expect("fitting"));
        },
        // Beyond it, in a run of its own, which then goes.
        |bench, tokens| {
            drop(bench.insert(&[tokens, &[7, 7, 7, 7]].concat()));
            bench.session.demote(
                &bench.session.match_prefix_untouched(&bench.space, &[tokens, &[7, 7, 7, 7]].concat()).into_lease(),
            );
            bench.cache.evict(1);
            drop(bench.matched(tokens));
        },
    ];
    let (used, other) = (sequence(1, 8), sequence(2, 4));
    for (i, use_) in uses.into_iter().enumerate() {
        let bench = Bench::new(4, 8);
        bench.cache.set_time(5);
        drop(bench.insert(&other));
        drop(bench.insert(&used));
        bench.session.demote(&bench.matched(&used));
        use_(&bench, &used);
        assert_eq!((bench.cache.evict(1), bench.peek(&used), bench.peek(&other)), (1, 8, 0), "use {i}");
        // And once more, after it.
        drop(bench.insert(&other));
        bench.session.demote(&bench.session.match_prefix_untouched(&bench.space, &used).into_lease());
        assert_eq!((bench.cache.evict(1), bench.peek(&used), bench.peek(&other)), (1, 4, 4), "use {i}");
    }
}

// Holds: AG8.
#[test]
fn a_priority_expires_at_the_step_it_says_however_late() {
    for time in LATE {
        let bench = Bench::with_policy(4, 8, PolicyKind::Priority);
        bench.cache.set_time(time);
        drop(bench.insert(&sequence(1, 4)));
        drop(bench.insert(&sequence(2, 4)));
        let high = Priority::new(90).expiring_after(Duration::from_nanos(10));
        bench
            .session
            .prioritize(&bench.session.match_prefix_untouched(&bench.space, &sequence(1, 4)).into_lease(), high);
        let low = Priority::new(50);
        bench
            .session
            .prioritize(&bench.session.match_prefix_untouched(&bench.space, &sequence(2, 4)).into_lease(), low);
        bench.cache.set_time(time + 10);
        assert_eq!((bench.cache.evict(1), cached(&bench, 1..3)), (1, vec![2]), "{time}");
    }
}
