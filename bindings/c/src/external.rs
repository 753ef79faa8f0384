//! The interface of a cache whose blocks the engine owns: the engine passes ids to the cache, and
//! takes evicted ids back.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::boundary::{buffer, fill, given, new_handle, output, run, slice};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::reservation::Reservation;
use crate::status::Status;

/// Passes blocks of the engine to a cache with an external pool, for an insert: all or none.
///
/// Errors: NOT_EXTERNAL, BLOCK_OUT_OF_RANGE, BLOCK_HELD.
///
/// Threads: any; never waits.
///
/// Pointers: `blocks` is NULL, or points to `blocks_len` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_cache_adopt(
    cache: Option<&Cache>,
    blocks: *const u32,
    blocks_len: usize,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    run(|| {
        let reservation = new_handle(reservation, "reservation")?;
        let cache = given(cache, "cache")?;
        // SAFETY: as the caller promised.
        let blocks = unsafe { slice(blocks, blocks_len, "blocks") }?;
        let pool = cache.core.external().ok_or(Failure::NotExternal)?;
        *reservation = Some(Box::new(Reservation::new(pool.adopt(blocks)?, cache.owner)));
        Ok(())
    })
}

/// Takes back up to `blocks_room` ids of blocks that the cache evicted, cleared or otherwise
/// released. Writes them to `blocks` and their number to `taken`. The cache keeps the others: call it
/// again while it fills the whole buffer.
///
/// Errors: NOT_EXTERNAL; INVALID_ARGUMENT if there is no room.
///
/// Threads: any; never waits.
///
/// Pointers: `blocks` is NULL, or points to `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_cache_take_evicted(
    cache: Option<&Cache>,
    blocks: *mut u32,
    blocks_room: usize,
    taken: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let cache = given(cache, "cache")?;
        let taken = output(taken, "taken")?;
        // SAFETY: as the caller promised.
        let Some(room) = unsafe { buffer(blocks, blocks_room, 0, "blocks") }?.filter(|room| !room.is_empty()) else {
            return Err(Failure::Invalid { argument: "blocks_room", accepted: "at least 1" });
        };
        let pool = cache.core.external().ok_or(Failure::NotExternal)?;
        let mut evicted = Vec::new();
        taken.write(pool.take_evicted_at_most(room.len(), &mut evicted));
        fill(Some(room), &evicted);
        Ok(())
    })
}
