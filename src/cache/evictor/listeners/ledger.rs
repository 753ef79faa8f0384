//! A listener for tests: counts stored and removed blocks independently of the accounts.

use std::ops::Range;

use crate::cache::evictor::Evictor;
use crate::sync::gauge::Relaxed;

impl Evictor<'_> {
    pub(super) fn enter_stored(&mut self, blocks: &Range<usize>) {
        self.common.listeners.ledger[0].fetch_add(blocks.len(), Relaxed);
    }

    pub(super) fn enter_removed(&mut self, blocks: &Range<usize>) {
        self.common.listeners.ledger[1].fetch_add(blocks.len(), Relaxed);
    }
}

/// Listeners are told of each block once when it is stored and once when it is removed by any
/// means.
#[test]
fn what_was_stored_and_has_not_gone_is_cached() {
    use crate::{Eviction, PrefixCache, Watermarks};

    let told = |evictor: &Evictor<'_>| [0, 1].map(|at| evictor.common.listeners.ledger[at].load(Relaxed));

    for eviction in [Eviction::Inline, Eviction::Background(Watermarks::new(4, 8))] {
        let cache = PrefixCache::builder(4, 64).eviction(eviction).build().expect("valid");
        let (session, space) = (cache.session(), cache.default_namespace());
        let other = cache.namespace(&["other"]);
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..4000_u32 {
            let space = if random.bool() { &space } else { &other };
            match random.u8(..40) {
                0 => space.clear(),
                1 => _ = cache.invalidate_blocks(&[random.u32(..64)]),
                2 => _ = cache.evict(random.usize(..20)),
                3 => cache.settle(),
                _ => {
                    // Two chunks; the second one is appended in place.
                    let prompt: Vec<u32> = (0..4 * random.u32(2..10)).map(|at| at / 7 * random.u32(1..3)).collect();
                    let half = prompt.len() / 8 * 4;
                    for end in [half, prompt.len()] {
                        let Ok(start) = session.acquire(space, &prompt[..end], 0) else { break };
                        drop(session.insert(start.hit.lease(), &prompt[..end], start.blocks).expect("it fits"));
                    }
                }
            }
            if step % 50 == 0 {
                cache.inner.evicting(|evictor, _| {
                    let [stored, removed] = told(evictor);
                    assert_eq!(stored - removed, evictor.evictable() + evictor.sum(|shard| shard.protected));
                });
            }
        }
        let (told, stats) = (cache.inner.evicting(|evictor, _| told(evictor)), cache.stats());
        assert!(told[1] > 1000 && stats.cleared_blocks > 100 && stats.invalidated_blocks > 10, "{told:?}, {stats:?}");
    }
}
