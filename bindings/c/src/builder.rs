//! Configuring and building a cache.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use radixkv::{Clock, Eviction, PrefixCache, Watermarks};

use crate::boundary::{Exclusive, free, given, new_handle, run, text};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::status::Status;

/// The settings of a cache to build.
pub struct Builder(Exclusive<Settings>);

struct Settings {
    core: radixkv::Builder,
    capacity: usize,
}

/// Applies a change to the settings of a builder.
fn set(
    builder: Option<&Builder>,
    change: impl FnOnce(radixkv::Builder, usize) -> Result<radixkv::Builder, Failure>,
) -> Status {
    run(|| {
        let mut settings = given(builder, "builder")?.0.enter("builder")?;
        settings.core = change(settings.core.clone(), settings.capacity)?;
        Ok(())
    })
}

/// Creates a builder for a cache with `capacity_blocks` blocks of `block_size` tokens each.
/// Defaults: inline eviction, policy lru, the monotonic clock. `radixkv_builder_build` checks the
/// numbers.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_new(
    block_size: usize,
    capacity_blocks: usize,
    builder: Option<&mut MaybeUninit<Option<Box<Builder>>>>,
) -> Status {
    run(|| {
        let builder = new_handle(builder, "builder")?;
        let core = PrefixCache::builder(block_size, capacity_blocks);
        *builder = Some(Box::new(Builder(Exclusive::new(Settings { core, capacity: capacity_blocks }))));
        Ok(())
    })
}

/// Sets the eviction policy by its name: lru, lfu, fifo, mru, filo, slru, slru:USES, level or
/// priority.
///
/// Errors: INVALID_ARGUMENT for another name; the text lists the names.
///
/// Threads: one at a time for each builder.
///
/// Pointers: `policy` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_builder_policy(builder: Option<&Builder>, policy: *const c_char) -> Status {
    set(builder, |core, _| {
        // SAFETY: as the caller promised.
        let policy = unsafe { text(policy, None, "policy") }?;
        Ok(core.policy(policy.parse()?))
    })
}

/// Starts a background evictor with the cache. It keeps between `low` and `high` blocks free; if
/// both are 0, the watermarks are derived from the capacity. Without it, the thread that needs
/// blocks evicts, and no thread is started.
///
/// Errors: `radixkv_builder_build` refuses watermarks that do not fit the capacity.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_background(builder: Option<&Builder>, low: usize, high: usize) -> Status {
    set(builder, |core, capacity| {
        let marks = if (low, high) == (0, 0) { Watermarks::for_capacity(capacity) } else { Watermarks::new(low, high) };
        Ok(core.eviction(Eviction::Background(marks)))
    })
}

/// Makes `radixkv_cache_set_time` the only source of time. With inline eviction and one thread,
/// every result then depends only on the calls. A nanosecond in a duration is one unit of this
/// clock.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_logical_clock(builder: Option<&Builder>) -> Status {
    set(builder, |core, _| Ok(core.clock(Clock::Logical)))
}

/// Sets the time to idle: prefixes that were not used for `nanos` nanoseconds are removed, whether
/// or not their blocks are needed. Default: none.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_time_to_idle(builder: Option<&Builder>, nanos: u64) -> Status {
    set(builder, |core, _| Ok(core.time_to_idle(Duration::from_nanos(nanos))))
}

/// Allows the cache to grow to `blocks` blocks while it is in use (`radixkv_cache_grow`). Its
/// initial capacity may then be 0.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_growable_to(builder: Option<&Builder>, blocks: usize) -> Status {
    set(builder, |core, _| Ok(core.growable_to(blocks)))
}

/// Divides the evictor into `shards` shards, from 1, the default, to 256: so many threads evict at
/// the same time. With more than 1, blocks are not evicted in one exact order.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_shards(builder: Option<&Builder>, shards: usize) -> Status {
    set(builder, |core, _| Ok(core.shards(shards)))
}

/// Leaves the blocks with the engine's own allocator. The engine passes ids below the capacity to
/// the cache with `radixkv_cache_adopt`, and takes evicted ids back with
/// `radixkv_cache_take_evicted`. Reserving and acquiring are refused.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_external(builder: Option<&Builder>) -> Status {
    set(builder, |core, _| Ok(core.external()))
}

/// Builds a cache with all blocks free. The builder can be used again.
///
/// Errors: INVALID_ARGUMENT if the block size or the capacity is 0 or too large, or the watermarks
/// or the number of shards do not fit; NO_THREAD if the system did not start the evictor's thread.
///
/// Threads: one at a time for each builder.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_build(
    builder: Option<&Builder>,
    cache: Option<&mut MaybeUninit<Option<Box<Cache>>>>,
) -> Status {
    run(|| {
        let cache = new_handle(cache, "cache")?;
        let core = given(builder, "builder")?.0.enter("builder")?.core.clone();
        *cache = Some(Box::new(Cache::new(core.build()?)));
        Ok(())
    })
}

/// Frees a builder. NULL is allowed.
///
/// Threads: no other thread may use the builder from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_builder_free(builder: Option<Box<Builder>>) {
    free(builder);
}
