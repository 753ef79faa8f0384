//! What handles are: where they may go, what they keep, and what becomes of those that outlive a
//! clear.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use radixkv::{
    BlockRequest, Lease, Namespace, PartialHit, PendingCopy, PolicyKind, PrefixCache, PrefixMatch, Reservation,
    Session, Token,
};

use crate::{Bench, sequence};

// Holds: LE5.
#[test]
fn handles_are_shared_by_threads_and_a_session_goes_with_one() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<PrefixCache>();
    is_shared::<Namespace>();
    is_shared::<Lease>();
    is_shared::<PrefixMatch>();
    is_shared::<PartialHit>();
    is_shared::<Reservation>();
    is_shared::<PendingCopy>();

    // Of two candidates for one method the compiler would not choose: this is ambiguous for a type
    // that is `Sync`.
    trait Alone<Why> {
        fn alone() {}
    }
    struct Shared;
    impl<T: Send> Alone<()> for T {}
    impl<T: Send + Sync> Alone<Shared> for T {}
    <Session as Alone<_>>::alone();
}

// Holds: LE8.
#[test]
fn a_forgotten_lease_keeps_its_path_for_good() {
    let bench = Bench::new(4, 8);
    let tokens = sequence(1, 16);
    drop(bench.insert(&tokens));
    std::mem::forget(bench.matched(&tokens[..8]));
    assert_eq!(bench.accounts(), [4, 0, 2, 2]);
    assert_eq!(bench.cache.evict(8), 2);
    bench.cache.clear();
    assert_eq!((bench.peek(&tokens), bench.accounts()), (0, [6, 0, 0, 2]));
}

// Holds: MA9.
#[test]
fn a_clone_of_a_lease_is_a_lease_of_its_own_and_no_use() {
    let bench = Bench::with_policy(4, 8, PolicyKind::Lfu);
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    bench.cache.set_time(3);
    let one = bench.session.match_prefix_untouched(&bench.space, &sequence(1, 8)).into_lease();
    let clones: Vec<Lease> = (0..5).map(|_| one.try_clone().expect("few leases")).collect();
    drop(one);
    assert_eq!(bench.cache.evict(8), 2, "the clones keep theirs");
    drop(clones);
    bench.serve_at(4, &sequence(2, 8));
    drop(bench.matched(&sequence(2, 8)));
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(2, 8))), (4, 8), "five clones are no hit");
}

/// Of `match_prefix_untouched`, or a clone: it counts once it is resumed, at the deepest prefix
/// that it reaches.
// Holds: MA16.
#[test]
fn a_lease_that_is_no_use_counts_when_it_is_resumed() {
    for cloned in [false, true] {
        let bench = Bench::with_policy(4, 8, PolicyKind::Lfu);
        bench.serve_at(1, &sequence(1, 8));
        bench.serve_at(2, &sequence(2, 8));
        bench.cache.set_time(3);
        let leased = bench.session.match_prefix_untouched(&bench.space, &sequence(1, 8)).into_lease();
        let lease = if cloned { leased.try_clone().expect("few leases") } else { leased };
        drop(bench.session.resume(lease, &sequence(1, 8)));
        assert_eq!(bench.cache.evict(2), 2);
        assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(2, 8))), (8, 0), "cloned: {cloned}");
    }
}

// Holds: MA17.
#[test]
fn resuming_into_a_buffer_gives_the_blocks_beyond_the_lease_alone() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 16);
    let short = bench.insert(&tokens[..8]);
    drop(bench.insert(&tokens));
    let whole = bench.session.match_prefix_untouched(&bench.space, &tokens);
    let mut beyond = vec![77; 9];
    let lease = bench.session.resume_into(short, &tokens, &mut beyond);
    assert_eq!((lease.len_tokens(), &beyond[..]), (16, &whole.blocks()[2..]));
    let lease = bench.session.resume_into(lease, &tokens, &mut beyond);
    assert_eq!((lease.len_tokens(), beyond.len()), (16, 0));
}

/// The lease's own blocks stay, and what other leases keep beyond it is found from there; lookups
/// find none of it.
// Holds: MA18.
#[test]
fn leases_of_a_cleared_tree_go_on_finding_what_leases_keep_there() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 12);
    let mut other = tokens.clone();
    other[6] = 77;
    let long = bench.insert(&tokens);
    let short = bench.matched(&tokens[..4]);
    bench.cache.clear();
    assert_eq!(bench.matched_len(&tokens), 0);
    let partial = bench.session.match_partial(&short, &other, 1).expect("two tokens of the second block");
    assert_eq!(partial.len_tokens(), 2);
    let resumed = bench.session.resume(short, &tokens);
    assert_eq!((resumed.len_tokens(), resumed.blocks().len()), (12, 3));
    drop((partial, long));
    assert_eq!(bench.accounts(), [13, 0, 0, 3]);
    drop(resumed);
    assert_eq!(bench.accounts(), [16, 0, 0, 0]);
}

/// Every verb, every handle of another cache, and sequences that are shorter than their lease.
// Holds: MA19.
#[test]
fn misuse_panics_in_every_verb_and_changes_nothing() {
    let (bench, other) = (Bench::new(4, 8), Bench::new(4, 8));
    let tokens = sequence(1, 8);
    drop(bench.insert(&tokens));
    let (before, others_before) = (bench.accounts(), other.accounts());
    let (session, space) = (&bench.session, &other.space);
    let foreign = || other.matched(&[]);
    let own = || bench.matched(&tokens);
    let blocks = |bench: &Bench, n| bench.session.reserve(n).expect("free blocks");
    let weak = foreign().downgrade();
    let later = || BlockRequest::new(1).paid_by(space).until(std::time::Instant::now());
    let misuses: &[(&str, &dyn Fn())] = &[
        ("match_prefix", &|| drop(session.match_prefix(space, &tokens))),
        ("match_prefix_into", &|| drop(session.match_prefix_into(space, &tokens, &mut Vec::new()))),
        ("match_prefix_untouched", &|| drop(session.match_prefix_untouched(space, &tokens))),
        ("peek", &|| _ = session.peek(space, &tokens)),
        ("acquire", &|| drop(session.acquire(space, &tokens, 1))),
        ("acquire_until", &|| drop(session.acquire_until(space, &tokens, 1, std::time::Instant::now()))),
        ("reserve", &|| drop(session.reserve(BlockRequest::new(1).paid_by(space)))),
        ("reserve until", &|| drop(session.reserve(later()))),
        ("insert, lease", &|| drop(session.insert(&foreign(), &tokens, blocks(&bench, 2)))),
        ("insert, reservation", &|| drop(session.insert(&own(), &tokens, blocks(&other, 0)))),
        ("insert, tokens", &|| drop(session.insert(&own(), &tokens[..7], blocks(&bench, 0)))),
        ("resume, lease", &|| drop(session.resume(foreign(), &tokens))),
        ("resume, tokens", &|| drop(session.resume(own(), &tokens[..7]))),
        ("resume_into, lease", &|| drop(session.resume_into(foreign(), &tokens, &mut Vec::new()))),
        ("resume_into, tokens", &|| drop(session.resume_into(own(), &tokens[..7], &mut Vec::new()))),
        ("match_partial, lease", &|| drop(session.match_partial(&foreign(), &tokens, 1))),
        ("match_partial, tokens", &|| drop(session.match_partial(&own(), &tokens[..7], 1))),
        ("upgrade", &|| drop(session.upgrade(&weak))),
        ("renew", &|| session.renew(&foreign())),
        ("count_use", &|| session.count_use(&foreign())),
        ("prioritize", &|| session.prioritize(&foreign(), radixkv::Priority::DEFAULT)),
        ("retain", &|| _ = session.retain(&foreign(), std::time::Duration::MAX)),
        ("release_retained", &|| session.release_retained(&foreign())),
        ("demote", &|| session.demote(&foreign())),
        ("shared_spans", &|| drop(session.shared_spans(&[&own(), &foreign()]))),
        ("append, cache", &|| blocks(&bench, 1).append(blocks(&other, 1))),
        ("append, payer", &|| {
            let paid = BlockRequest::new(1).paid_by(&bench.space);
            let tenant = bench.cache.namespace("tenant");
            let mut mine = session.reserve(BlockRequest::new(1).paid_by(&tenant)).expect("free blocks");
            mine.append(session.reserve(paid).expect("free blocks"));
        }),
        ("make_unique, block", &|| drop(blocks(&bench, 1).make_unique(1, &mut blocks(&bench, 1)))),
        ("make_unique, none", &|| {
            let mut one = blocks(&bench, 1);
            let _two = one.fork();
            drop(one.make_unique(0, &mut blocks(&bench, 0)));
        }),
        ("make_unique, cache", &|| {
            let mut one = blocks(&bench, 1);
            let _two = one.fork();
            drop(one.make_unique(0, &mut blocks(&other, 1)));
        }),
        ("make_unique, shared", &|| {
            let mut one = blocks(&bench, 1);
            let (_two, mut shared) = (one.fork(), blocks(&bench, 1));
            let _fork = shared.fork();
            drop(one.make_unique(0, &mut shared));
        }),
    ];
    for (verb, misuse) in misuses {
        assert!(catch_unwind(AssertUnwindSafe(misuse)).is_err(), "{verb}");
        bench.cache.settle();
        assert_eq!((bench.accounts(), other.accounts()), (before, others_before), "{verb}");
    }
}

/// The vectors that verbs write to are the caller's.
// Holds: MA19.
#[test]
fn misuse_leaves_the_callers_vector_as_it_was() {
    let (bench, other) = (Bench::new(4, 8), Bench::new(4, 8));
    let tokens = sequence(1, 8);
    drop(bench.insert(&tokens));
    let mut blocks = vec![7];
    let own = bench.matched(&tokens);
    let broken = catch_unwind(AssertUnwindSafe(|| {
        drop(bench.session.resume_into(own, &tokens[..7], &mut blocks));
    }));
    assert!(broken.is_err());
    let broken = catch_unwind(AssertUnwindSafe(|| {
        drop(bench.session.match_prefix_into(&other.space, &tokens, &mut blocks));
    }));
    assert!(broken.is_err());
    assert_eq!(blocks, [7]);
}

/// Its verbs do nothing once the cache is gone, and it does not keep the cache.
// Holds: QU15.
#[test]
fn a_namespace_outlives_its_cache() {
    let bench = Bench::new(4, 8);
    let tenant = bench.cache.namespace("tenant");
    tenant.set_quota(radixkv::Quota::default().cached_blocks(1));
    drop(bench);
    tenant.set_quota(radixkv::Quota::default());
    tenant.clear();
    tenant.remove();
    tenant.walk(|_| panic!("nothing is cached"));
    assert_eq!((tenant.clear_if_unused(), tenant.evict(1)), (Ok(()), 0));
    assert_eq!(tenant.evict_idle(std::time::Duration::ZERO), 0);
    assert_eq!(tenant.stats(), radixkv::NamespaceStats::default());
    assert_eq!(tenant.name().parts().collect::<Vec<_>>(), ["tenant"]);
}

// Holds: NS7.
#[test]
fn the_default_namespace_is_cleared_where_it_is_dropped() {
    let bench = Bench::new(4, 8);
    drop(bench.insert(&sequence(1, 8)));
    bench.space.remove();
    assert_eq!((bench.peek(&sequence(1, 8)), bench.accounts()), (0, [8, 0, 0, 0]));
    drop(bench.insert(&sequence(1, 8)));
    assert_eq!(bench.peek(&sequence(1, 8)), 8, "it takes on");
}

// Holds: NS2.
#[test]
fn handles_on_namespaces_are_equal_where_they_lead_into_the_same_trees() {
    let bench = Bench::new(4, 8);
    let tenant = bench.cache.namespace(&["tenant"]);
    let again = bench.cache.namespace(&["tenant"]);
    tenant.clear();
    assert!(tenant == again && tenant != bench.space && bench.cache.default_namespace() == bench.space);
    tenant.remove();
    let new = bench.cache.namespace(&["tenant"]);
    assert!(new != tenant && tenant == again);
    assert_eq!(HashSet::from([tenant, again, new]).len(), 2);
}

/// Through a handle on a namespace that was dropped nothing is found, and nothing can be put in.
// Holds: NS5.
#[test]
fn a_dropped_namespace_is_empty_for_good() {
    let bench = Bench::new(4, 8);
    let tenant = bench.cache.namespace(&["tenant"]);
    let tokens: Vec<Token> = sequence(1, 8);
    let root = bench.session.match_prefix(&tenant, &tokens).into_lease();
    drop(bench.insert_from(&root, &tokens));
    drop(root);
    tenant.remove();
    tenant.remove();
    tenant.clear();
    let found = bench.session.match_prefix(&tenant, &tokens);
    assert_eq!((found.len_tokens(), bench.session.peek(&tenant, &tokens)), (0, 0));
    let refused = bench.session.insert(found.lease(), &tokens, bench.session.reserve(2).expect("room"));
    assert_eq!(refused.map(drop).map_err(|error| error.kind), Err(radixkv::InsertErrorKind::NamespaceDropped));
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}
