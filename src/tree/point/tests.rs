//! Tests the memory layout of points, and counts at the ends of their range.

use super::*;
use crate::name::NamespaceName;
use crate::reclaim::Domain;
use crate::sync::Arc;
use crate::tree::{NamespaceAccount, Space};

/// Neighbouring points must not share a cache line. The word of a root, which many threads write,
/// must not share a line with the fields that all walks read: the first root of a cache finds such
/// a slot.
#[test]
#[cfg(not(radixkv_heap))]
fn points_have_a_line_of_their_own_and_roots_lie_across_two() {
    let domain = Domain::new();
    let local = domain.register();
    let guard = local.pin();
    let account = Arc::new(NamespaceAccount::new(NamespaceName::default(), domain.records().row()));
    let root = Space::plant(0, account, &guard);
    let line = |address: usize| address / LINE;
    assert_eq!(root.as_ref().layout(), ROOT);
    assert_ne!(line((&raw const root.as_ref().word).addr()), line((&raw const root.as_ref().children).addr()));
    let points = [(); 100].map(|()| Point::new(root.run().link(), 7, Word::idle(), 0, &guard));
    for point in &points {
        assert_eq!(point.as_ptr().addr() % LINE, 0);
        assert_eq!(point.bytes(), LINE);
    }
    let (trunk, space) = (root.run(), root.run().space());
    trunk.retire_arrays(&guard);
    guard.retire(root);
    guard.retire(trunk);
    guard.retire(space);
}

#[test]
fn hits_stay_at_the_most() {
    let statistics = Statistics::stamped(0);
    statistics.take_in(Tally { hits: i64::from(MOST_HITS) - 1, ..Tally::NONE });
    assert_eq!(statistics.hits(), MOST_HITS as u64 - 1);
    for _ in 0..4 {
        statistics.count();
        assert_eq!(statistics.hits(), MOST_HITS as u64);
    }
    let other = Statistics::stamped(3);
    (0..9).for_each(|_| other.count());
    other.flow_to(&statistics);
    assert_eq!((statistics.hits(), statistics.last()), (MOST_HITS as u64, 3));
    assert_eq!((other.hits(), other.last()), (1, 0));
    statistics.move_on();
    assert_eq!(statistics.hits(), MOST_HITS as u64 - 1);
}

/// A use that was counted on a stripe is taken back at the point before the stripe's counts flow to
/// it.
#[test]
fn a_use_that_is_taken_back_elsewhere_leaves_nothing() {
    let (point, stripe) = (Statistics::stamped(0), Statistics::stamped(0));
    stripe.count();
    point.move_on();
    point.move_on();
    assert_eq!((point.hits(), point.tally().hits), (0, -1));
    stripe.count();
    stripe.flow_to(&point);
    assert_eq!(point.tally(), Tally { hits: 1, ..Tally::NONE });
    // The other way round.
    point.count();
    stripe.move_on();
    stripe.move_on();
    assert_eq!(stripe.hits(), 0);
    stripe.flow_to(&point);
    assert_eq!(point.tally().hits, 0);
}

#[test]
fn what_the_evictor_knows_is_kept_apart() {
    let mut account = PointAccount::default();
    account.set_known(true);
    assert!(account.is_known() && !account.is_leased() && !account.is_active());
    account.count_child(true);
    account.count_child(true);
    account.set_known(false);
    assert!(!account.is_known() && account.is_active());
    account.count_child(false);
    account.set_leased(true);
    account.count_child(false);
    assert!(account.is_active() && account.is_leased());
    assert_eq!(account.active_children(), 0);
    account.set_leased(false);
    assert!(!account.is_active());
}
