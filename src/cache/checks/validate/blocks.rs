//! Checks the pool and every cached block: each block is in exactly one place.

use crate::block::{BlockId, Pool};
use crate::cache::checks::violation::{Place, Violation, broken, ensure, ensure_equal};
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::inner::Inner;
use crate::reclaim::Ref;
use crate::tree::Run;

/// Checks the pools, and the blocks of `runs` against them.
pub(super) fn check(
    inner: &Inner,
    runs: &[Ref<'_, Run>],
    evictor: &Evictor<'_>,
    resources: Resources<'_>,
) -> Result<(), Violation> {
    let pools: Vec<&Pool> = [Some(&inner.pool), inner.returned.as_ref()].into_iter().flatten().collect();
    check_pools(&pools, evictor)?;
    let mut cached = Cached { pools: &pools, met: vec![false; inner.pool.capacity()] };
    for &run in runs {
        let held = run.blocks_to(run.word().len(), resources.layout_of(run));
        // An earlier pass has checked that the arrays are long enough.
        for &block in run.block_ids(resources.guard).iter().take(held) {
            cached.add(block, run)?;
        }
    }
    Ok(())
}

/// Checks the pools. The accounts count at most the blocks that are not free.
fn check_pools(pools: &[&Pool], evictor: &Evictor<'_>) -> Result<(), Violation> {
    let capacity = pools[0].capacity();
    for pool in pools {
        let stray = pool.bits_beyond();
        ensure(
            stray == 0,
            "blocks beyond the capacity are marked as free",
            format_args!("{stray} blocks, capacity {capacity}"),
        )?;
        ensure_equal(pool.free(), pool.count_bits(), "the pool's count of free blocks is wrong")?;
    }
    let is_twice = |&block: &BlockId| pools.iter().filter(|pool| pool.is_free(block)).count() > 1;
    let twice = if pools.len() > 1 { (0..capacity as BlockId).find(is_twice) } else { None };
    twice.map_or(Ok(()), |block| {
        Err(broken(
            "a block is marked both as held by the engine and as waiting for take_evicted",
            format_args!("block {block}"),
        ))
    })?;
    let free: usize = pools.iter().map(|pool| pool.free()).sum();
    let (evictable, protected) = (evictor.evictable(), evictor.sum(|shard| shard.protected));
    let taken = capacity.saturating_sub(free);
    let fits = evictable.checked_add(protected).is_some_and(|cached| cached <= taken);
    ensure(
        fits,
        "free and cached blocks exceed the capacity",
        format_args!("{free} free, {evictable} evictable, {protected} protected, capacity {capacity}"),
    )
}

/// The blocks found in the tree so far.
struct Cached<'a> {
    pools: &'a [&'a Pool],
    met: Vec<bool>,
}

impl Cached<'_> {
    fn add(&mut self, block: BlockId, run: Ref<'_, Run>) -> Result<(), Violation> {
        let (run, capacity) = (Place::of(run), self.met.len());
        let Some(met) = self.met.get_mut(block as usize) else {
            return Err(broken(
                "a run holds a block that does not exist",
                format_args!("{run}, block {block}, capacity {capacity}"),
            ));
        };
        ensure(!std::mem::replace(met, true), "a block is cached twice", format_args!("{run}, block {block}"))?;
        let is_free = self.pools.iter().any(|pool| pool.is_free(block));
        ensure(!is_free, "a cached block is free", format_args!("{run}, block {block}"))
    }
}
