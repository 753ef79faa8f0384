//! Leases, and the operations of a session on a leased prefix.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

use radixkv::Priority;

use crate::boundary::{Owner, buffer, fill, free, given, new_handle, output, run, slice};
use crate::failure::Failure;
use crate::session::Session;
use crate::status::Status;

/// Protects a prefix: until the lease is released, the blocks of its prefix are not evicted,
/// rewritten or handed out.
pub struct Lease {
    pub(crate) core: radixkv::Lease,
    pub(crate) owner: Owner,
}

impl Lease {
    /// Checks that it belongs to the session's cache, and that `tokens` is not shorter than its
    /// sequence.
    pub(crate) fn check(&self, session: Owner, tokens: &[u32]) -> Result<(), Failure> {
        self.owner.check(session, "lease")?;
        let bigrams = self.core.namespace().is_some_and(|name| name.keys() == radixkv::Keys::Bigrams);
        // A bigram key needs the next token also, so a lease on n keys comes from n + 1 tokens.
        let leased = self.core.len_tokens();
        let leased = leased + usize::from(bigrams && leased > 0);
        if tokens.len() < leased {
            return Err(Failure::SequenceTooShort { tokens: tokens.len(), leased });
        }
        Ok(())
    }
}

/// A block whose first tokens equal the next tokens of a sequence after its match. The block stays
/// in place until this handle is freed.
pub struct PartialHit {
    _source: radixkv::PartialHit,
}

/// Runs a session's operation on a lease that has no result.
fn on(
    session: Option<&Session>,
    lease: Option<&Lease>,
    verb: impl FnOnce(&radixkv::Session, &radixkv::Lease) -> Result<(), Failure>,
) -> Status {
    run(|| {
        let (session, lease) = (given(session, "session")?, given(lease, "lease")?);
        lease.owner.check(session.owner, "lease")?;
        verb(&*session.core.enter("session")?, &lease.core)
    })
}

/// Releases a lease. NULL is allowed.
///
/// Threads: no other thread may use this lease from now on. Never waits, unless a thread that waits
/// for blocks must be woken, or it is the last handle of its cache.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_lease_release(lease: Option<Box<Lease>>) {
    free(lease);
}

/// Creates a second lease on the same prefix.
///
/// Errors: TOO_MANY_LEASES.
///
/// Threads: any; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_lease_clone(
    lease: Option<&Lease>,
    clone: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
) -> Status {
    run(|| {
        let clone = new_handle(clone, "clone")?;
        let lease = given(lease, "lease")?;
        *clone = Some(Box::new(Lease { core: lease.core.try_clone()?, owner: lease.owner }));
        Ok(())
    })
}

/// Writes the number of tokens that a lease protects to `tokens`: those of whole blocks.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_lease_len_tokens(lease: Option<&Lease>, tokens: Option<&mut MaybeUninit<usize>>) -> Status {
    run(|| {
        let tokens = output(tokens, "tokens")?;
        tokens.write(given(lease, "lease")?.core.len_tokens());
        Ok(())
    })
}

/// Writes to `invalidated` whether blocks of a lease were invalidated. If so, its request must be
/// recomputed.
///
/// Threads: any; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_lease_is_invalidated(
    lease: Option<&Lease>,
    invalidated: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let invalidated = output(invalidated, "invalidated")?;
        invalidated.write(given(lease, "lease")?.core.is_invalidated());
        Ok(())
    })
}

/// Extends a lease to blocks that were cached beyond it since it was taken. The tokens are the
/// whole sequence; those that the lease covers are not compared. `blocks` is NULL, with room 0, or
/// has room for every whole block of the tokens; then the ids of the whole prefix are written to
/// it. `hit_tokens` may be NULL.
///
/// Errors (the lease is unchanged): BUFFER_TOO_SHORT, OTHER_CACHE, SEQUENCE_TOO_SHORT,
/// TOO_MANY_LEASES.
///
/// Threads: one at a time for each session, and no other thread may use the lease during the call.
/// Never waits.
///
/// Pointers: `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_resume(
    session: Option<&Session>,
    lease: Option<&mut Lease>,
    tokens: *const u32,
    tokens_len: usize,
    blocks: *mut u32,
    blocks_room: usize,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let (session, lease) = (given(session, "session")?, lease.ok_or(Failure::Null("lease"))?);
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice(tokens, tokens_len, "tokens") }?;
        // SAFETY: as the caller promised.
        let blocks = unsafe { buffer(blocks, blocks_room, tokens_len / session.block_size, "blocks") }?;
        lease.check(session.owner, tokens)?;
        let session = session.core.enter("session")?;
        // Takes the lease's place in the handle while `resume` owns the lease.
        let clone = lease.core.try_clone()?;
        let hit = session.resume(std::mem::replace(&mut lease.core, clone), tokens);
        hit_tokens.map(|place| place.write(hit.len_tokens()));
        fill(blocks, hit.blocks());
        lease.core = hit.into_lease();
        Ok(())
    })
}

/// Among the cached blocks just beyond `lease`, leases the one with the most first tokens in common
/// with `tokens`, the whole sequence. `hit` is NULL if no block has `min_tokens` of them; otherwise
/// copy the first `hit_tokens` tokens of the block `block` to your own block, and free the hit.
///
/// Errors: OTHER_CACHE, SEQUENCE_TOO_SHORT.
///
/// Threads: one at a time for each session; never waits.
///
/// Pointers: `tokens` is NULL, or points to `tokens_len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radixkv_session_match_partial(
    session: Option<&Session>,
    lease: Option<&Lease>,
    tokens: *const u32,
    tokens_len: usize,
    min_tokens: usize,
    block: Option<&mut MaybeUninit<u32>>,
    hit_tokens: Option<&mut MaybeUninit<usize>>,
    hit: Option<&mut MaybeUninit<Option<Box<PartialHit>>>>,
) -> Status {
    run(|| {
        let hit = new_handle(hit, "hit")?;
        let (session, lease) = (given(session, "session")?, given(lease, "lease")?);
        let (block, hit_tokens) = (output(block, "block")?, output(hit_tokens, "hit_tokens")?);
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice(tokens, tokens_len, "tokens") }?;
        lease.check(session.owner, tokens)?;
        if let Some(partial) = session.core.enter("session")?.match_partial(&lease.core, tokens, min_tokens) {
            block.write(partial.block());
            hit_tokens.write(partial.len_tokens());
            *hit = Some(Box::new(PartialHit { _source: partial }));
        }
        Ok(())
    })
}

/// Frees a partial hit. NULL is allowed.
///
/// Threads: no other thread may use it from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_partial_hit_free(hit: Option<Box<PartialHit>>) {
    free(hit);
}

/// Retains the prefix of a lease for `nanos` nanoseconds: it is not evicted, even if the lease is
/// released.
///
/// Errors: OTHER_CACHE, NAMESPACE_REMOVED, INVALIDATED, TOO_MANY_LEASES.
///
/// Threads: one at a time for each session; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_retain(session: Option<&Session>, lease: Option<&Lease>, nanos: u64) -> Status {
    on(session, lease, |session, lease| Ok(session.retain(lease, Duration::from_nanos(nanos))?))
}

/// Ends the retention of exactly the prefix of a lease.
///
/// Errors: OTHER_CACHE.
///
/// Threads: one at a time for each session; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_release_retained(session: Option<&Session>, lease: Option<&Lease>) -> Status {
    on(session, lease, |session, lease| {
        session.release_retained(lease);
        Ok(())
    })
}

/// Gives the prefix of a lease a priority that expires after `nanos` nanoseconds, or never if
/// `nanos` is 0. The default priority is 35. Only the policy "priority" uses it: the lowest is
/// evicted first.
///
/// Errors: OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_prioritize(
    session: Option<&Session>,
    lease: Option<&Lease>,
    level: i64,
    nanos: u64,
) -> Status {
    on(session, lease, |session, lease| {
        let priority = Priority::new(level);
        let expires = nanos > 0;
        let priority = if expires { priority.expiring_after(Duration::from_nanos(nanos)) } else { priority };
        session.prioritize(lease, priority);
        Ok(())
    })
}

/// Demotes the prefix of a lease: until it is used again it is evicted before all others, under
/// every policy.
///
/// Errors: OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_demote(session: Option<&Session>, lease: Option<&Lease>) -> Status {
    on(session, lease, |session, lease| {
        session.demote(lease);
        Ok(())
    })
}
