//! Inserting: publishes computed blocks, so that lookups find them.
//!
//! Called by sessions. It checks lease and reservation, moves the charge to the lease's namespace,
//! publishes the new blocks (`tree::insert`), and leaves the others in the reservation as
//! duplicates.

use std::fmt;

use super::blocks::reservation::Reservation;
use super::inner::Inner;
use super::leases::lease::Lease;
use super::namespaces::quota::OverQuota;
use super::numbers::counters::Count;
use super::session::Session;
use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::tree::Point;
use crate::tree::insert::{NewTokens, Published, insert as publish_run};
use crate::tree::path::append_blocks;

/// Number of tokens of the longest sequence that can be inserted: depths have 31 bits, and on
/// 32-bit machines the size of an allocation is the limit.
pub(crate) const MAX_TOKENS: usize = if usize::BITS > 32 { i32::MAX as usize } else { 1 << 27 };

/// The result of an insert.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// // Two requests with one prompt are computed at the same time.
/// let (miss, also) = (session.match_prefix(&space, &[1, 2]), session.match_prefix(&space, &[1, 2]));
/// let first = session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?;
/// let second = session.insert(also.lease(), &[1, 2], session.reserve(1)?)?;
/// assert_eq!(second.blocks, first.blocks); // what the second block table points to from now on
/// drop(second.duplicates); // the block that is not needed
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases the lease on what was inserted"]
pub struct Inserted {
    /// A lease on the whole cached sequence. It covers the prefix of the lease that the insert
    /// started from, which may be dropped.
    pub lease: Lease,
    /// The blocks that are cached for the tokens beyond the lease that the insert started from. If
    /// another insert was first, these are its blocks.
    pub blocks: Vec<BlockId>,
    /// The caller's blocks whose tokens were already cached; dropping this returns them.
    pub duplicates: Reservation,
    /// Number of tokens at the end that fill no whole block and were not stored; with bigrams, at
    /// least the last token.
    pub dropped_tokens: usize,
}

/// The error of an insert, with the reservation. It keeps the blocks as long as it lives: convert
/// it into its [`kind`](Self::kind), which is also an error, before you log it or pass it on.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
/// let refused = session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(1)?).unwrap_err();
/// eprintln!("{refused}"); // one block given, two needed
/// let mut blocks = refused.reservation;
/// blocks.append(session.reserve(1)?);
/// assert!(session.insert(miss.lease(), &[1, 2, 3, 4], blocks).is_ok());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct InsertError {
    /// The reservation that was passed to the insert.
    pub reservation: Reservation,
    /// The reason.
    pub kind: InsertErrorKind,
}

/// Why nothing was inserted.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// use radixkv::InsertErrorKind;
///
/// let miss = session.match_prefix(&space, &[1, 2]);
/// cache.clear();
/// let refused = session.insert(miss.lease(), &[1, 2], session.reserve(1)?).unwrap_err();
/// assert_eq!(refused.kind, InsertErrorKind::NamespaceDropped);
/// assert_eq!(refused.kind.to_string(), "the lease protects nothing: its namespace was removed or cleared, or had too many leases: match again");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertErrorKind {
    /// The reservation does not hold as many blocks as the sequence has whole blocks beyond the
    /// lease.
    BlockCount {
        /// Whole blocks beyond the lease.
        needed: usize,
        /// Blocks of the reservation.
        given: usize,
    },
    /// The sequence is longer than 2^31 - 1 tokens (2^27 on 32-bit machines).
    TooLong {
        /// Tokens of the sequence.
        tokens: usize,
    },
    /// Another namespace pays for the reservation, and the lease's namespace would have more blocks
    /// in leases and reservations than its quota allows; retry once some of its leases or
    /// reservations are dropped, or reserve blocks that it pays for
    /// ([`BlockRequest::paid_by`](super::BlockRequest::paid_by)).
    OverQuota {
        /// Blocks that it would have to pay for.
        requested: usize,
        /// Blocks that it has in leases and reservations now.
        pinned: usize,
        /// The most blocks that its quota allows.
        limit: usize,
    },
    /// A fork of the reservation also holds this block: [`make_unique`](Reservation::make_unique)
    /// first.
    SharedBlock {
        /// Its index in the reservation.
        index: usize,
    },
    /// The lease protects nothing: its namespace was removed or cleared since, or had too many
    /// leases. Match again.
    NamespaceDropped,
    /// Blocks of the lease were [invalidated](super::PrefixCache::invalidate_blocks): match again,
    /// and compute the missing tokens.
    Invalidated,
    /// Too many sequences branch off after the same token, or too many leases are held there: retry
    /// once some are released.
    TooManyBranches,
}

impl fmt::Display for InsertErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockCount { needed, given } => {
                write!(f, "{given} blocks given, but the sequence has {needed} whole blocks beyond the lease")
            }
            Self::TooLong { tokens } => {
                write!(f, "a sequence of {tokens} tokens exceeds the limit of {MAX_TOKENS}")
            }
            Self::OverQuota { requested, pinned, limit } => {
                write!(
                    f,
                    "namespace quota exceeded: {requested} more blocks requested, {pinned} of {limit} pinned: \
                     reserve blocks that the namespace of the lease pays for"
                )
            }
            Self::SharedBlock { index } => {
                write!(f, "a fork also holds block {index} of the reservation: make it unique first")
            }
            Self::NamespaceDropped => f.write_str(
                "the lease protects nothing: its namespace was removed or cleared, or had too many leases: match again",
            ),
            Self::Invalidated => f.write_str("blocks of the lease were invalidated: match again"),
            Self::TooManyBranches => f.write_str(
                "too many sequences branch off after the same token, or too many leases are held there: \
                 retry once some are released",
            ),
        }
    }
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for InsertError {}

impl std::error::Error for InsertErrorKind {}

/// Gives the blocks back and keeps the reason, to log an error or pass it on.
impl From<InsertError> for InsertErrorKind {
    fn from(refused: InsertError) -> Self {
        refused.kind
    }
}

impl Session {
    /// Publishes the sequence beyond `lease`. Returns a lease on all of it, and the blocks that are
    /// cached beyond `lease`. Blocks that are not needed stay in the reservation.
    fn publish(
        &self,
        lease: &Lease,
        tokens: &[Token],
        reservation: &mut Reservation,
    ) -> Result<(Lease, Vec<BlockId>), InsertErrorKind> {
        let inner = &**self.strong_refs.inner();
        let layout = lease.layout(inner);
        let participant = self.participant();
        let guard = participant.pin();
        let from = self.check_insert(lease, tokens, reservation, &guard)?;
        let aligned = layout.boundary(tokens.len()).max(from.end());
        let now = inner.time.now();
        let account = &from.run().space().account;
        let moved = match inner.move_charge(reservation, account) {
            Ok(moved) => moved,
            Err(OverQuota { requested, pinned, limit }) => {
                participant.count([(Count::OverQuotaRefusals, 1)]);
                return Err(InsertErrorKind::OverQuota { requested, pinned, limit });
            }
        };
        // Moved out of the reservation: a panic halfway then loses blocks, but does not free blocks
        // that the tree holds.
        let given = std::mem::take(&mut reservation.blocks);
        let (charged, limited) = (reservation.charge.blocks_of(account), account.cached_limit().is_some());
        let sequence = NewTokens { tokens: &tokens[..aligned], blocks: &given, layout, now, charged };
        let published = publish_run(from, sequence, self.context(), &guard);
        reservation.blocks = given;
        let Ok(published) = published else {
            reservation.undo(moved);
            // Leases that it took meanwhile were released as well.
            inner.charge_ended();
            return Err(InsertErrorKind::TooManyBranches);
        };
        let left = reservation.leave_to_tree(published.duplicates, charged > 0);
        if reservation.keep_for_duplicates(moved) {
            inner.charge_ended();
        }
        // Marked as counted: a resume from this lease moves its use instead of counting another.
        let mut new_lease = Lease::new(published.tip, aligned > 0, layout, self.strong_refs.take());
        new_lease.queried = true;
        let has_inserted = inner.mark_first_of(&left, from, &published, tokens, layout);
        let blocks = blocks_beyond(from, &published, left, layout, &guard);
        if !published.fresh && aligned > 0 {
            inner.hot.statistics(&published.tip).stamp(now);
        }
        inner.undo_demotions(published.tip.point, now, &guard);
        drop(guard);
        participant.count([(Count::Inserts, 1), (Count::DuplicateBlocks, reservation.blocks.len())]);
        if limited && has_inserted {
            inner.keep_to_quotas();
        }
        Ok((new_lease, blocks))
    }

    fn check_insert<'l>(
        &self,
        lease: &'l Lease,
        tokens: &[Token],
        reservation: &mut Reservation,
        guard: &Guard<'_>,
    ) -> Result<Ref<'l, Point>, InsertErrorKind> {
        self.check_sequence(lease, tokens);
        assert!(reservation.cache.is_of(self.strong_refs.inner()), "the reservation belongs to another cache");
        if tokens.len() > MAX_TOKENS {
            return Err(InsertErrorKind::TooLong { tokens: tokens.len() });
        }
        let layout = lease.layout(self.strong_refs.inner());
        let leased = layout.depth_of(lease.len_tokens());
        let (needed, given) = (layout.blocks(tokens.len()) - layout.blocks(leased), reservation.blocks.len());
        if needed != given {
            return Err(InsertErrorKind::BlockCount { needed, given });
        }
        if let Some(index) = reservation.first_shared() {
            return Err(InsertErrorKind::SharedBlock { index });
        }
        match lease.held() {
            None => Err(InsertErrorKind::NamespaceDropped),
            Some(held) if held.point.run().space().is_detached() => Err(InsertErrorKind::NamespaceDropped),
            Some(held) if held.point.is_invalidated(guard) => Err(InsertErrorKind::Invalidated),
            Some(held) => Ok(held.point),
        }
    }
}

#[inline(always)]
pub(super) fn insert(
    session: &Session,
    lease: &Lease,
    tokens: &[Token],
    mut reservation: Reservation,
) -> Result<Inserted, InsertError> {
    match session.publish(lease, tokens, &mut reservation) {
        Ok((lease, blocks)) => {
            let dropped_tokens = tokens.len() - lease.len_tokens();
            Ok(Inserted { lease, blocks, duplicates: reservation, dropped_tokens })
        }
        Err(kind) => Err(InsertError { reservation, kind }),
    }
}

impl Inner {
    /// Puts a mark for the first of `left`, the blocks that the tree took over beyond `from`, in
    /// the ghost table. Returns whether there is one.
    fn mark_first_of(
        &self,
        left: &[BlockId],
        from: Ref<'_, Point>,
        published: &Published<'_>,
        tokens: &[Token],
        layout: BlockLayout,
    ) -> bool {
        if !left.is_empty() {
            let (run, first) = (published.tip.point.run(), layout.blocks(from.end()) + published.duplicates);
            if layout.blocks(run.start()) == first {
                self.seen.mark_first(run);
            } else {
                self.seen.mark_last(run, &tokens[..layout.end_of(first + 1)], layout);
            }
        }
        !left.is_empty()
    }
}

/// The block ids from `from` to the published end. `left` are the blocks that the tree took over.
fn blocks_beyond(
    from: Ref<'_, Point>,
    published: &Published<'_>,
    left: Vec<BlockId>,
    layout: BlockLayout,
    guard: &Guard<'_>,
) -> Vec<BlockId> {
    if published.fresh && published.duplicates == 0 {
        // The path beyond `from` has exactly these blocks.
        return left;
    }
    let mut blocks = Vec::new();
    append_blocks(published.tip.point, layout.blocks(from.end()), layout, &mut blocks, guard);
    blocks
}

impl Reservation {
    /// Removes the blocks that the tree took over, those beyond the first `duplicates`, and ends
    /// their charge. `handed_over` if their run charges them until the evictor counts them.
    fn leave_to_tree(&mut self, duplicates: usize, handed_over: bool) -> Vec<BlockId> {
        let left = if duplicates == 0 { std::mem::take(&mut self.blocks) } else { self.blocks.split_off(duplicates) };
        self.charge.spend(left.len(), handed_over);
        left
    }
}
