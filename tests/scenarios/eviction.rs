//! What is evicted, in which order, and what a lease protects.

use radixkv::{Clock, PolicyKind, PrefixCache, Token};

use crate::{Bench, sequence};

/// Without a thread: each reservation that evicts does a slice of it.
// Holds: EV14.
#[test]
fn reservations_bring_an_exchange_to_its_end() {
    let leaves = 3_000;
    let bench = Bench::new(1, leaves as usize);
    (0..leaves).for_each(|key| bench.serve_at(u64::from(key), &sequence(key, 1)));
    bench.cache.settle();
    bench.cache.settings().set_policy(PolicyKind::Mru);
    assert_eq!(bench.cache.settings().policy(), PolicyKind::Lru);
    let mut taken = Vec::new();
    while bench.cache.settings().policy() == PolicyKind::Lru && taken.len() < 100 {
        taken.push(bench.session.reserve(1).expect("one is evicted"));
    }
    assert_eq!(bench.cache.settings().policy(), PolicyKind::Mru);
    assert_eq!(bench.cache.evict(1), 1);
    let first_left = taken.len() as u32;
    assert_eq!([first_left - 1, first_left, leaves - 1].map(|key| bench.peek(&sequence(key, 1))), [0, 1, 0]);
}

/// Enough of them that the evictor looks ahead.
// Holds: EV1.
#[test]
fn thousands_of_leaves_go_in_the_order_of_their_last_use() {
    let leaves = 6_000;
    let bench = Bench::new(1, leaves as usize);
    (0..leaves).for_each(|key| bench.serve_at(u64::from(key), &sequence(key, 1)));
    let by_use: Vec<Vec<Token>> = (0..leaves).map(|i| sequence(i * 7 % leaves, 1)).collect();
    for (now, tokens) in (u64::from(leaves)..).zip(&by_use) {
        bench.cache.set_time(now);
        drop(bench.matched(tokens));
    }
    for gone in (500..=by_use.len()).step_by(500) {
        assert_eq!(bench.cache.evict(500), 500);
        assert!(by_use.iter().enumerate().all(|(at, tokens)| bench.peek(tokens) == usize::from(at >= gone)), "{gone}");
    }
}

/// A trunk of two blocks with two branches of two, inserted at times 1 and 2.
fn fork(bench: &Bench) -> [Vec<Token>; 2] {
    let branches = [2, 3].map(|key| [sequence(1, 8), sequence(key, 8)].concat());
    bench.serve_at(1, &branches[0]);
    bench.serve_at(2, &branches[1]);
    branches
}

// Holds: EV5.
#[test]
fn a_leaf_is_trimmed_from_its_tail_by_exactly_what_is_asked() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 24);
    bench.serve_at(1, &tokens);
    for left in (0..6).rev() {
        assert_eq!(bench.cache.evict(1), 1);
        assert_eq!(bench.peek(&tokens), left * 4);
        assert_eq!(bench.accounts(), [16 - left, 0, left, 0]);
    }
    assert_eq!(bench.cache.evict(1), 0);
}

// Holds: RE1.
#[test]
fn a_reservation_evicts_exactly_what_is_missing() {
    let bench = Bench::new(4, 8);
    bench.serve_at(1, &sequence(1, 24));
    let reservation = bench.session.reserve(5).expect("three are missing");
    assert_eq!(bench.accounts(), [0, 5, 3, 0]);
    assert_eq!(bench.stats().evicted_blocks, 3);
    assert_eq!(bench.peek(&sequence(1, 24)), 12);
    drop(reservation);
    assert_eq!(bench.accounts(), [5, 0, 3, 0]);
}

// Holds: EV6.
#[test]
fn a_parent_follows_its_last_child() {
    let bench = Bench::new(4, 16);
    let [older, newer] = fork(&bench);
    assert_eq!(bench.cache.evict(2), 2);
    assert_eq!((bench.peek(&older), bench.peek(&newer)), (8, 16));
    // The trunk was used by the newer branch and goes after it.
    assert_eq!(bench.cache.evict(3), 3);
    assert_eq!((bench.peek(&older), bench.peek(&newer)), (4, 4));
    assert_eq!(bench.cache.evict(9), 1);
    assert_eq!(bench.accounts(), [16, 0, 0, 0]);
}

// Holds: LE2.
#[test]
fn a_lease_protects_its_path_and_nothing_beyond() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 32);
    bench.serve_at(1, &tokens);
    let lease = bench.matched(&tokens[..14]);
    assert_eq!(bench.accounts(), [8, 0, 5, 3]);
    assert_eq!(bench.cache.evict(99), 5);
    assert_eq!(bench.peek(&tokens), 12);
    assert_eq!(bench.accounts(), [13, 0, 0, 3]);
    drop(lease);
    assert_eq!(bench.cache.evict(99), 3);
}

// Holds: LE3.
#[test]
fn of_two_leases_the_other_still_protects() {
    let bench = Bench::new(4, 8);
    let tokens = sequence(1, 16);
    bench.serve_at(1, &tokens);
    for deeper_first in [false, true] {
        let (deep, shallow) = (bench.matched(&tokens), bench.matched(&tokens[..8]));
        assert_eq!(bench.accounts(), [4, 0, 0, 4]);
        let (first, second) = if deeper_first { (deep, shallow) } else { (shallow, deep) };
        drop(first);
        let left = if deeper_first { 2 } else { 4 };
        assert_eq!(bench.accounts(), [4, 0, 4 - left, left]);
        drop(second);
        assert_eq!(bench.accounts(), [4, 0, 4, 0]);
    }
    let one = bench.matched(&tokens);
    let two = one.try_clone().expect("few leases");
    drop(one);
    assert_eq!((bench.cache.evict(99), two.len_tokens()), (0, 16));
}

// Holds: LE2, NU2.
#[test]
fn leases_in_every_order_of_release_leave_nothing_protected() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let bench = Bench::new(4, 16);
        let branches = fork(&bench);
        let mut leases =
            [&branches[0], &branches[1], &branches[0][..8].to_vec()].map(|tokens| Some(bench.matched(tokens)));
        let protected = |held: [bool; 3]| match held {
            [true, true, _] => 6,
            [true, false, _] | [false, true, _] => 4,
            [false, false, true] => 2,
            [false, false, false] => 0,
        };
        for at in order {
            leases[at] = None;
            let left = protected([0, 1, 2].map(|i| leases[i].is_some()));
            assert_eq!(bench.accounts(), [10, 0, 6 - left, left], "{order:?}");
        }
    }
}

// Holds: LE6.
#[test]
fn a_lease_outlives_the_handles_of_its_cache() {
    let bench = Bench::new(4, 8);
    let lease = bench.insert(&sequence(1, 8));
    let reservation = bench.session.reserve(2).expect("free blocks");
    drop(bench);
    assert_eq!((lease.len_tokens(), reservation.blocks().len()), (8, 2));
    let carried = std::thread::spawn(move || drop((lease, reservation)));
    carried.join().expect("released on another thread");
}

/// Three sequences at times 1, 2 and 3, the first matched again at 4 and 5; the order in which they
/// go.
fn order(policy: PolicyKind) -> Vec<u32> {
    let bench = Bench::with_policy(4, 16, policy);
    for key in [1, 2, 3] {
        bench.serve_at(u64::from(key), &sequence(key, 8));
    }
    for now in [4, 5] {
        bench.cache.set_time(now);
        drop(bench.matched(&sequence(1, 8)));
    }
    let mut gone = Vec::new();
    while bench.cache.evict(2) == 2 {
        let lost = |key: &u32| bench.peek(&sequence(*key, 8)) == 0 && !gone.contains(key);
        gone.extend([1, 2, 3].into_iter().filter(lost).collect::<Vec<_>>());
    }
    gone
}

// Holds: EV2.
#[test]
fn every_policy_has_its_order() {
    assert_eq!(order(PolicyKind::Lru), [2, 3, 1]);
    assert_eq!(order(PolicyKind::Lfu), [2, 3, 1]);
    assert_eq!(order(PolicyKind::Fifo), [1, 2, 3]);
    assert_eq!(order(PolicyKind::Mru), [1, 3, 2]);
    assert_eq!(order(PolicyKind::Filo), [3, 2, 1]);
    assert_eq!(order(PolicyKind::Slru), [2, 3, 1]);
}

#[test]
fn the_threshold_of_slru_is_a_setting() {
    let first = |policy| {
        let bench = Bench::with_policy(4, 16, policy);
        bench.serve_at(1, &sequence(1, 8));
        bench.cache.set_time(2);
        drop(bench.matched(&sequence(1, 8)));
        bench.serve_at(3, &sequence(2, 8));
        // The one was used twice, and the other later.
        bench.cache.evict(2);
        if bench.peek(&sequence(1, 8)) == 0 { 1 } else { 2 }
    };
    assert_eq!([PolicyKind::Slru, PolicyKind::SlruFrom(2)].map(first), [2, 2]);
    assert_eq!([1, 3].map(|uses| first(PolicyKind::SlruFrom(uses))), [1, 1], "both are on one side of it");
    assert_eq!(("slru:3".parse(), "slru:x".parse::<PolicyKind>().is_err()), (Ok(PolicyKind::SlruFrom(3)), true));
    let bench = Bench::new(4, 16);
    bench.cache.settings().set_policy(PolicyKind::SlruFrom(7));
    assert_eq!(
        (bench.cache.settings().policy(), bench.cache.settings().policy().to_string()),
        (PolicyKind::SlruFrom(7), "slru:7".into())
    );
}

// Holds: MA9, MA10.
#[test]
fn only_a_match_counts_as_use() {
    let bench = Bench::new(4, 16);
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    bench.cache.set_time(3);
    assert_eq!(bench.peek(&sequence(1, 8)), 8);
    let leased = bench.session.match_prefix_untouched(&bench.space, &sequence(1, 8));
    assert_eq!(leased.len_tokens(), 8);
    drop(leased);
    assert_eq!(bench.cache.evict(2), 2);
    assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(2, 8))), (0, 8));
}

// Holds: MA15.
#[test]
fn a_request_that_resumes_is_one_hit() {
    let bench = Bench::with_policy(4, 16, PolicyKind::Lfu);
    let (chunked, twice) = (sequence(1, 16), sequence(2, 8));
    bench.serve_at(1, &chunked);
    bench.serve_at(2, &twice);
    // One request in four steps: one hit. Two requests: two.
    bench.cache.set_time(3);
    let mut lease = bench.matched(&chunked[..4]);
    for (now, len) in [(4, 8), (5, 12), (6, 16)] {
        bench.cache.set_time(now);
        lease = bench.session.resume(lease, &chunked[..len]).into_lease();
    }
    drop(lease);
    for now in [7, 8] {
        bench.cache.set_time(now);
        drop(bench.matched(&twice));
    }
    assert_eq!(bench.cache.evict(4), 4);
    assert_eq!((bench.peek(&chunked), bench.peek(&twice)), (0, 8));
}

// Holds: AG3.
#[test]
fn two_replicas_fed_the_same_log_evict_alike() {
    for policy in PolicyKind::ALL.iter().copied() {
        let replica = || {
            let cache = PrefixCache::builder(4, 40).policy(policy).clock(Clock::Logical);
            cache.build().expect("a sound setting")
        };
        let caches = [replica(), replica()];
        let log = |now: u64| {
            let (trunk, leaf) = (now * 7 % 5, now * 13 % 11);
            let len = 4 + (now * 3 % 9) as usize;
            [sequence(trunk as u32, 6), sequence(100 + leaf as u32, len)].concat()
        };
        for now in 1..400 {
            let answers = caches.each_ref().map(|cache| {
                cache.set_time(now);
                let (session, space) = (cache.session(), cache.default_namespace());
                let tokens = log(now);
                let lease = session.match_prefix(&space, &tokens).into_lease();
                let needed = tokens.len() / 4 - lease.len_tokens() / 4;
                let reservation = session.reserve(needed).expect("nothing else is leased");
                let inserted = session.insert(&lease, &tokens, reservation).expect("fitting");
                let cached: Vec<usize> = (1..=now).map(|t| session.peek(&space, &log(t))).collect();
                (lease.len_tokens(), inserted.lease.len_tokens(), cached)
            });
            assert_eq!(answers[0], answers[1], "{policy:?} at {now}");
        }
    }
}

// Holds: EV7.
#[test]
fn a_partial_hit_renews_what_it_matched_and_nothing_beyond() {
    let bench = Bench::new(4, 16);
    let (long, other) = (sequence(1, 24), sequence(2, 8));
    bench.serve_at(1, &long);
    bench.serve_at(2, &other);
    bench.cache.set_time(3);
    assert_eq!(bench.matched_len(&long[..14]), 12);
    // The tail is the oldest, then the other sequence, then what was hit.
    for (evicted, left) in [(2, [16, 8]), (1, [12, 8]), (2, [12, 0]), (3, [0, 0])] {
        assert_eq!(bench.cache.evict(evicted), evicted);
        assert_eq!([bench.peek(&long), bench.peek(&other)], left);
    }
}

// Holds: EV5, EV6.
#[test]
fn an_eviction_cascades_from_leaf_to_root() {
    let bench = Bench::new(4, 32);
    let levels: Vec<Vec<Token>> =
        (1..=6).map(|levels| (1..=levels).flat_map(|key| sequence(key, 4)).collect()).collect();
    for (now, level) in (1..).zip(&levels) {
        bench.serve_at(now, level);
    }
    // A lease in the middle holds the three levels up to it; the rest goes, from the leaf on, in
    // one call.
    let held = bench.matched(&levels[2]);
    assert_eq!(bench.accounts(), [26, 0, 3, 3]);
    assert_eq!(bench.cache.evict(99), 3);
    assert_eq!(bench.accounts(), [29, 0, 0, 3]);
    drop(held);
    for left in (0..3).rev() {
        assert_eq!(bench.cache.evict(1), 1);
        assert_eq!(bench.peek(&levels[5]), left * 4);
    }
    let stats = bench.stats();
    assert_eq!((stats.runs, stats.points), (0, 0));
}

// Holds: EV10.
#[test]
fn one_step_of_the_evictor_takes_in_a_bounded_number_of_changes() {
    const LEASES: usize = 3_000;
    let bench = Bench::new(1, LEASES);
    let leases: Vec<_> = (0..LEASES as u32).map(|token| bench.insert(&[token])).collect();
    assert_eq!(bench.accounts(), [0, 0, 0, LEASES]);
    drop(leases);
    assert!(bench.cache.run_once(), "more is waiting");
    while bench.cache.run_once() {}
    assert_eq!(bench.accounts(), [0, 0, LEASES, 0]);
}
