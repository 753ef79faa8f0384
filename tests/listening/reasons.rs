//! Why lookups lack what they lack: scripted on one thread, where the reason is known.

use std::time::Duration;

use radixkv::{Clock, Keys, LookupStats, Namespace, NamespaceName, PolicyKind, PrefixCache, Quota, Session, Token};

fn insert(cache: &PrefixCache, session: &Session, space: &Namespace, tokens: &[Token]) -> Vec<radixkv::BlockId> {
    let mut start = session.acquire(space, tokens, 0).expect("room");
    // With pairs, the last token may have a block of its own, which is not needed.
    let missing = tokens.len().saturating_sub(usize::from(space.keys() == Keys::Bigrams)) / cache.block_size();
    let blocks = start.blocks.split(missing - start.hit.blocks().len());
    let ids = blocks.blocks().to_vec();
    drop(session.insert(start.hit.lease(), tokens, blocks).expect("it fits"));
    ids
}

/// Blocks that a lookup finds, and those that it lacks: evicted, diverged, elsewhere, new.
fn found(cache: &PrefixCache, look_up: impl FnOnce()) -> [u64; 5] {
    let before = cache.stats();
    look_up();
    let counted = cache.stats().delta(&before);
    let tokens = [
        counted.hit_tokens,
        counted.missed_evicted_tokens,
        counted.missed_diverged_tokens,
        counted.missed_elsewhere_tokens,
        counted.missed_new_tokens,
    ];
    tokens.map(|tokens| {
        assert_eq!(tokens % cache.block_size() as u64, 0, "whole blocks");
        tokens / cache.block_size() as u64
    })
}

/// A way by which cached blocks go.
type Way = (&'static str, fn(&PrefixCache, &Namespace, &[radixkv::BlockId]));

const WAYS: [Way; 8] = [
    ("evict", |cache, _, _| _ = cache.evict(usize::MAX)),
    ("one by one", |cache, _, _| while cache.evict(1) > 0 {}),
    ("evict_into", |cache, _, _| _ = cache.evict_into(usize::MAX, &mut Vec::new())),
    ("evict_namespace", |_cache, space, _| _ = space.evict(usize::MAX)),
    ("evict_idle", |cache, space, _| {
        cache.set_time(cache.stats().lookups * 1_000);
        _ = space.evict_idle(Duration::from_nanos(1));
    }),
    ("quota", |cache, space, _| {
        space.set_quota(Quota::default().cached_blocks(0));
        cache.settle();
        space.set_quota(Quota::default());
    }),
    ("invalidate", |cache, _, ids| _ = cache.invalidate_blocks(ids)),
    ("clear", |_cache, space, _| space.clear()),
];

// Holds: NU4.
#[test]
fn what_is_gone_is_evicted_however_it_went() {
    for block in [1, 3, 16, 1000] {
        for (name, way) in WAYS {
            let cache = PrefixCache::builder(block, 32).clock(Clock::Logical).build().expect("sound");
            let session = cache.session();
            let pairs = cache.namespace(NamespaceName::new(&["pairs"]).with_keys(Keys::Bigrams));
            for (space, ahead) in [(cache.default_namespace(), 0), (pairs, 1)] {
                let prompt: Vec<Token> = (0..(3 * block + ahead) as u32).collect();
                let look_up = |tokens: &[Token]| found(&cache, || drop(session.match_prefix(&space, tokens)));
                let ids = insert(&cache, &session, &space, &prompt);
                assert_eq!(look_up(&prompt), [3, 0, 0, 0, 0], "{name}, {block}");
                way(&cache, &space, &ids);
                assert_eq!(look_up(&prompt), [0, 3, 0, 0, 0], "{name}, {block}");
                // Another policy, and what was looked up in vain, change nothing.
                cache.settings().set_policy(PolicyKind::Lfu);
                cache.settle();
                let longer = [&prompt[..], &vec![7; block]].concat();
                assert_eq!(look_up(&longer), [0, 4, 0, 0, 0], "{name}, {block}");
                insert(&cache, &session, &space, &prompt);
                assert_eq!(look_up(&prompt), [3, 0, 0, 0, 0], "{name}, {block}");
                cache.evict(1);
                assert_eq!(look_up(&prompt), [2, 1, 0, 0, 0], "{name}, {block}");
                cache.clear();
            }
        }
    }
}

/// The first block that is lacking decides, wherever its tokens lie.
// Holds: NU4.
#[test]
fn a_reason_is_that_of_the_first_block_that_is_lacking() {
    let cache = PrefixCache::builder(4, 64).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let prompt: Vec<Token> = (0..16).collect();
    insert(&cache, &session, &space, &prompt);
    let look_up = |tokens: &[Token]| found(&cache, || drop(session.match_prefix(&space, tokens)));
    for at in 0..16 {
        let mut other = prompt.clone();
        other[at] = 99;
        let (hit, inside) = (at as u64 / 4, at % 4 > 0);
        let reasons = if inside { [hit, 0, 4 - hit, 0, 0] } else { [hit, 0, 0, 0, 4 - hit] };
        assert_eq!(look_up(&other), reasons, "another token at {at}");
        // Less than a whole block is asked for by nobody.
        assert_eq!(look_up(&other[..at / 4 * 4 + 3]), [hit, 0, 0, 0, 0], "cut behind {at}");
    }
    // Branches inside a block.
    for at in [1, 2, 3] {
        let mut other = prompt.clone();
        other[at] = 50 + at as u32;
        insert(&cache, &session, &space, &other);
        other[3] = 98;
        assert_eq!(look_up(&other), [0, 0, 4, 0, 0]);
    }
}

// Holds: NU4.
#[test]
fn looks_count_nothing_and_resumes_once() {
    let cache = PrefixCache::builder(4, 64).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let prompt: Vec<Token> = (0..16).collect();
    insert(&cache, &session, &space, &prompt[..8]);
    let before = cache.stats();
    session.peek(&space, &prompt);
    let kept = session.match_prefix_untouched(&space, &prompt).into_lease();
    _ = session.match_partial(&kept, &prompt, 1);
    space.walk(|_| ());
    drop((
        cache.snapshot(),
        session.upgrade(&kept.downgrade()),
        session.resume(kept.try_clone().expect("few leases"), &prompt),
    ));
    let counted = cache.stats().delta(&before);
    // The clone was resumed, and counted there.
    assert_eq!((counted.lookups, counted.hit_tokens, counted.missed_new_tokens), (1, 8, 8));
    assert_eq!(found(&cache, || drop(session.resume(kept, &prompt))), [2, 0, 0, 0, 2]);
    let hit = session.match_prefix(&space, &prompt).into_lease();
    insert(&cache, &session, &space, &prompt);
    let before = cache.stats();
    let hit = session.resume(hit, &prompt).into_lease();
    let hit = session.resume(hit, &prompt);
    let counted = cache.stats().delta(&before);
    assert_eq!((counted.lookups, counted.hit_tokens, counted.resumed_tokens, hit.len_tokens()), (0, 0, 8, 16));
    assert_eq!((counted.missed_evicted_tokens, counted.missed_diverged_tokens, counted.missed_new_tokens), (0, 0, 0));
}

/// As many namespaces as there are; those that go make room for those that come.
// Holds: NU5.
#[test]
fn any_number_of_namespaces_adds_up() {
    for count in [1, 62, 63, 64, 10_000] {
        let cache = PrefixCache::builder(4, 16).build().expect("sound");
        let (session, name) = (cache.session(), |i: usize| i.to_string());
        for round in 1..3 {
            let spaces: Vec<_> = (0..count).map(|i| cache.namespace(&[name(i).as_str()])).collect();
            for (i, space) in spaces.iter().enumerate() {
                (0..=i % 3).for_each(|_| drop(session.match_prefix(space, &[1, 2, 3, 4])));
            }
            let listed = cache.lookups_by_namespace();
            let sum: u64 = listed.iter().map(|of| of.lookups.lookups).sum();
            let all: u64 = (0..count as u64).map(|i| 1 + i % 3).sum();
            assert_eq!((sum, cache.stats().lookups), (round * all, round * all), "{count}");
            // The default one has one, too, and the others share one.
            assert_eq!(listed.len(), 2 + count.min(62), "{count}");
            for (i, space) in spaces.iter().enumerate() {
                let Some(own) = space.stats().lookups else { continue };
                let expected = LookupStats::default();
                let lookups = 1 + i as u64 % 3;
                assert_eq!(
                    (own.lookups, own.query_tokens, own.hit_tokens),
                    (lookups, 4 * lookups, expected.hit_tokens)
                );
                assert_eq!(own.missed_new_tokens, 4 * lookups, "nothing was ever cached");
            }
            spaces.iter().for_each(|space| space.remove());
            drop(spaces);
            (0..4).for_each(|_| cache.settle());
        }
        let last = cache.lookups_by_namespace();
        assert_eq!(last.len(), 2, "{count}");
    }
}
