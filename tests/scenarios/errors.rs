//! Bad input: typed refusals that change nothing and hand back what was given.

use radixkv::{
    BlockRequest, BuildError, Eviction, InsertErrorKind, PolicyKind, PrefixCache, Quota, ReserveError, Watermarks,
};

use crate::{Bench, sequence};

// Holds: NU14.
#[test]
fn a_cache_of_nothing_is_not_built() {
    let empty = PrefixCache::builder(16, 0).build().expect_err("no capacity");
    assert!(matches!(empty, BuildError::ZeroCapacity));
    let flat = PrefixCache::builder(0, 16).build().expect_err("no block size");
    assert!(matches!(flat, BuildError::ZeroBlockSize));
}

// Holds: RE10.
#[test]
fn a_reservation_that_can_never_fit_is_too_large() {
    let bench = Bench::new(4, 8);
    drop(bench.insert(&sequence(1, 16)));
    let error = bench.session.reserve(9).expect_err("nine of eight");
    assert_eq!(error, ReserveError::TooLarge { requested: 9, capacity: 8 });
    assert_eq!(bench.accounts(), [4, 0, 4, 0]);
}

// Holds: RE1.
#[test]
fn a_refused_reservation_evicts_nothing() {
    let bench = Bench::new(4, 8);
    let lease = bench.insert(&sequence(1, 12));
    drop(bench.insert(&sequence(2, 12)));
    let error = bench.session.reserve(6).expect_err("three are leased");
    assert_eq!(error, ReserveError::Exhausted { requested: 6, available: 5 });
    assert_eq!(bench.accounts(), [2, 0, 3, 3]);
    let all = bench.session.reserve(5).expect("all that is left");
    assert_eq!(bench.accounts(), [0, 5, 0, 3]);
    drop((all, lease));
    assert_eq!(bench.accounts(), [5, 0, 3, 0]);
}

/// More candidates than one turn looks at, all or most of them leased since they were filed.
// Holds: RE1.
#[test]
fn a_refusal_among_thousands_of_leases_ends_and_evicts_nothing() {
    let bench = Bench::new(1, 3_000);
    (0..3_000).for_each(|key| drop(bench.insert(&sequence(key, 1))));
    bench.cache.settle();
    let mut leases: Vec<_> = (0..3_000).map(|key| bench.matched(&sequence(key, 1))).collect();
    let refused = |n| bench.session.reserve(n).expect_err("too many leases");
    assert_eq!(refused(1), ReserveError::Exhausted { requested: 1, available: 0 });
    leases.truncate(1_000);
    assert_eq!(refused(2_001), ReserveError::Exhausted { requested: 2_001, available: 2_000 });
    assert_eq!(bench.accounts(), [0, 0, 2_000, 1_000]);
    assert_eq!(bench.session.reserve(2_000).expect("what is left").blocks().len(), 2_000);
}

/// Leases that no turn of the evictor has seen count, on the ends of sequences and inside them, and
/// so does the limit of who pays.
// Holds: RE2.
#[test]
fn a_refusal_says_what_there_is_and_evicts_nothing() {
    let mut dice = fastrand::Rng::with_seed(7);
    let bench = Bench::new(2, 24);
    let tenant = bench.cache.namespace(&["tenant"]);
    tenant.set_quota(Quota::default().pinned_blocks(6));
    let (mut leases, mut refusals) = (Vec::new(), 0);
    for _ in 0..2_000 {
        match dice.u8(..6) {
            0 if bench.session.reserve(8).is_ok() => drop(bench.insert(&sequence(dice.u32(..5), 2 * dice.usize(..8)))),
            1..3 => leases.push(bench.matched(&sequence(dice.u32(..5), 2 * dice.usize(..8)))),
            3 if !leases.is_empty() => drop(leases.swap_remove(dice.usize(..leases.len()))),
            _ => {}
        }
        let n = dice.usize(..26);
        let request = if dice.bool() { BlockRequest::new(n).paid_by(&tenant) } else { BlockRequest::new(n) };
        let evicted = bench.cache.stats().evicted_blocks;
        let Err(refused) = bench.session.reserve(request) else { continue };
        let there = bench.accounts();
        assert_eq!((bench.cache.stats().evicted_blocks, there[1]), (evicted, 0), "{refused}");
        if let ReserveError::Exhausted { requested, available } = refused {
            assert_eq!((requested, available), (n, there[0] + there[2]), "beside {} leases", leases.len());
            refusals += 1;
        }
    }
    assert!(refusals > 100);
}

// Holds: RE10.
#[test]
fn an_empty_reservation_is_granted_even_when_nothing_is_left() {
    let bench = Bench::new(4, 2);
    let _all = bench.session.reserve(2).expect("empty");
    assert_eq!(bench.session.reserve(0).expect("nothing asked").blocks().len(), 0);
}

// Holds: RE12.
#[test]
fn a_reservation_splits_from_its_front() {
    let bench = Bench::new(4, 8);
    let mut rest = bench.session.reserve(5).expect("empty");
    let before = rest.blocks().to_vec();
    let first = rest.split(2);
    assert_eq!((first.blocks(), rest.blocks()), before.split_at(2));
    drop(first);
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    drop(rest);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

// Holds: IN6.
#[test]
fn a_reservation_of_the_wrong_size_comes_back() {
    let bench = Bench::new(4, 16);
    let lease = bench.insert(&sequence(1, 8));
    let tokens = sequence(1, 18);
    for given in [0, 1, 3, 5] {
        let before = bench.accounts();
        let reservation = bench.session.reserve(given).expect("free blocks");
        let blocks = reservation.blocks().to_vec();
        let error = bench.session.insert(&lease, &tokens, reservation).expect_err("two needed");
        assert_eq!(error.kind, InsertErrorKind::BlockCount { needed: 2, given });
        assert_eq!(error.reservation.blocks(), blocks);
        drop(error);
        assert_eq!(bench.accounts(), before);
    }
    assert_eq!((bench.peek(&tokens), bench.stats().inserted_blocks), (8, 2));
}

// Holds: NU14.
#[test]
fn what_no_cache_can_be_is_refused_with_the_numbers() {
    let refused = |block_size, capacity| PrefixCache::builder(block_size, capacity).build().expect_err("refused");
    let (most, longest) = (u32::MAX as usize, i32::MAX as usize);
    assert_eq!(refused(16, most + 1), BuildError::CapacityTooLarge { capacity: most + 1 });
    assert_eq!(refused(longest + 1, 16), BuildError::BlockSizeTooLarge { block_size: longest + 1 });
    for (low, high) in [(5, 4), (4, 17)] {
        let thread = Eviction::Background(Watermarks::new(low, high));
        let error = PrefixCache::builder(16, 16).eviction(thread).build().expect_err("refused");
        assert_eq!(error, BuildError::Watermarks { low, high, capacity: 16 });
    }
    for shards in [0, 257] {
        let error = PrefixCache::builder(16, 16).shards(shards).build().expect_err("refused");
        assert_eq!(error, BuildError::Shards { shards, most: 256 });
    }
    assert!(PrefixCache::builder(16, 16).shards(256).build().is_ok());
}

// Holds: EV16.
#[test]
fn policies_are_read_by_the_names_that_they_print() {
    for policy in PolicyKind::ALL.iter().copied() {
        assert_eq!((policy.to_string().parse(), policy.name()), (Ok(policy), &*policy.to_string()));
    }
    let unknown = "LRU".parse::<PolicyKind>().expect_err("names are in lower case").to_string();
    assert!(unknown.starts_with("unknown policy 'LRU'") && unknown.contains(" lru "), "{unknown}");
}
