//! Namespaces and their quotas.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use radixkv::{Keys, NamespaceName, Quota};

use crate::boundary::{Owner, free, given, new_handle, output, run, slice, text};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::status::Status;

/// A separate set of sequences, which shares no blocks with other namespaces: for an adapter, a
/// tenant or a model version.
pub struct Namespace {
    pub(crate) core: radixkv::Namespace,
    pub(crate) owner: Owner,
}

/// The lookups of a namespace compare single tokens.
pub const KEYS_TOKENS: u32 = 0;
/// The lookups of a namespace compare pairs of neighbouring tokens, for draft models whose keys and
/// values at a token also depend on the next one.
pub const KEYS_BIGRAMS: u32 = 1;
/// In a quota: no limit.
pub const NO_LIMIT: u64 = u64::MAX;

/// Runs an operation on a namespace that cannot fail.
fn on(space: Option<&Namespace>, verb: impl FnOnce(&radixkv::Namespace)) -> Status {
    run(|| {
        verb(&given(space, "space")?.core);
        Ok(())
    })
}

/// Returns a handle to the namespace with this name, and creates the namespace if it does not
/// exist. The name has `count` parts in UTF-8. Part `i` has `lengths[i]` bytes, or ends with a zero
/// if `lengths` is NULL. The same parts with other `keys` name another namespace. No parts, with
/// RADIXKV_KEYS_TOKENS, name the default namespace.
///
/// Errors: INVALID_ARGUMENT for text that is not UTF-8, and unknown keys.
///
/// Threads: any; takes a short lock.
///
/// Pointers: `parts` is NULL or points to `count` texts, and `lengths` is NULL or points to their
/// lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_namespace_new(
    cache: Option<&Cache>,
    parts: *const *const c_char,
    lengths: *const usize,
    count: usize,
    keys: u32,
    space: Option<&mut MaybeUninit<Option<Box<Namespace>>>>,
) -> Status {
    run(|| {
        let space = new_handle(space, "space")?;
        let cache = given(cache, "cache")?;
        // SAFETY: as the caller promised.
        let parts = unsafe { slice(parts, count, "parts") }?;
        let lengths = if lengths.is_null() {
            None
        } else {
            // SAFETY: as the caller promised.
            Some(unsafe { slice(lengths, count, "lengths") }?)
        };
        let keys = match keys {
            KEYS_TOKENS => Keys::Tokens,
            KEYS_BIGRAMS => Keys::Bigrams,
            _ => {
                let accepted = "RADIXKV_KEYS_TOKENS or RADIXKV_KEYS_BIGRAMS";
                return Err(Failure::Invalid { argument: "keys", accepted });
            }
        };
        let name = parts.iter().enumerate().map(|(i, &part)| {
            // SAFETY: as the caller promised.
            unsafe { text(part, lengths.map(|lengths| lengths[i]), "parts") }
        });
        let name = NamespaceName::new(&name.collect::<Result<Vec<_>, _>>()?).with_keys(keys);
        *space = Some(Box::new(Namespace { core: cache.core.namespace(name), owner: cache.owner }));
        Ok(())
    })
}

/// Returns a handle to the default namespace, for sequences that need no separation.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_default(
    cache: Option<&Cache>,
    space: Option<&mut MaybeUninit<Option<Box<Namespace>>>>,
) -> Status {
    run(|| {
        let space = new_handle(space, "space")?;
        let cache = given(cache, "cache")?;
        *space = Some(Box::new(Namespace { core: cache.core.default_namespace(), owner: cache.owner }));
        Ok(())
    })
}

/// Frees the handle. The cached blocks of the namespace stay. NULL is allowed.
///
/// Threads: no other thread may use this handle from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_free(space: Option<Box<Namespace>>) {
    free(space);
}

/// Sets the quota of a namespace: the maximum `cached_blocks`, the maximum `pinned_blocks` of its
/// leases and reservations, and `idle_nanos`, after which an unused prefix is removed. Each is a
/// number or RADIXKV_NO_LIMIT.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_set_quota(
    space: Option<&Namespace>,
    cached_blocks: u64,
    pinned_blocks: u64,
    idle_nanos: u64,
) -> Status {
    on(space, |core| {
        let limit = |blocks: u64| usize::try_from(blocks).unwrap_or(usize::MAX);
        let mut quota = Quota::default();
        if cached_blocks != NO_LIMIT {
            quota = quota.cached_blocks(limit(cached_blocks));
        }
        if pinned_blocks != NO_LIMIT {
            quota = quota.pinned_blocks(limit(pinned_blocks));
        }
        if idle_nanos != NO_LIMIT {
            quota = quota.time_to_idle(Duration::from_nanos(idle_nanos));
        }
        core.set_quota(quota);
    })
}

/// Empties the namespace. Leased blocks become free when their leases are released; inserts from
/// these leases are refused.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_clear(space: Option<&Namespace>) -> Status {
    on(space, radixkv::Namespace::clear)
}

/// Empties the namespace if it has no leases and no reservations.
///
/// Errors: NAMESPACE_IN_USE, with the leased blocks as `available` and the reserved ones as
/// `limit`.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_clear_if_unused(space: Option<&Namespace>) -> Status {
    run(|| Ok(given(space, "space")?.core.clear_if_unused()?))
}

/// Removes the namespace. Matches through old handles find nothing, and inserts are refused. The
/// default namespace is cleared instead.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_remove(space: Option<&Namespace>) -> Status {
    on(space, radixkv::Namespace::remove)
}

/// Evicts up to `blocks` blocks of the namespace that no lease protects. `freed`, which may be
/// NULL, is the number of evicted blocks.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_evict(
    space: Option<&Namespace>,
    blocks: usize,
    freed: Option<&mut MaybeUninit<usize>>,
) -> Status {
    on(space, |core| {
        let count = core.evict(blocks);
        freed.map(|place| place.write(count));
    })
}

/// Evicts every prefix of the namespace that was not used for `idle_nanos` nanoseconds. `freed`,
/// which may be NULL, is the number of evicted blocks.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_evict_idle(
    space: Option<&Namespace>,
    idle_nanos: u64,
    freed: Option<&mut MaybeUninit<usize>>,
) -> Status {
    on(space, |core| {
        let count = core.evict_idle(Duration::from_nanos(idle_nanos));
        freed.map(|place| place.write(count));
    })
}

/// Writes to `keys` which keys the lookups of the namespace compare: RADIXKV_KEYS_TOKENS or
/// RADIXKV_KEYS_BIGRAMS.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_namespace_keys(space: Option<&Namespace>, keys: Option<&mut MaybeUninit<u32>>) -> Status {
    run(|| {
        let space = given(space, "space")?;
        let bigrams = space.core.keys() == Keys::Bigrams;
        output(keys, "keys")?.write(if bigrams { KEYS_BIGRAMS } else { KEYS_TOKENS });
        Ok(())
    })
}
