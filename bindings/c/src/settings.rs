//! Settings that change while a cache runs.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::time::Duration;

use radixkv::Watermarks;

use crate::boundary::{given, run, text};
use crate::cache::Cache;
use crate::status::Status;

/// Replaces the policy without a pause. Evictions follow the old policy until the new order is
/// complete; `radixkv_cache_settle` completes it.
///
/// Errors: INVALID_ARGUMENT for a name that `radixkv_builder_policy` does not know.
///
/// Threads: any; waits while another thread evicts.
///
/// Pointers: `policy` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_cache_set_policy(cache: Option<&Cache>, policy: *const c_char) -> Status {
    run(|| {
        let cache = given(cache, "cache")?;
        // SAFETY: as the caller promised.
        let policy = unsafe { text(policy, None, "policy") }?;
        cache.core.settings().set_policy(policy.parse()?);
        Ok(())
    })
}

/// Changes the watermarks of the background evictor: the number of blocks that it keeps free.
///
/// Errors: NOT_BACKGROUND, INVALID_ARGUMENT.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_set_watermarks(cache: Option<&Cache>, low: usize, high: usize) -> Status {
    run(|| Ok(given(cache, "cache")?.core.settings().set_watermarks(Watermarks::new(low, high))?))
}

/// Changes the time to idle (`radixkv_builder_time_to_idle`); 0 removes it.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_set_time_to_idle(cache: Option<&Cache>, nanos: u64) -> Status {
    run(|| {
        let time = (nanos > 0).then(|| Duration::from_nanos(nanos));
        given(cache, "cache")?.core.settings().set_time_to_idle(time);
        Ok(())
    })
}
