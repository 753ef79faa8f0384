//! The statistics of a region, and the reasons for misses.

use crate::sync::gauge::{AtomicU64, Relaxed};

/// Why a block was not found. None of them is an error: the caller computes the block, as it would
/// without a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// The region does not hold the block.
    #[error("the region does not hold the block")]
    Absent,
    /// A process is writing the block.
    #[error("the block is being written")]
    BeingWritten,
    /// A block of other tokens, another parent or another namespace has the same hash.
    #[error("another block has the same hash")]
    OtherTokens,
    /// The block has expired.
    #[error("the block has expired")]
    Expired,
    /// Another block overwrote it while it was copied.
    #[error("the block was overwritten while it was copied")]
    Overwritten,
    /// The block's record is damaged, or was written before the machine was started.
    #[error("the block's record is damaged, or was written before a restart")]
    Damaged,
    /// The block's bytes do not match its checksum.
    #[error("the block's bytes do not match its checksum")]
    WrongChecksum,
    /// The block was encrypted with another key, or its bytes were changed.
    #[error("the block was encrypted with another key, or its bytes were changed")]
    Undecryptable,
}

impl Miss {
    /// All reasons, in the order of [`Stats::misses`].
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::BeingWritten,
        Self::OtherTokens,
        Self::Expired,
        Self::Overwritten,
        Self::Damaged,
        Self::WrongChecksum,
        Self::Undecryptable,
    ];
}

/// Statistics of a region's content, and of the calls through one [`Region`](crate::Region).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that the region has room for.
    pub capacity: usize,
    /// Blocks that are readable, of all processes.
    pub blocks: usize,
    /// Bytes of these blocks.
    pub bytes: usize,
    /// Entries that processes have claimed but not yet published.
    pub in_flight: usize,
    /// Process slots in use. A process uses one for each `Region` that it has open.
    pub processes: usize,
    /// Blocks that were found.
    pub hits: u64,
    /// Blocks that were not found, by reason, in the order of [`Miss::ALL`].
    pub misses: [u64; Miss::ALL.len()],
    /// Blocks that were stored.
    pub stored: u64,
    /// Blocks that were evicted before they expired.
    pub evicted: u64,
    /// Blocks that were removed because they had expired.
    pub expired: u64,
    /// Entries that were recovered from killed processes.
    pub recovered: u64,
}

impl Stats {
    /// How many blocks were not found for this reason.
    pub fn missed(&self, reason: Miss) -> u64 {
        self.misses[reason as usize]
    }
}

/// The counters of one `Region`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: [AtomicU64; Miss::ALL.len()],
    pub(crate) stored: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) recovered: AtomicU64,
}

impl Counts {
    pub(crate) fn miss(&self, reason: Miss) {
        self.misses[reason as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.each_ref().map(|count| count.load(Relaxed)),
            stored: self.stored.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
            expired: self.expired.load(Relaxed),
            recovered: self.recovered.load(Relaxed),
            ..Stats::default()
        }
    }
}
