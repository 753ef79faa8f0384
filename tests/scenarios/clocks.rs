//! Clocks: which one may be set, and what becomes of what was used when it is set back.

use std::time::Duration;

use radixkv::{Clock, PolicyKind, PrefixCache, Priority};

use crate::{Bench, sequence};

/// The machine's clock goes on by itself.
// Holds: AG5.
#[test]
fn setting_the_time_of_another_clock_does_nothing() {
    let cache = PrefixCache::builder(4, 8).clock(Clock::Monotonic).build().expect("sound");
    let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache };
    bench.serve_at(u64::MAX, &sequence(0, 4));
    bench.serve_at(0, &sequence(1, 4));
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!([0, 1].map(|key| bench.peek(&sequence(key, 4))), [0, 4], "the second one was used later");
}

/// What is used then counts as used then.
// Holds: AG6.
#[test]
fn a_logical_clock_may_be_set_back() {
    let bench = Bench::new(4, 8);
    bench.serve_at(10, &sequence(0, 4));
    bench.serve_at(3, &sequence(1, 4));
    // It was used at 10 already: an earlier use does not make it older.
    drop(bench.matched(&sequence(0, 4)));
    bench.cache.validate().expect("sound");
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!([0, 1].map(|key| bench.peek(&sequence(key, 4))), [4, 0]);
}

/// A duration of years ends like any other.
// Holds: AG8.
#[test]
fn a_time_to_live_may_be_as_long_as_a_time() {
    for ttl in [1 << 57, 1 << 63, u64::MAX] {
        let bench = Bench::with_policy(4, 8, PolicyKind::Priority);
        let high = Priority::new(90).expiring_after(Duration::from_nanos(ttl));
        let lease = bench.insert(&sequence(0, 4));
        bench.session.prioritize(&lease, high);
        bench.session.retain(&lease, Duration::from_nanos(ttl)).expect("cached");
        drop(lease);
        drop(bench.insert(&sequence(1, 4)));
        bench.cache.set_time(ttl - 1);
        assert_eq!((bench.cache.evict(8), bench.peek(&sequence(0, 4))), (1, 4), "{ttl}");
        drop(bench.insert(&sequence(1, 4)));
        bench.cache.set_time(ttl);
        assert_eq!((bench.cache.evict(1), bench.peek(&sequence(0, 4))), (1, 0), "{ttl}");
    }
}
