//! Weak leases, and how many leases share a block.

use std::time::Duration;

use radixkv::{PolicyKind, PrefixCache, Priority};

use crate::{Bench, sequence};

// Holds: IV7.
#[test]
fn a_weak_lease_leases_all_of_its_prefix_or_nothing() {
    let bench = Bench::new(2, 16);
    let prompt = sequence(1, 12);
    drop(bench.insert(&prompt));
    let weak = [4, 8, 12].map(|len| bench.matched(&prompt[..len]).downgrade());
    let upgraded = |at: usize| bench.session.upgrade(&weak[at]).map(|lease| lease.len_tokens());
    assert_eq!([0, 1, 2].map(upgraded), [Some(4), Some(8), Some(12)]);
    assert_eq!(bench.accounts(), [10, 0, 6, 0], "and holds nothing itself");
    bench.cache.evict(1);
    assert_eq!([0, 1, 2].map(upgraded), [Some(4), Some(8), None]);
    let lease = bench.session.upgrade(&weak[1]).expect("it is there");
    assert_eq!((bench.accounts(), bench.cache.evict(16)), ([11, 0, 1, 4], 1));
    assert_eq!(bench.session.resume(lease, &prompt).blocks().len(), 4);
    // The same tokens at the same place are another prefix.
    bench.cache.evict(16);
    drop(bench.insert(&prompt));
    assert_eq!([0, 1, 2].map(upgraded), [None; 3]);
}

// Holds: IV7.
#[test]
fn a_weak_lease_ends_with_its_namespace_and_with_invalidated_blocks() {
    let bench = Bench::new(2, 16);
    let prompt = sequence(1, 8);
    let held = bench.insert(&prompt);
    let (weak, empty) = (held.downgrade(), bench.matched(&[]).downgrade());
    assert!(bench.session.upgrade(&weak).is_some() && bench.session.upgrade(&empty).is_none());
    bench.space.clear();
    assert!(bench.session.upgrade(&weak).is_none(), "though the old lease holds it");
    drop(held);
    let held = bench.insert(&prompt);
    let weak = held.downgrade();
    let block = bench.session.match_prefix(&bench.space, &prompt).blocks()[3];
    bench.cache.invalidate_blocks(&[block]);
    assert!(bench.session.upgrade(&weak).is_none());
    drop(held);
    assert_eq!(bench.accounts(), [13, 0, 3, 0]);
}

// Holds: IV8.
#[test]
fn a_weak_lease_keeps_no_cache_and_is_refused_by_another() {
    let bench = Bench::new(2, 16);
    let weak = bench.insert(&sequence(1, 8)).downgrade();
    drop(bench);
    let other = Bench::new(2, 16);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.session.upgrade(&weak)));
    assert!(refused.is_err() && !weak.is_of(&other.cache) && other.matched(&[]).downgrade().is_of(&other.cache));
    assert_eq!(weak.clone().len_tokens(), 8);
}

/// A mark that is made later makes another record of a prefix: the weak lease ends with the prefix
/// all the same.
// Holds: IV7.
#[test]
fn weak_leases_end_though_their_prefixes_were_marked_later() {
    const MANY: u32 = 2_000;
    let bench = Bench::new(1, MANY as usize);
    let weak: Vec<_> = (0..MANY)
        .map(|token| {
            let lease = bench.insert(&[token]);
            let weak = lease.downgrade();
            bench.session.prioritize(&lease, Priority::new(7));
            weak
        })
        .collect();
    assert_eq!(bench.cache.evict(MANY as usize), MANY as usize);
    // In the memory of those that went.
    let again: Vec<_> = (0..MANY).map(|token| bench.insert(&[token])).collect();
    assert!(weak.iter().all(|weak| bench.session.upgrade(weak).is_none()));
    drop(again);
    assert_eq!(bench.accounts()[2], MANY as usize);
}

/// A weak lease that is made after a mark, or a request to retain, leaves it.
// Holds: IV7.
#[test]
fn a_weak_lease_leaves_what_was_asked_for_its_prefix() {
    let bench = Bench::with_policy(1, 8, PolicyKind::Priority);
    let lease = bench.insert(&[1]);
    bench.session.prioritize(&lease, Priority::new(90));
    let weak = lease.downgrade();
    drop((lease, bench.insert(&[2])));
    assert_eq!((bench.cache.evict(1), bench.peek(&[1])), (1, 1), "the higher priority stays");
    let lease = bench.session.upgrade(&weak).expect("it is there");
    bench.session.retain(&lease, Duration::from_nanos(9)).expect("it can be");
    let again = lease.downgrade();
    drop(lease);
    assert_eq!((bench.cache.evict(8), bench.session.upgrade(&again).is_some()), (0, true));
    bench.cache.set_time(9);
    assert_eq!((bench.cache.evict(8), bench.session.upgrade(&again).is_none()), (1, true));
}

/// A thousand weak leases on one prefix cost it one anchor.
// Holds: IV8.
#[test]
fn weak_leases_on_one_prefix_share_their_memory() {
    let bench = Bench::new(2, 16);
    let held = bench.insert(&sequence(1, 8));
    drop(held.downgrade());
    let before = bench.stats().index_bytes;
    let weak: Vec<_> = (0..1_000).map(|_| held.downgrade()).collect();
    assert_eq!(bench.stats().index_bytes, before);
    drop(weak);
}

// Holds: IV9.
#[test]
fn spans_say_how_many_leases_hold_each_block() {
    let bench = Bench::new(2, 64);
    let trunk = sequence(1, 16);
    let of = |leases: &[&radixkv::Lease]| -> Vec<Vec<(usize, usize)>> {
        let spans = bench.session.shared_spans(leases);
        spans.iter().map(|spans| spans.iter().map(|span| (span.blocks, span.leases)).collect()).collect()
    };
    let whole = bench.insert(&trunk);
    let half = bench.matched(&trunk[..8]);
    // Parts inside the sixth block, which it has a copy of.
    let branch: Vec<u32> = trunk[..11].iter().copied().chain([99; 5]).collect();
    let branch = bench.insert(&branch);
    let other = bench.insert(&sequence(2, 4));
    let empty = bench.matched(&[5]);
    assert_eq!(of(&[&whole]), [[(8, 1)]]);
    let expected = vec![vec![(4, 3), (1, 2), (3, 1)], vec![(4, 3)], vec![(4, 3), (1, 2), (3, 1)], vec![(2, 1)], vec![]];
    assert_eq!(of(&[&whole, &half, &branch, &other, &empty]), expected);
    assert_eq!(of(&[&half, &half]), [[(4, 2)], [(4, 2)]], "one lease twice counts twice");
    let joined = bench.insert(&sequence(3, 8));
    let longer = bench.insert(&sequence(3, 16));
    assert_eq!(of(&[&longer]), [[(8, 1)]], "of two inserts one span");
    drop((joined, longer));
    let foreign = PrefixCache::builder(2, 8).build().expect("valid");
    let foreign = foreign.session().match_prefix(&foreign.default_namespace(), &[]).into_lease();
    let misuse = || bench.session.shared_spans(&[&whole, &foreign]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)).is_err());
}
