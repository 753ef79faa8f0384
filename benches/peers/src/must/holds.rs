//! The row `holds`: how long an operation holds the evictor's lock. Measured is its longest hold,
//! in CPU time of the lock holder.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use radixkv::{Clock, PolicyKind, PrefixCache, Quota, measure_holds};

use super::{
    Plan,
    common::{insert, sequence},
    dimensions::Bench,
    figure::{
        Asked::{AtMost, Nothing},
        Figure,
    },
};
use crate::arena::measure::Spread;

/// The CPU time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock that every system has").into()
}

/// The longest single hold of the evictor's lock of `cache` while `verb` runs, in microseconds.
fn longest_hold(cache: &PrefixCache, verb: impl FnOnce()) -> f64 {
    // Resets the maximum: earlier holds do not count.
    cache.longest_hold();
    verb();
    cache.longest_hold().as_secs_f64() * 1e6
}

/// The name of an operation, and a function that prepares a cache of this many leaves and returns
/// the operation's longest hold.
type Verb = (&'static str, fn(usize) -> f64);

/// The method's floor: mostly the two reads of the clock.
const FLOOR: Verb = ("  the method's floor: run_once with nothing to do, us", |_| {
    let bench = Bench::new(64);
    longest_hold(&bench.cache, || (0..20_000).for_each(|_| assert!(!bench.cache.run_once())))
});

const VERBS: [Verb; 10] = [
    ("evict(all)", |leaves| {
        let bench = Bench::of_leaves(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.cache.evict(usize::MAX), leaves))
    }),
    ("clear", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || bench.cache.clear());
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
    ("drop_namespace", |leaves| {
        let bench = Bench::new(leaves);
        let space = bench.cache.namespace(&["tenant"]);
        (0..leaves as u32).for_each(|seed| drop(insert(&bench.session, &space, &bench.cache, &sequence(seed, 1))));
        bench.cache.settle();
        let hold = longest_hold(&bench.cache, || space.remove());
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
    ("reserve(1) after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.session.reserve(1).expect("idle").blocks().len(), 1))
    }),
    ("settle after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || bench.cache.settle())
    }),
    ("stats after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.cache.stats().free_blocks, 0))
    }),
    ("reserve(2,048), a prompt of 32 k tokens", |leaves| {
        let bench = Bench::of_leaves(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.session.reserve(2_048).expect("idle").blocks().len(), 2_048))
    }),
    ("set_policy and settle", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || {
            bench.cache.settings().set_policy(PolicyKind::Lfu);
            bench.cache.settle();
        });
        assert_eq!(bench.cache.settings().policy(), PolicyKind::Lfu);
        hold
    }),
    ("settle when all are too old", |leaves| {
        let builder = PrefixCache::builder(1, leaves).clock(Clock::Logical);
        let cache = builder.time_to_idle(Duration::from_nanos(1)).build().expect("a sound setting");
        fill_at_once(&cache, leaves);
        cache.set_time(1 << 33);
        let hold = longest_hold(&cache, || cache.settle());
        assert_eq!(cache.stats().free_blocks, leaves);
        hold
    }),
    ("set_quota of nothing and settle", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || {
            bench.space.set_quota(Quota::default().cached_blocks(0));
            bench.cache.settle();
        });
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
];

/// Inserts sequences with the same time of last use, so that all become too old at once.
fn fill_at_once(cache: &PrefixCache, leaves: usize) {
    cache.set_time(1);
    let (session, space) = (cache.session(), cache.default_namespace());
    (0..leaves as u32).for_each(|seed| drop(insert(&session, &space, cache, &sequence(seed, 1))));
    cache.settle();
}

/// A full cache in which all sequences were leased and released, and the evictor has not yet
/// processed these changes.
fn with_backlog(leaves: usize) -> Bench {
    let bench = Bench::of_leaves(leaves);
    let matched = |seed| bench.session.match_prefix(&bench.space, &sequence(seed, 1)).into_lease();
    drop((0..leaves as u32).map(matched).collect::<Vec<_>>());
    bench
}

pub(crate) fn holds(plan: &Plan) -> Vec<Figure> {
    measure_holds(thread_time);
    let leaves = plan.size(1_000_000);
    // Few rounds: each builds a new cache.
    let rounds = plan.settings.rounds.min(3);
    let measure = |verb: fn(usize) -> f64| Spread::of((0..rounds).map(|_| verb(leaves)).collect());
    let figure = |&(what, verb): &Verb| {
        Figure::new(
            format!("longest hold of the lock, {leaves} leaves, us: {what}"),
            AtMost(1_000.0, 100.0),
            measure(verb),
        )
    };
    let floor = Figure::new(FLOOR.0, Nothing, measure(FLOOR.1));
    VERBS.iter().map(figure).chain([floor]).collect()
}
