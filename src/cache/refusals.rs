//! What a verb refuses of a lease, or of blocks to copy into: for the forms of verbs that return it and do not panic.

use std::fmt;

use super::fork::PendingCopy;
use super::lease::{Lease, PrefixMatch};
use super::partial::PartialHit;
use super::reservation::Reservation;
use super::session::Session;
use crate::key::Token;

/// Why a verb does not go on from a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError {
    /// The lease is of another cache.
    ForeignLease,
    /// The tokens are to be the whole sequence, from its beginning.
    TokensTooShort {
        /// Tokens that the lease covers.
        leased: usize,
        /// Tokens given.
        given: usize,
    },
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignLease => f.write_str("the lease is of another cache"),
            Self::TokensTooShort { leased, given } => {
                write!(f, "{given} tokens given for a longer lease, of {leased}: give the whole sequence")
            }
        }
    }
}

impl std::error::Error for LeaseError {}

/// Why a lease was not resumed, and the lease back.
#[derive(Debug)]
#[non_exhaustive]
pub struct ResumeError {
    /// The lease.
    pub lease: Lease,
    /// The reason.
    pub kind: LeaseError,
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for ResumeError {}

/// Why a block was not made unique. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MakeUniqueError {
    /// The reservation has fewer blocks.
    NoSuchBlock {
        /// The block asked for.
        block: usize,
        /// Blocks that it has.
        len: usize,
    },
    /// The block to copy into is of another cache.
    ForeignReservation,
    /// The reservation to take a block from has none: reserve one.
    NothingToCopyInto,
    /// The block to copy into is shared itself.
    SharedDestination,
}

impl fmt::Display for MakeUniqueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchBlock { block, len } => write!(f, "block {block} of a reservation of {len}"),
            Self::ForeignReservation => f.write_str("the block to copy into is of another cache"),
            Self::NothingToCopyInto => f.write_str("no block to copy into: reserve one"),
            Self::SharedDestination => f.write_str("the block to copy into is shared"),
        }
    }
}

impl std::error::Error for MakeUniqueError {}

impl Session {
    /// Whether a verb goes on from the lease with these tokens.
    #[inline]
    pub(super) fn check_lease_of(&self, lease: &Lease, tokens: &[Token]) -> Result<(), LeaseError> {
        if !self.is_ours(lease.cache()) {
            return Err(LeaseError::ForeignLease);
        }
        let leased = lease.grid(self.inner()).depth_of(lease.len_tokens());
        let given = tokens.len();
        if given < leased { Err(LeaseError::TokensTooShort { leased, given }) } else { Ok(()) }
    }

    /// [`resume`](Self::resume) without its panics.
    ///
    /// # Errors
    ///
    /// [`ResumeError`] with the lease; nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{LeaseError, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(2, 8).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let start = session.acquire(&space, &[1, 2, 3, 4], 0)?;
    /// let lease = session.insert(start.hit.lease(), &[1, 2, 3, 4], start.blocks)?.lease;
    /// let refused = session.try_resume(lease, &[1, 2, 3]).unwrap_err();
    /// assert_eq!(refused.kind, LeaseError::TokensTooShort { leased: 4, given: 3 });
    /// assert_eq!(session.try_resume(refused.lease, &[1, 2, 3, 4, 5])?.len_tokens(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_resume(&self, lease: Lease, tokens: &[Token]) -> Result<PrefixMatch, ResumeError> {
        match self.check_lease_of(&lease, tokens) {
            Ok(()) => Ok(self.resume(lease, tokens)),
            Err(kind) => Err(ResumeError { lease, kind }),
        }
    }

    /// [`match_partial`](Self::match_partial) without its panics.
    ///
    /// # Errors
    ///
    /// [`LeaseError`].
    pub fn try_match_partial(
        &self,
        lease: &Lease,
        tokens: &[Token],
        min_tokens: usize,
    ) -> Result<Option<PartialHit>, LeaseError> {
        self.check_lease_of(lease, tokens)?;
        Ok(self.match_partial(lease, tokens, min_tokens))
    }
}

impl Reservation {
    /// [`make_unique`](Self::make_unique) without its panics.
    ///
    /// # Errors
    ///
    /// [`MakeUniqueError`]; nothing has changed. A block that is not shared needs no block to copy into.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{MakeUniqueError, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 4).build()?;
    /// let session = cache.session();
    /// let mut one = session.reserve(1)?;
    /// let (mut two, mut fresh) = (one.fork(), session.reserve(0)?);
    /// assert_eq!(two.try_make_unique(0, &mut fresh).unwrap_err(), MakeUniqueError::NothingToCopyInto);
    /// fresh.append(session.reserve(1)?);
    /// assert!(two.try_make_unique(0, &mut fresh)?.is_some());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_make_unique(&mut self, i: usize, fresh: &mut Self) -> Result<Option<PendingCopy>, MakeUniqueError> {
        if i >= self.len() {
            return Err(MakeUniqueError::NoSuchBlock { block: i, len: self.len() });
        }
        if !self.is_shared(i) {
            return Ok(None);
        }
        if !self.goes_with(fresh) {
            return Err(MakeUniqueError::ForeignReservation);
        }
        let Some(last) = fresh.len().checked_sub(1) else { return Err(MakeUniqueError::NothingToCopyInto) };
        if fresh.is_shared(last) {
            return Err(MakeUniqueError::SharedDestination);
        }
        Ok(self.replace_shared(i, last, fresh))
    }
}
