//! The results and errors of the reference's operations.

use radixkv::InsertErrorKind;

use super::store::{BlockId, Place, TreeId};

/// Keeps a path cached until the lease is passed to [`super::Reference::release`].
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
/// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
/// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
/// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
/// let lease = cache.match_prefix(&[], &[1, 2, 3, 4]).lease;
/// assert_eq!(lease.len_tokens(), 4);
/// cache.release(lease); // dropping it would protect the path for good
/// # Ok::<_, radixkv::ReserveError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Lease {
    pub(super) tree: TreeId,
    pub(super) at: Place,
    pub(super) len_tokens: usize,
    /// Whether the lease's request has counted its use of this path.
    pub(super) touched: bool,
}

/// A prefix that can be leased again while it stays cached; see
/// [`Reference::downgrade`](super::Reference::downgrade).
#[derive(Debug, Clone, Copy)]
pub struct WeakLease {
    pub(super) tree: TreeId,
    pub(super) at: Place,
    pub(super) len_tokens: usize,
    /// The number of the insert that cached its last block.
    pub(super) piece: Option<u64>,
}

/// The result of a match or a resume.
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
/// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
/// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
/// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
/// let hit = cache.match_prefix(&[], &[1, 2, 9]);
/// assert_eq!((hit.lease.len_tokens(), hit.blocks.len()), (2, 1));
/// # cache.release(hit.lease);
/// # Ok::<_, radixkv::ReserveError>(())
/// ```
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub struct PrefixMatch {
    /// A lease on the whole path.
    pub lease: Lease,
    /// All blocks of the path, from the root.
    pub blocks: Vec<BlockId>,
}

/// Reserved blocks; pass them to [`super::Reference::insert`] or [`super::Reference::abort`].
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// let mut blocks = cache.reserve(3)?;
/// let first = blocks.split(1); // for the first chunk of a prompt
/// assert_eq!((first.blocks().len(), blocks.blocks().len()), (1, 2));
/// # Ok::<_, radixkv::ReserveError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    pub(super) blocks: Vec<BlockId>,
}

/// The result of an insert.
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
/// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
/// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
/// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
/// // Another request has also computed them.
/// let root = cache.match_prefix(&[], &[]);
/// let blocks = cache.reserve(2)?;
/// let again = cache.insert(&root.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
/// assert_eq!(again.duplicates.blocks().len(), 2);
/// # Ok::<_, radixkv::ReserveError>(())
/// ```
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub struct Inserted {
    /// A lease on the whole cached sequence.
    pub lease: Lease,
    /// The cached blocks from the end of the old lease to the end of the new one.
    pub blocks: Vec<BlockId>,
    /// The first blocks of the reservation, which were not needed: their tokens were already
    /// cached.
    pub duplicates: Reservation,
    /// Number of last tokens that fill no block and were not cached.
    pub dropped_tokens: usize,
}

/// A refused insert.
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// let miss = cache.match_prefix(&[], &[1, 2, 3, 4]);
/// let blocks = cache.reserve(1)?;
/// let refused = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).unwrap_err();
/// assert_eq!(refused.kind, radixkv::InsertErrorKind::BlockCount { needed: 2, given: 1 });
/// cache.abort(refused.reservation);
/// # Ok::<_, radixkv::ReserveError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct InsertError {
    /// The unchanged reservation.
    pub reservation: Reservation,
    /// The reason. If several apply, the first in this order: namespace dropped, wrong number of
    /// blocks, invalidated, over the quota.
    pub kind: InsertErrorKind,
}

/// The numbers of blocks by state.
///
/// # Examples
///
/// ```
/// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
/// let stats = cache.stats();
/// assert_eq!((stats.free_blocks, stats.reserved_blocks), (8, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Unused.
    pub free_blocks: usize,
    /// In reservations.
    pub reserved_blocks: usize,
    /// Cached, and not protected by a lease.
    pub evictable_blocks: usize,
    /// Cached, and protected by a lease.
    pub protected_blocks: usize,
}

impl Lease {
    /// Length of the leased path, in tokens.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }
}

impl Reservation {
    /// The reserved blocks.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Moves the first `n` blocks into a new reservation.
    ///
    /// # Panics
    ///
    /// If there are fewer than `n` blocks.
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        let blocks = std::mem::replace(&mut self.blocks, rest);
        Self { blocks }
    }
}
