//! The handle on a cache, and the verbs that are the whole cache's.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::Mutex;

use radixkv::PrefixCache;

use crate::boundary::{Owner, free, given, output, run, slice};
use crate::failure::Failure;
use crate::status::Status;

/// A cache. It lives until every handle made from it is freed, in any order. The last one frees the
/// index, which takes about 3 s for a million inserted sequences.
pub struct Cache {
    pub(crate) core: PrefixCache,
    pub(crate) owner: Owner,
    /// Evicted ids of an external pool that found no room in a caller's buffer.
    pub(crate) returned: Mutex<Vec<u32>>,
}

impl Cache {
    pub(crate) fn new(core: PrefixCache) -> Self {
        Self { core, owner: Owner::new(), returned: Mutex::default() }
    }
}

/// A verb of a cache that has no result.
fn on(cache: Option<&Cache>, verb: impl FnOnce(&PrefixCache)) -> Status {
    run(|| {
        verb(&given(cache, "cache")?.core);
        Ok(())
    })
}

/// A verb of a cache that writes its result to `place`.
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

/// Frees the handle; the cache lives on while other handles made from it do. NULL is allowed.
///
/// Threads: no other thread may use this handle from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_free(cache: Option<Box<Cache>>) {
    free(cache);
}

/// Tells the tokens of a block.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_block_size(cache: Option<&Cache>, tokens: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, tokens, "tokens", |core| Ok(core.block_size()))
}

/// Tells the blocks that the cache manages.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_capacity(cache: Option<&Cache>, blocks: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, blocks, "blocks", |core| Ok(core.capacity_blocks()))
}

/// Tells the blocks that hold nothing. Costs a read.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_free_blocks(cache: Option<&Cache>, blocks: Option<&mut MaybeUninit<usize>>) -> Status {
    told(cache, blocks, "blocks", |core| Ok(core.free_blocks()))
}

/// Frees up to `blocks` blocks that no lease protects, in the policy's exact order, and tells how
/// many. `freed` may be NULL.
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

/// Brings all counts up to date and does all pending work: an exchange of the policy, prefixes that
/// are idle for too long, what namespaces cache beyond their quotas.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_settle(cache: Option<&Cache>) -> Status {
    on(cache, PrefixCache::settle)
}

/// Does one bounded step of the pending work, and tells whether more is left: for a thread of the
/// engine that has time. `more` may be NULL.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_run_once(cache: Option<&Cache>, more: Option<&mut MaybeUninit<bool>>) -> Status {
    on(cache, |core| {
        let left = core.run_once();
        more.map(|place| place.write(left));
    })
}

/// Empties the whole cache, with all namespaces. Leased blocks are free when their leases are
/// released; inserts from these leases are refused.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_clear(cache: Option<&Cache>) -> Status {
    on(cache, PrefixCache::clear)
}

/// Invalidates blocks whose keys and values are wrong, with all that was cached beyond them, and
/// tells how many blocks that were. Leases stay: `radixkv_lease_is_invalidated` says which requests
/// to abort. `invalidated` may be NULL.
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
        // SAFETY: of the caller.
        let blocks = unsafe { slice(blocks, blocks_len, "blocks") }?;
        let count = cache.core.invalidate_blocks(blocks);
        invalidated.map(|place| place.write(count));
        Ok(())
    })
}

/// Sets the time of a cache with a logical clock. Without effect on any other.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_set_time(cache: Option<&Cache>, now: u64) -> Status {
    on(cache, |core| core.set_time(now))
}

/// Adds `blocks` free blocks, and tells the id of the first of them. The others follow it. `first`
/// may be NULL.
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
