//! What handles are: where they may go, what they keep, and what becomes of those that outlive a clear.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use radixkv::{
    Lease, LeaseError, MakeUniqueError, Namespace, PartialHit, PendingCopy, PolicyKind, PrefixCache, PrefixMatch,
    Reservation, RetainError, Session, Token,
};

use crate::{Bench, sequence};

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

    // Of two candidates for one method the compiler would not choose: this is ambiguous for a type that is `Sync`.
    trait Alone<Why> {
        fn alone() {}
    }
    struct Shared;
    impl<T: Send> Alone<()> for T {}
    impl<T: Send + Sync> Alone<Shared> for T {}
    <Session as Alone<_>>::alone();
    #[cfg(feature = "scheduler")]
    <radixkv::scheduler::Scheduler as Alone<_>>::alone();
}

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

#[test]
fn a_clone_of_a_lease_is_a_lease_of_its_own_and_no_use() {
    let bench = Bench::with_policy(4, 8, PolicyKind::Lfu);
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    bench.cache.set_time(3);
    let one = bench.session.match_prefix_untouched(&bench.space, &sequence(1, 8)).into_lease();
    let clones: Vec<Lease> = (0..5).map(|_| one.clone()).collect();
    drop(one);
    assert_eq!(bench.cache.evict(8), 2, "the clones keep theirs");
    drop(clones);
    bench.serve_at(4, &sequence(2, 8));
    drop(bench.matched(&sequence(2, 8)));
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(2, 8))), (4, 8), "five clones are no hit");
}

/// Of `match_prefix_untouched`, or a clone: it counts once it is resumed, at the deepest prefix that it reaches.
#[test]
fn a_lease_that_is_no_use_counts_when_it_is_resumed() {
    for cloned in [false, true] {
        let bench = Bench::with_policy(4, 8, PolicyKind::Lfu);
        bench.serve_at(1, &sequence(1, 8));
        bench.serve_at(2, &sequence(2, 8));
        bench.cache.set_time(3);
        let leased = bench.session.match_prefix_untouched(&bench.space, &sequence(1, 8)).into_lease();
        let lease = if cloned { leased.clone() } else { leased };
        drop(bench.session.resume(lease, &sequence(1, 8)));
        assert_eq!(bench.cache.evict(2), 2);
        assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(2, 8))), (8, 0), "cloned: {cloned}");
    }
}

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

/// The lease's own blocks stay, and what other leases keep beyond it is found from there; lookups find none of it.
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

#[test]
fn a_callers_mistake_with_a_lease_panics_and_changes_nothing() {
    let (bench, other) = (Bench::new(4, 8), Bench::new(4, 8));
    let tokens = sequence(1, 8);
    drop(bench.insert(&tokens));
    let before = bench.accounts();
    let foreign = other.matched(&[]);
    let mistakes: [&dyn Fn(); 6] = [
        &|| drop(bench.session.resume(bench.matched(&tokens), &tokens[..7])),
        &|| drop(bench.session.resume(foreign.clone(), &tokens)),
        &|| drop(bench.session.resume_into(foreign.clone(), &tokens, &mut Vec::new())),
        &|| drop(bench.session.match_partial(&bench.matched(&tokens), &tokens[..7], 1)),
        &|| bench.session.release_retained(&foreign),
        &|| bench.session.prioritize(&foreign, radixkv::Priority::DEFAULT),
    ];
    for (at, mistake) in mistakes.iter().enumerate() {
        assert!(catch_unwind(AssertUnwindSafe(mistake)).is_err(), "mistake {at}");
        assert_eq!(bench.accounts(), before, "mistake {at}");
    }
}

#[test]
fn the_default_namespace_is_cleared_where_it_is_dropped() {
    let bench = Bench::new(4, 8);
    drop(bench.insert(&sequence(1, 8)));
    bench.cache.drop_namespace(&bench.space);
    assert_eq!((bench.peek(&sequence(1, 8)), bench.accounts()), (0, [8, 0, 0, 0]));
    drop(bench.insert(&sequence(1, 8)));
    assert_eq!(bench.peek(&sequence(1, 8)), 8, "it takes on");
}

#[test]
fn handles_on_namespaces_are_equal_where_they_lead_into_the_same_trees() {
    let bench = Bench::new(4, 8);
    let tenant = bench.cache.namespace(&["tenant"]);
    let again = bench.cache.namespace(&["tenant"]);
    bench.cache.clear_namespace(&tenant);
    assert!(tenant == again && tenant != bench.space && bench.cache.namespace(&[]) == bench.space);
    bench.cache.drop_namespace(&tenant);
    let new = bench.cache.namespace(&["tenant"]);
    assert!(new != tenant && tenant == again);
    assert_eq!(HashSet::from([tenant, again, new]).len(), 2);
}

/// Through a handle on a namespace that was dropped nothing is found, and nothing can be put in.
#[test]
fn a_dropped_namespace_is_empty_for_good() {
    let bench = Bench::new(4, 8);
    let tenant = bench.cache.namespace(&["tenant"]);
    let tokens: Vec<Token> = sequence(1, 8);
    let root = bench.session.match_prefix(&tenant, &tokens).into_lease();
    drop(bench.insert_from(&root, &tokens));
    drop(root);
    bench.cache.drop_namespace(&tenant);
    bench.cache.drop_namespace(&tenant);
    bench.cache.clear_namespace(&tenant);
    let found = bench.session.match_prefix(&tenant, &tokens);
    assert_eq!((found.len_tokens(), bench.session.peek(&tenant, &tokens)), (0, 0));
    let refused = bench.session.insert(found.lease(), &tokens, bench.session.reserve(2).expect("room"));
    assert_eq!(refused.map(drop).map_err(|error| error.kind), Err(radixkv::InsertErrorKind::NamespaceDropped));
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

/// Each form that returns what it refuses, with what comes back.
#[test]
fn what_is_refused_comes_back() {
    let (bench, other) = (Bench::new(4, 8), Bench::new(4, 8));
    let tokens = sequence(1, 8);
    drop(bench.insert(&tokens));
    let foreign = || other.session.match_prefix(&other.space, &tokens).into_lease();
    let refused = bench.session.try_resume(foreign(), &tokens).expect_err("of another cache");
    assert_eq!(refused.kind, LeaseError::ForeignLease);
    assert!(refused.lease.is_of(&other.cache) && refused.to_string() == "the lease is of another cache");

    let lease = bench.matched(&tokens);
    let short = LeaseError::TokensTooShort { leased: 8, given: 7 };
    assert_eq!(bench.session.try_match_partial(&lease, &tokens[..7], 1).unwrap_err(), short);
    assert_eq!(bench.session.try_match_partial(&foreign(), &tokens, 1).unwrap_err(), LeaseError::ForeignLease);
    assert!(bench.session.try_match_partial(&lease, &tokens, 1).expect("right").is_none());
    let refused = bench.session.try_resume(lease, &tokens[..7]).expect_err("too short");
    assert_eq!((refused.kind, refused.lease.len_tokens()), (short, 8));
    assert_eq!(bench.session.try_resume(refused.lease, &tokens).expect("right").len_tokens(), 8);
    assert_eq!(bench.session.retain(&foreign(), std::time::Duration::MAX), Err(RetainError::ForeignLease));

    let (mut one, mut empty) = (bench.session.reserve(1).expect("free"), bench.session.reserve(0).expect("nothing"));
    assert!(one.try_make_unique(0, &mut empty).expect("it is alone").is_none());
    let mut two = one.fork();
    assert_eq!(two.try_make_unique(1, &mut empty).unwrap_err(), MakeUniqueError::NoSuchBlock { block: 1, len: 1 });
    assert_eq!(two.try_make_unique(0, &mut empty).unwrap_err(), MakeUniqueError::NothingToCopyInto);
    let mut foreign = other.session.reserve(1).expect("free");
    assert_eq!(two.try_make_unique(0, &mut foreign).unwrap_err(), MakeUniqueError::ForeignReservation);
    let mut shared = one.fork();
    assert_eq!(two.try_make_unique(0, &mut shared).unwrap_err(), MakeUniqueError::SharedDestination);
    assert_eq!((shared.len(), foreign.len(), two.blocks()), (1, 1, one.blocks()));
    let mut fresh = bench.session.reserve(1).expect("free");
    assert!(two.try_make_unique(0, &mut fresh).expect("right").is_some() && fresh.is_empty());
}
