//! Weak leases, and how many leases share a block.

use radixkv::{LeaseError, PrefixCache};

use crate::{Bench, sequence};

#[test]
fn a_weak_lease_leases_all_of_its_prefix_or_nothing() {
    let bench = Bench::new(2, 16);
    let prompt = sequence(1, 12);
    drop(bench.insert(&prompt));
    let weak = [4, 8, 12].map(|len| bench.session.downgrade(&bench.matched(&prompt[..len])));
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

#[test]
fn a_weak_lease_ends_with_its_namespace_and_with_invalidated_blocks() {
    let bench = Bench::new(2, 16);
    let prompt = sequence(1, 8);
    let held = bench.insert(&prompt);
    let (weak, empty) = (bench.session.downgrade(&held), bench.session.downgrade(&bench.matched(&[])));
    assert!(bench.session.upgrade(&weak).is_some() && bench.session.upgrade(&empty).is_none());
    bench.cache.clear_namespace(&bench.space);
    assert!(bench.session.upgrade(&weak).is_none(), "though the old lease holds it");
    drop(held);
    let held = bench.insert(&prompt);
    let weak = bench.session.downgrade(&held);
    let block = bench.session.match_prefix(&bench.space, &prompt).blocks()[3];
    bench.cache.invalidate_blocks(&[block]);
    assert!(bench.session.upgrade(&weak).is_none());
    drop(held);
    assert_eq!(bench.accounts(), [13, 0, 3, 0]);
}

#[test]
fn a_weak_lease_keeps_no_cache_and_is_refused_by_another() {
    let bench = Bench::new(2, 16);
    let weak = bench.session.downgrade(&bench.insert(&sequence(1, 8)));
    drop(bench);
    let other = Bench::new(2, 16);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.session.upgrade(&weak)));
    assert!(refused.is_err());
    assert_eq!(weak.clone().len_tokens(), 8);
}

/// A million weak leases on one prefix cost it one anchor.
#[test]
fn weak_leases_on_one_prefix_share_their_memory() {
    let bench = Bench::new(2, 16);
    let held = bench.insert(&sequence(1, 8));
    drop(bench.session.downgrade(&held));
    let before = bench.stats().index_bytes;
    let weak: Vec<_> = (0..1_000).map(|_| bench.session.downgrade(&held)).collect();
    assert_eq!(bench.stats().index_bytes, before);
    drop(weak);
}

#[test]
fn spans_say_how_many_leases_hold_each_block() {
    let bench = Bench::new(2, 64);
    let trunk = sequence(1, 16);
    let of = |leases: &[&radixkv::Lease]| -> Vec<Vec<(usize, usize)>> {
        let spans = bench.session.shared_spans(leases).expect("all of this cache");
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
    let foreign = PrefixCache::builder(2, 8).build().expect("valid");
    let foreign = foreign.session().match_prefix(&foreign.default_namespace(), &[]).into_lease();
    assert_eq!(bench.session.shared_spans(&[&whole, &foreign]), Err(LeaseError::ForeignLease));
}
