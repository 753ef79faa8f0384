//! What one namespace may have, whatever it asks for.

use radixkv::{
    BlockRequest, Eviction, InsertError, InsertErrorKind, Inserted, Lease, Namespace, PolicyKind, PrefixCache, Quota,
    ReserveError, Token, Watermarks,
};
use radixkv_reference::Reference;

use crate::{Bench, sequence};

fn quota(cached: usize, pinned: usize) -> Quota {
    Quota::default().cached_blocks(cached).pinned_blocks(pinned)
}

fn cached(blocks: usize) -> Quota {
    Quota::default().cached_blocks(blocks)
}

fn pinned(blocks: usize) -> Quota {
    Quota::default().pinned_blocks(blocks)
}

/// Inserts `blocks` blocks of their own into a namespace.
fn put(bench: &Bench, space: &Namespace, key: u32, blocks: usize) -> Result<Lease, ReserveError> {
    let tokens = sequence(key, 4 * blocks);
    let hit = bench.session.match_prefix(space, &tokens);
    let fill = bench.session.reserve(BlockRequest::new(blocks - hit.blocks().len()).paid_by(space))?;
    let Inserted { lease, .. } = bench.session.insert(hit.lease(), &tokens, fill).expect("fitting");
    Ok(lease)
}

/// Which of the keys `0..n` are cached, each of one block.
fn keys(bench: &Bench, space: &Namespace, n: u32) -> Vec<u32> {
    (0..n).filter(|key| bench.session.peek(space, &sequence(*key, 4)) > 0).collect()
}

/// Cached, protected, reserved.
fn holdings(bench: &Bench, space: &Namespace) -> [usize; 3] {
    bench.cache.validate().expect("sound");
    let stats = space.stats();
    [stats.cached_blocks, stats.protected_blocks, stats.reserved_blocks]
}

// Holds: QU1.
#[test]
fn a_namespace_over_its_quota_evicts_its_own_in_the_policys_order() {
    let bench = Bench::new(4, 32);
    let (tenant, other) = (bench.cache.namespace(&["tenant"]), bench.cache.namespace(&["other"]));
    tenant.set_quota(cached(3));
    for key in 0..6 {
        bench.cache.set_time(u64::from(key));
        drop(put(&bench, &other, key, 1).expect("room"));
        drop(put(&bench, &tenant, key, 1).expect("room"));
        bench.cache.settle();
        let first = (key + 1).saturating_sub(3);
        assert_eq!(keys(&bench, &tenant, 6), (first..=key).collect::<Vec<_>>(), "the least recent goes");
    }
    assert_eq!((holdings(&bench, &tenant), holdings(&bench, &other)), ([3, 0, 0], [6, 0, 0]));
    assert_eq!((bench.accounts(), bench.stats().evicted_blocks), ([23, 0, 9, 0], 3));
}

/// More namespaces than one step visits were over their limits, and are at them now.
// Holds: EV10.
#[test]
fn run_once_ends_with_many_namespaces_at_their_limits() {
    let bench = Bench::new(4, 512);
    let tenants: Vec<_> = (0..100).map(|name| bench.cache.namespace(&[format!("tenant {name}").as_str()])).collect();
    for tenant in &tenants {
        tenant.set_quota(cached(1));
        drop(put(&bench, tenant, 0, 2).expect("room"));
    }
    let steps = (0..1_000).take_while(|_| bench.cache.run_once()).count();
    assert!(steps < 1_000, "no work is left");
    tenants.iter().for_each(|tenant| assert_eq!(holdings(&bench, tenant), [1, 0, 0]));
    // One that exceeds its limit again is found again.
    tenants[0].set_quota(cached(0));
    while bench.cache.run_once() {}
    assert_eq!(holdings(&bench, &tenants[0]), [0, 0, 0]);
}

/// With inline eviction an insert sees to it at once; a lookup never evicts.
// Holds: QU1.
#[test]
fn an_insert_over_the_quota_pays_at_once() {
    let bench = Bench::new(4, 32);
    let tenant = bench.cache.namespace(&["tenant"]);
    tenant.set_quota(cached(2));
    drop(put(&bench, &tenant, 0, 2).expect("room"));
    bench.cache.set_time(1);
    let held = put(&bench, &tenant, 1, 2).expect("room");
    assert_eq!(keys(&bench, &tenant, 2), [1], "the older one went while the new one is held");
    bench.cache.set_time(2);
    let more = put(&bench, &tenant, 2, 3).expect("nothing limits what is pinned");
    assert_eq!(holdings(&bench, &tenant), [5, 5, 0], "leases protect it");
    drop((held, more));
    assert_eq!(keys(&bench, &tenant, 3), [1, 2]);
    bench.cache.settle();
    assert_eq!(holdings(&bench, &tenant), [2, 0, 0]);
    assert_eq!(bench.session.peek(&tenant, &sequence(2, 12)), 8, "trimmed to the block");
}

// Holds: QU2.
#[test]
fn an_eviction_takes_victims_over_their_quota_first_and_no_more_than_asked() {
    let bench = Bench::new(4, 8);
    let (tenant, other) = (bench.cache.namespace(&["tenant"]), bench.cache.namespace(&["other"]));
    for (key, space) in [&other, &other, &tenant, &tenant, &tenant, &other].into_iter().enumerate() {
        bench.cache.set_time(key as u64);
        drop(put(&bench, space, key as u32, 1).expect("room"));
    }
    tenant.set_quota(cached(1));
    let all = bench.session.reserve(3).expect("one is missing");
    assert_eq!((keys(&bench, &other, 6), keys(&bench, &tenant, 6)), (vec![0, 1, 5], vec![3, 4]));
    assert_eq!(bench.cache.evict(2), 2);
    assert_eq!(
        (keys(&bench, &other, 6), keys(&bench, &tenant, 6)),
        (vec![1, 5], vec![4]),
        "within it: the oldest of all"
    );
    drop(all);
}

/// Whichever was used last, and whichever was limited to less.
// Holds: QU2.
#[test]
fn of_namespaces_over_their_quotas_the_one_that_was_limited_first_pays_first() {
    let bench = Bench::new(4, 16);
    let spaces = ["late", "early"].map(|name| bench.cache.namespace(&[name]));
    for (key, space) in [&spaces[0], &spaces[0], &spaces[1], &spaces[1]].into_iter().enumerate() {
        bench.cache.set_time(key as u64);
        drop(put(&bench, space, key as u32, 1).expect("room"));
    }
    spaces[1].set_quota(cached(1));
    spaces[0].set_quota(cached(1));
    let cached = || spaces.each_ref().map(|space| holdings(&bench, space)[0]);
    assert_eq!(cached(), [2, 2], "a limit that comes evicts nothing by itself");
    assert_eq!((bench.cache.evict(1), cached()), (1, [2, 1]));
    assert_eq!((bench.cache.evict(1), cached()), (1, [1, 1]));
}

// Holds: QU3.
#[test]
fn the_quota_of_a_full_namespace_is_lowered_raised_and_taken_away() {
    let bench = Bench::with_policy(4, 2_000, PolicyKind::Mru);
    let tenant = bench.cache.namespace(&["tenant"]);
    for key in 0..1_000 {
        bench.cache.set_time(u64::from(key));
        drop(put(&bench, &tenant, key, 1).expect("room"));
    }
    tenant.set_quota(cached(100));
    bench.cache.settle();
    assert_eq!(keys(&bench, &tenant, 1_000), (0..100).collect::<Vec<_>>(), "mru within it");
    tenant.set_quota(cached(200));
    drop(put(&bench, &tenant, 1_000, 50).expect("room"));
    assert_eq!(holdings(&bench, &tenant), [150, 0, 0]);
    tenant.set_quota(Quota::default());
    drop(put(&bench, &tenant, 1_001, 500).expect("room"));
    bench.cache.settle();
    assert_eq!(holdings(&bench, &tenant), [650, 0, 0]);
}

// Holds: QU4.
#[test]
fn a_reservation_beyond_the_quota_is_refused_with_the_numbers() {
    let bench = Bench::new(4, 32);
    let tenant = bench.cache.namespace(&["tenant"]);
    tenant.set_quota(pinned(4));
    let mut fill = bench.session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("within");
    let refused = |requested, pinned| Some(ReserveError::OverQuota { requested, pinned, limit: 4 });
    assert_eq!(bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).err(), refused(2, 3));
    assert_eq!(
        bench.session.reserve(BlockRequest::new(33).paid_by(&tenant)).err(),
        Some(ReserveError::TooLarge { requested: 33, capacity: 32 })
    );
    assert_eq!(holdings(&bench, &tenant), [0, 0, 3]);
    // What is inserted goes on counting: reserved until the evictor hears of it, then leased.
    let one = fill.split(1);
    let hit = bench.session.match_prefix(&tenant, &sequence(1, 4));
    let lease = bench.session.insert(hit.lease(), &sequence(1, 4), one).expect("fitting").lease;
    assert_eq!(bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).err(), refused(2, 3));
    assert_eq!(holdings(&bench, &tenant), [1, 1, 2]);
    drop(fill);
    drop(bench.session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("two were given back"));
    drop(lease);
    drop(bench.session.reserve(BlockRequest::new(4).paid_by(&tenant)).expect("nothing is leased"));
    // A refusal by the pool leaves no charge behind.
    let rest = bench.session.reserve(31).expect("room");
    assert!(matches!(
        bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)),
        Err(ReserveError::Exhausted { .. })
    ));
    drop(rest);
    assert_eq!(holdings(&bench, &tenant), [1, 0, 0]);
}

// Holds: QU10.
#[test]
fn duplicates_forks_and_other_namespaces_keep_the_count() {
    let bench = Bench::new(4, 32);
    let (tenant, other) = (bench.cache.namespace(&["tenant"]), bench.cache.namespace(&["other"]));
    let tokens = sequence(1, 12);
    let root = bench.session.match_prefix(&tenant, &tokens);
    drop(put(&bench, &tenant, 1, 2).expect("room"));
    let fill = bench.session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("room");
    let inserted = bench.session.insert(root.lease(), &tokens, fill).expect("fitting");
    assert_eq!((inserted.duplicates.len(), holdings(&bench, &tenant)), (2, [3, 3, 2]));
    drop(inserted);
    // Claimed for one, inserted into the other.
    let root = bench.session.match_prefix(&other, &tokens);
    let fill = bench.session.reserve(BlockRequest::new(3).paid_by(&tenant)).expect("room");
    let inserted = bench.session.insert(root.lease(), &tokens, fill).expect("fitting");
    assert_eq!((holdings(&bench, &tenant), holdings(&bench, &other)), ([3, 0, 0], [3, 3, 0]));
    drop(inserted);
    let mut one = bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect("room");
    let mut two = one.fork();
    let mut fresh = bench.session.reserve(BlockRequest::new(1).paid_by(&tenant)).expect("room");
    assert_eq!(holdings(&bench, &tenant)[2], 3, "a block of two forks counts once");
    let copy = two.make_unique(1, &mut fresh);
    assert_eq!(holdings(&bench, &tenant)[2], 3, "the fresh one is in the fork");
    drop(one);
    assert_eq!(holdings(&bench, &tenant)[2], 3, "the copy keeps its source");
    drop(copy);
    assert_eq!(holdings(&bench, &tenant)[2], 2);
    drop((two, fresh));
    assert_eq!(holdings(&bench, &tenant), [3, 0, 0]);
}

/// Whatever a tenant does, its leases and reservations hold no more than the sum of its limits.
// Holds: QU5.
#[test]
fn a_tenant_holds_no_more_than_its_limits_together() {
    let bench = Bench::new(4, 64);
    let tenant = bench.cache.namespace(&["tenant"]);
    tenant.set_quota(quota(10, 6));
    let (mut leases, mut fills) = (Vec::new(), Vec::new());
    for round in 0..40_u32 {
        bench.cache.set_time(u64::from(round));
        if round % 3 == 0 {
            leases.retain(|lease: &Lease| lease.len_tokens() % 8 != 0);
        }
        fills.extend(bench.session.reserve(BlockRequest::new(1 + round as usize % 3).paid_by(&tenant)));
        if let Ok(lease) = put(&bench, &tenant, round, 1 + round as usize % 5) {
            drop(lease);
        }
        leases.extend((0..=round).map(|key| bench.session.match_prefix(&tenant, &sequence(key, 20)).into_lease()));
        let [_, protected, reserved] = holdings(&bench, &tenant);
        assert!(protected + reserved <= 16, "{protected} protected and {reserved} reserved in round {round}");
        if round % 7 == 0 {
            fills.clear();
        }
    }
    let rest = bench.session.reserve(64 - 16).expect("the rest is left to others");
    drop((leases, fills, rest));
    bench.cache.settle();
    assert_eq!(holdings(&bench, &tenant)[1..], [0, 0]);
    assert!(holdings(&bench, &tenant)[0] <= 10);
}

// Holds: QU19.
#[test]
fn clearing_keeps_the_quota_and_dropping_ends_it() {
    let bench = Bench::new(4, 32);
    let tenant = bench.cache.namespace(&["tenant"]);
    tenant.set_quota(quota(8, 4));
    let held = put(&bench, &tenant, 1, 3).expect("within");
    tenant.clear();
    assert_eq!(holdings(&bench, &tenant), [3, 3, 0], "what is leased counts, cleared or not");
    let refused = bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect_err("beyond");
    assert_eq!(refused, ReserveError::OverQuota { requested: 2, pinned: 3, limit: 4 });
    drop(held);
    assert_eq!(holdings(&bench, &tenant), [0, 0, 0]);
    // It has no handle and no block: the quota keeps it.
    drop(tenant);
    bench.cache.settle();
    let tenant = bench.cache.namespace(&["tenant"]);
    assert_eq!(tenant.stats().quota, quota(8, 4));
    tenant.remove();
    tenant.set_quota(quota(1, 1));
    let again = bench.cache.namespace(&["tenant"]);
    assert_eq!(again.stats().quota, Quota::default());
    drop(put(&bench, &again, 2, 9).expect("unlimited"));
    bench.cache.settle();
    assert_eq!((holdings(&bench, &again), holdings(&bench, &tenant)), ([9, 0, 0], [0, 0, 0]));
}

// Holds: QU10.
#[test]
fn blocks_that_are_put_together_count_on() {
    let bench = Bench::new(4, 8);
    let space = bench.cache.namespace(&["tenant"]);
    space.set_quota(pinned(4));
    let (one, two) = (
        bench.session.reserve(BlockRequest::new(1).paid_by(&space)).expect("room"),
        bench.session.reserve(BlockRequest::new(2).paid_by(&space)),
    );
    let mut all = bench.session.reserve(1).expect("room");
    all.append(one);
    all.append(two.expect("room"));
    assert_eq!((all.len(), holdings(&bench, &space)), (4, [0, 0, 3]));
    let part = all.split(2);
    assert_eq!(holdings(&bench, &space), [0, 0, 3]);
    drop(part);
    assert_eq!(holdings(&bench, &space), [0, 0, 1]);
    drop(all);
    assert_eq!((holdings(&bench, &space), bench.cache.stats().free_blocks), ([0, 0, 0], 8));
}

/// Blocks that the default namespace paid for, appended to a reservation that another one pays for:
/// the insert moves their charge, within the limit.
// Holds: QU6.
#[test]
fn an_insert_charges_what_another_namespace_paid_for() {
    for extra in [1, 3, 7] {
        let bench = Bench::new(4, 32);
        let tenant = bench.cache.namespace(&["tenant"]);
        tenant.set_quota(pinned(8));
        let mut fill = bench.session.reserve(BlockRequest::new(1).paid_by(&tenant)).expect("within");
        fill.append(bench.session.reserve(extra).expect("free"));
        assert_eq!(holdings(&bench, &tenant), [0, 0, 1]);
        let tokens = sequence(1, 4 * (1 + extra));
        let cold = bench.session.match_prefix(&tenant, &tokens);
        let busy = bench.session.reserve(BlockRequest::new(7).paid_by(&tenant)).expect("within");
        let refused = bench.session.insert(cold.lease(), &tokens, fill).expect_err("beyond");
        let InsertError { reservation: fill, kind, .. } = refused;
        assert_eq!(kind, InsertErrorKind::OverQuota { requested: extra, pinned: 8, limit: 8 });
        assert_eq!((fill.len(), holdings(&bench, &tenant)), (1 + extra, [0, 0, 8]));
        drop(busy);
        drop(bench.session.insert(cold.lease(), &tokens, fill).expect("fitting"));
        assert_eq!(holdings(&bench, &tenant), [1 + extra, 0, 0]);
        let all = bench.session.reserve(BlockRequest::new(8).paid_by(&tenant)).expect("within");
        let refused = bench.session.reserve(BlockRequest::new(1).paid_by(&tenant)).expect_err("beyond");
        assert_eq!(refused, ReserveError::OverQuota { requested: 1, pinned: 8, limit: 8 });
        drop(all);
        assert_eq!(holdings(&bench, &tenant), [1 + extra, 0, 0]);
    }
}

/// Some shared and some not, of two payers: each part has the charges of its own blocks.
#[test]
fn parts_of_what_forks_share_keep_their_own_charges() {
    let bench = Bench::new(4, 32);
    let [tenant, other] = ["tenant", "other"].map(|name| bench.cache.namespace(&[name]));
    let counts = || [&tenant, &other].map(|space| holdings(&bench, space)[2]);
    let mut one = bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect("room");
    let mut fork = one.fork();
    one.append(bench.session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect("room"));
    drop(one.split(2));
    assert_eq!(counts(), [4, 0], "the fork has the first two, the rest the others");
    // The fork's second block is replaced by one that another namespace pays for.
    let again = fork.fork();
    let mut fresh = bench.session.reserve(BlockRequest::new(1).paid_by(&other)).expect("room");
    drop(fork.make_unique(1, &mut fresh));
    assert_eq!(counts(), [4, 1]);
    drop(again);
    assert_eq!(counts(), [3, 1]);
    // It is inserted where a limit makes the tenant pay, and where it does not.
    let root = bench.session.match_prefix(&tenant, &[]);
    let inserted = bench.session.insert(root.lease(), &sequence(1, 8), fork).expect("fitting");
    assert_eq!(counts(), [2, 0]);
    drop((inserted, one, fresh));
    assert_eq!(counts(), [0, 0]);
}

/// Blocks that a namespace without a limit pays for get cached in one with a limit only as far as
/// that allows; duplicates are still paid for by the first.
// Holds: QU6.
#[test]
fn no_namespace_pays_for_what_another_one_caches() {
    let bench = Bench::new(4, 64);
    let [tenant, other] = ["tenant", "other"].map(|name| bench.cache.namespace(&[name]));
    tenant.set_quota(quota(8, 8));
    let mut held = Vec::new();
    for key in 0..7 {
        let (tokens, root) = (sequence(key, 32), bench.session.match_prefix(&tenant, &[]));
        let blocks = if key % 2 == 0 {
            bench.session.reserve(8)
        } else {
            bench.session.reserve(BlockRequest::new(8).paid_by(&other))
        };
        held.extend(bench.session.insert(root.lease(), &tokens, blocks.expect("free")).ok());
        let [_, protected, reserved] = holdings(&bench, &tenant);
        assert!(protected + reserved <= 8, "{protected} protected, {reserved} reserved");
    }
    assert_eq!((held.len(), bench.stats().protected_blocks), (1, 8));
    held.clear();
    let (tokens, root) = (sequence(0, 32), bench.session.match_prefix(&tenant, &[]));
    let blocks = bench.session.reserve(BlockRequest::new(8).paid_by(&other)).expect("free");
    let again = bench.session.insert(root.lease(), &tokens, blocks).expect("the limit allows it");
    assert_eq!((again.duplicates.len(), holdings(&bench, &other)[2]), (8, 8));
    drop(again);
    assert_eq!((holdings(&bench, &tenant), holdings(&bench, &other)), ([8, 0, 0], [0, 0, 0]));
}

/// The default namespace pays for what names no other one, once it has a limit.
// Holds: QU6.
#[test]
fn the_default_namespace_pays_by_default() {
    let bench = Bench::new(4, 16);
    let tenant = bench.cache.namespace(&["tenant"]);
    let before = bench.session.reserve(2).expect("free");
    bench.cache.default_namespace().set_quota(pinned(4));
    let after = bench.session.reserve(3).expect("within");
    let refused = bench.session.reserve(2).expect_err("beyond");
    assert_eq!(refused, ReserveError::OverQuota { requested: 2, pinned: 3, limit: 4 });
    drop(bench.session.reserve(BlockRequest::new(11).paid_by(&tenant)).expect("another one pays"));
    drop((before, after));
    drop(bench.session.reserve(4).expect("all was given back"));
}

/// The same in parts, with duplicates, and in the wrong namespace.
// Holds: QU10.
#[test]
fn a_charge_for_some_of_the_blocks_comes_to_nothing_whatever_becomes_of_them() {
    let bench = Bench::new(4, 64);
    let (tenant, other) = (bench.cache.namespace(&["tenant"]), bench.cache.namespace(&["other"]));
    let mut dice = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let mut fill = bench.session.reserve(BlockRequest::new(dice.usize(..4)).paid_by(&tenant)).expect("room");
        fill.append(bench.session.reserve(dice.usize(..4)).expect("room"));
        if dice.bool() {
            let fork = fill.fork();
            drop(if dice.bool() { fork } else { std::mem::replace(&mut fill, fork) });
        }
        let rest = fill.split(dice.usize(..=fill.len()));
        let space = if dice.u8(..4) == 0 { &other } else { &tenant };
        let tokens = sequence(dice.u32(..20), 4 * rest.len() + 3);
        let cold = bench.session.match_prefix(space, &[]);
        let inserted = bench.session.insert(cold.lease(), &tokens, rest);
        drop((fill, inserted.map_err(|error| error.reservation), cold));
        assert_eq!(holdings(&bench, &tenant)[1..], [0, 0], "round {round}");
        bench.cache.evict(dice.usize(..8));
    }
}

/// What does not go together stays apart: the one is as it was, the other gives its blocks back,
/// shared or not.
// Holds: RE13.
#[test]
fn reservations_of_two_namespaces_are_refused_before_anything_moves() {
    let bench = Bench::new(4, 32);
    let spaces = [bench.cache.namespace(&["one"]), bench.cache.namespace(&["two"])];
    let [mut one, mut two] =
        spaces.each_ref().map(|space| bench.session.reserve(BlockRequest::new(3).paid_by(space)).expect("free"));
    let (fork, blocks) = (two.fork(), one.blocks().to_vec());
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one.append(two)));
    assert!(refused.is_err());
    assert_eq!((one.blocks(), fork.len()), (&blocks[..], 3));
    assert_eq!(spaces.each_ref().map(|space| holdings(&bench, space)[2]), [3, 3]);
    assert_eq!(bench.accounts(), [26, 6, 0, 0]);
    // No other reservation gets the blocks of the fork.
    let rest = bench.session.reserve(26).expect("free");
    assert!(fork.blocks().iter().all(|block| !rest.blocks().contains(block)));
    drop((one, fork, rest));
    assert_eq!(bench.accounts(), [32, 0, 0, 0]);
}

/// The table of candidates grows while they are sorted into groups.
// Holds: QU3.
#[test]
fn a_limit_takes_hold_while_candidates_come() {
    for first in [300, 700, 2_000] {
        let bench = Bench::new(4, 8_000);
        let [tenant, earlier, other] = ["tenant", "earlier", "other"].map(|name| bench.cache.namespace(&[name]));
        let fill = |space: &Namespace, keys: std::ops::Range<u32>| {
            keys.for_each(|key| drop(put(&bench, space, key, 1).expect("room")));
            _ = bench.cache.stats();
        };
        fill(&tenant, 0..first);
        // One sorting ends where the table ended, and the next begins there.
        fill(&earlier, 0..20);
        earlier.set_quota(cached(10));
        bench.cache.settle();
        fill(&other, 0..500);
        // Slices of one sorting, and candidates between them.
        tenant.set_quota(cached(10));
        fill(&other, 500..1_500);
        while bench.cache.run_once() {
            fill(&other, 1_500..1_510);
        }
        bench.cache.settle();
        assert_eq!(holdings(&bench, &tenant), [10, 0, 0], "{first} at first");
    }
}

/// However much that is, and whether it was taken in before or not.
// Holds: QU1.
#[test]
fn an_insert_pays_all_that_its_namespace_owes() {
    for (runs, blocks, settled) in
        [(4, 300, true), (4, 300, false), (100, 4, false), (1_100, 1, true), (1_100, 1, false)]
    {
        let bench = Bench::new(4, 5_000);
        let space = bench.cache.namespace(&["tenant"]);
        space.set_quota(cached(0));
        let leases: Vec<_> = (0..runs).map(|key| put(&bench, &space, key, blocks).expect("room")).collect();
        if settled {
            bench.cache.settle();
        }
        drop(leases);
        let fresh = put(&bench, &space, 9_999, 1).expect("room");
        assert_eq!(holdings(&bench, &space)[0], 1, "{runs} runs of {blocks} blocks, settled {settled}");
        drop(fresh);
    }
}

// Holds: NS7.
#[test]
fn dropping_the_default_namespace_clears_it_and_keeps_its_quota() {
    let bench = Bench::new(4, 10);
    let space = bench.cache.default_namespace();
    let mut reference = Reference::new(4, 10, PolicyKind::Lru);
    space.set_quota(cached(2));
    reference.set_quota(&[], Some(2), None);
    space.remove();
    reference.drop_namespace(&[]);
    drop(put(&bench, &space, 1, 5).expect("room"));
    bench.cache.settle();
    let tokens = sequence(1, 20);
    let (hit, blocks) = (reference.match_prefix(&[], &[]), reference.reserve(5).expect("room"));
    let inserted = reference.insert(&hit.lease, &tokens, blocks).expect("fitting");
    reference.release(hit.lease);
    reference.release(inserted.lease);
    reference.abort(inserted.duplicates);
    reference.settle();
    assert_eq!((bench.session.peek(&space, &tokens), reference.peek(&[], &tokens)), (8, 8));
}

/// What it asks for is not there: while it looks, it is charged for nothing.
// Holds: QU17.
#[test]
fn an_attempt_in_vain_refuses_no_other_one_of_its_namespace() {
    let cache = PrefixCache::builder(1, 8).build().expect("valid");
    let tenant = cache.namespace(&["tenant"]);
    tenant.set_quota(Quota::default().pinned_blocks(4));
    let held = cache.session().reserve(6).expect("free");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = cache.session();
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                _ = session.reserve(BlockRequest::new(4).paid_by(&tenant)).expect_err("two are free");
            }
        });
        let session = cache.session();
        let refused = (0..20_000).find_map(|_| session.reserve(BlockRequest::new(1).paid_by(&tenant)).err());
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(refused, None);
    });
    drop(held);
}

/// Blocks that were cached beyond the limit, and stay until they are needed, might all be leased
/// again.
// Holds: QU5.
#[test]
fn leases_and_reservations_stay_within_the_sum_of_both_limits() {
    for eviction in [Eviction::Inline, Eviction::Background(Watermarks::new(0, 0))] {
        let cache = PrefixCache::builder(1, 64).eviction(eviction).build().expect("valid");
        let (session, tenant) = (cache.session(), cache.namespace(&["tenant"]));
        tenant.set_quota(Quota::default().cached_blocks(2).pinned_blocks(8));
        let mut prompts: Vec<Vec<Token>> = Vec::new();
        for round in 0..5 {
            let own = session.reserve(BlockRequest::new(8).paid_by(&tenant)).expect("within");
            let held: Vec<_> = prompts.iter().map(|prompt| session.match_prefix(&tenant, prompt)).collect();
            cache.settle();
            let stats = tenant.stats();
            assert!(stats.protected_blocks + stats.reserved_blocks <= 10, "round {round}: {stats:?}");
            let prompt: Vec<Token> = (0..8).map(|i| round << 16 | i).collect();
            let miss = session.match_prefix(&tenant, &prompt);
            let inserted = session.insert(miss.lease(), &prompt, own).expect("fitting");
            prompts.push(prompt);
            drop((inserted, held, miss));
        }
    }
}

/// What was cached before there was a limit is not sorted by namespaces yet, 64 at a time.
// Holds: QU1.
#[test]
fn the_next_insert_keeps_to_a_limit_that_came_after_many() {
    for blocks in [50, 64, 65, 1_000] {
        let bench = Bench::new(4, blocks + 8);
        let space = bench.cache.namespace(&["late"]);
        for key in 0..blocks as u32 {
            drop(put(&bench, &space, key, 1).expect("room"));
        }
        space.set_quota(cached(1));
        drop(put(&bench, &space, 9_999, 1).expect("room"));
        assert_eq!(keys(&bench, &space, 9_999), [0; 0], "{blocks} blocks");
        assert_eq!(holdings(&bench, &space), [1, 0, 0]);
    }
}
