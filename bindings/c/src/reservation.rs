//! Reservations: blocks that the caller fills and then inserts.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::boundary::{Exclusive, Owner, buffer, fill, free, given, new_handle, output, run};
use crate::failure::Failure;
use crate::status::Status;

/// Blocks that the caller fills and then inserts. Freeing the reservation returns the blocks that
/// it still holds.
pub struct Reservation {
    pub(crate) core: Exclusive<radixkv::Reservation>,
    pub(crate) owner: Owner,
}

impl Reservation {
    pub(crate) fn new(core: radixkv::Reservation, owner: Owner) -> Self {
        Self { core: Exclusive::new(core), owner }
    }
}

/// A copy that a sequence must make before it writes to a block that a fork also holds. The source
/// keeps its content until this handle is freed.
pub struct Copy {
    _source: radixkv::PendingCopy,
}

/// Frees a reservation, and returns its blocks. NULL is allowed.
///
/// Threads: no other thread may use the reservation from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_free(reservation: Option<Box<Reservation>>) {
    free(reservation);
}

/// Writes the number of blocks in a reservation to `blocks`.
///
/// Threads: one at a time for each reservation.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_len(
    reservation: Option<&Reservation>,
    blocks: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let blocks = output(blocks, "blocks")?;
        blocks.write(given(reservation, "reservation")?.core.enter("reservation")?.len());
        Ok(())
    })
}

/// Writes the ids of the blocks to `blocks`, in the order in which an insert takes them, and their
/// number to `len`, which may be NULL.
///
/// Errors: BUFFER_TOO_SHORT.
///
/// Threads: one at a time for each reservation.
///
/// Pointers: `blocks` is NULL, or points to `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_reservation_blocks(
    reservation: Option<&Reservation>,
    blocks: *mut u32,
    blocks_room: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let own = given(reservation, "reservation")?.core.enter("reservation")?;
        // SAFETY: as the caller promised.
        let blocks = unsafe { buffer(blocks, blocks_room, own.len(), "blocks") }?;
        if blocks.is_none() && !own.is_empty() {
            return Err(Failure::Null("blocks"));
        }
        fill(blocks, own.blocks());
        len.map(|place| place.write(own.len()));
        Ok(())
    })
}

/// Moves the first `count` blocks into a new reservation: for a prompt that is inserted in chunks.
///
/// Errors: INVALID_ARGUMENT if it holds fewer.
///
/// Threads: one at a time for each reservation.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_split(
    reservation: Option<&Reservation>,
    count: usize,
    first: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    run(|| {
        let first = new_handle(first, "first")?;
        let reservation = given(reservation, "reservation")?;
        let mut own = reservation.core.enter("reservation")?;
        if count > own.len() {
            let accepted = "at most the number of blocks that the reservation holds";
            return Err(Failure::Invalid { argument: "count", accepted });
        }
        *first = Some(Box::new(Reservation::new(own.split(count), reservation.owner)));
        Ok(())
    })
}

/// Moves all blocks of `more` to the end of `reservation`: for a sequence that grows. Afterwards
/// `more` is empty and must still be freed.
///
/// Errors: INVALID_ARGUMENT if both are one reservation; OTHER_CACHE; OTHER_PAYER.
///
/// Threads: one at a time for each reservation.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_append(reservation: Option<&Reservation>, more: Option<&Reservation>) -> Status {
    run(|| {
        let (reservation, more) = (given(reservation, "reservation")?, given(more, "more")?);
        let (mut own, mut other) = both(reservation, more, "more")?;
        if !own.has_payer_of(&other) {
            return Err(Failure::OtherPayer);
        }
        let all = other.len();
        own.append(other.split(all));
        Ok(())
    })
}

type Two<'a> = crate::boundary::Entered<'a, radixkv::Reservation>;

/// Enters two reservations, which must be different and belong to one cache.
fn both<'a>(
    reservation: &'a Reservation,
    other: &'a Reservation,
    argument: &'static str,
) -> Result<(Two<'a>, Two<'a>), Failure> {
    if std::ptr::eq(reservation, other) {
        return Err(Failure::Invalid { argument, accepted: "another reservation" });
    }
    other.owner.check(reservation.owner, argument)?;
    Ok((reservation.core.enter("reservation")?, other.core.enter(argument)?))
}

/// Creates a second reservation of the same blocks, for a sequence that continues in several ways.
/// A block is returned when the last reservation that has it is freed. While several have it, none
/// may write to it or insert it (`radixkv_reservation_make_unique`).
///
/// Threads: one at a time for each reservation.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_fork(
    reservation: Option<&Reservation>,
    fork: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    run(|| {
        let fork = new_handle(fork, "fork")?;
        let reservation = given(reservation, "reservation")?;
        let second = reservation.core.enter("reservation")?.fork();
        *fork = Some(Box::new(Reservation::new(second, reservation.owner)));
        Ok(())
    })
}

/// Makes block `index` of a reservation its own, before the sequence writes to it. If a fork also
/// holds the block, the last block of `fresh` replaces it, and `copy` becomes a handle: copy block
/// `source` to block `destination`, then free the handle. Otherwise `copy` is NULL and nothing has
/// changed. `source` and `destination` may be NULL.
///
/// Errors: INVALID_ARGUMENT if there is no block `index`, if `fresh` is empty, or if a fork also
/// holds its last block; OTHER_CACHE.
///
/// Threads: one at a time for each reservation.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_reservation_make_unique(
    reservation: Option<&Reservation>,
    index: usize,
    fresh: Option<&Reservation>,
    source: Option<&mut MaybeUninit<u32>>,
    destination: Option<&mut MaybeUninit<u32>>,
    copy: Option<&mut MaybeUninit<Option<Box<Copy>>>>,
) -> Status {
    run(|| {
        let copy = new_handle(copy, "copy")?;
        let (reservation, fresh) = (given(reservation, "reservation")?, given(fresh, "fresh")?);
        let (mut own, mut fresh) = both(reservation, fresh, "fresh")?;
        if index >= own.len() {
            let accepted = "the index of a block of the reservation";
            return Err(Failure::Invalid { argument: "index", accepted });
        }
        if !own.is_shared(index) {
            return Ok(());
        }
        let last = fresh.len().checked_sub(1).filter(|&last| !fresh.is_shared(last));
        if last.is_none() {
            let accepted = "a reservation whose last block no fork holds";
            return Err(Failure::Invalid { argument: "fresh", accepted });
        }
        if let Some(pending) = own.make_unique(index, &mut fresh) {
            tell(source, pending.source());
            tell(destination, pending.destination());
            *copy = Some(Box::new(Copy { _source: pending }));
        }
        Ok(())
    })
}

/// Writes an optional result, unless its pointer is NULL.
fn tell<T>(place: Option<&mut MaybeUninit<T>>, value: T) {
    place.map(|place| place.write(value));
}

/// Frees a copy after it was made. NULL is allowed.
///
/// Threads: no other thread may use it from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_copy_free(copy: Option<Box<Copy>>) {
    free(copy);
}
