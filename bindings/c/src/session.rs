//! Sessions: a thread's access to a cache, and the operations of a request: match, reserve, insert.
#![allow(unsafe_code)]

use radixkv::{Acquired, BlockRequest, PrefixMatch, ReserveError};
use std::mem::MaybeUninit;
use std::ops::Deref;

use crate::boundary::{Exclusive, Owner, buffer, deadline, fill, free, given, new_handle, output, run, slice};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::lease::Lease;
use crate::namespace::Namespace;
use crate::reservation::Reservation;
use crate::status::Status;

/// One thread's access to a cache. A thread that serves many requests keeps one session. A session
/// may move between threads, but only one thread may use it at a time.
pub struct Session {
    pub(crate) core: Exclusive<Parts>,
    pub(crate) owner: Owner,
    pub(crate) block_size: usize,
}

/// The core's session and a buffer, which calls use one at a time.
pub(crate) struct Parts {
    core: radixkv::Session,
    /// The block ids of the last match, kept so that a match allocates no list.
    ids: Vec<u32>,
}

impl Parts {
    /// Copies the block ids of a match to `ids`, and returns its lease.
    fn keep(&mut self, hit: PrefixMatch) -> radixkv::Lease {
        self.ids.clear();
        self.ids.extend_from_slice(hit.blocks());
        hit.into_lease()
    }
}

impl Deref for Parts {
    type Target = radixkv::Session;

    fn deref(&self) -> &radixkv::Session {
        &self.core
    }
}

/// Creates a session.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_new(
    cache: Option<&Cache>,
    session: Option<&mut MaybeUninit<Option<Box<Session>>>>,
) -> Status {
    run(|| {
        let session = new_handle(session, "session")?;
        let cache = given(cache, "cache")?;
        let core = Exclusive::new(Parts { core: cache.core.session(), ids: Vec::new() });
        let (owner, block_size) = (cache.owner, cache.core.block_size());
        *session = Some(Box::new(Session { core, owner, block_size }));
        Ok(())
    })
}

/// Frees a session. NULL is allowed.
///
/// Threads: no other thread may use the session from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_free(session: Option<Box<Session>>) {
    free(session);
}

/// Leases the longest cached prefix of the tokens, in whole blocks, and counts as a use of it.
/// `blocks` is NULL, with room 0, or has room for all whole blocks of the tokens (`tokens_len /
/// block_size`). The block ids of the prefix are written to it; their number is `hit_tokens /
/// block_size`. `hit_tokens` may be NULL. A miss is a lease of no tokens.
///
/// Errors: BUFFER_TOO_SHORT, OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
///
/// Pointers: `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_match(
    session: Option<&Session>,
    space: Option<&Namespace>,
    tokens: *const u32,
    tokens_len: usize,
    blocks: *mut u32,
    blocks_room: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
    lease: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
) -> Status {
    // SAFETY: as the caller promised.
    let tokens = unsafe { slice(tokens, tokens_len, "tokens") };
    let lookup = Lookup { session, space, tokens, blocks: (blocks, blocks_room), hit_tokens, lease };
    run(|| lookup.only(|parts, space, tokens| parts.core.match_prefix_into(space, tokens, &mut parts.ids)))
}

/// Matches as `radixkv_session_match` does, without counting a use: to keep the cached prefix of a
/// waiting request without making it recently used. `radixkv_session_resume` counts the use when
/// the request runs.
///
/// Errors: BUFFER_TOO_SHORT, OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
///
/// Pointers: `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_match_untouched(
    session: Option<&Session>,
    space: Option<&Namespace>,
    tokens: *const u32,
    tokens_len: usize,
    blocks: *mut u32,
    blocks_room: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
    lease: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
) -> Status {
    // SAFETY: as the caller promised.
    let tokens = unsafe { slice(tokens, tokens_len, "tokens") };
    let lookup = Lookup { session, space, tokens, blocks: (blocks, blocks_room), hit_tokens, lease };
    run(|| {
        lookup.only(|parts, space, tokens| {
            let hit = parts.core.match_prefix_untouched(space, tokens);
            parts.keep(hit)
        })
    })
}

/// Writes the number of cached tokens, in whole blocks, to `hit_tokens`. Leases nothing and does
/// not count as a use: the prefix may be evicted at any moment.
///
/// Errors: OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
///
/// Pointers: `tokens` is NULL, or points to `tokens_len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_peek(
    session: Option<&Session>,
    space: Option<&Namespace>,
    tokens: *const u32,
    tokens_len: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let (session, space) = (given(session, "session")?, given(space, "space")?);
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice(tokens, tokens_len, "tokens") }?;
        let hit_tokens = output(hit_tokens, "hit_tokens")?;
        space.owner.check(session.owner, "space")?;
        hit_tokens.write(session.core.enter("session")?.peek(&space.core, tokens));
        Ok(())
    })
}

/// The arguments of the functions that match a sequence and lease its cached prefix.
struct Lookup<'a> {
    session: Option<&'a Session>,
    space: Option<&'a Namespace>,
    tokens: Result<&'a [u32], Failure>,
    blocks: (*mut u32, usize),
    hit_tokens: Option<&'a mut MaybeUninit<usize>>,
    lease: Option<&'a mut MaybeUninit<Option<Box<Lease>>>>,
}

impl Lookup<'_> {
    /// Checks all arguments, runs the lookup `verb`, and writes its results. Returns the second
    /// value of `verb`, and the cache that owns it.
    fn by<T>(
        self,
        verb: impl FnOnce(&mut Parts, &radixkv::Namespace, &[u32]) -> Result<(radixkv::Lease, T), ReserveError>,
    ) -> Result<(T, Owner), Failure> {
        let lease = new_handle(self.lease, "lease")?;
        let (session, space) = (given(self.session, "session")?, given(self.space, "space")?);
        let tokens = self.tokens?;
        let (blocks, room) = self.blocks;
        // SAFETY: as the caller promised to the exported function that created this value.
        let blocks = unsafe { buffer(blocks, room, tokens.len() / session.block_size, "blocks") }?;
        space.owner.check(session.owner, "space")?;
        let mut parts = session.core.enter("session")?;
        let (hit, taken) = verb(&mut parts, &space.core, tokens)?;
        self.hit_tokens.map(|place| place.write(hit.len_tokens()));
        fill(blocks, &parts.ids);
        *lease = Some(Box::new(Lease { core: hit, owner: session.owner }));
        Ok((taken, session.owner))
    }

    /// Runs a lookup that reserves nothing.
    fn only(self, verb: impl FnOnce(&mut Parts, &radixkv::Namespace, &[u32]) -> radixkv::Lease) -> Result<(), Failure> {
        self.by(|parts, space, tokens| Ok((verb(parts, space, tokens), ()))).map(|_| ())
    }

    /// Runs a lookup that also reserves blocks, and writes the reservation.
    fn acquire(
        mut self,
        reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
        verb: impl FnOnce(&radixkv::Session, &radixkv::Namespace, &[u32]) -> Result<Acquired, ReserveError>,
    ) -> Result<(), Failure> {
        // Both handles must be NULL if anything fails, even if the other one's pointer is NULL.
        if let Some(place) = self.lease.as_mut() {
            place.write(None);
        }
        let reservation = new_handle(reservation, "reservation")?;
        let (blocks, owner) = self.by(|parts, space, tokens| {
            let start = verb(&parts.core, space, tokens)?;
            Ok((parts.keep(start.hit), start.blocks))
        })?;
        *reservation = Some(Box::new(Reservation::new(blocks, owner)));
        Ok(())
    }
}

/// Matches as `radixkv_session_match` does, and reserves blocks for the rest of the tokens and for
/// `room_tokens` more; or takes nothing. The blocks count against the namespace's quota. An engine
/// that needs the logits of the last token passes the tokens before it, and one more in
/// `room_tokens`. Does not queue: it is served before waiting requests.
///
/// Errors: BUFFER_TOO_SHORT, OTHER_CACHE, EXHAUSTED, OVER_QUOTA, TOO_LARGE, EXTERNAL_POOL.
///
/// Threads: one at a time for each session; waits while another thread evicts, if blocks must be
/// evicted.
///
/// Pointers: `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_acquire(
    session: Option<&Session>,
    space: Option<&Namespace>,
    tokens: *const u32,
    tokens_len: usize,
    room_tokens: usize,
    blocks: *mut u32,
    blocks_room: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
    lease: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    // SAFETY: as the caller promised.
    let tokens = unsafe { slice(tokens, tokens_len, "tokens") };
    let lookup = Lookup { session, space, tokens, blocks: (blocks, blocks_room), hit_tokens, lease };
    run(|| lookup.acquire(reservation, |session, space, tokens| session.acquire(space, tokens, room_tokens)))
}

/// Acquires as `radixkv_session_acquire` does, and waits up to `timeout_nanos` nanoseconds while
/// leases and reservations hold too many blocks. Requests are served in order of arrival and hold
/// nothing while they wait. Do not wait for blocks that only this thread can release.
///
/// Errors: as `radixkv_session_acquire`, with TIMED_OUT instead of EXHAUSTED.
///
/// Threads: one at a time for each session; waits.
///
/// Pointers: as `radixkv_session_acquire`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_acquire_within(
    session: Option<&Session>,
    space: Option<&Namespace>,
    tokens: *const u32,
    tokens_len: usize,
    room_tokens: usize,
    timeout_nanos: u64,
    blocks: *mut u32,
    blocks_room: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
    lease: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    // SAFETY: as the caller promised.
    let tokens = unsafe { slice(tokens, tokens_len, "tokens") };
    let lookup = Lookup { session, space, tokens, blocks: (blocks, blocks_room), hit_tokens, lease };
    run(|| {
        lookup.acquire(reservation, |session, space, tokens| {
            session.acquire_until(space, tokens, room_tokens, deadline(timeout_nanos))
        })
    })
}

fn reserve(
    session: Option<&Session>,
    payer: Option<&Namespace>,
    request: BlockRequest<'_>,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Result<(), Failure> {
    let reservation = new_handle(reservation, "reservation")?;
    let session = given(session, "session")?;
    let mut request = request;
    if let Some(payer) = payer {
        payer.owner.check(session.owner, "payer")?;
        request = request.paid_by(&payer.core);
    }
    let blocks = session.core.enter("session")?.reserve(request)?;
    *reservation = Some(Box::new(Reservation::new(blocks, session.owner)));
    Ok(())
}

/// Reserves `blocks` blocks, or none. If too few are free, it evicts exactly the missing ones. The
/// blocks count against the quota of `payer`, the default namespace if it is NULL, until they are
/// inserted or returned. Does not queue: it is served before waiting requests.
///
/// Errors: OTHER_CACHE, EXHAUSTED, OVER_QUOTA, TOO_LARGE, EXTERNAL_POOL.
///
/// Threads: one at a time for each session; waits while another thread evicts, if blocks must be
/// evicted.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_reserve(
    session: Option<&Session>,
    payer: Option<&Namespace>,
    blocks: usize,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    run(|| reserve(session, payer, BlockRequest::new(blocks), reservation))
}

/// Reserves as `radixkv_session_reserve` does, and waits up to `timeout_nanos` nanoseconds while
/// leases and reservations hold too many blocks. Requests `for_running_sequence` are served before
/// those that admit a sequence, each kind in order of arrival. Do not wait for blocks that only
/// this thread can release.
///
/// Errors: as `radixkv_session_reserve`, with TIMED_OUT instead of EXHAUSTED.
///
/// Threads: one at a time for each session; waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_reserve_within(
    session: Option<&Session>,
    payer: Option<&Namespace>,
    blocks: usize,
    for_running_sequence: bool,
    timeout_nanos: u64,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> Status {
    run(|| {
        let mut request = BlockRequest::new(blocks).until(deadline(timeout_nanos));
        if for_running_sequence {
            request = request.for_running_sequence();
        }
        reserve(session, payer, request, reservation)
    })
}

/// Publishes the whole blocks of the tokens beyond `lease`. Their keys and values were computed
/// into the blocks of `reservation`, in the reservation's order. The tokens are the whole sequence;
/// those that the lease covers are not compared.
///
/// The reservation must hold exactly as many blocks as there are whole blocks beyond the lease
/// (`radixkv_reservation_split`). After success it holds the duplicates: those of its blocks whose
/// tokens another insert published first. Usually there are none. Free it or use it again.
///
/// `blocks` is NULL, with room 0, or has room for as many ids as the reservation has. The cached
/// ids for these blocks are written to it: the block table of the sequence should then contain
/// these ids. `inserted` becomes a lease on all cached blocks of the sequence; `lease` stays valid
/// and may be released. `dropped_tokens`, which may be NULL, is the number of tokens at the end
/// that fill no block.
///
/// Errors (the reservation is unchanged): BUFFER_TOO_SHORT, OTHER_CACHE,
/// SEQUENCE_TOO_SHORT, BLOCK_COUNT, SEQUENCE_TOO_LONG, OVER_QUOTA, SHARED_BLOCK, NAMESPACE_REMOVED,
/// INVALIDATED, TOO_MANY_BRANCHES.
///
/// Threads: one at a time for each session and each reservation; never waits. Writes of the thread
/// before the call are visible to a thread that matches the blocks.
///
/// Pointers: `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_insert(
    session: Option<&Session>,
    lease: Option<&Lease>,
    tokens: *const u32,
    tokens_len: usize,
    reservation: Option<&Reservation>,
    blocks: *mut u32,
    blocks_room: usize,
    dropped_tokens: Option<&mut MaybeUninit<usize>>,
    inserted: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
) -> Status {
    run(|| {
        let inserted = new_handle(inserted, "inserted")?;
        let (session, lease) = (given(session, "session")?, given(lease, "lease")?);
        let reservation = given(reservation, "reservation")?;
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice(tokens, tokens_len, "tokens") }?;
        lease.check(session.owner, tokens)?;
        reservation.owner.check(session.owner, "reservation")?;
        let mut own = reservation.core.enter("reservation")?;
        // SAFETY: as the caller promised.
        let blocks = unsafe { buffer(blocks, blocks_room, own.len(), "blocks") }?;
        let session_core = session.core.enter("session")?;
        let given = own.len();
        let given = own.split(given);
        match session_core.insert(&lease.core, tokens, given) {
            Ok(done) => {
                fill(blocks, &done.blocks);
                dropped_tokens.map(|place| place.write(done.dropped_tokens));
                *own = done.duplicates;
                *inserted = Some(Box::new(Lease { core: done.lease, owner: session.owner }));
                Ok(())
            }
            Err(refused) => {
                *own = refused.reservation;
                Err(refused.kind.into())
            }
        }
    })
}
