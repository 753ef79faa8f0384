//! Memory mappings of the evictor's tables are returned to the system, whichever thread drops them.
//! The test has its own process, because it counts the process's mappings.
#![cfg(target_os = "linux")]

use radixkv::{PolicyKind, PrefixCache};

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count()
}

fn fill(cache: &PrefixCache, leaves: u32) {
    let (session, space) = (cache.session(), cache.default_namespace());
    for key in 0..leaves {
        let tokens = [key, key ^ 0x5a5a];
        let miss = session.match_prefix(&space, &tokens);
        let blocks = session.reserve(2 - miss.len_tokens()).expect("evictable");
        drop(session.insert(miss.lease(), &tokens, blocks).expect("inserted"));
    }
    cache.settle();
}

/// Tables come and go: in turns of this thread and of others, in exchanges of the policy, and with
/// the cache.
fn cycle(policy: PolicyKind) {
    let cache = PrefixCache::builder(1, 80_000).policy(policy).build().expect("valid");
    fill(&cache, 30_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cache.settings().set_policy(PolicyKind::Mru);
            cache.evict(30_000);
        });
    });
    cache.evict(usize::MAX);
    assert_eq!(cache.validate(), Ok(()));
    fill(&cache, 10_000);
}

// Holds: NU11.
#[test]
fn mappings_do_not_pile_up() {
    let policies = [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Filo];
    policies.into_iter().for_each(cycle);
    let before = mappings();
    (0..3).flat_map(|_| policies).for_each(cycle);
    let after = mappings();
    assert!(after <= before + 20, "{before}, then {after}");
}
