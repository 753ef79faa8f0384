//! The handle of a cache, and the operations on a whole cache.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use radixkv::PrefixCache;

use crate::boundary::{Owner, free, given, output, run, slice};
use crate::failure::Failure;
use crate::status::Status;

/// A cache. It lives until the last handle that keeps it alive is freed. Freeing that handle also
/// frees the index, which takes about 3 s for a million inserted sequences.
pub struct Cache {
    pub(crate) core: PrefixCache,
    pub(crate) owner: Owner,
}

impl Cache {
    pub(crate) fn new(core: PrefixCache) -> Self {
        Self { core, owner: Owner::new() }
    }
}

/// Runs an operation on a cache that cannot fail.
fn on(cache: Option<&Cache>, verb: impl FnOnce(&PrefixCache)) -> Status {
    run(|| {
        verb(&given(cache, "cache")?.core);
        Ok(())
    })
}

/// Runs an operation on a cache and writes its result to `place`.
fn told<T>(
    cache: Option<&Cache>,
    place: Option<&mut MaybeUninit<T>>,
    argument: &'static str,
    verb: impl FnOnce(&PrefixCache) -> Result<T, Failure>,
) -> Status {
    run(|| {
        let cache = given(cache, "cache")?;
        output(place, argument)?.write(verb(&cache.core)?);
        Ok(())
    })
}

/// Frees the handle. The cache stays alive while other handles keep it alive. NULL is allowed.
///
/// Threads: no other thread may use this handle from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_free(cache: Option<Box<Cache>>) {
    free(cache);
}

/// Writes the number of tokens in a block to `tokens`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_block_size(cache: Option<&Cache>, tokens: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, tokens, "tokens", |core| Ok(core.block_size()))
}

/// Writes the number of blocks that the cache manages to `blocks`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_capacity(cache: Option<&Cache>, blocks: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, blocks, "blocks", |core| Ok(core.capacity_blocks()))
}

/// Writes the number of free blocks to `blocks`. Costs one read.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_free_blocks(cache: Option<&Cache>, blocks: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, blocks, "blocks", |core| Ok(core.free_blocks()))
}

/// Evicts up to `blocks` blocks that no lease protects, in the policy's exact order. `freed`, which
/// may be NULL, is the number of evicted blocks.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_evict(
    cache: Option<&Cache>,
    blocks: usize,
    freed: Option<&mut MaybeUninit<usize>>,
) -> Status {
    on(cache, |core| {
        let count = core.evict(blocks);
        freed.map(|place| place.write(count));
    })
}

/// Updates all counts and completes all pending work: a change of the policy, the removal of idle
/// prefixes, and evictions from namespaces that exceed their quotas.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_settle(cache: Option<&Cache>) -> Status {
    on(cache, PrefixCache::settle)
}

/// Does one bounded step of the pending work. `more`, which may be NULL, says whether work is left.
/// For an engine thread with spare time.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_run_once(cache: Option<&Cache>, more: Option<&mut MaybeUninit<bool>>) -> Status {
    on(cache, |core| {
        let left = core.run_once();
        more.map(|place| place.write(left));
    })
}

/// Empties all namespaces of the cache. Leased blocks become free when their leases are released;
/// inserts from these leases are refused.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_clear(cache: Option<&Cache>) -> Status {
    on(cache, PrefixCache::clear)
}

/// Invalidates blocks whose keys and values are wrong, and everything cached beyond them. Leases
/// stay; `radixkv_lease_is_invalidated` says which requests to abort. `invalidated`, which may be
/// NULL, is the number of invalidated blocks.
///
/// Threads: any; waits while another thread evicts. Looks at the whole index.
///
/// Pointers: `blocks` is NULL, or points to `blocks_len` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_cache_invalidate(
    cache: Option<&Cache>,
    blocks: *const u32,
    blocks_len: usize,
    invalidated: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let cache = given(cache, "cache")?;
        // SAFETY: as the caller promised.
        let blocks = unsafe { slice(blocks, blocks_len, "blocks") }?;
        let count = cache.core.invalidate_blocks(blocks);
        invalidated.map(|place| place.write(count));
        Ok(())
    })
}

/// Sets the time of a cache with a logical clock. Has no effect on other caches.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_set_time(cache: Option<&Cache>, now: u64) -> Status {
    on(cache, |core| core.set_time(now))
}

/// Adds `blocks` free blocks. `first`, which may be NULL, is the id of the first new block; the
/// others follow it.
///
/// Errors: CANNOT_GROW beyond the limit of `radixkv_builder_growable_to`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_grow(
    cache: Option<&Cache>,
    blocks: usize,
    first: Option<&mut MaybeUninit<u32>>,
) -> Status {
    run(|| {
        let added = given(cache, "cache")?.core.grow(blocks)?;
        first.map(|place| place.write(added.start));
        Ok(())
    })
}

/// Checks every invariant of the cache: for tests, while no other thread uses it.
///
/// Errors: VIOLATION, with the first invariant that is broken.
///
/// Threads: any; waits while another thread evicts. Walks the whole index.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_validate(cache: Option<&Cache>) -> Status {
    run(|| Ok(given(cache, "cache")?.core.validate()?))
}
