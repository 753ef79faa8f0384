//! Namespaces never share, and what is cleared or dropped goes when its leases go.

use radixkv::{InsertErrorKind, Session};

use crate::{Bench, sequence};

// Holds: NS1.
#[test]
fn parts_of_a_namespace_are_not_joined() {
    let bench = Bench::new(4, 64);
    let names: [&[&str]; 6] = [&["bc", "a"], &["c", "ab"], &["abc"], &["bca"], &["", "bca"], &[]];
    let spaces = names.map(|parts| bench.cache.namespace(parts));
    let tokens = sequence(1, 8);
    for (i, space) in spaces.iter().enumerate() {
        assert_eq!(bench.session.peek(space, &tokens), 0, "{:?}", names[i]);
        let lease = bench.session.match_prefix(space, &tokens).into_lease();
        drop(bench.insert_from(&lease, &tokens));
        drop(lease);
        assert_eq!(bench.session.peek(space, &tokens), 8);
    }
    assert_eq!(bench.accounts(), [52, 0, 12, 0]);
}

// Holds: NS2.
#[test]
fn a_namespace_resolved_twice_is_one() {
    let bench = Bench::new(4, 8);
    let tokens = sequence(1, 8);
    let space = bench.cache.namespace(&["tenant", "adapter"]);
    let lease = bench.session.match_prefix(&space, &tokens).into_lease();
    drop(bench.insert_from(&lease, &tokens));
    let again = bench.cache.namespace(&["tenant", "adapter"]);
    assert_eq!(bench.session.match_prefix(&again, &tokens).len_tokens(), 8);
}

// Holds: NS5.
#[test]
fn dropping_a_namespace_frees_its_own_blocks_only() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 8);
    let other = bench.cache.namespace(&["other"]);
    drop(bench.insert(&tokens));
    let lease = bench.session.match_prefix(&other, &tokens).into_lease();
    drop(bench.insert_from(&lease, &tokens));
    drop(lease);
    other.remove();
    assert_eq!(bench.accounts(), [14, 0, 2, 0]);
    assert_eq!(bench.peek(&tokens), 8);
    let fresh = bench.cache.namespace(&["other"]);
    assert_eq!(bench.session.peek(&fresh, &tokens), 0);
}

// Holds: NS3.
#[test]
fn a_cleared_path_is_free_when_its_last_lease_is() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 16);
    let whole = bench.insert(&tokens);
    let half = bench.matched(&tokens[..8]);
    drop(bench.insert(&sequence(2, 8)));
    assert_eq!(bench.accounts(), [10, 0, 2, 4]);
    bench.cache.clear();
    assert_eq!(bench.accounts(), [12, 0, 0, 4]);
    assert_eq!(bench.peek(&tokens), 0);
    drop(whole);
    assert_eq!(bench.accounts(), [14, 0, 0, 2]);
    drop(half);
    assert_eq!(bench.accounts(), [16, 0, 0, 0]);
}

// Holds: NS3.
#[test]
fn a_cleared_sequence_is_cached_anew_beside_its_leased_past() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 8);
    let old = bench.insert(&tokens);
    bench.cache.clear();
    let new = bench.insert(&tokens);
    assert_eq!(bench.accounts(), [12, 0, 0, 4]);
    drop(old);
    assert_eq!(bench.accounts(), [14, 0, 0, 2]);
    assert_eq!((new.len_tokens(), bench.peek(&tokens)), (8, 8));
}

// Holds: IN8.
#[test]
fn an_insert_from_before_a_clear_or_a_drop_is_refused() {
    let bench = Bench::new(4, 16);
    let space = bench.cache.namespace(&["tenant"]);
    let (short, tokens) = (sequence(1, 4), sequence(1, 12));
    let refused = |session: &Session, lease| {
        let reservation = session.reserve(2).expect("free blocks");
        let given = reservation.blocks().to_vec();
        let error = session.insert(&lease, &tokens, reservation).expect_err("no tree");
        assert_eq!(error.kind, InsertErrorKind::NamespaceDropped);
        assert_eq!(error.reservation.blocks(), given);
    };
    let cleared = bench.insert(&short);
    bench.cache.clear();
    refused(&bench.session, cleared);
    let root = bench.session.match_prefix(&space, &short).into_lease();
    let dropped = bench.insert_from(&root, &short).lease;
    drop(root);
    space.remove();
    refused(&bench.session, dropped);
    assert_eq!(bench.accounts(), [16, 0, 0, 0]);
}

// Holds: NS9.
#[test]
fn a_namespace_of_another_cache_is_refused() {
    let (ours, theirs) = (Bench::new(4, 8), Bench::new(4, 8));
    let foreign = theirs.cache.namespace(&["x"]);
    let session = ours.cache.session();
    let refused = |call: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
    assert!(refused(&|| drop(session.match_prefix(&foreign, &[1, 2, 3, 4]))));
    assert!(refused(&|| drop(session.match_prefix_untouched(&foreign, &[1, 2, 3, 4]))));
    assert!(refused(&|| assert_eq!(session.peek(&foreign, &[1, 2, 3, 4]), 0)));
    assert_eq!(ours.cache.validate(), Ok(()));
}

/// Whether the evictor has heard of the lease or not, at the end of a sequence or inside it.
// Holds: NS4.
#[test]
fn a_namespace_in_use_is_not_cleared_if_unused() {
    let bench = Bench::new(2, 32);
    let (tokens, tenant) = (sequence(1, 12), bench.cache.namespace("tenant"));
    let store = || {
        let miss = bench.session.match_prefix(&tenant, &tokens);
        bench.session.insert(miss.lease(), &tokens, bench.session.reserve(6).expect("room")).expect("fits").lease
    };
    let refused = |leased_blocks| {
        let in_use = tenant.clear_if_unused().expect_err("a lease is held");
        assert_eq!((in_use.leased_blocks, in_use.reserved_blocks), (leased_blocks, 0));
        assert_eq!(bench.session.peek(&tenant, &tokens), 12);
    };
    let inserted = store();
    refused(6);
    drop(inserted);
    for settled in [false, true] {
        for len in [4, 12] {
            let found = bench.session.match_prefix(&tenant, &tokens[..len]);
            if settled {
                bench.cache.settle();
            }
            refused(len / 2);
            drop(found);
        }
    }
    assert_eq!(tenant.clear_if_unused(), Ok(()));
    assert_eq!((bench.session.peek(&tenant, &tokens), bench.cache.stats().free_blocks), (0, 32));
    drop(store());
    assert_eq!(bench.accounts(), [26, 0, 6, 0]);
}
