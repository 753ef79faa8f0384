//! What a request does that is refused, or that is a mistake of the caller's: nothing. No block
//! leaves the device, nothing is published, no lookup is counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use radixkv::{BlockRequest, Namespace, PrefixCache, Quota, ReserveError, Token};
use radixkv_host::{HostStats, HostTier, NoCopies, TierMode, TieredCache, TieredStart};

/// A cache of `device` blocks over a tier of `host`, both of two tokens.
fn tiers(device: usize, host: usize) -> TieredCache {
    let cache = PrefixCache::builder(2, device).build().expect("a cache");
    let host = HostTier::builder(2, host).build().expect("a tier");
    TieredCache::builder(&cache, &host, NoCopies).build().expect("they go together")
}

/// A prompt of so many blocks that shares none with another number's.
fn prompt(number: u32, blocks: usize) -> Vec<Token> {
    (0..2 * blocks as u32).map(|at| number * 1000 + at).collect()
}

fn serve(tiers: &TieredCache, namespace: &Namespace, prompt: &[Token]) {
    let session = tiers.session();
    let TieredStart { lease, cached, mut blocks, .. } = session.acquire(namespace, prompt, 0).expect("room");
    let own = blocks.split(prompt.len() / 2 - cached.len());
    drop(session.insert(namespace, &lease, prompt, own).expect("it is inserted"));
}

/// What no refusal may change: blocks, evictions and lookups of both tiers.
fn state(tiers: &TieredCache) -> ([u64; 8], HostStats) {
    tiers.cache().settle();
    let stats = tiers.cache().stats();
    let blocks = [stats.free_blocks, stats.reserved_blocks, stats.evictable_blocks, stats.protected_blocks];
    let [free, reserved, evictable, protected] = blocks.map(|blocks| blocks as u64);
    let counts = [stats.evicted_blocks, stats.lookups, stats.query_tokens, stats.hit_tokens];
    let [evicted, lookups, query, hit] = counts;
    ([free, reserved, evictable, protected, evicted, lookups, query, hit], tiers.host().stats())
}

/// Asks for a prompt and room, at once and in two steps; both are refused, and change nothing.
fn refused(tiers: &TieredCache, namespace: &Namespace, prompt: &[Token], room: usize) -> ReserveError {
    let (before, session) = (state(tiers), tiers.session());
    let at_once = session.acquire(namespace, prompt, room).map(drop).expect_err("it is refused");
    assert_eq!(state(tiers), before, "{at_once}");
    let found = session.match_prefix(namespace, prompt);
    let in_steps = session.begin(namespace, prompt, room, found).map(drop).expect_err("it is refused");
    assert_eq!(state(tiers), before, "{in_steps}");
    assert_eq!(at_once, in_steps);
    at_once
}

// Holds: HT8.
#[test]
fn a_request_that_never_fits_evicts_nothing() {
    let tiers = tiers(16, 16);
    let [tenant, other] = ["tenant", "other"].map(|name| tiers.cache().namespace(&[name]));
    serve(&tiers, &tenant, &prompt(1, 16));
    let too_large = |requested| ReserveError::TooLarge { requested, capacity: 16 };
    assert_eq!(refused(&tiers, &other, &prompt(2, 17), 0), too_large(17));
    assert_eq!(refused(&tiers, &tenant, &prompt(1, 16), 1), too_large(17), "most of it is cached");
    assert_eq!(refused(&tiers, &other, &[1], usize::MAX), too_large(usize::MAX.div_ceil(2)));
}

// Holds: HT8.
#[test]
fn a_request_beyond_its_quota_evicts_nothing() {
    let tiers = tiers(16, 16);
    let [tenant, other] = ["tenant", "other"].map(|name| tiers.cache().namespace(&[name]));
    tenant.set_quota(Quota::default().pinned_blocks(6));
    serve(&tiers, &other, &prompt(1, 10));
    serve(&tiers, &tenant, &prompt(2, 6));
    assert!(matches!(refused(&tiers, &tenant, &prompt(3, 8), 0), ReserveError::OverQuota { limit: 6, .. }));
    let _filling = tiers.session().device().reserve(BlockRequest::new(4).paid_by(&tenant)).expect("within the quota");
    assert!(matches!(refused(&tiers, &tenant, &prompt(3, 3), 0), ReserveError::OverQuota { pinned: 4, .. }));
    assert!(matches!(refused(&tiers, &tenant, &prompt(2, 6), 2), ReserveError::OverQuota { requested: 1, .. }));
}

// Holds: HT8.
#[test]
fn a_request_for_more_than_can_be_evicted_evicts_nothing() {
    let tiers = tiers(16, 16);
    let space = tiers.cache().default_namespace();
    serve(&tiers, &space, &prompt(1, 12));
    let _filling = tiers.session().device().reserve(4).expect("four of sixteen");
    assert_eq!(refused(&tiers, &space, &prompt(2, 13), 0), ReserveError::Exhausted { requested: 13, available: 12 });
    let _running = tiers.session().acquire(&space, &prompt(1, 12), 0).expect("it is cached");
    assert_eq!(refused(&tiers, &space, &prompt(2, 1), 0), ReserveError::Exhausted { requested: 1, available: 0 });
}

// Holds: HT8.
#[test]
fn no_refused_request_changes_anything() {
    for seed in 0..20 {
        let (tiers, mut rng) = (tiers(24, 12), fastrand::Rng::with_seed(seed));
        let spaces = ["one", "two", "three"].map(|name| tiers.cache().namespace(&[name]));
        spaces[0].set_quota(Quota::default().pinned_blocks(8));
        spaces[1].set_quota(Quota::default().pinned_blocks(12).cached_blocks(10));
        let (session, mut held, mut refusals) = (tiers.session(), Vec::new(), 0);
        for _ in 0..300 {
            let (space, tokens) = (rng.choice(&spaces).expect("three"), prompt(rng.u32(0..5), rng.usize(1..28)));
            let room = rng.usize(0..6);
            let before = state(&tiers);
            match session.acquire(space, &tokens, room) {
                Ok(start) => {
                    let (now, earlier) = (state(&tiers).0, before.0);
                    let counted = [5, 6, 7].map(|at| (now[at] - earlier[at]) as usize);
                    assert_eq!(counted, [1, tokens.len(), start.device_tokens], "it is one lookup");
                    held.push((space, tokens, start));
                }
                Err(refused) => {
                    refusals += 1;
                    assert_eq!(state(&tiers), before, "{refused}");
                }
            }
            if rng.bool() && !held.is_empty() {
                let (space, tokens, start) = held.swap_remove(rng.usize(0..held.len()));
                let TieredStart { lease, cached, mut blocks, .. } = start;
                let own = blocks.split(tokens.len() / 2 - cached.len());
                drop(session.insert(space, &lease, &tokens, own).expect("it is inserted"));
            }
        }
        assert!(refusals > 20, "seed {seed}: {refusals} refusals");
        drop(held);
        tiers.host().validate().expect("a valid tier");
    }
}

// Holds: HT8.
#[test]
fn a_prefetch_is_no_lookup_and_no_use() {
    let tiers = tiers(4, 8);
    let space = tiers.cache().default_namespace();
    serve(&tiers, &space, &prompt(1, 2));
    tiers.evict(2);
    let (before, in_host) = state(&tiers);
    assert!(tiers.session().prefetch(&space, &prompt(1, 2)));
    let (after, host) = state(&tiers);
    assert_eq!((after[5..].to_vec(), host.lookups), (before[5..].to_vec(), in_host.lookups));
    serve(&tiers, &space, &prompt(1, 2));
    let (found, _) = state(&tiers);
    assert_eq!([found[5] - after[5], found[6] - after[6], found[7] - after[7]], [1, 4, 4]);
}

/// Does what is a mistake, and changes nothing; what the panic says.
fn mistaken(body: impl FnOnce()) -> String {
    let said = catch_unwind(AssertUnwindSafe(body)).expect_err("it is a mistake");
    *said.downcast::<String>().expect("a text")
}

// Holds: HT9.
#[test]
fn a_match_of_another_sequence_is_refused_before_anything_changes() {
    let tiers = tiers(4, 8);
    let (session, space, tenant) =
        (tiers.session(), tiers.cache().default_namespace(), tiers.cache().namespace(&["tenant"]));
    let (one, other) = (prompt(1, 2), prompt(2, 2));
    for is_in_host in [true, false] {
        serve(&tiers, &space, &one);
        if is_in_host {
            tiers.evict(2);
        }
        let begins = |namespace: &Namespace, tokens: &[Token]| {
            let (before, found) = (state(&tiers), session.match_prefix(&space, &one));
            assert_eq!(found.len_tokens(), 4);
            let said = mistaken(|| drop(session.begin(namespace, tokens, 0, found)));
            assert_eq!(state(&tiers), before, "{said}");
            said
        };
        let not_its_own = "does not begin with the 4 tokens of its match";
        assert!(begins(&space, &other).contains(not_its_own));
        assert!(begins(&space, &one[..3]).contains(not_its_own), "fewer than were matched");
        assert!(begins(&space, &[1000, 1001, 1002, 9]).contains(not_its_own));
        let of_another = "the match is of namespace [], the request of [\"tenant\"]";
        assert!(begins(&tenant, &one).contains(of_another));
        assert_eq!(session.device().peek(&space, &other) + session.device().peek(&tenant, &one), 0);
    }
    let strange = PrefixCache::builder(2, 4).build().expect("a cache").default_namespace();
    let found = session.match_prefix(&space, &one);
    assert!(mistaken(|| drop(session.begin(&strange, &one, 0, found))).contains("belongs to another cache"));
    // A sequence that goes on after what was matched is no mistake.
    let longer = [one.clone(), other].concat();
    let found = session.match_prefix(&space, &one);
    assert_eq!(session.begin(&space, &longer, 0, found).expect("room").wait().len_tokens(), 4);
}

// Holds: HT9.
#[test]
fn a_match_in_a_tier_that_was_replaced_is_refused_before_anything_changes() {
    let cache = PrefixCache::builder(4, 8).build().expect("a cache");
    let space = cache.default_namespace();
    let over = |size| {
        let host = HostTier::builder(size, 8).block_bytes(64).build().expect("a tier");
        let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(TierMode::Shared);
        tiers.build().expect("they go together")
    };
    let before = over(2);
    before.host().offload().reserve(&space.name(), &prompt(1, 4), 0).publish();
    let found = before.session().match_prefix(&space, &prompt(1, 4));
    assert_eq!(found.len_tokens(), 8);
    drop(before);
    let tiers = over(4);
    let (unchanged, session) = (state(&tiers), tiers.session());
    let said = mistaken(|| drop(session.begin(&space, &prompt(1, 4), 0, found)));
    assert!(said.contains("the match is of another host tier"), "{said}");
    assert_eq!(state(&tiers), unchanged);
}

// Holds: HT9.
#[test]
fn an_insert_into_another_namespace_is_refused_before_anything_changes() {
    let tiers = tiers(8, 8);
    let [tenant, other] = ["tenant", "other"].map(|name| tiers.cache().namespace(&[name]));
    serve(&tiers, &tenant, &prompt(1, 2));
    let session = tiers.session();
    let TieredStart { lease, blocks, .. } = session.acquire(&tenant, &prompt(1, 3), 0).expect("room");
    let said = mistaken(|| drop(session.insert(&other, &lease, &prompt(1, 3), blocks)));
    assert!(said.contains("the lease is of namespace [\"tenant\"], the insert of [\"other\"]"), "{said}");
    assert_eq!([&tenant, &other].map(|space| session.device().peek(space, &prompt(1, 3))), [4, 0]);
    drop(lease);
    assert_eq!(state(&tiers).0[..4], [6, 0, 2, 0], "the blocks came back");
}

#[test]
fn exclusive_and_shared_tiers_refuse_alike() {
    for mode in [TierMode::Exclusive, TierMode::Shared] {
        let cache = PrefixCache::builder(2, 8).build().expect("a cache");
        let host = HostTier::builder(2, 8).build().expect("a tier");
        let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(mode).mover_thread(2).build();
        let (tiers, space) = (tiers.expect("they go together"), cache.default_namespace());
        serve(&tiers, &space, &prompt(1, 8));
        assert_eq!(refused(&tiers, &space, &prompt(2, 9), 0), ReserveError::TooLarge { requested: 9, capacity: 8 });
    }
}
